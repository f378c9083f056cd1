"""A leader's knowledge of its voters, at the beginning of its epoch and after a voter has lost records."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kraft.quorum.effects import AppendBatch, AppendControl, ReadConfirmed, SendReply
from kraft.quorum.events import ReadIndex, Received, Resign
from kraft.quorum.membership import upgrade_obstacle
from kraft.quorum.messages import (
    AddVoter,
    AddVoterReply,
    BeginQuorumEpochReply,
    DescribeQuorum,
    ProbeVersionsReply,
    RemoveVoter,
    UpdateVoter,
    VoteReply,
)
from kraft.quorum.states.leader import NEVER_FETCHED, LeaderState, Progress
from kraft.quorum.values import ElectionState, ReplicaKey, VersionRange
from kraft.quorum.voters import Voter, VoterSet
from leading_core import fetch_all, key, leader_of, voter
from metadata_log.types import NO_OFFSET
from support.kraft.one_core import OneCore, endpoints, records_of_the_leader
from transport.protocol.errors import Error


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


@pytest.mark.parametrize("named", [1, 3, -1])
def test_a_reply_that_names_another_leader_of_the_epoch_confirms_no_read(named: int) -> None:
    """No voter sends such a reply to its leader (`core` seed 1075151)."""
    one = leader_of(1, 2, 3)
    one.answer(BeginQuorumEpochReply(epoch=one.core.epoch, leader_id=2), peer=1)
    one.step(ReadIndex(7))
    one.answer(BeginQuorumEpochReply(epoch=one.core.epoch, leader_id=named), peer=1)
    assert one.all(ReadConfirmed) == []


# Voters that change


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
    one.step(Received(2, AddVoter(voter(4))))
    one.answer(ProbeVersionsReply(VersionRange(0, 1)), peer=4)
    assert one.core.voters.ids == (1, 2, 3, 4)
    assert offset_of(one, 4) == end


def test_a_voter_that_returns_with_another_directory_has_no_offset_of_its_former_self() -> None:
    one = leader_of(1, 2, 3)
    former, present = key(4), replace(key(4), directory_id=key(5).directory_id)
    fetch_all(one, former)
    leader = one.core._quorum.state
    assert isinstance(leader, LeaderState)
    leader.take_voters(leader.voters.with_voter(replace(voter(4), key=present)))
    assert leader.progress[4] == Progress(present)
    assert former in leader.observers


def test_removed_voters_but_not_the_leader_are_observers_with_their_offsets() -> None:
    one = leader_of(1, 2, 3, 4)
    end = fetch_all(one, key(3))
    one.step(Received(2, RemoveVoter(key(3))))
    described = one.ask(DescribeQuorum())
    assert [(observer.key, observer.log_end_offset) for observer in described.observers] == [(key(3), end)]
    for node in (1, 4):
        fetch_all(one, key(node))
    one.step(Received(3, RemoveVoter(key(2))))
    described = one.ask(DescribeQuorum())
    assert [observer.key for observer in described.observers] == [key(2), key(3)]
    assert [known.key.id for known in described.voters] == [1, 4]


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (ProbeVersionsReply(None, Error.UNKNOWN_SERVER_ERROR), Error.REQUEST_TIMED_OUT),
        (ProbeVersionsReply(None), Error.INVALID_REQUEST),
        (ProbeVersionsReply(VersionRange(-1, 1)), Error.INVALID_REQUEST),
        (ProbeVersionsReply(VersionRange(0, 0)), Error.INVALID_REQUEST),
    ],
)
def test_a_new_voter_that_does_not_support_the_version_of_the_quorum_is_not_added(
    reply: ProbeVersionsReply, error: Error
) -> None:
    one = leader_of(1, 2, 3)
    fetch_all(one, key(4))
    fetch_all(one, key(4))
    one.step(Received(2, AddVoter(voter(4))))
    one.answer(reply, peer=4)
    (answer,) = [effect.message for effect in one.all(SendReply) if effect.request_id == 2]
    assert isinstance(answer, AddVoterReply)
    assert answer.error is error
    assert one.core.voters.ids == (1, 2, 3)


def test_gathered_records_are_written_before_a_voter_change() -> None:
    """They have their offsets since the append, and those of the change follow."""
    one = leader_of(1, 2, 3, linger_ms=10_000)
    offset = one.core.append((b"one", b"two"), one.now_ms)
    assert offset == one.core.log.end_offset
    one.step(Received(2, RemoveVoter(key(3))))
    (batch,) = one.all(AppendBatch)
    change = one.all(AppendControl)[-1]
    assert (batch.base_offset, batch.values) == (offset, (b"one", b"two"))
    assert (change.base_offset, one.core.next_append_offset) == (offset + 2, offset + 3)
    assert one.effects.index(batch) < one.effects.index(change)


def test_a_node_without_other_voters_that_depend_on_it_may_stop() -> None:
    assert OneCore(local=ReplicaKey(7), endpoints=endpoints(7)).core.may_stop
    assert OneCore(voters=VoterSet.parse("2@n2:9093")).core.may_stop
    assert OneCore().core.may_stop
    assert not OneCore(election=ElectionState(epoch=5)).core.may_stop


def test_a_candidate_campaigns_without_pre_votes_if_a_voter_does_not_know_them() -> None:
    """KIP-996."""
    one = OneCore(election=ElectionState(epoch=5))
    while one.core.state_name != "Prospective":
        one.advance(10)
    one.answer(VoteReply(epoch=5, leader_id=-1, top_error=Error.UNSUPPORTED_VERSION), peer=1)
    assert (one.core.state_name, one.core.epoch) == ("Candidate", 6)


def test_a_quorum_is_upgraded_once_every_voter_supports_the_version() -> None:
    one = OneCore(local=key(2), election=ElectionState(epoch=5))
    one.elect(1)
    fetch_all(one)
    obstacles = [upgrade_obstacle(one.core._quorum, 1)]
    for node, versions in ((1, VersionRange(0, 0)), (3, VersionRange(0, 1)), (1, VersionRange(0, 1))):
        update = UpdateVoter(epoch=one.core.epoch, voter=Voter(key(node), endpoints(node), versions))
        assert one.ask(update).error is Error.NONE
        obstacles.append(upgrade_obstacle(one.core._quorum, 1))
    assert obstacles == [
        "These voters have not told their directory ids yet: 1, 3.",
        "These voters have not told their directory ids yet: 3.",
        "These voters do not support kraft.version 1: 1.",
        None,
    ]
