"""The tests, and how much of each package they run; arguments go to pytest, without any it is the default run.

    uv run poe coverage [tests/kraft ...]

Counting takes about as long as the tests. Processes that the tests start are not counted.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "out" / "coverage.json"
LEAST = 10
"""So many modules are named of which the tests run least."""


def lines(files: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The share of the statements of each package, then the modules of which least is run."""
    ran: Counter[str] = Counter()
    all_of: Counter[str] = Counter()
    for name, file in files.items():
        folders = name.split("/")[:-1]
        for package in {"all", folders[0], "/".join(folders[:2])}:
            ran[package] += file["summary"]["covered_lines"]
            all_of[package] += file["summary"]["num_statements"]
    found = [f"{100 * ran[name] / count:5.1f} %  {name}" for name, count in sorted(all_of.items()) if count]
    least = sorted(files, key=lambda name: files[name]["summary"]["percent_covered"])[:LEAST]
    named = [f"{files[name]['summary']['percent_covered']:5.1f} %  {name}" for name in least]
    return [*found, "of these modules they run least:", *named]


def main() -> int:
    """Run the tests with the arguments, print the shares, and end as the tests do."""
    REPORT.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "pytest", "--cov", f"--cov-report=json:{REPORT}", *sys.argv[1:]]
    done = subprocess.run(command, cwd=ROOT, check=False)
    if REPORT.exists():
        print("statements that these tests run:", *lines(json.loads(REPORT.read_text())["files"]), sep="\n")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
