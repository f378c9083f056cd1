"""Our nodes as processes, right after their start: all register, and the first leader stays."""

from __future__ import annotations

from pathlib import Path

from support.interop.dumps import wait_for_registrations
from support.interop.our_nodes import our_controller, our_format
from support.interop.real_kafka import layout_in, running
from support.wire import leader_of


def test_controller_registrations_do_not_depose_the_leader(tmp_path: Path) -> None:
    """A registration is committed by the fetches of the nodes that wait for its answer: no fetch may be queued behind.

    (Answers leave a connection in the order of their requests, so each node asks over a connection of its own.)
    """
    layout = layout_in(tmp_path, extra=("controller.quorum.append.linger.ms=0",))
    our_format(layout)

    with running(layout, our_controller(layout), name="ours") as nodes:
        leader = leader_of(layout)
        wait_for_registrations(layout)
        assert leader_of(layout) == leader
        told = "".join(process.text for process in nodes.processes.values())
    assert told.count("to=Leader") == 1, told
    assert "fetch-timeout" not in told
