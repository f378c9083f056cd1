"""Makes reports with secrets (`--show-secrets`) readable by their owner only (decision record 0030)."""

from __future__ import annotations

import os
from pathlib import Path

from metadata_log.disk import DIRECTORY_MODE, FILE_MODE


def make_private(out: Path) -> None:
    """Create an empty file that only its owner may read; an existing file keeps its access rights."""
    os.close(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))


def make_private_directory(out: Path) -> None:
    """Create a directory that only its owner may read; an existing directory keeps its access rights."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
