"""A follower with an uncommitted tail of a later epoch than the leader's snapshot takes that snapshot all the same.

(epoch, offset) is the order of votes. It says nothing of a tail that was never committed.
"""

from __future__ import annotations

import pytest

from kraft.process.hosting import host_controller
from kraft.quorum.effects import PeerFault
from kraft.quorum.log_view import LogView
from kraft.replica.interface.options import SnapshotOptions
from metadata_log.log.epochs import EpochHistory
from metadata_log.log.retention import Retention
from metadata_log.types import OffsetAndEpoch
from support.kraft.one_core import at
from support.kraft.replica_net import Net
from support.kraft.simulated_quorum import PARTITION, SMALL_PIECES, alter, are_equal, snapshots, write

RARE = SnapshotOptions(max_bytes=1500, max_interval_ms=0, retention=Retention(max_bytes=1000, max_ms=-1))


def view(end: int, *epochs: tuple[int, int], held: tuple[OffsetAndEpoch, ...] = (), committed: int = -1) -> LogView:
    """A log with epochs that begin at these offsets, and with its start at the first snapshot that it holds."""
    history = EpochHistory(tuple(at(offset, epoch) for epoch, offset in epochs))
    start = held[0].offset if held else 0
    log = LogView(start_offset=start, end_offset=end, epochs=history, snapshots=held)
    if committed > 0:
        log.commit(committed)
    return log


@pytest.mark.parametrize(
    ("log", "snapshot", "cut"),
    [
        pytest.param(view(0), at(100, 2), 0, id="nothing"),
        pytest.param(view(50, (2, 0)), at(100, 2), 50, id="a shorter log"),
        pytest.param(view(51, (2, 0), (3, 50)), at(100, 2), 50, id="a tail of a later epoch"),
        pytest.param(view(120, (2, 0), (3, 50)), at(100, 2), 50, id="a longer tail of a later epoch"),
        pytest.param(view(100, (2, 0), (3, 99)), at(100, 2), 99, id="as long, of a later epoch"),
        pytest.param(view(120, (1, 0)), at(80, 3), 120, id="a longer tail of an earlier epoch"),
        pytest.param(view(60, (3, 50), held=(at(50, 2),)), at(100, 2), 50, id="a log that is nothing but such a tail"),
        pytest.param(view(60, (2, 0), (3, 50), committed=50), at(100, 2), 50, id="committed up to the tail"),
        pytest.param(view(60, (2, 0), (3, 50), committed=51), at(100, 2), None, id="committed in a later epoch"),
        pytest.param(view(60, (3, 50), held=(at(50, 3),)), at(100, 2), None, id="a snapshot of a later epoch is held"),
        pytest.param(view(120, (2, 0)), at(100, 2), None, id="held already"),
        pytest.param(view(120, (2, 0), (3, 110)), at(100, 2), None, id="held already, below a later epoch"),
        pytest.param(view(120, (1, 0), (2, 90)), at(80, 2), None, id="an epoch that begins twice"),
        pytest.param(view(120, (1, 0), committed=100), at(100, 3), None, id="committed with another epoch"),
        pytest.param(view(50, held=(at(50, 5),)), at(50, 5), None, id="the one that the log begins with"),
        pytest.param(view(50, held=(at(50, 5),)), at(0, 0), None, id="the one of the bootstrap"),
    ],
)
def test_an_installed_snapshot_replaces_an_uncommitted_tail(
    log: LogView, snapshot: OffsetAndEpoch, cut: int | None
) -> None:
    assert log.cut_for(snapshot) == cut
    if cut is not None:
        if cut < log.end_offset:
            log.truncated(cut)
        assert snapshot > log.end, "a crash must leave what the next start knows to be a snapshot ahead of the log"
        log.reset_to(snapshot)
        assert (log.start_offset, log.end_offset, log.last_epoch) == (snapshot.offset, snapshot.offset, snapshot.epoch)


def stuck_net() -> tuple[Net, int]:
    """A quorum and the voter that is down: that voter wrote one record in epoch 3, and the others went on without it.

    The leader of epoch 4 has nothing but a snapshot of epoch 1 and what follows it.
    """
    net = Net(
        3,
        application=host_controller,
        snapshots=RARE,
        quorum=SMALL_PIECES,
        max_idle_interval_ms=0,
        segment_bytes=2000,
    )
    first = net.elect()
    write(net, 30)
    net.advance(2000)
    net.cut.add(first)
    for number in range(40):
        net.request(first, alter(("interval.ms", 0, str(5000 + number)), name=f"t{number}"))
    net.settle()
    rest = [node for node in net.processes if node != first]

    def led() -> int | None:
        for node in rest:
            core = net.processes[node].replica.core
            if core.is_leader and core.log.flushed_offset == core.log.end_offset:
                return node
        return None

    while (node := led()) is None:
        if not net.once():
            net.now_ms = min(one.deadline_ms() for one in net.processes.values())
    net.kill(node)
    net.queue.clear()
    net.cut.clear()
    core = net.processes[first].replica.core
    net.until(lambda: core.is_leader and core.log.high_watermark > core.epoch_start_offset, 60_000)
    net.advance(200_000)
    assert core.log.start_offset > 0
    assert snapshots(net, first)[-1].epoch < 3
    return net, node


def test_a_follower_with_a_tail_of_a_later_epoch_catches_up() -> None:
    net, node = stuck_net()
    net.start(node)
    assert net.processes[node].replica.log.last_epoch == 3
    net.traces.clear()
    net.until(lambda: are_equal(net))
    assert not [effect for at, effect in net.traces if at == node and isinstance(effect, PeerFault)]


class PowerFails(Exception):
    """The power of the node fails before this operation of its disk."""


@pytest.mark.parametrize("torn", [False, True])
def test_a_power_failure_during_the_replacement_leaves_a_usable_directory(torn: bool) -> None:
    net, node = stuck_net()
    before = net.disks[node]
    failures = 0
    has_failed = True
    while has_failed:
        disk = net.disks[node] = before.fork()
        operations = 0

        def count(operation: str, path: str, last: int = failures + 1) -> None:
            nonlocal operations
            operations += PARTITION in path
            if operations == last:
                raise PowerFails(operation, path)

        net.start(node)
        disk.on_operation = count
        try:
            net.until(lambda: are_equal(net))
            has_failed = False
        except PowerFails:
            failures += 1
        disk.on_operation = None
        net.kill(node, torn=net.rng if torn else None)
        net.start(node)
        net.until(lambda: are_equal(net))
        net.kill(node)
    assert failures > 10
