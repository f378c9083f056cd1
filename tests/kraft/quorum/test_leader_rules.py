"""What a leader knows of its voters, at the beginning of its epoch and after a voter has lost records."""

from __future__ import annotations

from one_core import OneCore, records_of_the_leader

from kraft.quorum.effects import ReadConfirmed
from kraft.quorum.events import ReadIndex, Received, Resign
from kraft.quorum.messages import BeginQuorumEpochReply, DescribeQuorum, Fetch, VoteReply
from kraft.quorum.states.leader import NEVER_FETCHED, Progress
from kraft.quorum.values import ElectionState, ReplicaKey
from metadata_log.types import NO_OFFSET


def elect(one: OneCore) -> None:
    """Let the core win a pre-vote and a vote with the voter 1."""
    while one.core.state_name != "Prospective":
        one.advance(100)
    for _ in ("pre-vote", "vote"):
        one.answer(VoteReply(epoch=one.core.epoch, leader_id=-1, granted=True), peer=1)
    assert one.core.is_leader


def fetch_all(one: OneCore) -> int:
    """Let the voter 1 fetch from the end of the leader's log; returns that offset."""
    epoch, end = one.core.epoch, one.core.log.end_offset
    fetch = Fetch(epoch=epoch, replica=ReplicaKey(1), offset=end, last_epoch=epoch, max_wait_ms=0, max_bytes=1000)
    one.step(Received(1, fetch))
    return end


def offset_of(one: OneCore, voter_id: int) -> int:
    """The end offset of a voter, as the leader knows it."""
    voters = one.ask(DescribeQuorum()).voters
    return next(voter.log_end_offset for voter in voters if voter.key.id == voter_id)


def test_a_leader_that_is_elected_again_knows_no_offset_of_another_voter() -> None:
    """A voter may have lost its disk between the two leaderships, or may have truncated what it had."""
    one = OneCore(election=ElectionState(epoch=5))
    elect(one)
    epoch = one.core.epoch
    end = fetch_all(one)
    assert offset_of(one, 1) == end
    one.step(Resign(epoch, "test"))
    elect(one)
    assert one.core.epoch > epoch
    assert offset_of(one, 1) == NO_OFFSET


def test_a_voter_that_fetches_from_a_lower_offset_has_no_more_than_that() -> None:
    progress = Progress(ReplicaKey(1))
    assert (progress.end_offset, progress.last_fetch_ms) == (NO_OFFSET, NEVER_FETCHED)
    progress.fetched(10, 10, 100)
    progress.fetched(4, 10, 200)
    assert progress.end_offset == 4


def test_a_new_leader_confirms_no_read_before_the_first_commit_of_its_epoch() -> None:
    """The high watermark that it knows as a former follower may be older than what another leader has committed."""
    one = OneCore()
    one.answer(records_of_the_leader())
    assert one.core.log.high_watermark == 100
    elect(one)
    one.step(ReadIndex(7))
    agreed = BeginQuorumEpochReply(epoch=one.core.epoch, leader_id=2)
    for _ in range(2):
        one.answer(agreed, peer=1)
    assert one.all(ReadConfirmed) == []
    end = fetch_all(one)
    one.answer(agreed, peer=1)
    assert one.all(ReadConfirmed) == [ReadConfirmed((7,), end)]
