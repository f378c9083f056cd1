"""The timers of leaders and of their peers: what they begin, what a pause delays, and what ends it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kraft.quorum.effects import AppendBatch, SendRecords, SendReply, SendRequest, StateChanged
from kraft.quorum.epoch_limit import highest_epoch
from kraft.quorum.events import FailureCause, Received, Resumed, Tick
from kraft.quorum.log_view import LogView
from kraft.quorum.membership import upgrade_obstacle
from kraft.quorum.messages import (
    AddVoter,
    AddVoterReply,
    BatchFacts,
    BeginQuorumEpoch,
    BeginQuorumEpochReply,
    DescribeQuorum,
    Fetch,
    FetchReply,
    ProbeVersions,
    RemoveVoter,
    UpdateVoter,
    UpdateVoterReply,
    Vote,
    VoteReply,
)
from kraft.quorum.states import (
    CandidateState,
    EpochState,
    FollowerState,
    LeaderState,
    ProspectiveState,
    ResignedState,
    Tally,
    UnattachedState,
    VotedState,
)
from kraft.quorum.values import ElectionState, Endpoints, QuorumConfig, ReplicaKey
from kraft.quorum.voters import QuorumChange, VoterSet
from leading_core import fetch_all, key, leader_of, voter
from metadata_log.log.epochs import EpochHistory
from metadata_log.types import Uuid
from support.kraft.one_core import START_MS, OneCore, at, endpoints, records_of_the_leader
from transport.protocol.errors import Error

DEFAULTS = QuorumConfig()
ANNOUNCED_MS = DEFAULTS.fetch_timeout_ms // 2


def added(one: OneCore) -> AddVoterReply | None:
    """The answer to the request 77, if the leader has answered it."""
    found = [effect.message for effect in one.all(SendReply) if effect.request_id == 77]
    assert len(found) <= 1, found
    (answer,) = found or (None,)
    assert answer is None or isinstance(answer, AddVoterReply)
    return answer


def adding(one: OneCore) -> None:
    """Let an administrator add the voter 4, which is asked for its versions first."""
    for _ in range(2):
        fetch_all(one, key(4))
    one.step(Received(77, AddVoter(voter(4))))
    assert isinstance(one.asked(4).message, ProbeVersions)


# Announcements


def test_a_leader_announces_itself_to_a_silent_voter_twice_in_a_fetch_timeout() -> None:
    """The end of a voter change in between is no reason for another announcement."""
    one = leader_of(1, 2, 3)
    begin_ms = one.now_ms
    one.now_ms += ANNOUNCED_MS // 2
    adding(one)
    announced: list[int] = []
    for _ in range(6 * ANNOUNCED_MS // 100):
        before = len(one.all(SendRequest))
        one.now_ms += 100
        fetch_all(one, key(1))
        one.step(Tick())
        for request in one.all(SendRequest)[before:]:
            if isinstance(request.message, BeginQuorumEpoch):
                assert request.peer_id == 3
                announced.append(one.now_ms - begin_ms)
                one.answer(BeginQuorumEpochReply(epoch=one.core.epoch, leader_id=2), peer=3)
    answer = added(one)
    assert answer is not None
    assert answer.error is Error.REQUEST_TIMED_OUT
    assert {after - before for before, after in pairwise(announced)} == {ANNOUNCED_MS}
    assert len(announced) >= 4


def test_a_leader_that_resigns_for_want_of_a_majority_announces_nothing_more() -> None:
    one = leader_of(1, 2, 3)
    one.advance(2 * DEFAULTS.fetch_timeout_ms)
    kinds = [(effect.target if isinstance(effect, StateChanged) else effect) for effect in one.effects]
    resigned = kinds.index("Resigned")
    requests = [effect.message for effect in kinds[resigned:] if isinstance(effect, SendRequest)]
    assert requests
    assert not [message for message in requests if isinstance(message, BeginQuorumEpoch)]


# Voter changes


def test_a_voter_that_cannot_be_asked_for_its_versions_is_refused_at_once() -> None:
    one = leader_of(1, 2, 3)
    adding(one)
    one.fail(FailureCause.REFUSED, peer=4)
    answer = added(one)
    assert answer is not None
    assert (answer.error, answer.text) == (Error.REQUEST_TIMED_OUT, "Voter 4 cannot be reached.")


def test_a_pause_of_the_process_does_not_end_a_voter_change() -> None:
    one = leader_of(1, 2, 3)
    adding(one)
    one.step(Resumed(10_000))
    end_ms = one.now_ms + 10_000
    while one.now_ms < end_ms - 100:
        one.now_ms += 100
        fetch_all(one, key(1))
        one.step(Tick())
        assert added(one) is None
    one.now_ms = end_ms
    one.step(Tick())
    assert added(one) is not None


@pytest.mark.parametrize(("level", "obstacle"), [(0, False), (1, True)])
def test_the_present_level_of_the_quorum_has_no_obstacle(level: int, obstacle: bool) -> None:
    one = OneCore(election=ElectionState(epoch=5))
    one.elect(1)
    assert (upgrade_obstacle(one.core._quorum, level) is not None) is obstacle


# Fetches


def test_a_fetch_that_waited_counts_when_it_is_answered() -> None:
    """The voter was there all the time: check-quorum counts it from the answer on."""
    one = leader_of(1, 2, 3)
    fetch_all(one, key(1))
    core = one.core
    waits = Fetch(epoch=core.epoch, replica=key(1), offset=core.log.end_offset, last_epoch=core.epoch, max_wait_ms=500)
    one.step(Received(5, waits))
    one.now_ms += 300
    assert core.append((b"value",), one.now_ms) is not None
    one.step(Tick())
    assert len(one.all(AppendBatch)) == 1
    assert [effect.request_id for effect in one.all(SendRecords)] == [5]
    (known,) = [known for known in one.ask(DescribeQuorum()).voters if known.key.id == 1]
    assert known.last_fetch_ms == one.now_ms


def test_a_reader_without_an_id_is_no_observer() -> None:
    one = leader_of(1, 2, 3)
    fetch_all(one, ReplicaKey(-1))
    assert one.ask(DescribeQuorum()).observers == ()


# A follower's side


def test_the_end_of_a_fetch_timeout_moves_with_an_answer_that_names_a_snapshot() -> None:
    one = OneCore()
    one.now_ms = START_MS + 1000
    one.answer(records_of_the_leader(snapshot=at(200, 5)))
    assert one.core._quorum.state.deadline_ms() == one.now_ms + DEFAULTS.fetch_timeout_ms


def test_a_voter_set_without_a_level_is_a_fault_of_the_leader_and_is_followed_by_a_pause() -> None:
    one = OneCore()
    changes = (QuorumChange(101, VoterSet((voter(1),))),)
    batch = BatchFacts(100, 102, 5, 9, changes)
    asked = [request.peer_id for request in one.all(SendRequest)].count(1)
    one.answer(records_of_the_leader(batches=(batch,), data=b"2 records"))
    assert one.suspicions == ["it sent a voter set, but kraft.version is 0"]
    assert one.core.log.end_offset == 100
    assert [request.peer_id for request in one.all(SendRequest)].count(1) == asked


@pytest.mark.parametrize("offsets", [(99,), (102,), (101, 100), (100, 100)])
def test_control_records_out_of_order_are_a_fault_of_the_leader(offsets: tuple[int, ...]) -> None:
    one = OneCore()
    batch = BatchFacts(100, 102, 5, 1, tuple(QuorumChange(offset, 1) for offset in offsets))
    one.answer(records_of_the_leader(batches=(batch,), data=b"x"))
    assert "control records out of order" in one.suspicions[-1]
    assert one.core.log.end_offset == 100


def test_a_follower_learns_that_nothing_is_committed() -> None:
    one = OneCore()
    one.answer(records_of_the_leader(high_watermark=-1))
    assert one.core.log.high_watermark == -1
    one.answer(records_of_the_leader(high_watermark=0), peer=1)
    assert one.core.log.high_watermark == 0


# Starts and logs


def test_the_only_voter_leads_again_in_the_epoch_of_its_vote() -> None:
    """The vote is on disk, and no other voter was asked."""
    one = OneCore(voters=VoterSet.parse("2@n2:9093"), election=ElectionState(epoch=6, voted=ReplicaKey(2)))
    assert one.core.is_leader
    assert one.core.epoch == 6


def test_a_candidate_of_three_voters_asks_again_after_a_restart() -> None:
    one = OneCore(election=ElectionState(epoch=6, voted=ReplicaKey(2)))
    assert (one.core.state_name, one.core.epoch) == ("Candidate", 6)
    assert sorted(request.peer_id for request in one.all(SendRequest)) == [1, 3]


def test_a_second_flush_up_to_the_same_offset_is_no_news() -> None:
    log = LogView(start_offset=0, end_offset=10, epochs=EpochHistory((at(0, 1),)))
    log.appended(12, 1)
    assert [log.flushed(12, 1), log.flushed(12, 1), log.flushed(11, 1)] == [True, False, False]


def test_a_snapshot_of_epoch_0_may_replace_a_log_of_later_epochs() -> None:
    log = LogView(start_offset=0, end_offset=30, epochs=EpochHistory((at(0, 3),)))
    assert log.cut_for(at(50, 0)) == 0
    assert log.cut_for(at(50, 3)) == 30
    log.commit(10)
    assert log.cut_for(at(50, 0)) is None


# The end of a leader that removes itself


@pytest.mark.parametrize("times_out", [False, True])
def test_a_leader_that_removes_itself_leads_until_exactly_that_record_is_committed(times_out: bool) -> None:
    """Also when the administrator has been told that the change takes too long."""
    one = leader_of(1, 2, 3)
    core = one.core

    def fetch_up_to(offset: int) -> None:
        for node in (1, 3):
            fetch = Fetch(epoch=core.epoch, replica=key(node), offset=offset, last_epoch=core.epoch, max_wait_ms=0)
            one.step(Received(1, fetch))

    assert core.append((b"value",), one.now_ms) is not None
    one.step(Tick())
    removal = core.log.end_offset
    one.step(Received(78, RemoveVoter(key(2))))
    assert core.history.voters_offset == removal
    for _ in range(25 if times_out else 1):
        one.now_ms += 100
        fetch_up_to(removal)
    assert core.log.high_watermark == removal
    assert core.is_leader
    answers = [effect.message.error for effect in one.all(SendReply) if effect.request_id == 78]
    assert answers == ([Error.REQUEST_TIMED_OUT] if times_out else [])
    fetch_up_to(removal + 1)
    assert core.state_name == "Resigned"


# Pauses

TALLY = Tally((1, 2, 3), (2,))


@pytest.mark.parametrize(
    "state",
    [
        UnattachedState(5, -1, 100),
        VotedState(5, -1, ReplicaKey(3), 100),
        ProspectiveState(5, -1, Endpoints(), None, TALLY, 100),
        CandidateState(5, ReplicaKey(2), TALLY, 100),
        FollowerState(5, 1, Endpoints(), None, 100),
        ResignedState(5, ReplicaKey(2), Endpoints(), (1, 3), (), 100),
    ],
    ids=lambda state: state.name,
)
def test_a_pause_of_the_process_moves_an_earlier_deadline_and_no_later_one(state: EpochState) -> None:
    assert state.deadline_ms() == 100
    state.wait_at_least_until(50)
    assert state.deadline_ms() == 100
    state.wait_at_least_until(150)
    assert state.deadline_ms() == 150


def test_a_leader_of_a_quorum_with_the_shortest_timeouts_announces_itself_each_millisecond() -> None:
    one = OneCore(election=ElectionState(epoch=5), config=QuorumConfig(append_linger_ms=0, fetch_timeout_ms=2))
    one.elect(1)
    leader = one.core._quorum.state
    assert isinstance(leader, LeaderState)
    assert leader.begin_deadline_ms == one.now_ms + 1


# Which answers let a core ask the same peer again at once.


OWN = ReplicaKey(2, Uuid(bytes(range(16))))


def requests_to(one: OneCore, peer: int) -> list[SendRequest]:
    return [request for request in one.all(SendRequest) if request.peer_id == peer]


def prospective(epoch: int) -> OneCore:
    """A core in a round of pre-votes, which both other voters have been asked for."""
    one = OneCore(election=ElectionState(epoch=epoch))
    while one.core.state_name != "Prospective":
        one.advance(10)
    return one


def without_pre_votes(epoch: int) -> VoteReply:
    return VoteReply(epoch=epoch, leader_id=-1, top_error=Error.UNSUPPORTED_VERSION)


# Elections


def test_a_voter_that_does_not_know_pre_votes_is_asked_for_its_vote_at_once() -> None:
    """KIP-996. The answer is no fault of the voter, and a pause would delay the election."""
    one = prospective(5)
    one.answer(without_pre_votes(5), peer=1)
    vote = one.asked(1).message
    assert isinstance(vote, Vote)
    assert (vote.epoch, vote.pre_vote) == (6, False)
    assert one.suspicions == []


def test_a_voter_that_does_not_know_pre_votes_is_asked_again_after_a_pause_at_the_epoch_limit() -> None:
    """Without another epoch the round of pre-votes goes on, and the request to that voter is not in flight any more."""
    epoch = highest_epoch(START_MS) + 100
    one = prospective(epoch)
    asked = len(requests_to(one, 1))
    one.answer(without_pre_votes(epoch), peer=1)
    assert (one.core.state_name, one.core.epoch) == ("Prospective", epoch)
    one.advance(DEFAULTS.retry_backoff_ms - 1)
    assert len(requests_to(one, 1)) == asked
    one.advance(1)
    assert len(requests_to(one, 1)) == asked + 1


def test_a_higher_epoch_shortens_a_long_grace_to_two_election_timeouts() -> None:
    """The election timer of the former epoch goes on, but no longer than a new timer would at most."""
    one = OneCore(election=ElectionState(epoch=5))
    one.step(Resumed(grace_ms=100_000))
    vote = Vote(epoch=6, candidate=ReplicaKey(3), voter=ReplicaKey(2), last=at(50, 5), pre_vote=False)
    assert not one.ask(vote).granted
    one.advance(2 * DEFAULTS.election_timeout_ms - 1)
    assert (one.core.state_name, one.core.epoch) == ("Unattached", 6)
    one.advance(1)
    assert one.core.state_name == "Prospective"


def test_a_peer_that_names_this_node_as_the_leader_is_not_asked_again_at_once() -> None:
    one = OneCore(election=ElectionState(epoch=5))
    for _ in range(2):
        one.answer(FetchReply(epoch=5, leader_id=2, endpoints=endpoints(2)))
    assert sorted(request.peer_id for request in one.all(SendRequest)) == [1, 3]
    assert len(one.suspicions) == 2
    one.advance(DEFAULTS.retry_backoff_ms)
    assert len(one.all(SendRequest)) == 3


# Reports of voters


def reporting() -> OneCore:
    """A follower at the moment of its first report to the leader."""
    one = OneCore(local=OWN)
    for _ in range(2):
        one.now_ms += DEFAULTS.fetch_timeout_ms // 2
        one.answer(records_of_the_leader())
    return one


def test_a_voter_reports_at_the_end_of_the_fetch_timeout() -> None:
    one = reporting()
    assert one.now_ms == START_MS + DEFAULTS.fetch_timeout_ms
    assert [type(request.message) for request in requests_to(one, 1)] == [Fetch, Fetch, UpdateVoter]


@pytest.mark.parametrize(
    ("reply", "counts"),
    [
        (UpdateVoterReply(epoch=5, leader_id=1), True),
        (UpdateVoterReply(epoch=5, leader_id=1, error=Error.UNSUPPORTED_VERSION), True),
        (UpdateVoterReply(epoch=4, leader_id=1), False),
        (UpdateVoterReply(epoch=5, leader_id=1, error=Error.INVALID_REQUEST), False),
        (UpdateVoterReply(epoch=5, leader_id=1, error=Error.VOTER_NOT_FOUND), False),
    ],
    ids=["good", "unsupported", "of a former epoch", "invalid", "no such voter"],
)
def test_a_voter_repeats_a_report_that_the_leader_has_not_taken(reply: UpdateVoterReply, counts: bool) -> None:
    """A static quorum keeps the reports in the memory of its leader, of one epoch."""
    one = reporting()
    one.answer(reply, peer=1)
    assert isinstance(one.asked(1).message, Fetch), "the follower fetches at once"
    for _ in range(2):
        one.now_ms += DEFAULTS.fetch_timeout_ms // 2
        one.answer(records_of_the_leader(), peer=1)
    assert isinstance(one.asked(1).message, Fetch if counts else UpdateVoter)


def test_a_taken_report_begins_the_fetch_timeout_again() -> None:
    one = reporting()
    one.now_ms += 7
    one.answer(UpdateVoterReply(epoch=5, leader_id=1), peer=1)
    assert one.core._quorum.state.deadline_ms() == one.now_ms + DEFAULTS.fetch_timeout_ms


def test_a_follower_reports_once_to_a_leader_that_does_not_know_reports() -> None:
    """The connection fails for want of a version: the follower asks another voter meanwhile, and then its leader."""
    one = reporting()
    one.fail(FailureCause.UNSUPPORTED_VERSION, peer=1)
    assert one.asked().peer_id == 3
    one.answer(FetchReply(epoch=5, leader_id=1, endpoints=endpoints(1), error=Error.NOT_LEADER_OR_FOLLOWER), peer=3)
    one.advance(DEFAULTS.retry_backoff_ms)
    for _ in range(10):
        assert isinstance(one.asked(1).message, Fetch)
        one.now_ms += DEFAULTS.fetch_timeout_ms // 2
        one.answer(records_of_the_leader(), peer=1)
