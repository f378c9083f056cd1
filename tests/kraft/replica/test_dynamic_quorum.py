"""Dynamic quorums (KIP-853), in memory: formatted by us, and begun by Apache Kafka."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

from test_replica_real_data import PARTITION, batches_of, controller, loaded_disk

from kraft.process.hosting import host_controller
from kraft.quorum.values import Endpoints, ListenerAddress, ReplicaKey, VersionRange
from kraft.quorum.voter_history import DYNAMIC
from kraft.quorum.voters import Voter, VoterSet
from kraft.replica.interface.options import SnapshotOptions
from metadata_log.log.log_dir import format_directory
from metadata_log.log.quorum_state_file import read_quorum_state
from metadata_log.log.retention import Retention
from metadata_log.log.snapshot import list_snapshots, read_snapshot_start, snapshot_name
from metadata_log.memory_disk import MemoryDisk
from metadata_log.types import Uuid
from support.kraft.replica_net import CLUSTER_ID, DIRECTORY, START_MS, Net
from transport.protocol.errors import Error
from transport.protocol.messages import DescribeQuorumRequest, DescribeQuorumResponse
from transport.protocol.messages.describe_quorum import (
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)

NO_VOTERS = VoterSet(())


def directory_id(node: int) -> Uuid:
    return Uuid(bytes(15) + bytes([100 + node]))


def voter(node: int) -> Voter:
    address = ListenerAddress("CONTROLLER", f"n{node}", 9093)
    return Voter(ReplicaKey(node, directory_id(node)), Endpoints((address,)), VersionRange(0, 1))


def dynamic_disk(node: int, voters: VoterSet | None, seed: int = 1) -> MemoryDisk:
    """Formatted with --initial-controllers, or with --no-initial-controllers; another seed makes another directory."""
    disk = MemoryDisk()
    format_directory(
        disk,
        DIRECTORY,
        node_id=node,
        cluster_id=CLUSTER_ID,
        rng=Random(100 * seed + node),
        now_ms=START_MS,
        dynamic=True,
        initial_voters=None if voters is None else voters.to_record(),
    )
    return disk


def dynamic_net(voting: int = 3, joining: int = 0, **changes: Any) -> Net:
    """Voters from 1 on, then nodes that were formatted to join."""
    initial = VoterSet.of(map(voter, range(1, voting + 1)))
    disks = {node: dynamic_disk(node, initial if node <= voting else None) for node in range(1, voting + joining + 1)}
    bootstrap = tuple(ListenerAddress("CONTROLLER", f"n{node}", 9093) for node in range(1, voting + 1))
    return Net(voting, disks=disks, voters=NO_VOTERS, bootstrap=bootstrap, **changes)


def describe(net: Net) -> DescribeQuorumResponse:
    topic = DescribeQuorumRequestTopicData("__cluster_metadata", [DescribeQuorumRequestPartitionData(0)])
    answer = net.ask(net.leader, DescribeQuorumRequest(topics=[topic]))
    assert isinstance(answer, DescribeQuorumResponse)
    assert answer.error_code == Error.NONE
    return answer


def test_three_formatted_nodes_elect_commit_and_fail_over() -> None:
    net = dynamic_net()
    first = net.elect()
    net.submit(first, b"one")
    net.advance(600)
    net.kill(first)
    second = net.elect()
    assert second != first
    net.submit(second, b"two")
    net.start(first)
    net.advance(3000)
    logs = {net.log_of(node) for node in net.processes}
    assert len(logs) == 1
    assert net.values_of(first)[-1] == b"two"
    for node, replica in net.processes.items():
        assert replica.replica.core.history.kraft_version == DYNAMIC
        assert replica.replica.core.voters == VoterSet.of(map(voter, (1, 2, 3))), node


def test_only_the_first_leader_records_the_formatted_voters() -> None:
    net = dynamic_net()
    first = net.elect()
    assert net.processes[first].replica.core.history.voters_offset == 2
    net.kill(first)
    second = net.elect()
    assert net.processes[second].replica.core.history.voters_offset == 2


def test_quorum_state_names_the_directory_that_got_the_vote() -> None:
    net = dynamic_net()
    leader = net.elect()
    stored = [read_quorum_state(net.disks[node], PARTITION) for node in net.processes if node != leader]
    assert {one.data_version for one in stored if one} == {1}
    assert (leader, directory_id(leader)) in {(one.voted_id, one.voted_directory_id) for one in stored if one}


def test_describe_quorum_names_the_directories() -> None:
    net = dynamic_net()
    net.elect()
    answer = describe(net)
    voters = [(one.replica_id, one.replica_directory_id) for one in answer.topics[0].partitions[0].current_voters]
    assert voters == [(node, directory_id(node)) for node in (1, 2, 3)]
    assert [(node.node_id, node.listeners[0].host) for node in answer.nodes] == [(1, "n1"), (2, "n2"), (3, "n3")]


def test_a_voter_with_a_wiped_disk_is_an_observer_and_never_campaigns() -> None:
    """The node has a voter's id and another directory: its votes are forgotten, so it must not vote (KIP-853)."""
    net = dynamic_net()
    leader = net.elect()
    lost = next(node for node in net.processes if node != leader)
    net.kill(lost)
    net.disks[lost] = dynamic_disk(lost, None)
    net.start(lost)
    net.advance(3000)
    core = net.processes[lost].replica.core
    assert not core.is_voter
    assert core.log.end_offset == net.processes[leader].replica.core.log.end_offset
    observers = describe(net).topics[0].partitions[0].observers
    assert [(one.replica_id, one.replica_directory_id) for one in observers] == [(lost, core.local.directory_id)]
    net.kill(leader)
    net.advance(20_000)
    assert net.processes[lost].replica.core.state_name in ("Unattached", "Follower")
    assert not any(replica.replica.core.is_leader for replica in net.processes.values())


def test_a_joining_node_discovers_the_leader_by_bootstrap_servers() -> None:
    net = dynamic_net(joining=1)
    leader = net.elect()
    net.advance(1000)
    joined = net.processes[4].replica.core
    assert (joined.leader.leader_id, joined.is_voter) == (leader, False)
    assert joined.voters == net.processes[leader].replica.core.voters
    assert net.log_of(4) == net.log_of(leader)


@cache
def dynamic3() -> dict[int, MemoryDisk]:
    return {node: loaded_disk("clusters", f"dynamic3/nodes/c{node}") for node in (1, 2, 3, 4)}


def real_dynamic_net(**changes: Any) -> Net:
    disks = {node: disk.fork() for node, disk in dynamic3().items()}
    return Net(4, application=host_controller, disks=disks, cluster_id=None, voters=NO_VOTERS, **changes)


def test_logs_of_kafkas_dynamic_quorum_continue_under_our_nodes() -> None:
    """Nothing that was committed is lost, and the new leader writes down where it listens now."""
    before = {node: batches_of(disk) for node, disk in dynamic3().items()}
    net = real_dynamic_net()
    assert {replica.replica.core.history.kraft_version for replica in net.processes.values()} == {DYNAMIC}
    voting = net.processes[1].replica.core.voters
    leader = net.elect()
    assert leader in voting.ids
    net.until(lambda: controller(net, leader).controller.is_active)
    core = net.processes[leader].replica.core
    own = core.voters.find(leader)
    assert own is not None
    assert own.endpoints.listeners[0].host == f"n{leader}"
    assert core.voters.keys == voting.keys
    net.advance(1500)
    for node, replica in net.processes.items():
        assert replica.replica.core.voters == core.voters, node
        assert replica.replica.core.is_voter == (node in voting.ids), node
    held = {
        offset: data
        for batches in before.values()
        for offset, data in batches.items()
        if sum(other.get(offset) == data for other in before.values()) >= voting.majority
    }
    start = core.log.start_offset
    assert {at: data for at, data in held.items() if at >= start}.items() <= batches_of(net.disks[leader]).items()


def test_snapshots_carry_the_voters_to_the_nodes_that_load_them() -> None:
    options = SnapshotOptions(max_bytes=2000, retention=Retention(max_bytes=1))
    net = dynamic_net(joining=1, application=host_controller, snapshots=options)
    net.kill(4)
    leader = net.elect()
    net.until(lambda: net.processes[leader].replica.core.log.start_offset > 0, 200_000)
    snapshot = list_snapshots(net.disks[leader], PARTITION)[-1]
    start = read_snapshot_start(net.disks[leader], f"{PARTITION}/{snapshot_name(snapshot)}")
    assert start.kraft_version == DYNAMIC
    assert start.voters == net.processes[leader].replica.core.voters.to_record()
    net.start(4)
    net.until(lambda: net.processes[4].replica.core.log.start_offset > 0)
    assert net.processes[4].replica.core.voters == net.processes[leader].replica.core.voters
    net.kill(4)
    net.start(4)
    assert net.processes[4].replica.core.voters == net.processes[leader].replica.core.voters
