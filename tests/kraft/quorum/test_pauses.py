"""Which answers let a core ask the same peer again at once, which ones after a pause, and which timers end a pause."""

from __future__ import annotations

import pytest

from kraft.quorum.effects import SendRequest
from kraft.quorum.epoch_limit import highest_epoch
from kraft.quorum.events import FailureCause, Resumed
from kraft.quorum.messages import Fetch, FetchReply, UpdateVoter, UpdateVoterReply, Vote, VoteReply
from kraft.quorum.values import ElectionState, QuorumConfig, ReplicaKey
from metadata_log.types import Uuid
from support.kraft.one_core import START_MS, OneCore, at, endpoints, records_of_the_leader
from transport.protocol.errors import Error

DEFAULTS = QuorumConfig()
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
