"""The slice of the tests with Apache Kafka, against the newest release, and against one of the others in turn.

    PYTHONPATH=tests python -m support.interop.interop_slice           # as .ci/run does
    PYTHONPATH=tests python -m support.interop.interop_slice 3.9.2     # against these releases

The tests are those that are marked `each_release`: what they expect holds for each. Whose turn it is follows from the
commit, so that nobody has to count.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from metadata_log.releases import SUPPORTED_RELEASES
from support import ROOT


def releases_of(commit: str) -> tuple[str, str]:
    """The newest release, and the one of the others whose turn it is at this commit."""
    *others, newest = SUPPORTED_RELEASES
    return newest, others[int(commit or "0", 16) % len(others)]


def commit() -> str:
    """The commit of this checkout; empty without one."""
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()


def run(releases: Sequence[str]) -> int:
    """Run the slice against each of these; returns the first exit code of pytest that is no success."""
    for release in releases:
        print(f"against Apache Kafka {release}", flush=True)
        command = [sys.executable, "-m", "pytest", "-n", "2", "-q", "-m", "each_release and not soak", "tests/interop"]
        code = subprocess.run(command, cwd=ROOT, env={**os.environ, "KAFKA_RELEASE": release}, check=False).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:] or releases_of(commit())))
