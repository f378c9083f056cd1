"""Dynamic quorums (KIP-853), in memory: formatted by us, and begun by Apache Kafka."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

from test_replica_real_data import batches_of, controller, loaded_disk

from kraft.process.hosting import host_controller
from kraft.quorum.values import Endpoints, ListenerAddress, ReplicaKey, VersionRange
from kraft.quorum.voter_history import DYNAMIC
from kraft.quorum.voters import Voter, VoterSet
from metadata_log.log.log_dir import format_directory
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
