"""A node with a full disk ends with one clear line; after a start with more room all acknowledged records are there."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from support.interop.our_nodes import our_controller, our_format, told
from support.interop.real_kafka import CLUSTER_ID, QuorumLayout, running
from support.loopback import free_ports
from support.wire import leader_of, set_client_metrics
from transport.protocol.errors import Error

FAILED = 1
BLOCKS = 40
"""Of 512 bytes: the largest file that the system lets the node write, which stands for the full disk."""


def test_a_node_with_a_full_disk_stops_with_an_error_and_loses_no_record(tmp_path: Path) -> None:
    layout = QuorumLayout(tmp_path, CLUSTER_ID, {1: free_ports(1)[0]})
    our_format(layout)
    serve = our_controller(layout)
    acknowledged = 0
    with running(layout, lambda node: small_files(serve(node)), name="small") as nodes:
        leader_of(layout)
        with suppress(OSError, AssertionError):
            while set_client_metrics(layout.ports[1], f"s{acknowledged}", metrics="x" * 100) is Error.NONE:
                acknowledged += 1
        assert nodes.processes[1].wait() == FAILED
        log = layout.partition(1) / "00000000000000000000.log"
        assert f"kraft: error: {os.strerror(errno.EFBIG)} ({log})" in nodes.processes[1].text
    assert acknowledged > 10
    with running(layout, serve, name="again") as nodes:
        leader_of(layout)
        found = told("dump", "--records", str(log))
    assert all(f"s{number}" in found for number in range(acknowledged))


def small_files(command: list[str]) -> list[str]:
    """The command with a limit on the size of files."""
    return ["sh", "-c", f'ulimit -f {BLOCKS}; exec "$@"', "sh", *command]
