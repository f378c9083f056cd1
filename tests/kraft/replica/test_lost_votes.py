"""A directory that has lost a vote is refused: the node could vote a second time in the same epoch."""

from __future__ import annotations

import pytest

from crashing_replica import Node, crash_everywhere, granted, vote
from metadata_log.errors import DirectoryError
from metadata_log.log.quorum_state_file import StoredElection, write_quorum_state
from metadata_log.memory_disk import MemoryDisk
from support.kraft.replica_net import DIRECTORY, Net
from support.kraft.simulated_quorum import quorum, snapshots, write

PARTITION = f"{DIRECTORY}/__cluster_metadata-0"
QUORUM_STATE = f"{PARTITION}/quorum-state"


def files(disk: MemoryDisk) -> dict[str, bytes]:
    """All but the indexes of the last segment, which every start removes and every end writes."""
    return {path: disk.peek(path) for path in disk.files() if not path.endswith((".lock", ".index", ".timeindex"))}


def stopped() -> tuple[Net, int]:
    """A quorum in which a follower with records is down."""
    net = Net(3)
    leader = net.elect()
    net.submit(leader, b"value")
    net.advance(1000)
    follower = next(node for node in net.processes if node != leader)
    net.processes[follower].close()
    return net, follower


def test_a_log_without_quorum_state_is_refused() -> None:
    net, follower = stopped()
    disk = net.disks[follower]
    disk.lose_name(QUORUM_STATE)
    before = files(disk)
    with pytest.raises(DirectoryError, match="quorum-state is missing beside a log that ends at offset 2") as refused:
        net.start(follower)
    assert refused.value.where == QUORUM_STATE
    assert "damaged-disk.md" in (refused.value.hint or "")
    assert files(disk) == before


def test_a_quorum_state_of_an_earlier_epoch_than_the_log_is_refused() -> None:
    net, follower = stopped()
    write_quorum_state(net.disks[follower], PARTITION, StoredElection(leader_epoch=0))
    with pytest.raises(DirectoryError, match="quorum-state has epoch 0, and the log has epoch 1"):
        net.start(follower)


def test_a_quorum_state_of_an_earlier_epoch_than_a_snapshot_is_refused() -> None:
    """The log may begin, empty, where the snapshot ends."""
    net = quorum()
    write(net, 60)
    net.advance(2000)
    node = net.leader
    newest = snapshots(net, node)[-1]
    net.processes[node].replica.log.reset_to(newest.offset)
    net.kill(node)
    write_quorum_state(net.disks[node], PARTITION, StoredElection(leader_epoch=newest.epoch - 1))
    with pytest.raises(DirectoryError, match=f"the log has epoch {newest.epoch}"):
        net.start(node)


def test_a_new_directory_may_lack_quorum_state() -> None:
    """Nor has the directory of a node that was killed before its first record."""
    net = Net(1)
    net.kill(1)
    disk = net.disks[1]
    if disk.exists(QUORUM_STATE):
        disk.lose_name(QUORUM_STATE)
    net.start(1)
    assert net.elect() == 1


def test_quorum_state_is_never_older_than_the_log_after_a_power_failure() -> None:
    """An epoch is on the disk before a record of it, whatever the node was doing."""

    def act(node: Node) -> None:
        node.work()
        node.receive(1, vote(2, 5))
        node.now_ms += 60_000
        node.work()

    def prepare() -> Node:
        net = Net(1)
        net.kill(1)
        return Node(net.disks[1], voters=1)

    def check(before: Node, disk: MemoryDisk) -> None:
        again = Node(disk, voters=1)
        again.receive(9, vote(3, 5))
        assert not (granted(before.answers.get(1)) and granted(again.answers.get(9)))

    assert crash_everywhere(prepare, act, check) > 8
