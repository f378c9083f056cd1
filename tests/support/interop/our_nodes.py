"""Our own nodes and commands as processes, beside Apache Kafka's."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

from kraft.cli.main import main
from support.interop.real_kafka import QuorumLayout
from support.kafka_jars import KAFKA_VERSION

COMMAND_SECONDS = 60
KRAFT = (sys.executable, "-m", "kraft")
"""The command line of this version of `kraft`, without arguments."""


def kraft(*args: str) -> subprocess.CompletedProcess[str]:
    """Run a command of ours to its end, whatever its exit code."""
    command = [*KRAFT, *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)


def kraft_here(*args: str) -> subprocess.CompletedProcess[str]:
    """Run a command of ours to its end without the half second of CPU that a process of its own takes to start."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(args)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
            return subprocess.CompletedProcess(args, code, out.getvalue(), err.getvalue())


def told(*args: str) -> str:
    """The output of a command of ours; fails if its exit code is not 0. Directories are formatted in this process.

    They are for the release of Kafka that most tests run beside ours, unless a release is named.
    """
    if args[0] == "format" and "--release-version" not in args:
        args = (*args, "--release-version", KAFKA_VERSION)
    done = kraft_here(*args) if args[0] == "format" else kraft(*args)
    assert done.returncode == 0, f"kraft {' '.join(args)} ended with {done.returncode}:\n{done.stderr}\n{done.stdout}"
    return done.stdout


def told_json_lines(*args: str) -> list[dict[str, Any]]:
    """The objects that a command of ours prints, one a line."""
    return [json.loads(line) for line in told(*args).splitlines()]


def our_controller(layout: QuorumLayout, kraft: Sequence[str] = KRAFT) -> Callable[[int], list[str]]:
    """The command lines of our controllers on a layout; `kraft` is another version's command."""
    return lambda node: [*kraft, "serve", "-c", str(layout.properties(node))]


def our_format(layout: QuorumLayout, *nodes: int, release: str | None = None) -> None:
    """Format the directories of nodes, or of all, with `kraft format`, for a metadata.version or for that of Kafka."""
    more = () if release is None else ("--release-version", release)
    for node in nodes or tuple(layout.ports):
        told("format", "-c", str(layout.properties(node)), "--cluster-id", layout.cluster_id, *more)
