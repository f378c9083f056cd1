"""Limits of one core: positions, deadlines, contacts and reports, each with the last value on either side."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.limits import OBSERVERS
from kraft.quorum.accumulator import BATCH_OVERHEAD, RECORD_OVERHEAD, BatchAccumulator
from kraft.quorum.core import CoreStart
from kraft.quorum.effects import (
    AbandonDownload,
    AppendControl,
    BeginDownload,
    CheckDownload,
    FlushLog,
    SendRequest,
)
from kraft.quorum.events import (
    BeginShutdown,
    FailureCause,
    LogFlushed,
    LogStartRaised,
    Received,
    Replied,
    SnapshotChecked,
    SnapshotTaken,
    Tick,
    UpgradeQuorum,
)
from kraft.quorum.log_view import LogView, Position
from kraft.quorum.messages import (
    BatchFacts,
    BeginQuorumEpoch,
    BeginQuorumEpochReply,
    DescribeQuorum,
    Fetch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    RemoveVoter,
    UpdateVoter,
    Vote,
    VoteReply,
)
from kraft.quorum.peers import Peers
from kraft.quorum.purgatory import ParkedFetch, Purgatory
from kraft.quorum.values import ElectionState, QuorumConfig, ReplicaKey, VersionRange
from kraft.quorum.voters import QuorumChange, Voter, VoterSet
from metadata_log.log.epochs import EpochHistory
from metadata_log.types import NEVER_MS, OffsetAndEpoch, Uuid
from support.kraft.one_core import START_MS, OneCore, at, endpoints, leader_state, records_of_the_leader
from transport.protocol.errors import Error

DEFAULTS = QuorumConfig()
SNAPSHOT = at(200, 5)


def leading() -> OneCore:
    one = OneCore(election=ElectionState(epoch=5))
    one.elect(1)
    fetch_all(one, 1)
    return one


def fetch_all(one: OneCore, replica_id: int) -> None:
    """Let a replica fetch from the end of the leader's log."""
    epoch, end = one.core.epoch, one.core.log.end_offset
    key = ReplicaKey(replica_id)
    one.step(Received(1, Fetch(epoch=epoch, replica=key, offset=end, last_epoch=epoch, max_wait_ms=0)))


# Positions


@pytest.mark.parametrize(
    ("diverging", "offset"),
    [
        (at(5, 0), 5),
        (at(99, 0), 30),
        (at(20, 3), 20),
        (at(99, 3), 30),
        (at(8, 2), 10),
        (at(4, 1), 4),
        (at(10, 1), 10),
        (at(30, 1), 10),
    ],
)
def test_a_log_is_cut_where_both_logs_still_have_the_epoch(diverging: OffsetAndEpoch, offset: int) -> None:
    log = LogView(start_offset=0, end_offset=30, epochs=EpochHistory((at(0, 1), at(10, 3))))
    assert log.truncation_point(diverging) == offset


@pytest.mark.parametrize(("end_offset", "position"), [(0, Position.VALID), (1, Position.SNAPSHOT)])
def test_an_empty_log_is_sent_to_a_snapshot_of_one_record(end_offset: int, position: Position) -> None:
    """A formatted directory has a snapshot of none."""
    log = LogView(start_offset=0, end_offset=30, epochs=EpochHistory((at(0, 1),)), snapshots=(at(end_offset, 1),))
    assert log.check(0, 0).position is position


@pytest.mark.parametrize(("epoch", "is_taken"), [(-1, False), (0, True), (5, True), (6, False)])
def test_a_follower_takes_snapshots_up_to_its_epoch(epoch: int, is_taken: bool) -> None:
    one = OneCore(log=(), end=0)
    one.answer(records_of_the_leader(snapshot=at(200, epoch)))
    assert one.all(BeginDownload) == ([BeginDownload(at(200, epoch))] if is_taken else [])


# Requests of a follower


def unflushed(**changes: Any) -> OneCore:
    """A replica that has fetched a batch, which is not on its disk yet."""
    one = OneCore(**changes)
    if one.core.state_name != "Follower":
        one.answer(records_of_the_leader(), peer=one.asked().peer_id)
    batch = BatchFacts(base_offset=100, next_offset=103, epoch=5, end_position=9)
    request = one.asked(1)
    effects = one.core.step(
        Replied(request.request_id, 1, records_of_the_leader(batches=(batch,), data=b"3 records")), one.now_ms
    )
    assert [type(effect) for effect in effects if isinstance(effect, FlushLog | SendRequest)] == [FlushLog]
    return one


def test_an_observer_with_a_slow_disk_sends_no_fetch_before_its_flush() -> None:
    """Its fetch timeout may end meanwhile: a Fetch acknowledges what is on the disk."""
    one = unflushed(local=ReplicaKey(7), endpoints=endpoints(7))
    now_ms = one.now_ms + 2 * DEFAULTS.fetch_timeout_ms
    assert [one for one in one.core.step(Tick(), now_ms) if isinstance(one, SendRequest)] == []
    sent = [one for one in one.core.step(LogFlushed(103, 5), now_ms) if isinstance(one, SendRequest)]
    assert [type(request.message) for request in sent] == [Fetch]


@pytest.mark.parametrize("is_voter", [True, False])
def test_a_voter_that_shuts_down_fetches_no_more(is_voter: bool) -> None:
    """It will not be there to vote; an observer follows the log as long as it can."""
    changes: dict[str, Any] = {} if is_voter else {"local": ReplicaKey(7), "endpoints": endpoints(7)}
    one = OneCore(**changes)
    one.answer(records_of_the_leader())
    one.step(BeginShutdown())
    asked = len(one.all(SendRequest))
    one.answer(records_of_the_leader())
    assert (len(one.all(SendRequest)) > asked) is not is_voter


def downloaded() -> OneCore:
    """A follower with all bytes of a snapshot, which its host checks."""
    one = OneCore()
    one.answer(records_of_the_leader(snapshot=SNAPSHOT))
    one.answer(FetchSnapshotReply(epoch=5, leader_id=1, snapshot=SNAPSHOT, size=4, position=0, data=b"abcd"))
    assert one.all(CheckDownload) == [CheckDownload(SNAPSHOT)]
    return one


def test_a_follower_asks_for_nothing_while_its_snapshot_is_checked() -> None:
    one = downloaded()
    asked = len(one.all(SendRequest))
    one.advance(DEFAULTS.fetch_timeout_ms - 1)
    assert len(one.all(SendRequest)) == asked
    one.step(SnapshotChecked(SNAPSHOT, None, ()))
    request = one.asked(1).message
    assert len(one.all(SendRequest)) == asked + 1
    assert isinstance(request, Fetch)
    assert request.offset == 200
    assert one.core.log.high_watermark == 200, "a snapshot holds committed records only"


def test_records_in_place_of_a_snapshot_end_the_download() -> None:
    """The leader's own address is silent, and another address of the leader answers a Fetch."""
    one = OneCore()
    one.answer(records_of_the_leader(snapshot=SNAPSHOT))
    assert isinstance(one.asked(1).message, FetchSnapshot)
    one.fail(FailureCause.TIMEOUT, peer=1)
    one.now_ms = START_MS + 1000
    assert one.asked().peer_id == 3
    one.answer(records_of_the_leader())
    assert one.all(AbandonDownload) == [AbandonDownload()]
    assert isinstance(one.asked(1).message, Fetch)


def test_a_candidate_asks_a_voter_again_after_a_pause_if_the_voter_does_not_know_the_version() -> None:
    one = OneCore(election=ElectionState(epoch=5))
    while one.core.state_name != "Prospective":
        one.advance(10)
    for peer in (1, 3):
        one.fail(FailureCause.UNSUPPORTED_VERSION, peer=peer)
    assert (one.core.state_name, one.core.epoch) == ("Candidate", 6)
    one.fail(FailureCause.UNSUPPORTED_VERSION, peer=1)
    before = one.asked(1)
    one.advance(DEFAULTS.retry_backoff_ms - 1)
    assert one.asked(1) is before
    one.advance(1)
    again = one.asked(1)
    assert again is not before
    assert isinstance(again.message, Vote)
    assert again.message.epoch == one.core.epoch


# Requests of administrators


def test_a_leader_that_shuts_down_changes_no_voters() -> None:
    one = leading()
    key = ReplicaKey(0, Uuid(b"d" * 16))
    assert one.ask(RemoveVoter(key)).error is Error.UNSUPPORTED_VERSION, "0 is the id of a node"
    assert one.ask(RemoveVoter(ReplicaKey(-1, Uuid(b"d" * 16)))).error is Error.INVALID_REQUEST
    one.step(BeginShutdown())
    assert one.ask(RemoveVoter(key)).error is Error.BROKER_NOT_AVAILABLE


def test_an_observer_that_has_been_silent_for_long_is_not_described() -> None:
    one = leading()
    fetch_all(one, 9)
    end_ms = one.now_ms + DEFAULTS.observer_timeout_ms
    while one.now_ms < end_ms:
        fetch_all(one, 1)
        assert [known.key.id for known in one.ask(DescribeQuorum()).observers] == [9]
        one.now_ms += DEFAULTS.fetch_timeout_ms // 2
    one.now_ms = end_ms + 1
    fetch_all(one, 1)
    assert one.ask(DescribeQuorum()).observers == ()


def test_contacts_of_a_removed_voter_do_not_count_any_more() -> None:
    voters = VoterSet.parse("1@a:1,2@b:2,3@c:3,4@d:4,5@e:5")
    leader = leader_state(voters)
    assert not leader.note_contact(4)
    leader.take_voters(voters.without(4))
    assert not leader.note_contact(2), "of four voters the leader needs two others"
    assert leader.note_contact(3)


@pytest.mark.parametrize(("length", "cut"), [(499, False), (500, False), (501, True)])
def test_a_report_of_a_fault_has_a_maximum_length(length: int, cut: bool) -> None:
    one = OneCore()
    one.core._quorum.report_peer_fault(3, "x" * length)
    one.step(Tick())
    assert one.suspicions == ["x" * 500 + "\N{HORIZONTAL ELLIPSIS}" if cut else "x" * length]


# Small parts


def test_the_next_deadline_of_parked_fetches_is_the_earliest() -> None:
    purgatory = Purgatory()
    fetch = Fetch(epoch=1, replica=ReplicaKey(-1), offset=5, last_epoch=1)
    for request_id, deadline_ms in ((1, 300), (2, 100), (3, 200)):
        purgatory.park(ParkedFetch(request_id, fetch, FetchReply(epoch=1, leader_id=1), deadline_ms))
    due = []
    while purgatory.deadline_ms < NEVER_MS:
        due.append(purgatory.deadline_ms)
        assert purgatory.take_expired(due[-1] - 1) == []
        assert len(purgatory.take_expired(due[-1])) == 1
    assert due == [100, 200, 300]


def test_a_peer_without_a_request_is_ready_and_awaits_nothing() -> None:
    peers = Peers(request_timeout_ms=2000, retry_backoff_ms=20)
    assert (peers.ready_at_ms(1), peers.is_any_awaiting(0)) == (0, False)
    peers.sent(1, 100)
    assert (peers.ready_at_ms(1), peers.is_any_awaiting(2099), peers.is_any_awaiting(2100)) == (2100, True, False)
    peers.back_off(1, 200)
    assert (peers.ready_at_ms(1), peers.is_any_awaiting(201)) == (220, False)


def test_an_accumulator_counts_the_bytes_that_wait() -> None:
    accumulator = BatchAccumulator(next_offset=7, linger_ms=0, max_batch_bytes=1000)
    assert accumulator.pending_bytes == 0
    accumulator.append((b"value",), 5)
    assert accumulator.pending_bytes > 5
    accumulator.drain()
    assert accumulator.pending_bytes == 0


@pytest.mark.parametrize(
    ("offset", "last_epoch", "holds"),
    [(10, 3, False), (20, 3, False), (21, 3, True), (30, 3, True), (31, 3, False), (25, 2, False)],
)
def test_the_quick_check_of_a_position_is_for_positions_within_the_last_epoch(
    offset: int, last_epoch: int, holds: bool
) -> None:
    log = LogView(start_offset=20, end_offset=30, epochs=EpochHistory((at(20, 3),)), snapshots=(at(20, 3),))
    assert log.holds(offset, last_epoch) is holds


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_leader_is_told_of_its_own_leadership_and_of_no_other(ahead: int) -> None:
    """The answer of a voter that has lost its way names the right leader; one of a later epoch cannot."""
    one = leading()
    epoch = one.core.epoch
    reply = BeginQuorumEpochReply(
        epoch=epoch + ahead, leader_id=2, endpoints=endpoints(2), error=Error.NOT_LEADER_OR_FOLLOWER
    )
    one.answer(reply, peer=3)
    assert (one.core.is_leader, one.core.epoch) == (True, epoch)
    assert len(one.suspicions) == ahead


def test_silent_observers_are_removed_once_in_their_time() -> None:
    leader = leader_state(VoterSet.parse("1@a:1,2@b:2,3@c:3"))
    for node in range(100, 100 + OBSERVERS):
        leader.observer_progress(ReplicaKey(node), 1000, 2000).fetched(0, 0, 1000)
    for node, now_ms, count in ((50, 3000, OBSERVERS), (51, 4999, OBSERVERS), (52, 5000, 2)):
        leader.observer_progress(ReplicaKey(node), now_ms, 2000).fetched(0, 0, now_ms)
        assert len(leader.observers) == count
        assert ReplicaKey(node) in leader.observers


# Votes


def test_a_voter_that_refuses_a_request_for_its_vote_is_asked_again_after_a_pause() -> None:
    one = OneCore(election=ElectionState(epoch=6, voted=ReplicaKey(2)))
    one.answer(VoteReply(epoch=6, error=Error.INVALID_VOTER_KEY), peer=1)
    before = one.asked(1)
    one.advance(DEFAULTS.retry_backoff_ms - 1)
    assert one.asked(1) is before
    one.advance(1)
    assert one.asked(1) is not before


@pytest.mark.parametrize(("candidate", "is_valid"), [(0, True), (3, True), (-1, False)])
def test_a_candidate_may_have_the_id_0(candidate: int, is_valid: bool) -> None:
    one = OneCore(election=ElectionState(epoch=5))
    vote = Vote(epoch=6, candidate=ReplicaKey(candidate), voter=ReplicaKey(2), last=at(100, 5), pre_vote=False)
    answer = one.ask(vote)
    assert (answer.granted, answer.error) == (is_valid, Error.NONE if is_valid else Error.INVALID_REQUEST)


def test_a_leader_that_hears_of_its_own_leadership_agrees() -> None:
    one = leading()
    begin = BeginQuorumEpoch(epoch=one.core.epoch, leader_id=2, voter=ReplicaKey(2), endpoints=endpoints(2))
    assert one.ask(begin).error is Error.NONE
    assert one.core.is_leader


def test_a_report_of_a_voter_counts_for_check_quorum() -> None:
    one = leading()
    quorum_ms = DEFAULTS.fetch_timeout_ms * 3 // 2
    one.advance(quorum_ms - 100)
    known = Voter(ReplicaKey(1, Uuid(b"d" * 16)), endpoints(1), VersionRange(0, 1))
    assert one.ask(UpdateVoter(epoch=one.core.epoch, voter=known)).error is Error.NONE
    one.advance(quorum_ms - 1)
    assert one.core.is_leader
    one.advance(1)
    assert not one.core.is_leader


@pytest.mark.parametrize("is_leader", [True, False])
@pytest.mark.parametrize("ahead", [-1, 0, 1])
def test_the_level_of_the_quorum_is_raised_by_the_leader_of_the_epoch_alone(is_leader: bool, ahead: int) -> None:
    """The leadership may have changed since the decision."""
    one = OneCore(local=ReplicaKey(2, Uuid(b"d" * 16)), election=ElectionState(epoch=5))
    if is_leader:
        one.elect(1)
        fetch_all(one, 1)
    before = len(one.all(AppendControl))
    one.step(UpgradeQuorum(one.core.epoch + ahead, 1))
    assert len(one.all(AppendControl)) - before == (is_leader and ahead == 0)


# The flushed end of a log


@pytest.mark.parametrize(
    ("end", "epochs", "snapshots", "expected"),
    [
        (10, (at(0, 1), at(5, 3)), (), at(10, 3)),
        (6, (at(0, 1), at(5, 3)), (), at(6, 3)),
        (5, (at(0, 1),), (), at(5, 1)),
        (20, (), (at(10, 2), at(20, 3)), at(20, 3)),
        (0, (), (), at(0, 0)),
    ],
)
def test_a_candidate_reports_the_epoch_of_its_last_flushed_record(
    end: int, epochs: tuple[OffsetAndEpoch, ...], snapshots: tuple[OffsetAndEpoch, ...], expected: OffsetAndEpoch
) -> None:
    start = 20 if snapshots else 0
    log = LogView(start_offset=start, end_offset=end, epochs=EpochHistory(epochs), snapshots=snapshots)
    log.appended(end + 5, 7)
    assert log.flushed_end == expected
    assert log.flushed(end + 5, 7)
    assert log.flushed_end == at(end + 5, 7)


@pytest.mark.parametrize(("missing", "fits"), [(0, True), (1, False)])
def test_each_value_of_a_unit_takes_room_beside_its_bytes(missing: int, fits: bool) -> None:
    limit = BATCH_OVERHEAD + 10 * (RECORD_OVERHEAD + 3) - missing
    accumulator = BatchAccumulator(next_offset=7, linger_ms=0, max_batch_bytes=limit)
    assert accumulator.append((b"xyz",) * 10, 5) == (7 if fits else None)


def test_voter_sets_before_the_start_of_a_log_are_forgotten() -> None:
    def voters(*ids: int) -> VoterSet:
        return VoterSet.of(
            Voter(ReplicaKey(one, Uuid(bytes(15) + bytes([one]))), endpoints(one), VersionRange(0, 1)) for one in ids
        )

    sets = [(-1, voters(1, 2)), (10, voters(1, 2, 3)), (20, voters(1, 2)), (60, voters(1, 2, 3))]
    start = CoreStart(
        election=ElectionState(epoch=5, leader_id=1),
        log_start_offset=0,
        log_end_offset=100,
        epochs=EpochHistory((at(0, 5),)),
        changes=(QuorumChange(-1, 1), *(QuorumChange(offset, one) for offset, one in sets)),
    )
    one = OneCore(local=ReplicaKey(2, Uuid(bytes(15) + b"\2")), voters=VoterSet(()), start=start)
    one.answer(records_of_the_leader())
    one.step(SnapshotTaken(at(50, 5)))
    assert list(one.core.history.sets) == sets
    one.step(LogStartRaised(50))
    assert list(one.core.history.sets) == sets[2:]


def test_a_voter_gets_the_directory_of_the_voter_set_that_is_in_force() -> None:
    leader = leader_state(VoterSet.parse("1@a:1,2@b:2,3@c:3"))
    known = ReplicaKey(2, Uuid(b"d" * 16))
    leader.take_voters(leader.voters.with_voter(Voter(known, endpoints(2), VersionRange(0, 1))))
    assert leader.progress[2].key == known
    assert leader.voter_progress(ReplicaKey(2, Uuid(b"e" * 16))) is None
    assert leader.voter_progress(known) is leader.progress[2]


def test_a_damaged_snapshot_is_discarded_and_followed_by_a_pause() -> None:
    one = downloaded()
    asked = len(one.all(SendRequest))
    one.step(SnapshotChecked(SNAPSHOT, "a byte is wrong", ()))
    assert one.all(AbandonDownload) == [AbandonDownload()]
    assert one.suspicions[-1].endswith("is damaged: a byte is wrong")
    assert [request.peer_id for request in one.all(SendRequest)[asked:]] == [3], "another voter is asked meanwhile"
    one.fail(FailureCause.TIMEOUT, peer=3)
    one.advance(DEFAULTS.retry_backoff_ms)
    assert isinstance(one.asked(1).message, Fetch)


def test_a_forgotten_request_leaves_its_peer_ready() -> None:
    peers = Peers(request_timeout_ms=2000, retry_backoff_ms=20)
    request_id = peers.sent(1, 100)
    peers.forget(1)
    peers.forget(1)
    assert (peers.is_ready(1, 100), peers.is_expected(1, request_id), peers.is_idle) == (True, False, True)
