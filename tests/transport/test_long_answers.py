"""Long answers. One of many elements is written in steps: between two of them the node serves others, and the order of
answers stays. One with large records is sent from where the records are.
"""

from __future__ import annotations

import pytest
import trio

from conversation import Node, echo
from metadata_log.serde import Message
from support.interop.certificates import tls
from tcp_frames import connect, framed, read_frames, serving, vote
from transport import Reply, TcpTransport
from transport.protocol import server_connection as server_side
from transport.protocol.apis import ApiKey
from transport.protocol.headers import (
    LARGE_BYTES,
    decode_response,
    encode_request,
    encode_response,
    encode_response_in_pieces,
    has_large_records,
)
from transport.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    FetchRequest,
    FetchResponse,
)
from transport.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicState
from transport.protocol.messages.elect_leaders import PartitionResult, ReplicaElectionResult
from transport.protocol.messages.fetch import FetchableTopicResponse, PartitionData
from transport.protocol.server_connection import ServerConnection

FETCH_VERSION = 12
SIZES = [
    (),
    (0,),
    (LARGE_BYTES - 1,),
    (LARGE_BYTES,),
    (3 << 20,),
    (5, 1 << 20, 0, 70_000, LARGE_BYTES),
    (70_000,) * 200,
]
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


def records_of(sizes: tuple[int, ...]) -> FetchResponse:
    """Partitions with records of these sizes."""
    parts = [
        PartitionData(partition_index=number, records=bytes([number % 251 + 1]) * size)
        for number, size in enumerate(sizes)
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=parts)])


def fetch(number: int) -> bytes:
    return framed(encode_request(ApiKey.FETCH, FETCH_VERSION, number, "raw", FetchRequest()))


@pytest.mark.parametrize("sizes", SIZES)
def test_the_pieces_are_the_answer(sizes: tuple[int, ...]):
    message = records_of(sizes)
    pieces = encode_response_in_pieces(ApiKey.FETCH, FETCH_VERSION, 7, message)
    assert b"".join(pieces) == encode_response(ApiKey.FETCH, FETCH_VERSION, 7, message)
    assert has_large_records(message) == (max(sizes, default=0) >= LARGE_BYTES)
    assert len(pieces) <= 66, "more pieces than one call of the system takes"


def test_large_records_are_not_copied():
    message = records_of((5, 1 << 20, 70_000))
    parts = message.responses[0].partitions
    pieces = encode_response_in_pieces(ApiKey.FETCH, FETCH_VERSION, 7, message)
    assert [each for each in pieces if len(each) >= LARGE_BYTES] == [parts[1].records, parts[2].records]
    assert pieces[1] is parts[1].records


def test_an_answer_in_pieces_waits_for_those_before_it():
    """Requests of pipelined APIs may be under way beside the one Fetch."""
    connection = ServerConnection(handle=None, listener="L", peer="10.0.0.1:1")
    vote = framed(encode_request(ApiKey.API_VERSIONS, 0, 1, "raw", ApiVersionsRequest()))
    [first, second], _ = connection.feed(vote + fetch(2))
    assert connection.answer_in_pieces(second, records_of((1 << 20,))) == [b""]
    assert connection.unanswered == 2
    released = connection.answer(first, ApiVersionsResponse())
    assert released.endswith(encode_response(ApiKey.FETCH, FETCH_VERSION, 2, records_of((1 << 20,))))
    assert (connection.unanswered, connection.weight, connection.early_bytes, connection.bulk) == (0, 0, 0, None)


@pytest.mark.parametrize("use_epoll", [True, False])
@pytest.mark.parametrize("sizes", SIZES)
async def test_a_peer_reads_the_answer_over_tcp(use_epoll: bool, sizes: tuple[int, ...]):
    """The largest answer does not fit the buffers of the sockets: its rest follows as the peer reads."""
    message = records_of(sizes)
    node = Node(TcpTransport(use_epoll=use_epoll))
    node.answer_with = lambda _: message
    async with serving(node) as endpoint, await connect(endpoint) as stream:
        for number in (1, 2):
            await stream.send_all(fetch(number))
            assert await read_frames(stream, 1) == [encode_response(ApiKey.FETCH, FETCH_VERSION, number, message)]


async def test_a_peer_reads_the_answer_over_tls():
    message = records_of((5, 3 << 20, 70_000))
    server, client = Node(TcpTransport(tls=tls())), Node(TcpTransport(tls=tls()))
    server.answer_with = lambda _: message
    async with serving(server) as endpoint, client.running():
        outcome = await client.call(endpoint, FetchRequest())
        assert isinstance(outcome, Reply)
        assert isinstance(outcome.message, FetchResponse)
        assert outcome.message.responses[0].partitions == message.responses[0].partitions
