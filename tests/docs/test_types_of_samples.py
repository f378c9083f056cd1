"""The programs that pages and `examples` show have sound types, as mypy (strict) and pyright see them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support import ROOT
from support.documented_programs import HOWTO, PYTHON
from support.left_out import leave_out

PAGES = (
    "key-value-store.md",
    "work-queue-in-a-store.md",
    "embed-a-replicated-log.md",
    "your-own-state-machine.md",
    "test-your-own-state-machine.md",
    "adapters.md",
    "serve-a-store-over-http.md",
    "from-pysyncobj.md",
    "from-redis-locks.md",
)
"""The pages about programs that embed a node."""


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the programs, some of which import each other."""
    folder = tmp_path_factory.mktemp("samples")
    for page in PAGES:
        for found in PYTHON.finditer((HOWTO / page).read_text()):
            (folder / found["name"]).write_text(found["code"])
    for example in (ROOT / "examples").glob("*.py"):
        shutil.copy(example, folder)
    assert len(list(folder.iterdir())) > 10
    return folder


def checked(folder: Path, *command: str) -> tuple[int, str]:
    """Whether a program of Python fails, and what it says, in the folder of the samples."""
    environment = {**os.environ, "MYPYPATH": str(ROOT), "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", *command]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.soak
def test_mypy_finds_nothing_in_the_samples(samples: Path) -> None:
    settings = ("--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache"))
    code, said = checked(samples, "mypy", "--strict", *settings, *(path.name for path in samples.glob("*.py")))
    assert code == 0, said


@pytest.mark.soak
def test_pyright_finds_nothing_in_the_samples(samples: Path) -> None:
    code, said = checked(samples, "pyright", "--version")
    if code:
        leave_out("pyright", f"pyright does not run here: it fetches Node.js, or a package of it ({said[-200:]})")
    code, said = checked(samples, "pyright", "--pythonpath", sys.executable)
    assert code == 0, said
