"""What a leader knows of its voters, at the beginning of its epoch and after a voter has lost records."""

from __future__ import annotations

from one_core import OneCore, at, endpoints, records_of_the_leader

from kraft.quorum.core import CoreStart
from kraft.quorum.effects import ReadConfirmed
from kraft.quorum.events import ReadIndex, Received, Resign
from kraft.quorum.messages import (
    AddVoter,
    BeginQuorumEpochReply,
    DescribeQuorum,
    Fetch,
    ProbeVersionsReply,
    RemoveVoter,
)
from kraft.quorum.states.leader import NEVER_FETCHED, Progress
from kraft.quorum.values import ElectionState, ReplicaKey, VersionRange
from kraft.quorum.voters import QuorumChange, Voter, VoterSet
from metadata_log.log.epochs import EpochHistory
from metadata_log.types import NO_OFFSET, Uuid


def fetch_all(one: OneCore, replica: ReplicaKey = ReplicaKey(1)) -> int:
    """Let a replica, by default the voter 1, fetch from the end of the leader's log; returns that offset."""
    epoch, end = one.core.epoch, one.core.log.end_offset
    fetch = Fetch(epoch=epoch, replica=replica, offset=end, last_epoch=epoch, max_wait_ms=0, max_bytes=1000)
    one.step(Received(1, fetch))
    return end


def offset_of(one: OneCore, voter_id: int) -> int:
    """The end offset of a voter, as the leader knows it."""
    voters = one.ask(DescribeQuorum()).voters
    return next(voter.log_end_offset for voter in voters if voter.key.id == voter_id)


def test_a_leader_that_is_elected_again_knows_no_offset_of_another_voter() -> None:
    """A voter may have lost its disk between the two leaderships, or may have truncated what it had."""
    one = OneCore(election=ElectionState(epoch=5))
    one.elect(1)
    epoch = one.core.epoch
    end = fetch_all(one)
    assert offset_of(one, 1) == end
    one.step(Resign(epoch, "test"))
    one.elect(1)
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
    one.elect(1)
    one.step(ReadIndex(7))
    agreed = BeginQuorumEpochReply(epoch=one.core.epoch, leader_id=2)
    for _ in range(2):
        one.answer(agreed, peer=1)
    assert one.all(ReadConfirmed) == []
    end = fetch_all(one)
    one.answer(agreed, peer=1)
    assert one.all(ReadConfirmed) == [ReadConfirmed((7,), end)]


# Voters that change


def key(node: int) -> ReplicaKey:
    return ReplicaKey(node, Uuid(bytes(8) + b"\x7f" + bytes(6) + bytes([node])))


def leader_of(*voters: int) -> OneCore:
    """The node 2 as the leader of a dynamic quorum, with a commit of its epoch."""
    known = VoterSet(tuple(Voter(key(node), endpoints(node), VersionRange(0, 1)) for node in voters))
    start = CoreStart(
        election=ElectionState(epoch=5),
        log_start_offset=0,
        log_end_offset=100,
        epochs=EpochHistory((at(0, 5),)),
        changes=(QuorumChange(-1, 1), QuorumChange(-1, known)),
    )
    one = OneCore(local=key(2), voters=VoterSet(()), start=start)
    others = [node for node in voters if node != 2][: len(voters) // 2]
    one.elect(*others)
    for node in others:
        end = fetch_all(one, key(node))
    assert one.core.log.high_watermark == end
    return one


def test_a_voter_that_is_removed_during_a_round_of_confirmations_confirms_no_read() -> None:
    """Another leader may have been elected by the voters that are left: the round begins again, and asks these."""
    one = leader_of(1, 2, 3, 4)
    agreed = BeginQuorumEpochReply(epoch=one.core.epoch, leader_id=2)
    for node in (1, 3, 4):
        one.answer(agreed, peer=node)
    one.step(ReadIndex(7))
    one.answer(agreed, peer=4)
    assert one.all(ReadConfirmed) == [], "a majority of four voters has two voters beside the leader"
    one.step(Received(1, RemoveVoter(key(4))))
    assert one.core.voters.ids == (1, 2, 3)
    assert one.all(ReadConfirmed) == [], "the voter 4 does not count any more"
    one.answer(agreed, peer=1)
    assert [confirmed.read_ids for confirmed in one.all(ReadConfirmed)] == []
    one.answer(agreed, peer=1)
    assert [confirmed.read_ids for confirmed in one.all(ReadConfirmed)] == [(7,)]


def test_a_new_voter_keeps_the_offset_that_it_has_reached_as_an_observer() -> None:
    """A leader that forgot the offset could commit less than a majority has on its disks."""
    one = leader_of(1, 2, 3)
    fetch_all(one, key(4))
    end = fetch_all(one, key(4))
    one.step(Received(2, AddVoter(Voter(key(4), endpoints(4), VersionRange(0, 1)))))
    one.answer(ProbeVersionsReply(VersionRange(0, 1)), peer=4)
    assert one.core.voters.ids == (1, 2, 3, 4)
    assert offset_of(one, 4) == end
