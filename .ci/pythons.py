"""The releases of Python that are here and that the project supports: on PATH, and those of pyenv.

python .ci/pythons.py       # one a line, oldest first: 3.11 and the path of its program
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

MINORS = (11, 12, 13, 14)


def candidates(minor: int) -> Iterator[str]:
    """Programs that may be this release."""
    if found := shutil.which(f"python3.{minor}"):
        yield found
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    yield from sorted(map(str, versions.glob(f"3.{minor}.*/bin/python")))


def is_release(program: str, minor: int) -> bool:
    """Whether this program works and is this release: a shim on PATH may stand for nothing."""
    code = f"import sys; raise SystemExit(sys.version_info[:2] != (3, {minor}))"
    return subprocess.run([program, "-c", code], capture_output=True, check=False).returncode == 0


def pythons() -> dict[str, str]:
    """The program of each release that is here."""
    found = {}
    for minor in MINORS:
        if program := next((one for one in candidates(minor) if is_release(one, minor)), None):
            found[f"3.{minor}"] = program
    return found


if __name__ == "__main__":
    for release, program in pythons().items():
        print(release, program)
