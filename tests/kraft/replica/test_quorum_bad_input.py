"""What strangers and peers send that is not allowed, and forged answers that were once believed."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest
from msgspec import structs

from kraft.process.hosting import host_controller
from kraft.quorum.effects import PeerFault, SendRequest
from kraft.quorum.events import Replied, Tick
from kraft.quorum.messages import Vote, VoteReply
from kraft.quorum.voters import VoterSet
from kraft.replica.storage.snapshots import SnapshotFiles
from metadata_log.errors import CorruptBatch, DirectoryError
from metadata_log.log.snapshot import snapshot_name
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch_builder import build_control_batch
from metadata_log.records.frame import encode_control
from metadata_log.serde import Message
from metadata_log.types import METADATA_TOPIC, OffsetAndEpoch, Uuid
from support.kraft.command_line import CLUSTER_ID as FORMATTED_CLUSTER_ID
from support.kraft.one_core import OneCore
from support.kraft.replica_net import CLUSTER_ID, DIRECTORY, START_MS, Net, formatted_disk
from support.kraft.simulated_quorum import (
    OFTEN,
    PARTITION,
    SCARCE,
    alter,
    are_equal,
    controller_of,
    directory_id,
    dynamic_net,
    follower_of,
    goes_on,
    others,
    quorum,
    replace_disk,
    reports,
    snapshots,
    voter,
    write,
)
from transport.protocol.errors import Error
from transport.protocol.messages import BeginQuorumEpochRequest, FetchResponse, VoteRequest, VoteResponse
from transport.protocol.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequestPartitionData,
    BeginQuorumEpochRequestTopicData,
    LeaderEndpoint,
)
from transport.protocol.messages.vote import VoteRequestPartitionData, VoteRequestTopicData


def asked_for(voter_id: int, directory: Uuid, epoch: int) -> VoteRequest:
    """A vote request for this voter, of a candidate that has everything."""
    partition = VoteRequestPartitionData(
        replica_epoch=epoch,
        replica_id=2,
        voter_directory_id=directory,
        last_offset_epoch=epoch - 1,
        last_offset=10**6,
    )
    topic = VoteRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return VoteRequest(cluster_id=CLUSTER_ID, voter_id=voter_id, topics=[topic])


def vote_error(net: Net, node: int, voter_id: int, directory: Uuid) -> Error:
    answer = net.ask(node, asked_for(voter_id, directory, net.processes[node].replica.core.epoch + 1))
    assert isinstance(answer, VoteResponse)
    assert not answer.topics[0].partitions[0].vote_granted
    return Error(answer.topics[0].partitions[0].error_code)


def stops(net: Net, node: int, what: Callable[[], object], failure: type[Exception]) -> Exception:
    """The error that ended a node; the node's memory is lost then."""
    with pytest.raises(failure) as ended:
        what()
    net.kill(node)
    return ended.value


# Nodes and directories of another cluster


def test_a_node_of_another_cluster_is_refused_and_reported() -> None:
    """The member is at the address of a voter: each node that asks it, or that it asks, reports the member."""
    net = Net(3)
    leader = net.elect()
    stranger = others(net, leader)[0]
    net.kill(stranger)
    net.disks[stranger] = formatted_disk(stranger, cluster_id=FORMATTED_CLUSTER_ID)
    net.changes["cluster_id"] = None
    net.start(stranger)
    net.submit(leader, b"secret")
    net.advance(10_000)
    assert net.leader == leader
    assert net.processes[stranger].replica.core.log.end_offset == 0
    assert net.values_of(leader)[-1:] == [b"secret"]
    for node in (leader, stranger):
        assert any("INCONSISTENT_CLUSTER_ID" in what for what in reports(net, node))


def test_a_vote_request_for_another_replica_is_refused() -> None:
    """An unknown voter id, and the id of a disk that was replaced."""
    net = dynamic_net(3)
    leader = net.elect()
    node = others(net, leader)[0]
    own = net.processes[node].replica.core.local.directory_id
    assert vote_error(net, node, 7, own) == Error.INVALID_VOTER_KEY
    assert vote_error(net, node, node, directory_id(9)) == Error.INVALID_VOTER_KEY
    net.elect()
    goes_on(net)


@pytest.mark.parametrize("make", [Net, dynamic_net])
def test_a_voter_with_a_lost_log_and_its_old_directory_id_is_reported(make: Callable[..., Net]) -> None:
    """The directory id is that of a voter, so no node can know that this voter has forgotten its votes and
    acknowledgements; but the leader sees its log shrink. Records of the others are not lost: the voter may vote, and
    is not elected.
    """
    net = make(3)
    leader = net.elect()
    net.submit(leader, b"kept")
    net.advance(1000)
    node = others(net, leader)[0]
    net.kill(node)
    disk = net.disks[node]
    for name in disk.list(PARTITION):
        disk.remove(f"{PARTITION}/{name}")
    disk.fsync_dir(PARTITION)
    committed = net.processes[leader].replica.core.log.high_watermark
    net.start(node)
    net.until(lambda: net.values_of(node) == [b"kept"])
    assert net.processes[node].replica.core.is_voter
    assert net.processes[leader].replica.core.log.high_watermark >= committed
    assert any("its log has lost records" in what for what in reports(net, leader))
    goes_on(net)
    net.kill(node)
    for name in disk.list(PARTITION):
        disk.remove(f"{PARTITION}/{name}")
    disk.fsync_dir(PARTITION)
    net.kill(leader)
    net.start(node)
    assert net.elect() not in (node, leader)
    assert net.values_of(net.leader)[0] == b"kept"


# A snapshot that is not of this log


def put_snapshot(disk: MemoryDisk, content: bytes, snapshot: OffsetAndEpoch) -> None:
    file = disk.open(f"{PARTITION}/{snapshot_name(snapshot)}", create=True)
    file.append(content)
    file.fsync()
    file.close()
    disk.fsync_dir(PARTITION)


@pytest.mark.parametrize("where", ["within the log, of another epoch", "behind the log, of an epoch before its last"])
def test_a_snapshot_of_another_cluster_is_refused(where: str) -> None:
    """A snapshot does not name its cluster, but names the epoch of its last record."""
    net = quorum(max_idle_interval_ms=0)
    write(net, 40)
    leader, node = net.leader, follower_of(net)
    content = net.disks[leader].read(f"{PARTITION}/{snapshot_name(snapshots(net, leader)[-1])}")
    net.kill(leader)
    net.elect()
    write(net, 5, first=100)
    net.kill(node)
    end = OffsetAndEpoch(epoch=1, offset=10_000) if "behind" in where else OffsetAndEpoch(epoch=0, offset=20)
    put_snapshot(net.disks[node], content, end)
    with pytest.raises(DirectoryError, match="is not one of this log") as refused:
        net.start(node)
    assert refused.value.hint
    net.disks[node].remove(f"{PARTITION}/{snapshot_name(end)}")
    net.start(node)
    net.start(leader)
    net.until(lambda: are_equal(net))


def test_a_snapshot_with_foreign_voters_is_refused() -> None:
    """A snapshot ahead of the log replaces it, as with Kafka; but its voters are not this node's quorum."""
    foreign = dynamic_net(3, application=host_controller, snapshots=OFTEN)
    foreign.elect()
    write(foreign, 60)
    taken = snapshots(foreign, foreign.leader)[-1]
    content = foreign.disks[foreign.leader].read(f"{PARTITION}/{snapshot_name(taken)}")
    net = dynamic_net(3, joining=1, application=host_controller, snapshots=OFTEN)
    leader = net.elect()
    net.advance(1000)
    node = 4
    net.kill(node)
    put_snapshot(net.disks[node], content, OffsetAndEpoch(epoch=taken.epoch, offset=taken.offset))
    net.start(node)
    write(net, 3, first=900)
    net.advance(5000)
    assert not net.processes[node].replica.core.is_voter
    assert net.leader == leader
    assert any("it wants our log cut" in what for what in reports(net, node)), "it never cuts what it takes for final"


# Pieces of a snapshot


def test_snapshot_pieces_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka sends from the file and may take what is asked for; we have it in memory."""
    net = quorum()
    write(net, 60)
    monkeypatch.setattr("kraft.replica.storage.snapshots.PIECE_BYTES", 300)
    newest = snapshots(net, net.leader)[-1]
    files = SnapshotFiles(net.disks[net.leader], net.processes[net.leader].replica.log)
    size, data = files.piece(newest, 0, 2**31 - 1)
    assert size > 300 == len(data)
    node = follower_of(net)
    replace_disk(net, node)
    net.start(node)
    net.until(lambda: are_equal(net))


# Disks that fail


FAILURES = {
    "disk full": (errno.ENOSPC, "append"),
    "read-only": (errno.EROFS, "append"),
    "failed write": (errno.EIO, "append"),
    "failed fsync": (errno.EIO, "fsync"),
    "no room for a file": (errno.ENOSPC, "create"),
}


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
@pytest.mark.parametrize("failure", FAILURES)
def test_a_node_with_a_failing_disk_stops_and_the_others_commit(failure: str, leads: bool) -> None:
    """The failed operation is never repeated by the node that saw it fail; a start on a sound disk goes on."""
    number, failing = FAILURES[failure]
    net = quorum(segment_bytes=600, max_idle_interval_ms=0)
    write(net, 20)
    leader = net.leader
    node = leader if leads else follower_of(net)

    def fail(operation: str, path: str) -> None:
        if operation == failing and path.startswith(DIRECTORY):
            raise OSError(number, os.strerror(number), path)

    net.disks[node].on_operation = fail
    ended = stops(net, node, lambda: write_until_it_ends(net), OSError)
    assert isinstance(ended, OSError)
    assert (ended.errno, str(ended.filename).startswith(DIRECTORY)) == (number, True)
    net.disks[node].on_operation = None
    net.elect()
    write(net, 5, first=500)
    net.start(node)
    net.until(lambda: are_equal(net))
    names = [name for _, name in controller_of(net, node).history.committed.configs.by_resource]
    assert {f"s{number}" for number in range(20)} | {f"s{number}" for number in range(500, 505)} <= set(names)


def write_until_it_ends(net: Net) -> None:
    for number in range(100, 200):
        net.ask(net.leader, alter(("interval.ms", 0, "2000"), name=f"s{number}"))


def test_a_directory_that_cannot_be_written_is_refused_at_the_start() -> None:
    net = Net(1)
    net.elect()
    net.kill(1)
    before = net.disks[1].files()

    def fail(operation: str, path: str) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    net.disks[1].on_operation = fail
    with pytest.raises(OSError, match=os.strerror(errno.EROFS)) as refused:
        net.start(1)
    assert str(refused.value.filename).startswith(DIRECTORY)
    assert net.disks[1].files() == before
    net.disks[1].on_operation = None
    net.start(1)
    net.elect()


# Clocks


@pytest.mark.parametrize("hours", [-30, -1, 1, 30])
def test_a_quorum_starts_with_clocks_that_are_hours_off(hours: int) -> None:
    """Times in the log may go back then; offsets and epochs do not, and they are what counts."""
    net = quorum(SCARCE, segment_bytes=2000, segment_ms=600_000)
    write(net, 40)
    for node in list(net.processes):
        net.kill(node)
    net.now_ms += hours * 3_600_000
    for node in net.disks:
        net.start(node)
    net.elect()
    net.until(lambda: net.processes[net.leader].replica.is_active)
    write(net, 40, first=100)
    net.advance(200_000)
    write(net, 5, first=200)
    net.until(lambda: are_equal(net))
    names = [name for _, name in controller_of(net, net.leader).history.committed.configs.by_resource]
    assert sum(name.startswith("s") for name in names) == 85


def test_a_quorum_suspended_for_hours_continues() -> None:
    """As when a machine sleeps: every deadline is over at once."""
    net = quorum(SCARCE, segment_bytes=2000, segment_ms=600_000)
    write(net, 40)
    before = max(one.replica.core.epoch for one in net.processes.values())
    net.now_ms += 12 * 3_600_000
    net.elect()
    write(net, 5, first=100)
    net.until(lambda: are_equal(net))
    assert max(one.replica.core.epoch for one in net.processes.values()) <= before + 3


# Voters where there can be none


def voters_in_a_static_log(offset: int, epoch: int) -> bytes:
    """A batch that no replica writes."""
    kind, _, value = encode_control(VoterSet.of([voter(1), voter(2)]).to_record())
    return build_control_batch(offset, epoch, START_MS, [(kind, value)])


def test_voters_in_the_log_of_a_static_quorum_are_refused() -> None:
    """A later snapshot could not say so (Kafka's process ends then)."""
    net = Net(3)
    leader = net.elect()
    lies: list[int] = []

    def lie(sender: int, answer: Message) -> Message:
        if lies or not isinstance(answer, FetchResponse):
            return answer
        lies.append(sender)
        core = net.processes[leader].replica.core
        part = structs.replace(
            answer.responses[0].partitions[0], records=voters_in_a_static_log(core.log.end_offset, core.epoch)
        )
        return structs.replace(answer, responses=[structs.replace(answer.responses[0], partitions=[part])])

    net.on_the_way = lie
    net.advance(600)
    assert any("but kraft.version is 0" in what for node in net.processes for what in reports(net, node))
    goes_on(net)
    node = others(net, leader)[0]
    core = net.processes[node].replica.core
    batch = voters_in_a_static_log(core.log.end_offset, core.epoch)
    net.kill(node)
    file = net.disks[node].open(f"{PARTITION}/00000000000000000000.log")
    file.append(batch)
    file.fsync()
    file.close()
    with pytest.raises(CorruptBatch, match="a voter set stands in the log"):
        net.start(node)


# Answers that the simulated attacker found to be believed.


@pytest.mark.parametrize("error", [Error.UNKNOWN_SERVER_ERROR, Error.UNKNOWN_TOPIC_OR_PARTITION])
def test_a_granted_vote_with_an_error_does_not_count(error: Error) -> None:
    """Kafka's `handleVoteResponse` takes such an answer for an error, whatever else it says."""
    one = OneCore()
    one.now_ms += 60_000
    asked = [effect for effect in one.step(Tick()) if isinstance(effect, SendRequest)]
    asked = [effect for effect in asked if isinstance(effect.message, Vote)]
    assert len(asked) == 2, "node 2 stands, and asks the others"
    epoch = one.core.epoch
    granted = VoteReply(epoch=epoch, error=error, granted=True)
    effects = one.step(Replied(asked[0].request_id, asked[0].peer_id, granted))
    assert one.core.state_name == "Prospective"
    assert one.core.epoch == epoch
    assert any(isinstance(effect, PeerFault) and error.name in effect.what for effect in effects)


@pytest.mark.parametrize(("host", "port"), [("", 9093), ("n3", 0)])
def test_a_leader_without_an_endpoint_is_not_followed(host: str, port: int) -> None:
    """The node could not reach it, nor tell others where it is; a JVM stops over such an answer."""
    net = Net(3)
    leader = net.elect()
    node = next(one for one in net.processes if one != leader)
    epoch = net.processes[node].replica.core.epoch
    part = BeginQuorumEpochRequestPartitionData(leader_id=4711, leader_epoch=epoch + 1)
    request = BeginQuorumEpochRequest(
        cluster_id=CLUSTER_ID,
        topics=[BeginQuorumEpochRequestTopicData(METADATA_TOPIC, [part])],
        leader_endpoints=[LeaderEndpoint("CONTROLLER", host, port)],
    )
    answer = net.ask(node, request)
    assert answer.topics[0].partitions[0].error_code == Error.INVALID_REQUEST
    assert net.processes[node].replica.core.leader.leader_id == leader


def test_a_follower_fetches_again_soon_after_an_answer_about_something_else() -> None:
    """The follower does not wait until the request is out of time."""
    net = Net(3)
    leader = net.elect()
    forged: list[int] = []

    def forge(node: int, answer: Message) -> Message:
        if isinstance(answer, FetchResponse) and answer.responses and not forged:
            forged.append(node)
            return FetchResponse()
        return answer

    net.on_the_way = forge
    net.submit(leader, b"value")
    net.settle()
    assert forged == [leader]
    net.advance(200)
    assert {one.replica.log.end_offset for one in net.processes.values()} == {2}
    assert any(isinstance(effect, PeerFault) for _, effect in net.traces)
