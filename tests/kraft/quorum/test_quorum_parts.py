"""The small parts of consensus, each on its own: voters, tally, log view, peers, accumulator, ranked back-off."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.limits import OBSERVER_ANSWER_BYTES, OBSERVERS
from kraft.quorum.accumulator import BATCH_OVERHEAD, RECORD_OVERHEAD, BatchAccumulator
from kraft.quorum.core import CoreStart, RaftCore
from kraft.quorum.effects import PersistElection, SendReply
from kraft.quorum.leadership import ranked_backoff_ms
from kraft.quorum.log_view import LogView, Position
from kraft.quorum.messages import Fetch, FetchReply, VoteReply
from kraft.quorum.peers import Peers
from kraft.quorum.purgatory import ParkedFetch, Purgatory
from kraft.quorum.states import Tally
from kraft.quorum.states.leader import LeaderState, Progress
from kraft.quorum.values import ElectionState, Endpoints, QuorumConfig, ReplicaKey
from kraft.quorum.voters import VoterSet, majority
from kraft.sim.state.forking import forked
from metadata_log.log.epochs import EpochHistory
from metadata_log.records.batch_builder import build_batch
from metadata_log.types import NEVER_MS, OffsetAndEpoch, Uuid
from support.kraft.one_core import START_MS, VOTERS, OneCore, at, leader_state

DIRECTORY = Uuid(bytes(range(16)))
OTHER_DIRECTORY = Uuid(bytes(range(1, 17)))


def parked(request_id: int, deadline_ms: int) -> ParkedFetch:
    fetch = Fetch(epoch=1, replica=ReplicaKey(-1), offset=5, last_epoch=1, max_wait_ms=500, max_bytes=1)
    return ParkedFetch(request_id, fetch, FetchReply(epoch=1, leader_id=1), deadline_ms)


def test_a_fetch_that_is_withdrawn_is_never_answered() -> None:
    purgatory = Purgatory()
    for request_id in (1, 2, 3):
        purgatory.park(parked(request_id, 100 * request_id))
    assert purgatory.remove(1)
    assert not purgatory.remove(1)
    copy = forked(purgatory)
    assert [fetch.request_id for fetch in purgatory.take_expired(250)] == [2]
    assert purgatory.deadline_ms == 300
    assert purgatory.remove(3)
    assert not purgatory.parked
    assert purgatory.take_expired(400) == []
    assert purgatory.deadline_ms == NEVER_MS
    assert [fetch.request_id for fetch in copy.take_all()] == [2, 3]


def epochs(*pairs: tuple[int, int]) -> EpochHistory:
    return EpochHistory(tuple(OffsetAndEpoch(epoch=epoch, offset=offset) for epoch, offset in pairs))


# Voters


def test_a_voter_set_is_read_in_the_order_of_ids() -> None:
    voters = VoterSet.parse("3@c:3, 1@a:1,2@[::1]:2")
    assert voters.ids == (1, 2, 3)
    assert [voter.endpoints.listeners[0].host for voter in voters.voters] == ["a", "::1", "c"]


@pytest.mark.parametrize("text", ["1", "1@", "1@host", "1@host:x", "x@host:1", "@host:1", "1@:1", "\u00b2@host:1"])
def test_an_invalid_voter_entry_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="expected id@host:port"):
        VoterSet.parse(text)


def test_two_voters_cannot_share_an_id() -> None:
    with pytest.raises(ValueError, match="twice"):
        VoterSet.parse("1@a:1,1@b:2")


def test_a_static_voter_is_matched_by_its_id_alone() -> None:
    voters = VoterSet.parse("1@a:1,2@b:2")
    assert voters.contains(ReplicaKey(1, DIRECTORY))
    assert not voters.contains(ReplicaKey(3, DIRECTORY))
    assert voters.other_ids(1) == (2,)


def test_a_replica_with_another_directory_is_another_replica() -> None:
    assert ReplicaKey(1, DIRECTORY).matches(ReplicaKey(1, DIRECTORY))
    assert not ReplicaKey(1, DIRECTORY).matches(ReplicaKey(1, OTHER_DIRECTORY))
    assert ReplicaKey(1).matches(ReplicaKey(1, OTHER_DIRECTORY))


# Tally


@given(st.integers(1, 7), st.data())
def test_an_election_is_never_both_won_and_lost(count: int, data: st.DataObject) -> None:
    voters = tuple(range(1, count + 1))
    tally = Tally(voters, (1,))
    answers: dict[int, bool] = {1: True}
    for voter in data.draw(st.lists(st.integers(2, 9), max_size=12)):
        granted = data.draw(st.booleans())
        tally = tally.record(voter, granted=granted)
        if voter in voters:
            answers[voter] = granted
    yes = sum(answers.values())
    silent = count - len(answers)
    assert tally.is_won == (yes >= majority(count))
    assert tally.is_lost == (yes + silent < majority(count))
    assert not (tally.is_won and tally.is_lost)


# Log view


def view(end: int, *pairs: tuple[int, int], snapshots: tuple[OffsetAndEpoch, ...] = (), start: int = 0) -> LogView:
    return LogView(start_offset=start, end_offset=end, epochs=epochs(*pairs), snapshots=snapshots)


@pytest.mark.parametrize(
    ("offset", "last_epoch", "position", "where"),
    [
        (0, 0, Position.VALID, at(0, 0)),
        (30, 3, Position.VALID, at(30, 3)),
        (25, 3, Position.VALID, at(25, 3)),
        (10, 1, Position.VALID, at(10, 1)),
        (15, 1, Position.DIVERGING, at(10, 1)),
        (12, 2, Position.DIVERGING, at(10, 1)),
        (31, 3, Position.DIVERGING, at(30, 3)),
        (99, 3, Position.DIVERGING, at(30, 3)),
        (30, 4, Position.DIVERGING, at(30, 3)),
    ],
)
def test_a_fetch_position_is_checked_against_the_epochs(
    offset: int, last_epoch: int, position: Position, where: OffsetAndEpoch
) -> None:
    check = view(30, (1, 0), (3, 10)).check(offset, last_epoch)
    assert (check.position, check.at) == (position, where)


def test_a_follower_with_an_empty_log_is_sent_to_the_snapshot() -> None:
    log = view(30, (1, 0), (3, 10), snapshots=(at(5, 1), at(20, 3)))
    assert log.check(0, 0).at == at(20, 3)
    assert log.check(0, 0).position is Position.SNAPSHOT


def test_an_epoch_older_than_the_first_snapshot_is_sent_to_the_last() -> None:
    """Kafka does so even where the whole log is still there."""
    log = view(30, (1, 0), (3, 10), snapshots=(at(20, 3),))
    assert log.check(1, 1).position is Position.SNAPSHOT


def test_a_flush_of_truncated_records_does_not_advance_the_flushed_offset() -> None:
    log = view(10, (1, 0))
    log.appended(20, 1)
    log.truncated(12)
    log.appended(20, 4)
    assert not log.flushed(20, 1)
    assert log.flushed_offset == 10
    assert log.flushed(20, 4)
    assert log.is_flushed


def test_truncation_below_the_high_watermark_is_refused() -> None:
    log = view(10, (1, 0))
    log.commit(8)
    with pytest.raises(AssertionError):
        log.truncated(7)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=30), st.lists(st.integers(1, 5), max_size=30), st.data())
def test_truncation_leads_to_the_common_prefix(shared: list[int], own: list[int], data: st.DataObject) -> None:
    """However two logs differ, rounds of divergence end where the follower's log is a prefix of the leader's.

    An epoch has one leader, so the epochs that only one of the logs has are even in one and odd in the other.
    """
    shared = sorted(shared)
    mine = shared + sorted(10 + 2 * epoch for epoch in own)
    other = data.draw(st.lists(st.integers(1, 5), max_size=30))
    theirs = shared + sorted(11 + 2 * epoch for epoch in other)

    def as_view(records: list[int]) -> LogView:
        history = EpochHistory()
        for offset, epoch in enumerate(records):
            history = history.assign(epoch, offset) if epoch != history.last_epoch else history
        return view(len(records), *((entry.epoch, entry.offset) for entry in history.entries))

    follower, leader = as_view(mine), as_view(theirs)
    for _ in range(20):
        check = leader.check(follower.end_offset, follower.last_epoch)
        if check.position is Position.VALID:
            break
        follower.truncated(follower.truncation_point(check.at))
    assert leader.check(follower.end_offset, follower.last_epoch).position is Position.VALID
    agreed = follower.end_offset
    assert mine[:agreed] == theirs[:agreed]


# Peers


def test_one_request_is_in_flight_per_peer() -> None:
    peers = Peers(request_timeout_ms=2000, retry_backoff_ms=20)
    first = peers.sent(1, 100)
    assert not peers.is_ready(1, 2099)
    assert peers.has_timed_out(1, 2100)
    second = peers.sent(1, 2100)
    assert not peers.is_expected(1, first)
    assert peers.is_expected(1, second)


def test_a_failure_is_followed_by_a_pause() -> None:
    peers = Peers(request_timeout_ms=2000, retry_backoff_ms=20)
    peers.sent(1, 100)
    peers.back_off(1, 110)
    assert peers.is_backing_off(1, 129)
    assert not peers.is_ready(1, 129)
    assert peers.is_ready(1, 130)


def test_a_state_transition_forgets_requests_in_flight() -> None:
    peers = Peers(request_timeout_ms=2000, retry_backoff_ms=20)
    request_id = peers.sent(1, 100)
    peers.clear()
    assert not peers.is_expected(1, request_id)


def test_a_bootstrap_server_is_asked_only_while_nothing_is_in_flight() -> None:
    peers = Peers(request_timeout_ms=2000, retry_backoff_ms=20)
    peers.sent(1, 100)
    assert peers.choose_ready((1, 2, 3), 101, Random(1)) is None
    peers.back_off(1, 102)
    chosen = {peers.choose_ready((1, 2, 3), 103, Random(seed)) for seed in range(20)}
    assert chosen == {2, 3}


# Accumulator


@given(
    st.lists(st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=4), min_size=1, max_size=40),
    st.integers(400, 1500),
)
def test_batches_keep_order_offsets_units_and_the_size_limit(units: list[list[bytes]], limit: int) -> None:
    accumulator = BatchAccumulator(next_offset=7, linger_ms=25, max_batch_bytes=limit)
    bases = [accumulator.append(tuple(unit), 1000) for unit in units]
    batches = accumulator.drain()
    assert [value for batch in batches for value in batch.values] == [value for unit in units for value in unit]
    assert accumulator.next_offset == 7 + sum(map(len, units))
    edges = [batch.base_offset for batch in batches]
    for base, unit in zip(bases, units, strict=True):
        assert base is not None
        assert not any(base < edge < base + len(unit) for edge in edges), "a unit was split"
    for batch in batches:
        assert len(build_batch(batch.base_offset, 2**31 - 1, 2**62, batch.values)) <= limit
    assert accumulator.drain_at_ms is None


def lingering(max_batch_bytes: int) -> BatchAccumulator:
    """An accumulator that has handed out its first batch."""
    accumulator = BatchAccumulator(next_offset=0, linger_ms=25, max_batch_bytes=max_batch_bytes)
    accumulator.append((b"first",), 50)
    assert accumulator.drain_at_ms == 50, "nothing is gained by waiting after an election"
    accumulator.drain()
    return accumulator


def test_linger_starts_with_the_first_record() -> None:
    accumulator = lingering(10_000)
    accumulator.append((b"a",), 100)
    accumulator.append((b"b",), 120)
    assert accumulator.drain_at_ms == 125
    assert [batch.timestamp_ms for batch in accumulator.drain()] == [100]


def test_a_full_batch_does_not_wait_for_its_linger() -> None:
    size = BATCH_OVERHEAD + 2 * (RECORD_OVERHEAD + 10)
    accumulator = lingering(size)
    accumulator.append((bytes(10),), 100)
    accumulator.append((bytes(10),), 100)
    assert accumulator.drain_at_ms == 125
    accumulator.append((bytes(10),), 100)
    assert accumulator.drain_at_ms == 100
    assert accumulator.append((bytes(size),), 100) is None


# Ranked back-off after EndQuorumEpoch


@pytest.mark.parametrize(("count", "delays"), [(1, [0]), (2, [0, 500]), (3, [0, 250, 500]), (4, [0, 125, 250, 500])])
def test_successors_wait_by_rank(count: int, delays: list[int]) -> None:
    ranking = tuple(ReplicaKey(node_id) for node_id in range(1, count + 1))
    assert [ranked_backoff_ms(ranking, ReplicaKey(key.id, DIRECTORY), 1000) for key in ranking] == delays
    assert ranked_backoff_ms(ranking, ReplicaKey(99), 1000) == 1000


def test_a_voter_that_is_not_ranked_waits_for_the_maximum() -> None:
    ranking = tuple(ReplicaKey(node_id) for node_id in (1, 2, 3))
    assert ranked_backoff_ms(ranking, ReplicaKey(99), 1001) == 1001
    assert ranked_backoff_ms(ranking, ReplicaKey(3), 1001) == 500


def test_without_a_ranking_no_successor_waits() -> None:
    assert ranked_backoff_ms((), ReplicaKey(1), 1000) == 0


# Leader


def fetched(leader: LeaderState, node_id: int, now_ms: int) -> None:
    leader.observer_progress(ReplicaKey(node_id), now_ms, 2000).fetched(0, 0, now_ms)


def test_the_number_of_remembered_observers_is_bounded() -> None:
    leader = leader_state(VOTERS)
    for node_id in range(100, 100 + OBSERVERS + 10):
        fetched(leader, node_id, 1000)
    assert len(leader.observers) == OBSERVERS
    assert ReplicaKey(100 + OBSERVERS + 9) in leader.observers


def test_invented_observers_do_not_displace_fetching_ones() -> None:
    """A flood of ids once forgot whatever had been silent for longest: every observer that is well, twice a second."""
    leader = leader_state(VOTERS)
    real = range(10, 20)
    now_ms = 1_000_000
    for _ in range(10):
        for node_id in real:
            fetched(leader, node_id, now_ms)
        for invented in range(OBSERVERS + 100):
            fetched(leader, now_ms + invented, now_ms + 1)
        now_ms += 500
        assert {ReplicaKey(node_id) for node_id in real} <= leader.observers.keys()
    assert len(leader.observers) == OBSERVERS


def test_silent_observers_are_forgotten_first() -> None:
    leader = leader_state(VOTERS)
    for node_id in range(100, 100 + OBSERVERS):
        fetched(leader, node_id, 1000)
    fetched(leader, 50, 3100)
    fetched(leader, 51, 3101)
    assert leader.observers.keys() == {ReplicaKey(50), ReplicaKey(51)}


# Progress


def test_a_replica_is_caught_up_when_it_asks_for_the_end_as_of_its_last_fetch() -> None:
    progress = Progress(ReplicaKey(2))
    progress.fetched(5, 10, 100)
    assert progress.last_caught_up_ms == -1
    progress.fetched(10, 20, 200)
    assert progress.last_caught_up_ms == 100
    progress.fetched(20, 20, 300)
    assert progress.last_caught_up_ms == 300


@given(
    starts=st.lists(st.integers(0, 12), min_size=1, max_size=4, unique=True),
    start_offset=st.integers(0, 12),
    length=st.integers(0, 8),
    offset=st.integers(0, 24),
    last_epoch=st.integers(0, 6),
    with_snapshot=st.booleans(),
)
def test_the_quick_check_of_a_fetch_position_agrees_with_the_full_one(
    starts: list[int], start_offset: int, length: int, offset: int, last_epoch: int, with_snapshot: bool
) -> None:
    history = EpochHistory()
    for epoch, start in enumerate(sorted(starts), 1):
        history = history.assign(epoch, start)
    end_offset = max(max(starts) + 1, start_offset) + length
    snapshots: tuple[OffsetAndEpoch, ...] = ()
    if with_snapshot and start_offset > 0:
        snapshots = (OffsetAndEpoch(epoch=history.epoch_at(start_offset - 1) or 1, offset=start_offset),)
    log = LogView(
        start_offset=start_offset if snapshots else 0, end_offset=end_offset, epochs=history, snapshots=snapshots
    )
    if log.holds(offset, last_epoch):
        assert log.check(offset, last_epoch).position is Position.VALID


def test_an_observer_receives_less_than_it_requests_and_a_voter_all() -> None:
    """Any process can fetch as an observer, and a commit waits for each reply (decision 0023)."""
    leader = leader_state(VOTERS)
    voter, observer = ReplicaKey(2), ReplicaKey(9)
    for wanted in (1000, OBSERVER_ANSWER_BYTES, OBSERVER_ANSWER_BYTES + 1, 1 << 30):
        assert leader.answer_bytes(voter, wanted) == wanted
        assert leader.answer_bytes(observer, wanted) == min(wanted, OBSERVER_ANSWER_BYTES)


def test_a_commit_moves_only_later_deadlines_of_parked_fetches() -> None:
    purgatory = Purgatory()
    for request_id, deadline_ms in ((1, 100), (2, 300)):
        purgatory.park(parked(request_id, deadline_ms))
    reply = FetchReply(epoch=1, leader_id=1, high_watermark=7)
    purgatory.cap_deadlines(reply, 200)
    assert [(one.request_id, one.deadline_ms) for one in purgatory.parked.values()] == [(1, 100), (2, 200)]
    assert [one.timeout_reply for one in purgatory.take_expired(200)] == [reply, reply]


def test_a_write_of_quorum_state_is_replaced_only_while_no_message_depends_on_it() -> None:
    """A crash between the two writes must leave the epoch that the message tells."""
    quorum = OneCore().core._quorum
    quorum.become_unattached(6, START_MS, "test")
    quorum.become_voted(ReplicaKey(3), START_MS)
    assert [one.state.epoch for one in quorum.effects if isinstance(one, PersistElection)] == [6]
    quorum.become_unattached(7, START_MS, "test")
    quorum.emit(SendReply(1, VoteReply(epoch=7, leader_id=-1)))
    quorum.become_voted(ReplicaKey(3), START_MS)
    assert [one.state.epoch for one in quorum.effects if isinstance(one, PersistElection)] == [7, 7]


def test_a_core_that_has_not_begun_is_unattached_in_its_epoch() -> None:
    start = CoreStart(
        election=ElectionState(epoch=5, leader_id=1), log_start_offset=0, log_end_offset=0, epochs=EpochHistory(())
    )
    core = RaftCore(
        config=QuorumConfig(),
        local=ReplicaKey(2),
        voters=VOTERS,
        endpoints=Endpoints(),
        start=start,
        rng=Random(1),
    )
    assert (core.state_name, core.epoch, core.leader.leader_id) == ("Unattached", 5, -1)


@pytest.mark.parametrize(
    ("offset", "epoch", "is_flushed"),
    [(40, 1, True), (40, 3, False), (50, 1, True), (51, 2, True), (51, 1, False), (80, 2, True), (81, 3, True)],
)
def test_a_flush_counts_for_the_epoch_of_the_last_record_below_its_offset(
    offset: int, epoch: int, is_flushed: bool
) -> None:
    log = LogView(start_offset=0, end_offset=100, epochs=epochs((1, 0), (2, 50), (3, 80)))
    log.flushed_offset = 0
    assert log.flushed(offset, epoch) is is_flushed
    assert log.flushed_offset == (offset if is_flushed else 0)
