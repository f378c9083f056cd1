"""Quorums of controllers in virtual time: snapshots, changes of voters, reports of faults."""

from __future__ import annotations

from random import Random
from typing import Any

from kraft.controller import QuorumController
from kraft.controller.server import ControllerServer
from kraft.process.hosting import host_controller
from kraft.quorum.effects import PeerFault
from kraft.quorum.values import Endpoints, ListenerAddress, QuorumConfig, ReplicaKey, VersionRange
from kraft.quorum.voters import Voter, VoterSet
from kraft.replica.interface.options import SnapshotOptions
from metadata_log.image.records import records as image_records
from metadata_log.log.log_dir import format_directory
from metadata_log.log.retention import Retention
from metadata_log.log.snapshot import list_snapshots
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import scan
from metadata_log.records.frame import decode_record, encode_record
from metadata_log.records.record import records
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch, Uuid
from support.kraft.replica_net import CLUSTER_ID, DIRECTORY, START_MS, Net, formatted_disk
from transport.protocol.errors import Error
from transport.protocol.messages import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UpdateRaftVoterResponse,
)
from transport.protocol.messages.add_raft_voter import Listener
from transport.protocol.messages.describe_quorum import (
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from transport.protocol.messages.fetch_snapshot import (
    FetchSnapshotResponse,
    FetchSnapshotResponsePartitionSnapshot,
)
from transport.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource


def controller_of(net: Net, node: int) -> QuorumController:
    hosted = net.processes[node].application
    assert isinstance(hosted, ControllerServer)
    return hosted.controller


def log_records(net: Net, node: int) -> list[tuple[int, Message]]:
    """Every data record in a node's log, with its offset."""
    found = []
    for batch in scan(net.log_of(node)):
        if not batch.is_control:
            for record in records(batch):
                message = decode_record(record.value or b"").record
                assert message is not None
                found.append((record.offset, message))
    return found


def alter(
    *changes: tuple[str, int, str | None], name: str = "subscription", kind: int = 16
) -> IncrementalAlterConfigsRequest:
    configs = [AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource])


def codes(response: Message) -> list[int]:
    assert isinstance(response, IncrementalAlterConfigsResponse)
    return [one.error_code for one in response.responses]


PARTITION = f"{DIRECTORY}/__cluster_metadata-0"
OFTEN = SnapshotOptions(max_bytes=1500, retention=Retention(max_bytes=-1, max_ms=-1))
SCARCE = SnapshotOptions(max_bytes=1500, retention=Retention(max_bytes=1000, max_ms=-1))
SMALL_PIECES = QuorumConfig(append_linger_ms=0, fetch_snapshot_max_bytes=700)


def quorum(snapshots: SnapshotOptions = OFTEN, **changes: Any) -> Net:
    net = Net(3, application=host_controller, snapshots=snapshots, quorum=SMALL_PIECES, **changes)
    net.elect()
    return net


def write(net: Net, count: int, *, first: int = 0) -> None:
    """That many configs, one after the other."""
    for number in range(first, first + count):
        net.ask(net.leader, alter(("interval.ms", 0, str(1000 + number)), name=f"s{number}"))


def snapshots(net: Net, node: int) -> tuple[OffsetAndEpoch, ...]:
    return list_snapshots(net.disks[node], PARTITION)


def image_values(net: Net, node: int) -> list[bytes]:
    image = controller_of(net, node).history.committed
    return [encode_record(record, version) for record, version in image_records(image)]


def are_equal(net: Net) -> bool:
    """Whether every node knows the same, up to the same offset."""
    ends = {node: controller_of(net, node).history.committed.end for node in net.processes}
    return len(set(ends.values())) == 1 and len({tuple(image_values(net, node)) for node in net.processes}) == 1


def replace_disk(net: Net, node: int) -> None:
    """The disk of a node is gone; it comes back with an empty one."""
    net.kill(node)
    net.disks[node] = formatted_disk(node)


def follower_of(net: Net) -> int:
    return next(node for node in net.processes if node != net.leader)


def pieces_seen(net: Net) -> list[FetchSnapshotResponsePartitionSnapshot]:
    """The pieces that nodes are sent from now on, as they were sent."""
    seen: list[FetchSnapshotResponsePartitionSnapshot] = []

    def note(node: int, answer: Message) -> Message:
        if isinstance(answer, FetchSnapshotResponse):
            seen.append(answer.topics[0].partitions[0])
        return answer

    net.on_the_way = note
    return seen


def others(net: Net, node: int) -> list[int]:
    return [other for other in net.processes if other != node]


def reports(net: Net, node: int) -> list[str]:
    """The reports of a node about strange behaviour of others."""
    return [effect.what for at, effect in net.traces if at == node and isinstance(effect, PeerFault)]


def goes_on(net: Net) -> None:
    """All nodes live, and commit."""
    net.elect()
    done = net.submit(net.leader, b"after")
    net.until(lambda: done in net.done)
    assert net.done[done].error == Error.NONE
    net.until(lambda: all(net.values_of(node)[-1:] == [b"after"] for node in net.processes))


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


def add(net: Net, node: int, **changes: Any) -> AddRaftVoterRequest:
    known: dict[str, Any] = {
        "cluster_id": CLUSTER_ID,
        "timeout_ms": 2000,
        "voter_id": node,
        "voter_directory_id": net.processes[node].replica.core.local.directory_id
        if node in net.processes
        else directory_id(9),
        "listeners": [Listener("CONTROLLER", f"n{node}", 9093)],
    }
    return AddRaftVoterRequest(**{**known, **changes})


def remove(node: int, directory: Uuid | None = None) -> RemoveRaftVoterRequest:
    return RemoveRaftVoterRequest(
        cluster_id=CLUSTER_ID, voter_id=node, voter_directory_id=directory_id(node) if directory is None else directory
    )


def error_of(net: Net, request: Message, node: int | None = None) -> Error:
    answer = net.ask(net.leader if node is None else node, request)
    assert isinstance(answer, AddRaftVoterResponse | RemoveRaftVoterResponse | UpdateRaftVoterResponse)
    return Error(answer.error_code)


def agree_on(net: Net, *ids: int) -> None:
    """Wait until every node has the same voters, and has committed them."""
    net.until(
        lambda: all(
            one.replica.core.voters.ids == ids
            and one.replica.core.log.high_watermark > (one.replica.core.history.voters_offset or 0)
            for one in net.processes.values()
        )
    )
    assert len({one.replica.core.voters for one in net.processes.values()}) == 1
