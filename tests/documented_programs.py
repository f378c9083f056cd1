"""Programs that pages of the documentation show, and runs of such programs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
HOWTO = ROOT / "docs" / "howto"
PYTHON = re.compile(r"^```python\n# (?P<name>\S+\.py)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def program(page: str, name: str, folder: Path) -> Path:
    """Write a program of a page into a folder."""
    found = {match["name"]: match["code"] for match in PYTHON.finditer((HOWTO / page).read_text())}
    path = folder / name
    path.write_text(found[name])
    return path


def run_program(*arguments: str, folder: Path) -> str:
    """Run Python in a folder with this tree's packages; what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
