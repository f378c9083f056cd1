"""A long answer is written in steps: between two of them the node serves others, and the order of answers stays."""

from __future__ import annotations

import pytest
import trio
from conversation import Node, echo
from test_tcp import connect, framed, read_frames, serving, vote

from metadata_log.serde import Message
from transport import TcpTransport
from transport.protocol import server_connection as server_side
from transport.protocol.apis import ApiKey
from transport.protocol.headers import decode_response, encode_request, encode_response
from transport.protocol.messages import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from transport.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicState
from transport.protocol.messages.elect_leaders import PartitionResult, ReplicaElectionResult
from transport.protocol.server_connection import ServerConnection

ASK_ALL = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=1)


def elections(partitions: int) -> ElectLeadersResponse:
    outcomes = [PartitionResult(partition_id=at, error_code=84, error_message="not needed") for at in range(partitions)]
    return ElectLeadersResponse(replica_election_results=[ReplicaElectionResult(topic="t", partition_result=outcomes)])


def server() -> ServerConnection:
    return ServerConnection(handle=None, listener="CONTROLLER", peer="10.0.0.1:5")


def ask(number: int, message: Message, api_key: ApiKey, version: int) -> bytes:
    return framed(encode_request(api_key, version, number, "tool", message))


def test_a_response_encoded_in_steps_has_the_same_bytes() -> None:
    partitions = 3 * server_side.ELEMENTS_PER_STEP
    connection = server()
    [request], _ = connection.feed(ask(1, ASK_ALL, ApiKey.ELECT_LEADERS, 2))
    assert connection.may_be_long(request)
    steps = connection.answer_in_steps(request, elections(partitions))
    for _ in range(3):
        next(steps)
        assert connection.unanswered == 1
        assert connection.lost() == (), "it has its answer"
    with pytest.raises(StopIteration) as done:
        next(steps)
    assert connection.unanswered == 0
    assert done.value.value == framed(encode_response(ApiKey.ELECT_LEADERS, 2, 1, elections(partitions)))


def test_later_answers_wait_for_one_that_is_being_written() -> None:
    connection = server()
    [long, short], _ = connection.feed(ask(1, ASK_ALL, ApiKey.ELECT_LEADERS, 2) + vote(2))
    steps = connection.answer_in_steps(long, elections(2 * server_side.FIRST_ELEMENTS))
    next(steps)
    assert connection.answer(short, echo(short)) == b""
    connection.receive(ask(3, ASK_ALL, ApiKey.ELECT_LEADERS, 2))
    assert connection.take() is None, "one in bulk at a time, until the answer is written"
    with pytest.raises(StopIteration) as done:
        next(steps)
    assert done.value.value.endswith(framed(encode_response(short.api_key, short.version, 2, echo(short))))
    assert connection.take() is not None


def test_only_long_requests_of_an_api_have_responses_in_steps() -> None:
    for count, is_long in ((1, False), (1000, True)):
        connection = server()
        names = [DeleteTopicState(name=f"topic-{number}") for number in range(count)]
        [request], _ = connection.feed(ask(1, DeleteTopicsRequest(topics=names, timeout_ms=1), ApiKey.DELETE_TOPICS, 6))
        assert connection.may_be_long(request) is is_long
        steps = connection.answer_in_steps(
            request, DeleteTopicsResponse(responses=[DeletableTopicResult(name=one.name) for one in names])
        )
        if is_long:
            next(steps)
        with pytest.raises(StopIteration):
            next(steps)


@pytest.mark.parametrize("use_epoll", [True, False])
async def test_other_requests_are_answered_between_the_steps(use_epoll: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two long answers are written in turn, and a vote passes them by."""
    monkeypatch.setattr(server_side, "ELEMENTS_PER_STEP", 8)
    node = Node(TcpTransport(use_epoll=use_epoll))
    answer = elections(server_side.FIRST_ELEMENTS + 8 * 400)
    async with serving(node) as endpoint:
        tools = [await connect(endpoint) for _ in range(2)]
        voter = await connect(endpoint)
        for tool in tools:
            await tool.send_all(ask(1, ASK_ALL, ApiKey.ELECT_LEADERS, 2))
        asked = [await node.next_request() for _ in tools]
        for request in asked:
            node.transport.answer(request, answer)
        assert len(node.transport.serving._work) == 2
        await voter.send_all(vote(7))
        request = await node.next_request()
        node.transport.answer(request, echo(request))
        assert len(await read_frames(voter, 1)) == 1
        assert len(node.transport.serving._work) == 2, "both long answers are still being written"
        for tool in tools:
            [frame] = await read_frames(tool, 1)
            assert decode_response(ApiKey.ELECT_LEADERS, 2, frame)[1] == answer
        for stream in (*tools, voter):
            await stream.aclose()


async def test_nothing_more_is_written_for_a_connection_that_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_side, "ELEMENTS_PER_STEP", 1)
    node = Node(TcpTransport())
    async with serving(node) as endpoint:
        tool = await connect(endpoint)
        await tool.send_all(ask(1, ASK_ALL, ApiKey.ELECT_LEADERS, 2))
        request = await node.next_request()
        node.transport.answer(request, elections(100_000))
        node.transport.drop(request)
        with trio.fail_after(5):
            await node.until(lambda: not node.transport.serving._work)
        await tool.aclose()
