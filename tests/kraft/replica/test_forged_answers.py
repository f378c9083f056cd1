"""Answers that the simulated attacker found to be believed: a vote beside an error, and a leader without an address."""

from __future__ import annotations

import pytest

from kraft.quorum.effects import PeerFault, SendRequest
from kraft.quorum.events import Replied, Tick
from kraft.quorum.messages import Vote, VoteReply
from metadata_log.serde import Message
from metadata_log.types import METADATA_TOPIC
from support.kraft.one_core import OneCore
from support.kraft.replica_net import CLUSTER_ID, Net
from transport.protocol.errors import Error
from transport.protocol.messages import BeginQuorumEpochRequest, FetchResponse
from transport.protocol.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequestPartitionData,
    BeginQuorumEpochRequestTopicData,
    LeaderEndpoint,
)


@pytest.mark.parametrize("error", [Error.UNKNOWN_SERVER_ERROR, Error.UNKNOWN_TOPIC_OR_PARTITION])
def test_a_granted_vote_with_an_error_does_not_count(error: Error) -> None:
    """Kafka's `handleVoteResponse` takes such an answer for an error, whatever else it says."""
    one = OneCore()
    one.now_ms += 60_000
    asked = [effect for effect in one.step(Tick()) if isinstance(effect, SendRequest)]
    asked = [effect for effect in asked if isinstance(effect.message, Vote)]
    assert len(asked) == 2, "node 2 stands, and asks the others"
    epoch = one.core.epoch
    granted = VoteReply(epoch=epoch, error=error, granted=True)
    effects = one.step(Replied(asked[0].request_id, asked[0].peer_id, granted))
    assert one.core.state_name == "Prospective"
    assert one.core.epoch == epoch
    assert any(isinstance(effect, PeerFault) and error.name in effect.what for effect in effects)


@pytest.mark.parametrize(("host", "port"), [("", 9093), ("n3", 0)])
def test_a_leader_without_an_endpoint_is_not_followed(host: str, port: int) -> None:
    """The node could not reach it, nor tell others where it is; a JVM stops over such an answer."""
    net = Net(3)
    leader = net.elect()
    node = next(one for one in net.processes if one != leader)
    epoch = net.processes[node].replica.core.epoch
    part = BeginQuorumEpochRequestPartitionData(leader_id=4711, leader_epoch=epoch + 1)
    request = BeginQuorumEpochRequest(
        cluster_id=CLUSTER_ID,
        topics=[BeginQuorumEpochRequestTopicData(METADATA_TOPIC, [part])],
        leader_endpoints=[LeaderEndpoint("CONTROLLER", host, port)],
    )
    answer = net.ask(node, request)
    assert answer.topics[0].partitions[0].error_code == Error.INVALID_REQUEST
    assert net.processes[node].replica.core.leader.leader_id == leader


def test_a_follower_fetches_again_soon_after_an_answer_about_something_else() -> None:
    """The follower does not wait until the request is out of time."""
    net = Net(3)
    leader = net.elect()
    forged: list[int] = []

    def forge(node: int, answer: Message) -> Message:
        if isinstance(answer, FetchResponse) and answer.responses and not forged:
            forged.append(node)
            return FetchResponse()
        return answer

    net.on_the_way = forge
    net.submit(leader, b"value")
    net.settle()
    assert forged == [leader]
    net.advance(200)
    assert {one.replica.log.end_offset for one in net.processes.values()} == {2}
    assert any(isinstance(effect, PeerFault) for _, effect in net.traces)
