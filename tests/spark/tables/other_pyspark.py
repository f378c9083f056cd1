"""Interpreters with releases of PySpark for which jars of Delta Lake and Iceberg exist."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

PYSPARK = {"delta": "4.2.1", "iceberg": "4.1.4"}
_INSIDE = f"python{sys.version_info.major}.{sys.version_info.minor}"


def python_with(version: str, where: Path) -> Path:
    """An interpreter with another PySpark, and all else that this one has installed."""
    uv = os.environ.get("UV") or shutil.which("uv")
    assert uv is not None, "this test needs uv, which runs the tests"
    venv.create(where, with_pip=False)
    (where / "lib" / _INSIDE / "site-packages" / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = where / "bin" / "python"
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, f"pyspark=={version}"], check=True)
    return python


def spark_home(where: Path) -> Path:
    """The Spark of the interpreter at a place."""
    return where / "lib" / _INSIDE / "site-packages" / "pyspark"
