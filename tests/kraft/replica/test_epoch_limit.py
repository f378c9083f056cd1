"""No number of messages uses up the epochs: a node accepts a claimed epoch up to a limit that rises with the clock
(decision 0015).
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from kraft.quorum.effects import PersistElection
from kraft.quorum.epoch_limit import LAST_EPOCH, SINCE_MS, SPARE_EPOCHS, highest_epoch
from kraft.quorum.events import FailureCause, Resign
from kraft.quorum.messages import (
    BatchFacts,
    BeginQuorumEpoch,
    BeginQuorumEpochReply,
    EndQuorumEpoch,
    EndQuorumEpochReply,
    Fetch,
    FetchReply,
    FetchSnapshot,
    Reply,
    Request,
    UpdateVoter,
    Vote,
    VoteReply,
)
from kraft.quorum.values import ElectionState, ReplicaKey
from kraft.quorum.voters import Voter, VoterSet
from metadata_log.errors import DecodeError
from metadata_log.log.quorum_state_file import StoredElection, format_quorum_state, parse_quorum_state
from metadata_log.serde import Message
from metadata_log.types import METADATA_TOPIC
from support.kraft.one_core import START_MS, OneCore, at, endpoints, records_of_the_leader
from support.kraft.replica_net import CLUSTER_ID, DIRECTORY, Net
from support.kraft.simulated_quorum import goes_on, others, reports
from transport.protocol.errors import Error
from transport.protocol.messages import FetchResponse, VoteRequest
from transport.protocol.messages.vote import VoteRequestPartitionData, VoteRequestTopicData

BEYOND = highest_epoch(START_MS) + 3600
YEAR_MS = 365 * 24 * 3600 * 1000


def vote(epoch: int, *, pre_vote: bool = False, candidate: int = 3) -> Vote:
    return Vote(epoch=epoch, candidate=ReplicaKey(candidate), voter=ReplicaKey(2), last=at(10**6, 5), pre_vote=pre_vote)


# The line


def test_the_epoch_limit_leaves_spare_epochs_and_ends_at_the_last_one() -> None:
    assert highest_epoch(0) == SPARE_EPOCHS
    assert highest_epoch(SINCE_MS + YEAR_MS) < SPARE_EPOCHS + 2**25
    assert highest_epoch(SINCE_MS + 67 * YEAR_MS) < LAST_EPOCH, "for two generations"
    assert highest_epoch(2**62) == LAST_EPOCH


# What others claim

CLAIMS: dict[str, Request] = {
    "vote": vote(BEYOND),
    "pre-vote": vote(BEYOND, pre_vote=True),
    "vote of no voter": vote(BEYOND, candidate=99),
    "the last epoch": vote(LAST_EPOCH),
    "begin": BeginQuorumEpoch(epoch=BEYOND, leader_id=3, voter=ReplicaKey(2), endpoints=endpoints(3)),
    "end": EndQuorumEpoch(epoch=BEYOND, leader_id=3, endpoints=endpoints(3)),
    "fetch": Fetch(epoch=BEYOND, replica=ReplicaKey(3), offset=100, last_epoch=BEYOND),
    "fetch of a snapshot": FetchSnapshot(epoch=BEYOND, replica=ReplicaKey(3), snapshot=at(100, BEYOND), position=0),
    "update of a voter": UpdateVoter(epoch=BEYOND, voter=Voter(ReplicaKey(3), endpoints(3))),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_request_beyond_the_epoch_limit_changes_no_state(claim: str) -> None:
    one = OneCore()
    one.answer(records_of_the_leader())
    before = len(one.all(PersistElection))
    assert one.ask(CLAIMS[claim]).error == Error.UNKNOWN_LEADER_EPOCH
    assert (one.core.epoch, one.core.leader.leader_id, one.core.state_name) == (5, 1, "Follower")
    assert len(one.all(PersistElection)) == before


REPLIES: list[Reply] = [
    FetchReply(epoch=BEYOND, leader_id=3, endpoints=endpoints(3)),
    FetchReply(epoch=BEYOND, error=Error.FENCED_LEADER_EPOCH),
    FetchReply(epoch=LAST_EPOCH, leader_id=3, endpoints=endpoints(3), error=Error.NOT_LEADER_OR_FOLLOWER),
]


@pytest.mark.parametrize("reply", REPLIES)
def test_a_response_beyond_the_epoch_limit_changes_no_state(reply: Reply) -> None:
    one = OneCore()
    one.answer(reply)
    assert (one.core.epoch, one.core.leader.leader_id) == (5, 1)
    assert "no quorum is beyond" in one.suspicions[-1]
    one.advance(25)
    one.fail(FailureCause.TIMEOUT, peer=3)
    one.answer(records_of_the_leader(), peer=1)
    assert one.core.log.high_watermark == 100


@pytest.mark.parametrize("kind", [VoteReply, BeginQuorumEpochReply, EndQuorumEpochReply])
def test_the_epoch_limit_applies_to_responses_of_elections(kind: type[Any]) -> None:
    one = OneCore()
    one.advance(2000)
    assert one.core.state_name == "Prospective"
    if kind is not VoteReply:
        one.answer(VoteReply(epoch=5, granted=True), peer=3)
        one.answer(VoteReply(epoch=6, granted=True), peer=3)
        assert one.core.is_leader
        if kind is EndQuorumEpochReply:
            one.step(Resign(6))
    epoch, state = one.core.epoch, one.core.state_name
    one.answer(kind(epoch=BEYOND, leader_id=3, endpoints=endpoints(3)), peer=3)
    assert (one.core.epoch, one.core.state_name) == (epoch, state)


def test_batches_of_a_future_epoch_are_not_appended() -> None:
    one = OneCore()
    one.answer(records_of_the_leader(batches=(BatchFacts(100, 101, LAST_EPOCH, 1),), data=b"x"))
    assert one.core.log.end_offset == 100


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 5000), st.booleans()), max_size=60))
def test_many_messages_do_not_exhaust_the_epochs(claims: list[tuple[int, int, bool]]) -> None:
    """Creeping does not help either: each epoch is believed, or not, by the clock alone."""
    one = OneCore()
    for claimed, wait_ms, pre_vote in claims:
        one.advance(wait_ms)
        near = highest_epoch(one.now_ms) - 3 + claimed % 7
        for epoch in (claimed, near, one.core.epoch + 1 + claimed % 1000):
            one.ask(vote(epoch, pre_vote=pre_vote))
            assert one.core.epoch <= highest_epoch(one.now_ms)


# What this replica does itself


def test_a_quorum_at_the_epoch_limit_elects_a_leader_when_the_clock_allows() -> None:
    """One message can bring a quorum to the line. It costs the next election about a second, and no more."""
    one = OneCore()
    limit = highest_epoch(one.now_ms)
    one.ask(vote(limit, pre_vote=True))
    assert (one.core.epoch, one.core.state_name) == (limit, "Unattached")
    began_ms = one.now_ms
    while not one.core.is_leader:
        assert one.now_ms < began_ms + 10_000
        one.advance(100)
        for voter in (1, 3):
            if one.core.state_name in ("Prospective", "Candidate"):
                one.answer(VoteReply(epoch=one.core.epoch, granted=True), peer=voter)
    assert limit < one.core.epoch <= highest_epoch(one.now_ms)


@pytest.mark.parametrize("leader_id", [1, 2, -1])
def test_a_node_in_the_last_epoch_runs_and_starts_no_election(leader_id: int) -> None:
    """As an older release may have left it: there is no election any more, and nothing that cannot be read."""
    one = OneCore(election=ElectionState(epoch=LAST_EPOCH, leader_id=leader_id))
    for _ in range(50):
        one.advance(500)
        if one.core.state_name == "Prospective":
            one.answer(VoteReply(epoch=LAST_EPOCH, granted=True), peer=3)
    assert one.core.epoch == LAST_EPOCH
    assert {effect.state.epoch for effect in one.all(PersistElection)} == {LAST_EPOCH}
    assert "before the clock allows it" in one.suspicions[-1]


def test_the_only_voter_in_the_last_epoch_runs_without_leading() -> None:
    voters = VoterSet.parse("2@n2:9093")
    one = OneCore(voters=voters, election=ElectionState(epoch=LAST_EPOCH, voters=(2,)))
    one.advance(20_000)
    assert not one.core.is_leader
    assert one.core.epoch == LAST_EPOCH


# Whole replicas


def test_one_frame_with_the_last_epoch_does_not_stop_the_quorum() -> None:
    """Formerly such a frame ended the quorum for good: the epoch went to disk, and no node started any more."""
    net = Net(3)
    leader = net.elect()
    part = VoteRequestPartitionData(
        replica_epoch=LAST_EPOCH, replica_id=99, last_offset_epoch=0, last_offset=0, pre_vote=True
    )
    topics = [VoteRequestTopicData(topic_name=METADATA_TOPIC, partitions=[part])]
    for node in net.processes:
        net.ask(node, VoteRequest(cluster_id=CLUSTER_ID, voter_id=-1, topics=topics))
        assert any("claims epoch 2147483647" in what for what in reports(net, node))
    net.advance(10_000)
    assert net.leader == leader
    for node in list(net.processes):
        net.kill(node)
    for node in net.disks:
        net.start(node)
    goes_on(net)


def test_a_quorum_raised_to_the_epoch_limit_continues() -> None:
    net = Net(3)
    net.elect()
    part = VoteRequestPartitionData(
        replica_epoch=highest_epoch(net.now_ms), replica_id=99, last_offset_epoch=0, last_offset=0, pre_vote=True
    )
    request = VoteRequest(
        cluster_id=CLUSTER_ID, voter_id=-1, topics=[VoteRequestTopicData(topic_name=METADATA_TOPIC, partitions=[part])]
    )
    net.ask(net.leader, request)
    net.advance(100)
    net.elect()
    goes_on(net)
    for node in list(net.processes):
        net.kill(node)
    for node in net.disks:
        net.start(node)
    goes_on(net)


def test_a_peer_that_answers_with_the_last_epoch_is_reported() -> None:
    net = Net(3)
    leader = net.elect()
    liar = others(net, leader)[0]

    def lie(node: int, answer: Message) -> Message:
        if node != liar or not isinstance(answer, FetchResponse) or not answer.responses:
            return answer
        part = answer.responses[0].partitions[0]
        known = structs.replace(part.current_leader, leader_epoch=LAST_EPOCH, leader_id=liar)
        part = structs.replace(part, current_leader=known)
        return structs.replace(answer, responses=[structs.replace(answer.responses[0], partitions=[part])])

    net.on_the_way = lie
    net.kill(leader)
    net.until(lambda: net.leader not in (0, leader), 30_000)
    net.start(leader)
    net.advance(5000)
    assert all(replica.replica.core.epoch < 100 for replica in net.processes.values())


# What is on disk


def test_an_invalid_epoch_on_disk_is_refused_with_file_and_remedy() -> None:
    content = format_quorum_state(StoredElection(leader_epoch=LAST_EPOCH)).replace(b"2147483647", b"2147483648")
    with pytest.raises(DecodeError, match="epochs end at 2147483647") as refused:
        parse_quorum_state(content, where=f"{DIRECTORY}/quorum-state")
    assert refused.value.where == f"{DIRECTORY}/quorum-state"
    assert "Stop all controllers" in (refused.value.hint or "")


def test_no_unreadable_epoch_is_written() -> None:
    with pytest.raises(AssertionError):
        format_quorum_state(StoredElection(leader_epoch=LAST_EPOCH + 1))
