"""The tests that hold with each release of Apache Kafka, against the older ones: the full run has the newest one.

uv run poe interop          # as .ci/run does
uv run poe interop 3.9.2    # against these releases
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from metadata_log.releases import SUPPORTED_RELEASES
from support import ROOT


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
    sys.exit(run(sys.argv[1:] or SUPPORTED_RELEASES[:-1]))
