"""Runs our packages in Pyodide under node, as the page of the lab runs them in a browser."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from support import ROOT
from support.left_out import leave_out

RUNNER: Final = Path(__file__).with_name("run_seeds.mjs")


def builder() -> Any:
    """The module that builds the page; leaves the test out where the parts of the page cannot be fetched."""
    sys.path.insert(0, str(ROOT / "docs" / "site"))
    lab = import_module("lab")
    try:
        lab.parts()
    except lab.CannotFetch as failure:
        leave_out("lab", f"the parts of the lab are not here: {failure}")
    return lab


def in_pyodide(folder: Path, code: str) -> str:
    """What the code leaves in `told`; `folder` is where the runtime is, or is written first."""
    node = shutil.which("node")
    if node is None:
        leave_out("node", "node is not here")
    if not (folder / "packages.zip").exists():
        builder().runtime(folder)
    done = subprocess.run([node, str(RUNNER), str(folder), code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()
