"""Snapshots in a quorum of three: made, cleaned away, downloaded in pieces, damaged on the way, and through crashes."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec import structs

from kraft.process.hosting import host_controller
from kraft.quorum.effects import PeerFault
from metadata_log.image.record_values import decode_records
from metadata_log.log.snapshot import read_snapshot, snapshot_name
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.record import records
from metadata_log.serde import Message
from metadata_log.types import METADATA_TOPIC, OffsetAndEpoch
from support.kraft.replica_net import CLUSTER_ID, Net, formatted_disk
from support.kraft.simulated_quorum import (
    PARTITION,
    SCARCE,
    are_equal,
    controller_of,
    follower_of,
    image_values,
    pieces_seen,
    quorum,
    replace_disk,
    snapshots,
    write,
)
from transport.protocol.errors import Error
from transport.protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotRequestPartitionSnapshot,
    FetchSnapshotRequestSnapshotId,
    FetchSnapshotRequestTopicSnapshot,
    FetchSnapshotResponse,
    FetchSnapshotResponsePartitionSnapshot,
)


def values_of(disk: MemoryDisk, snapshot: OffsetAndEpoch) -> list[bytes]:
    """The record values in a snapshot file."""
    batches = read_snapshot(disk, f"{PARTITION}/{snapshot_name(snapshot)}")
    return [one.value or b"" for batch in batches if not batch.is_control for one in records(batch)]


# Made


def test_a_snapshot_holds_the_image_at_its_offset() -> None:
    net = quorum()
    write(net, 60)
    net.advance(100)
    newest = snapshots(net, net.leader)[-1]
    assert newest.offset < net.processes[net.leader].replica.core.log.end_offset
    leader = net.leader
    held = values_of(net.disks[leader], newest)
    write(net, 1, first=5000)
    net.kill(leader)
    replay = Net(1, application=host_controller, disks={1: formatted_disk(1)})
    controller = controller_of(replay, 1)
    controller.renounce()
    controller.load_snapshot(decode_records(held, "the snapshot"), newest)
    assert sorted(image_values(replay, 1)) == sorted(held)
    assert len(controller.history.committed.configs.by_resource) > 10


# Downloaded


def downloading() -> tuple[Net, int, list[FetchSnapshotResponsePartitionSnapshot]]:
    """An empty node has two pieces of a snapshot: the net, the node, and the pieces that it got."""
    net = quorum()
    write(net, 60)
    node = follower_of(net)
    replace_disk(net, node)
    seen = pieces_seen(net)
    net.start(node)
    while len(seen) < 2:
        assert net.once()
    return net, node, seen


def test_an_empty_node_takes_the_snapshot_in_pieces_and_then_the_log() -> None:
    net = quorum()
    write(net, 60)
    node = follower_of(net)
    replace_disk(net, node)
    write(net, 30, first=100)
    newest = snapshots(net, net.leader)[-1]
    net.start(node)
    net.until(lambda: are_equal(net))
    assert snapshots(net, node)[0] == newest
    assert net.processes[node].replica.core.log.start_offset == newest.offset
    assert values_of(net.disks[node], newest) == values_of(net.disks[net.leader], newest)
    assert not any(name.endswith(".part") for name in net.disks[node].list(PARTITION))
    net.kill(node)
    net.start(node)
    net.elect()
    assert net.processes[node].replica.core.log.start_offset == newest.offset


def test_a_node_behind_the_start_of_the_leaders_log_takes_the_snapshot() -> None:
    net = quorum(SCARCE, segment_bytes=2000, max_idle_interval_ms=0)
    write(net, 5)
    node = follower_of(net)
    net.kill(node)
    write(net, 60, first=10)
    net.advance(120_000)
    behind = net.disks[node].read(f"{PARTITION}/00000000000000000000.log")
    assert behind
    net.start(node)
    net.until(lambda: are_equal(net))
    assert net.processes[node].replica.core.log.start_offset > 0


def test_a_snapshot_download_restarts_after_a_leader_change() -> None:
    net, _, seen = downloading()
    old = net.leader
    net.kill(old)
    net.elect()
    net.start(old)
    net.until(lambda: are_equal(net))
    assert sum(one.position == 0 for one in seen) >= 2


def test_a_partial_download_is_discarded_when_the_leader_changes() -> None:
    """Found by the simulator: else it lies where this node's own snapshot of the same offset will be written."""
    net, node, _ = downloading()
    assert [name for name in net.disks[node].list(PARTITION) if name.endswith(".part")]
    net.kill(net.leader)
    while net.processes[node].replica.core.state_name == "Follower":
        if not net.once():
            net.now_ms = max(net.now_ms, min(one.deadline_ms() for one in net.processes.values()))
    assert not [name for name in net.disks[node].list(PARTITION) if name.endswith(".part")]


@pytest.mark.parametrize("way", ["flipped", "cut", "of another snapshot", "from elsewhere", "without a footer"])
def test_a_snapshot_damaged_in_transit_is_not_adopted(way: str) -> None:
    net = quorum()
    write(net, 60)
    node = follower_of(net)
    replace_disk(net, node)
    tampered: list[Any] = []

    def tamper(sender: int, answer: Message) -> Message:
        if not isinstance(answer, FetchSnapshotResponse):
            return answer
        part = answer.topics[0].partitions[0]
        data = part.unaligned_records or b""
        is_last = part.position + len(data) == part.size
        if tampered or (way == "without a footer") != is_last:
            return answer
        assert not any(name.endswith(".checkpoint") for name in net.disks[node].list(PARTITION))
        changes: dict[str, dict[str, Any]] = {
            "flipped": {"unaligned_records": data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]},
            "cut": {"unaligned_records": b""},
            "of another snapshot": {"snapshot_id": structs.replace(part.snapshot_id, end_offset=1)},
            "from elsewhere": {"position": part.position + 1},
            "without a footer": {"unaligned_records": data[:-1], "size": part.size - 1},
        }
        tampered.append(part)
        changed = structs.replace(part, **changes[way])
        return structs.replace(answer, topics=[structs.replace(answer.topics[0], partitions=[changed])])

    net.on_the_way = tamper
    net.start(node)
    net.until(lambda: bool(tampered))
    net.until(lambda: are_equal(net))
    assert any(at == node and isinstance(effect, PeerFault) for at, effect in net.traces)
    assert not any(name.endswith(".part") for name in net.disks[node].list(PARTITION))


class PowerFailure(Exception):
    """The node ends here."""


@pytest.mark.parametrize("torn", [None, 3])
def test_power_failures_within_a_download_and_its_installation(torn: int | None) -> None:
    """Before every disk operation in turn, until one download has none left to fail at."""
    failures = 0
    for survived in range(1, 200):
        net = quorum(max_idle_interval_ms=0)
        write(net, 40)
        node = follower_of(net)
        left = [survived]

        def count(operation: str, path: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise PowerFailure(operation, path)

        replace_disk(net, node)
        net.start(node)
        disk = net.disks[node]
        disk.on_operation = count
        try:
            net.until(lambda net=net: are_equal(net))
        except PowerFailure:
            failures += 1
        disk.on_operation = None
        if left[0] > 0:
            break
        net.kill(node, torn=None if torn is None else Random(torn))
        net.start(node)
        net.until(lambda net=net: are_equal(net))
        assert not any(name.endswith(".part") for name in disk.list(PARTITION))
    assert 10 < failures < 199


# Asked


def ask(net: Net, node: int, **changes: Any) -> FetchSnapshotResponsePartitionSnapshot:
    core = net.processes[node].replica.core
    newest = snapshots(net, node)[-1] if snapshots(net, node) else OffsetAndEpoch(epoch=1, offset=10)
    fields: dict[str, Any] = {
        "partition": 0,
        "current_leader_epoch": core.epoch,
        "snapshot_id": FetchSnapshotRequestSnapshotId(end_offset=newest.offset, epoch=newest.epoch),
        "position": 0,
    }
    part = FetchSnapshotRequestPartitionSnapshot(**{**fields, **changes})
    topic = FetchSnapshotRequestTopicSnapshot(name=METADATA_TOPIC, partitions=[part])
    asked = FetchSnapshotRequest(cluster_id=CLUSTER_ID, replica_id=9, max_bytes=100, topics=[topic])
    answer = net.ask(node, asked)
    assert isinstance(answer, FetchSnapshotResponse)
    return answer.topics[0].partitions[0]


def test_fetch_snapshot_returns_a_piece_or_kafkas_error() -> None:
    """Kafka cannot encode the errors of a partition, as it leaves the records null, and so answers nothing."""
    net = quorum()
    write(net, 60)
    leader = net.leader
    epoch = net.processes[leader].replica.core.epoch
    first = ask(net, leader)
    newest = snapshots(net, leader)[-1]
    content = net.disks[leader].read(f"{PARTITION}/{snapshot_name(newest)}")
    assert (first.error_code, first.size, first.position) == (Error.NONE, len(content), 0)
    assert first.unaligned_records == content[:100]
    assert ask(net, leader, position=len(content) - 5).unaligned_records == content[-5:]
    refusals: dict[Error, dict[str, Any]] = {
        Error.FENCED_LEADER_EPOCH: {"current_leader_epoch": epoch - 1},
        Error.UNKNOWN_LEADER_EPOCH: {"current_leader_epoch": epoch + 1},
        Error.SNAPSHOT_NOT_FOUND: {"snapshot_id": FetchSnapshotRequestSnapshotId(end_offset=3, epoch=1)},
        Error.POSITION_OUT_OF_RANGE: {"position": len(content)},
        Error.UNKNOWN_TOPIC_OR_PARTITION: {"partition": 1},
    }
    for error, changes in refusals.items():
        refused = ask(net, leader, **changes)
        assert (Error(refused.error_code), refused.unaligned_records) == (error, b"")
    assert Error(ask(net, leader, position=-1).error_code) is Error.POSITION_OUT_OF_RANGE
    bootstrap = FetchSnapshotRequestSnapshotId(end_offset=0, epoch=0)
    assert Error(ask(net, leader, snapshot_id=bootstrap).error_code) is Error.SNAPSHOT_NOT_FOUND
    standby = ask(net, follower_of(net))
    assert Error(standby.error_code) is Error.NOT_LEADER_OR_FOLLOWER
    assert standby.current_leader.leader_id == leader


def test_fetch_snapshot_of_another_cluster_or_partition_is_refused() -> None:
    net = quorum()
    foreign = net.ask(net.leader, FetchSnapshotRequest(cluster_id="another"))
    assert Error(foreign.error_code) is Error.INCONSISTENT_CLUSTER_ID
    empty = net.ask(net.leader, FetchSnapshotRequest(cluster_id=CLUSTER_ID))
    assert Error(empty.error_code) is Error.INVALID_REQUEST
