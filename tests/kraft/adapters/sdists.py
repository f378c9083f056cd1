"""Source distributions of other projects, for their tests: fetched for a run, by pip, from the package registry."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path


def fetch_sdist(name: str, folder: Path) -> Path:
    """The unpacked source distribution of a package, in the version that is installed."""
    wanted = f"{name}=={version(name)}"
    asked = ["download", "-q", "--no-deps", "--no-binary", name, "-d", str(folder), wanted]
    subprocess.run([*_pip(), *asked], check=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    (unpacked,) = (one for one in folder.iterdir() if one.is_dir())
    return unpacked


def _pip() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    uv = shutil.which("uv")
    return [uv, "tool", "run", "pip"] if uv is not None else [sys.executable, "-m", "uv", "tool", "run", "pip"]
