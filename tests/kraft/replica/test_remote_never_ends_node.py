"""Answers and requests that no correct peer sends are refused and reported, and the node goes on (decision 0006)."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack

import pytest
from msgspec import structs

from kraft.quorum.core import CoreStart
from kraft.quorum.effects import SendReply, SendRequest
from kraft.quorum.events import FailureCause, Received, Replied, RequestFailed
from kraft.quorum.messages import (
    AddVoter,
    AddVoterReply,
    BatchFacts,
    BeginQuorumEpoch,
    Fetch,
    FetchReply,
    ProbeVersionsReply,
    UpdateVoter,
    VoteReply,
)
from kraft.quorum.values import ElectionState, Endpoints, ListenerAddress, ReplicaKey, VersionRange
from kraft.quorum.voters import QuorumChange, Voter, VoterSet
from metadata_log.errors import CorruptBatch
from metadata_log.log.epochs import EpochHistory
from metadata_log.log.quorum_state_file import StoredElection, write_quorum_state
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.control import Endpoint, KRaftVersionRecord, VotersRecord, VotersRecordVoter
from metadata_log.records.frame import encode_control
from metadata_log.records.record import Record
from metadata_log.serde import Message
from metadata_log.types import Uuid
from support.kraft.one_core import OneCore, at, endpoints, records_of_the_leader
from support.kraft.replica_net import Net
from support.kraft.simulated_quorum import PARTITION, goes_on, others, reports
from transport.protocol.errors import Error
from transport.protocol.messages import FetchResponse
from transport.protocol.messages.fetch import EpochEndOffset, NodeEndpoint, PartitionData

Forge = Callable[[Net, int, PartitionData], PartitionData | None]

# Answers to a Fetch


def forge_one(net: Net, follower: int, forge: Forge) -> None:
    """Let one answer to the follower be a forged one."""
    forged: list[PartitionData] = []

    def on_the_way(node: int, answer: Message) -> Message:
        if forged or not isinstance(answer, FetchResponse) or not answer.responses:
            return answer
        part = forge(net, follower, answer.responses[0].partitions[0])
        if part is None:
            return answer
        forged.append(part)
        return structs.replace(answer, responses=[structs.replace(answer.responses[0], partitions=[part])])

    net.on_the_way = on_the_way
    net.until(lambda: bool(forged))
    net.advance(1000)


def cut_inside_a_batch(net: Net, follower: int, part: PartitionData) -> PartitionData | None:
    core = net.processes[follower].replica.core
    if core.log.high_watermark >= core.log.end_offset - 1:
        return None
    return structs.replace(
        part, records=b"", diverging_epoch=EpochEndOffset(epoch=core.epoch, end_offset=core.log.end_offset - 1)
    )


def test_a_diverging_epoch_within_a_batch_is_refused() -> None:
    """The node ended at it. A real leader's epochs end where the batches of every log do."""
    net = Net(3)
    leader = net.elect()
    follower, third = others(net, leader)
    net.cut.add(third)
    end = net.processes[follower].replica.core.log.end_offset
    net.submit(leader, b"a", b"b", b"c")
    while net.processes[follower].replica.core.log.end_offset == end:
        net.once()
    forge_one(net, follower, cut_inside_a_batch)
    assert any("inside a batch" in what for what in reports(net, follower))
    assert net.processes[follower].replica.core.log.end_offset == end + 3
    net.cut.clear()
    net.on_the_way = lambda node, answer: answer
    goes_on(net)


VOTERS = VotersRecord(
    voters=(VotersRecordVoter(voter_id=1, endpoints=(Endpoint("CONTROLLER", "n1", 9093),)),),
)
NOWHERE = VotersRecord(voters=(VotersRecordVoter(voter_id=1),))
NEGATIVE = VotersRecord(
    voters=(VotersRecordVoter(voter_id=-7, endpoints=(Endpoint("CONTROLLER", "n1", 9093),)),),
)


def control_batch(base: int, epoch: int, *records: tuple[int, Message]) -> bytes:
    made = []
    for delta, record in records:
        kind, _, value = encode_control(record)
        made.append(Record(base + delta, 0, 0, pack(">hh", 0, kind), value))
    return write_batch(made, epoch=epoch, control=True)


@pytest.mark.parametrize(
    "records",
    [
        pytest.param([(0, KRaftVersionRecord(kraft_version=1)), (1, VOTERS), (1, VOTERS)], id="one offset twice"),
        pytest.param([(0, KRaftVersionRecord(kraft_version=1)), (9, VOTERS), (2, VOTERS)], id="an offset that falls"),
        pytest.param([(0, KRaftVersionRecord(kraft_version=1)), (1, NOWHERE)], id="a voter without an address"),
        pytest.param([(0, KRaftVersionRecord(kraft_version=1)), (1, NEGATIVE)], id="a voter with a negative id"),
    ],
)
def test_control_records_that_no_leader_writes_are_refused(records: list[tuple[int, Message]]) -> None:
    net = Net(3)
    leader = net.elect()
    follower = others(net, leader)[0]
    before = net.processes[follower].replica.core.history

    def forge(net: Net, follower: int, part: PartitionData) -> PartitionData | None:
        core = net.processes[follower].replica.core
        return structs.replace(part, records=control_batch(core.log.end_offset, core.epoch, *records))

    forge_one(net, follower, forge)
    assert any("damaged records" in what for node in others(net, leader) for what in reports(net, node))
    assert net.processes[follower].replica.core.history == before
    net.on_the_way = lambda node, answer: answer
    goes_on(net)


def test_a_log_with_two_voter_sets_at_one_offset_is_refused_at_the_start() -> None:
    """An older release, or Kafka, has taken it from such a leader. What a file holds is no reason for an assertion."""
    net = Net(3)
    leader = net.elect()
    node = others(net, leader)[0]
    core = net.processes[node].replica.core
    records: list[tuple[int, Message]] = [(0, KRaftVersionRecord(kraft_version=1)), (1, VOTERS), (1, VOTERS)]
    batch = control_batch(core.log.end_offset, core.epoch, *records)
    net.kill(node)
    file = net.disks[node].open(f"{PARTITION}/00000000000000000000.log")
    file.append(batch)
    file.fsync()
    file.close()
    with pytest.raises(CorruptBatch, match="a control record has offset") as refused:
        net.start(node)
    assert refused.value.where == PARTITION


def test_voter_changes_outside_of_their_batch_are_refused() -> None:
    """The core does not rely on the checks of the replica that read the batch."""
    one = OneCore()
    for offsets in ((99,), (102,), (101, 100), (100, 100)):
        changes = tuple(QuorumChange(offset, 1) for offset in offsets)
        batch = BatchFacts(100, 102, 5, 1, changes)
        one.answer(records_of_the_leader(batches=(batch,), data=b"x"), peer=1)
        assert "control records" in one.suspicions[-1]
        one.advance(25)
    assert one.core.log.end_offset == 100
    assert one.core.history.kraft_version == 0


def test_a_forged_watermark_commits_no_more_than_the_log_holds() -> None:
    one = OneCore()
    batch = BatchFacts(100, 103, 5, 1)
    one.answer(records_of_the_leader(batches=(batch,), data=b"x", high_watermark=2**63 - 1), peer=1)
    assert one.core.log.high_watermark == one.core.log.end_offset == 103
    one.answer(records_of_the_leader(high_watermark=-(2**63)), peer=1)
    assert one.core.log.high_watermark == 103


def test_an_invalid_port_is_not_passed_on() -> None:
    """Fetch has room for 32 bits of it, and all that would name the leader again have 16."""
    net = Net(3)
    leader = net.elect()
    follower = others(net, leader)[0]
    net.kill(follower)
    forged: list[int] = []

    def on_the_way(node: int, answer: Message) -> Message:
        if isinstance(answer, FetchResponse) and answer.responses:
            forged.append(node)
            part = answer.responses[0].partitions[0]
            known = NodeEndpoint(node_id=part.current_leader.leader_id, host="n1", port=2**31 - 1)
            return structs.replace(answer, node_endpoints=[known])
        return answer

    net.on_the_way = on_the_way
    write_quorum_state(
        net.disks[follower], PARTITION, StoredElection(leader_epoch=net.processes[leader].replica.core.epoch)
    )
    net.start(follower)
    net.until(lambda: bool(forged))
    net.advance(600)
    assert any("2147483647" in what for what in reports(net, follower))
    net.on_the_way = lambda node, answer: answer
    goes_on(net)


@pytest.mark.parametrize("leader_id", [-2, -(2**31)])
def test_a_negative_leader_id_names_no_leader(leader_id: int) -> None:
    """No id below -1 is a node's: a follower of such a leader could not vote in that epoch again."""
    one = OneCore()
    named = FetchReply(epoch=6, leader_id=leader_id, endpoints=endpoints(1), error=Error.FENCED_LEADER_EPOCH)
    one.answer(named, peer=1)
    assert "the id of no node" in one.suspicions[-1]
    refused = one.ask(BeginQuorumEpoch(epoch=6, leader_id=leader_id, voter=ReplicaKey(2), endpoints=endpoints(1)))
    assert refused.error == Error.INVALID_REQUEST
    assert one.core.epoch == 5


@pytest.mark.parametrize(
    "snapshot",
    [at(2**63 - 1, 5), at(200, 6), at(200, 2**31 - 1), at(200, -1), at(-1, 5), at(0, 5), at(50, 5), at(100, 5)],
)
def test_an_impossible_snapshot_id_is_not_fetched(snapshot: object) -> None:
    one = OneCore()
    one.answer(records_of_the_leader(snapshot=snapshot), peer=1)
    assert "sends us to snapshot" in one.suspicions[-1]
    one.advance(25)
    assert isinstance(one.asked().message, Fetch)


# Answers to probes


def directory(node: int) -> Uuid:
    return Uuid(bytes(8) + b"\x7f" + bytes(6) + bytes([node]))


def voter(node: int) -> Voter:
    return Voter(ReplicaKey(node, directory(node)), endpoints(node), VersionRange(0, 1))


def only_voter() -> OneCore:
    """The leader of a dynamic quorum of one."""
    start = CoreStart(
        election=None,
        log_start_offset=0,
        log_end_offset=0,
        epochs=EpochHistory(),
        snapshots=(at(0, 0),),
        changes=(QuorumChange(-1, 1), QuorumChange(-1, VoterSet((voter(2),)))),
    )
    return OneCore(local=ReplicaKey(2, directory(2)), voters=VoterSet(()), start=start)


def catch_up(one: OneCore, *nodes: int) -> None:
    """Observers that have everything."""
    end, epoch = one.core.log.end_offset, one.core.epoch
    for node in nodes:
        fetch = Fetch(
            epoch=epoch, replica=ReplicaKey(node, directory(node)), offset=end, last_epoch=epoch, max_wait_ms=0
        )
        assert one.ask(fetch).error == Error.NONE


def two_probes() -> tuple[OneCore, SendRequest]:
    """A leader that adds 3, after an attempt to add 1 that ended without an answer of 1; and the request to 1."""
    one = only_voter()
    catch_up(one, 1, 3)
    one.step(Received(1, AddVoter(voter(1))))
    late = one.asked()
    assert late.peer_id == 1
    one.advance(2000)
    assert [reply.message.error for reply in one.all(SendReply) if isinstance(reply.message, AddVoterReply)] == [
        Error.REQUEST_TIMED_OUT
    ]
    catch_up(one, 1, 3)
    one.step(Received(2, AddVoter(voter(3))))
    assert one.asked().peer_id == 3
    return one, late


def test_a_late_response_of_one_replica_does_not_count_for_another() -> None:
    one, late = two_probes()
    one.step(Replied(late.request_id, 1, ProbeVersionsReply(VersionRange(0, 7))))
    assert list(one.core.voters.ids) == [2]
    one.answer(ProbeVersionsReply(VersionRange(0, 1)), peer=3)
    assert list(one.core.voters.ids) == [2, 3]
    assert one.core.voters.voters[1].kraft_versions == VersionRange(0, 1)


def test_a_late_failure_of_one_probe_does_not_end_another() -> None:
    one, late = two_probes()
    one.step(RequestFailed(late.request_id, 1, FailureCause.REFUSED))
    one.answer(ProbeVersionsReply(VersionRange(0, 1)), peer=3)
    assert one.core.voters.ids == (2, 3)


def test_a_replica_with_a_negative_kraft_version_range_is_not_added() -> None:
    one = only_voter()
    catch_up(one, 3)
    one.step(Received(2, AddVoter(voter(3))))
    one.answer(ProbeVersionsReply(VersionRange(-9, 7)), peer=3)
    assert one.core.voters.ids == (2,)


def test_a_voter_with_too_many_listeners_is_refused() -> None:
    one = only_voter()
    catch_up(one, 3)
    many = Endpoints(tuple(ListenerAddress(f"L{at}", "n3", 9093) for at in range(10_000)))
    named = Endpoints((*endpoints(3).listeners, *many.listeners))
    assert one.ask(AddVoter(Voter(ReplicaKey(3, directory(3)), named))).error == Error.INVALID_REQUEST
    epoch = one.core.epoch
    update = UpdateVoter(epoch=epoch, voter=Voter(ReplicaKey(2, directory(2)), named, VersionRange(0, 1)))
    assert one.ask(update).error == Error.INVALID_REQUEST


def test_logged_text_of_a_peer_is_bounded() -> None:
    """A peer's text becomes part of a log line."""
    one = OneCore(local=ReplicaKey(2, directory(2)))
    one.answer(records_of_the_leader())
    one.advance(2100)
    while not isinstance(one.asked().message, UpdateVoter | Fetch):
        one.advance(10)
    one.answer(records_of_the_leader(damage="x" * 100_000), peer=one.asked().peer_id)
    assert any("xxx" in what for what in one.suspicions)
    assert max(map(len, one.suspicions)) < 1000


# What a log says that others have written


def test_a_leader_with_two_inherited_voter_changes_leads() -> None:
    """The first was committed by the leader that wrote the second, and this one has not heard of it. It ended the node
    to record its own new address then.
    """
    sets = [VoterSet((voter(1), voter(2), *map(voter, more))) for more in ((3,), (3, 4), (3, 4, 5))]
    start = CoreStart(
        election=ElectionState(epoch=5, leader_id=1),
        log_start_offset=0,
        log_end_offset=100,
        epochs=EpochHistory((at(0, 5),)),
        changes=(QuorumChange(0, 1), *(QuorumChange(10 * (at + 1), one) for at, one in enumerate(sets))),
    )
    moved = Endpoints((ListenerAddress("CONTROLLER", "elsewhere", 9093),))
    one = OneCore(local=ReplicaKey(2, directory(2)), voters=VoterSet(()), start=start, endpoints=moved)
    one.answer(records_of_the_leader(high_watermark=15))
    assert one.core.history.uncommitted_changes(one.core.log.high_watermark) == 2
    one.advance(2000)
    for granting in (1, 3):
        one.answer(VoteReply(epoch=5, granted=True), peer=granting)
    for granting in (1, 3):
        one.answer(VoteReply(epoch=6, granted=True), peer=granting)
    assert one.core.is_leader
    assert one.core.voters.find(2) == Voter(ReplicaKey(2, directory(2)), moved, VersionRange(0, 1))
