"""Rules of one core at their very limit: a change of one condition or number in the code makes a test here fail."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kraft.quorum.effects import (
    BeginDownload,
    InstallSnapshot,
    SendReply,
    SendRequest,
    StateChanged,
    TruncateLog,
)
from kraft.quorum.epoch_limit import highest_epoch
from kraft.quorum.events import Received, Replied, SnapshotChecked
from kraft.quorum.log_view import LogView
from kraft.quorum.messages import (
    BatchFacts,
    BeginQuorumEpoch,
    Fetch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    ProbeVersionsReply,
    RemoveVoter,
    RemoveVoterReply,
    Vote,
    VoteReply,
)
from kraft.quorum.purgatory import ParkedFetch, Purgatory
from kraft.quorum.snapshots import MAX_OFFSET
from kraft.quorum.states.election import Tally
from kraft.quorum.states.follower import FollowerState
from kraft.quorum.states.leader import LeaderState
from kraft.quorum.states.prospective import ProspectiveState
from kraft.quorum.values import ElectionState, Endpoints, QuorumConfig, ReplicaKey, VersionRange
from kraft.quorum.voter_history import VoterHistory
from kraft.quorum.voters import QuorumChange, VoterSet
from leading_core import fetch_all, key, leader_of, voter
from metadata_log.log.epochs import EpochHistory
from metadata_log.types import NEVER_MS
from support.kraft.one_core import START_MS, VOTERS, OneCore, at, endpoints, records_of_the_leader
from transport.protocol.errors import Error

DEFAULTS = QuorumConfig()


def requests_to(one: OneCore, peer: int) -> int:
    return sum(request.peer_id == peer for request in one.all(SendRequest))


# A follower


@pytest.mark.parametrize(
    "reply",
    [
        records_of_the_leader(diverging=at(60, 5), splits_batch=True),
        records_of_the_leader(snapshot=at(50, 9)),
        records_of_the_leader(
            batches=(BatchFacts(100, 102, 5, 10, (QuorumChange(101, 1), QuorumChange(100, 1))),), data=bytes(10)
        ),
        records_of_the_leader(batches=(BatchFacts(90, 102, 5, 10),), data=bytes(10)),
    ],
    ids=["cut inside a batch", "impossible snapshot", "control records out of order", "offsets from before the end"],
)
def test_a_leader_that_sends_nonsense_is_asked_again_after_a_pause(reply: FetchReply) -> None:
    one = OneCore()
    before = requests_to(one, 1)
    one.answer(reply)
    assert len(one.suspicions) == 1
    assert requests_to(one, 1) == before
    one.advance(DEFAULTS.retry_backoff_ms - 1)
    assert requests_to(one, 1) == before


@pytest.mark.parametrize(("offset", "is_taken"), [(MAX_OFFSET, True), (MAX_OFFSET + 1, False)])
def test_a_snapshot_ends_at_most_at_the_largest_offset(offset: int, is_taken: bool) -> None:
    one = OneCore()
    one.answer(records_of_the_leader(snapshot=at(offset, 5)))
    assert one.all(BeginDownload) == [BeginDownload(at(offset, 5))] * is_taken


def test_a_tail_of_a_later_epoch_than_the_snapshot_is_truncated_before_the_snapshot_replaces_the_log() -> None:
    one = OneCore(log=(at(0, 3), at(60, 4)))
    snapshot = at(200, 3)
    one.answer(records_of_the_leader(high_watermark=-1, snapshot=snapshot))
    piece = FetchSnapshotReply(epoch=5, leader_id=1, snapshot=snapshot, size=4, position=0, data=b"abcd")
    one.answer(piece, peer=1)
    one.step(SnapshotChecked(snapshot, None, ()))
    changes = [effect for effect in one.effects if isinstance(effect, TruncateLog | InstallSnapshot)]
    assert changes == [TruncateLog(60), InstallSnapshot(snapshot)]


def test_a_follower_has_no_bytes_to_write() -> None:
    assert OneCore().core.pending_bytes == 0


def test_readers_see_the_state_of_a_core() -> None:
    """Metrics are computed from that state."""
    state = OneCore().core.state
    assert isinstance(state, FollowerState)
    assert (state.epoch, state.leader_id) == (5, 1)


# Elections


@pytest.mark.parametrize(("below", "is_raised"), [(1, True), (0, False)])
def test_the_last_epoch_of_the_limit_is_reached_and_not_passed(below: int, is_raised: bool) -> None:
    one = OneCore(election=ElectionState(epoch=highest_epoch(START_MS) - below))
    assert one.core._quorum.may_raise_epoch(START_MS) is is_raised


def test_a_prospective_replica_gives_its_vote_again_to_the_replica_that_has_it() -> None:
    voted = ReplicaKey(3)
    state = ProspectiveState(
        epoch=5,
        leader_id=-1,
        endpoints=Endpoints(),
        voted=voted,
        tally=Tally(VOTERS.ids, (2,)),
        election_deadline_ms=0,
    )
    vote = Vote(epoch=5, candidate=voted, voter=ReplicaKey(2), last=at(0, 0), pre_vote=False)
    assert state.can_grant(vote, up_to_date=False) is True
    assert state.can_grant(replace(vote, candidate=ReplicaKey(1)), up_to_date=True) is False


def test_an_election_timeout_of_zero_stays_zero() -> None:
    one = OneCore(config=QuorumConfig(append_linger_ms=0, election_timeout_ms=0))
    assert one.core._quorum.random_election_timeout_ms() == 0


def test_a_replica_that_loses_its_pre_votes_does_not_follow_a_leader_without_an_address() -> None:
    one = OneCore(election=ElectionState(epoch=5, leader_id=9))
    while one.core.state_name != "Prospective":
        one.advance(100)
    for peer in (1, 3):
        one.answer(VoteReply(epoch=5, leader_id=-1, granted=False), peer)
    assert one.core.state_name == "Unattached"


@pytest.mark.parametrize(("fetch_ms", "wait_ms"), [(2000, 500), (500, 2000)])
def test_a_leader_parks_a_fetch_for_the_longer_of_both_times(fetch_ms: int, wait_ms: int) -> None:
    config = QuorumConfig(fetch_timeout_ms=fetch_ms, fetch_max_wait_ms=wait_ms)
    assert config.longest_wait_ms == 2000


# A leader


def test_a_voter_that_downloads_a_snapshot_is_no_majority() -> None:
    five = VoterSet.parse("1@a:1,2@b:2,3@c:3,4@d:4,5@e:5")
    one = OneCore(election=ElectionState(epoch=5), voters=five)
    one.elect(1, 3)
    fetch_all(one, ReplicaKey(1))
    fetch_all(one, ReplicaKey(3))
    leader = one.core._quorum.state
    assert isinstance(leader, LeaderState)
    deadline_ms = leader.check_quorum_deadline_ms
    snapshot = at(50, 5)
    one.core.log.snapshots = (snapshot,)
    one.now_ms += 10
    for node, later in ((4, False), (5, True)):
        wanted = FetchSnapshot(
            epoch=one.core.epoch, replica=ReplicaKey(node), snapshot=snapshot, position=0, max_bytes=1000
        )
        one.step(Received(50 + node, wanted))
        assert (leader.check_quorum_deadline_ms > deadline_ms) is later


def test_a_change_of_the_voters_is_refused_when_its_leader_ends() -> None:
    one = leader_of(1, 2, 3, 4, 5)
    one.step(Received(70, RemoveVoter(key(5))))
    later = BeginQuorumEpoch(epoch=one.core.epoch + 1, leader_id=1, voter=key(2), endpoints=endpoints(1))
    one.ask(later)
    (answer,) = [effect.message for effect in one.all(SendReply) if effect.request_id == 70]
    assert isinstance(answer, RemoveVoterReply)
    assert answer.error is Error.NOT_LEADER_OR_FOLLOWER


def test_a_removed_leader_resigns_and_announces_its_epoch_to_no_voter() -> None:
    """The voter 4 has been silent, so that a leader would announce itself again."""
    one = leader_of(1, 2, 3, 4)
    one.advance(DEFAULTS.fetch_timeout_ms // 2 + 1)
    one.step(Received(70, RemoveVoter(key(2))))
    fetch_all(one, key(1))
    before = len(one.effects)
    fetch_all(one, key(3))
    after = one.effects[before:]
    assert [effect.target for effect in after if isinstance(effect, StateChanged)] == ["Resigned"]
    announced = [one for one in after if isinstance(one, SendRequest) and isinstance(one.message, BeginQuorumEpoch)]
    assert announced == []


def test_after_a_late_answer_of_a_replica_to_be_added_the_replica_may_be_asked_again() -> None:
    """The change has ended before, for its time was over."""
    one = leader_of(1, 2, 3)
    peers = one.core._quorum.peers
    request_id = peers.sent(4, one.now_ms)
    assert not peers.is_ready(4, one.now_ms)
    one.step(Replied(request_id, 4, ProbeVersionsReply(VersionRange(0, 1))))
    assert peers.is_ready(4, one.now_ms)


def test_taken_fetches_leave_no_deadline() -> None:
    purgatory = Purgatory()
    fetch = Fetch(epoch=5, replica=ReplicaKey(1), offset=0, last_epoch=0, max_wait_ms=10)
    purgatory.park(ParkedFetch(1, fetch, FetchReply(epoch=5), 100))
    assert len(purgatory.take_all()) == 1
    assert purgatory.deadline_ms == NEVER_MS


# The log and the voters


def test_a_raised_log_start_forgets_the_epochs_below() -> None:
    log = LogView(
        start_offset=0, end_offset=100, epochs=EpochHistory((at(0, 1), at(30, 2), at(60, 3))), snapshots=(at(70, 3),)
    )
    log.raise_start(70)
    assert log.epochs.entries == (at(70, 3),)


def test_a_log_that_begins_at_a_snapshot_knows_where_the_epoch_of_its_records_begins() -> None:
    log = LogView(start_offset=70, end_offset=70, epochs=EpochHistory(), snapshots=(at(70, 3),))
    log.appended(75, 3)
    assert log.epochs.entries == (at(70, 3),)
    log.appended(80, 3)
    assert log.epochs.entries == (at(70, 3),)


def test_a_change_back_to_earlier_voters_is_a_change() -> None:
    two, three = VoterSet((voter(1), voter(2))), VoterSet((voter(1), voter(2), voter(3)))
    history = VoterHistory(VoterSet(())).with_changes((QuorumChange(0, 1), QuorumChange(0, two)))
    for offset, voters in ((10, three), (12, two)):
        history = history.with_changes((QuorumChange(offset, voters),))
    assert history.uncommitted_changes(11) == 1
    assert history.uncommitted_changes(13) == 0
