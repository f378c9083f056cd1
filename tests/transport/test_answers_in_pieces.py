"""Answers with large records: sent from where the records are, with the bytes of any other answer."""

from __future__ import annotations

import pytest
from certificates import tls
from conversation import Node
from test_tcp import connect, framed, read_frames, serving

from transport import Reply, TcpTransport
from transport.protocol.apis import ApiKey
from transport.protocol.headers import (
    LARGE_BYTES,
    encode_request,
    encode_response,
    encode_response_in_pieces,
    has_large_records,
)
from transport.protocol.messages import ApiVersionsRequest, ApiVersionsResponse, FetchRequest, FetchResponse
from transport.protocol.messages.fetch import FetchableTopicResponse, PartitionData
from transport.protocol.server_connection import ServerConnection

VERSION = 12
SIZES = [
    (),
    (0,),
    (LARGE_BYTES - 1,),
    (LARGE_BYTES,),
    (3 << 20,),
    (5, 1 << 20, 0, 70_000, LARGE_BYTES),
    (70_000,) * 200,
]


def answer(sizes: tuple[int, ...]) -> FetchResponse:
    """Partitions with records of these sizes."""
    parts = [
        PartitionData(partition_index=number, records=bytes([number % 251 + 1]) * size)
        for number, size in enumerate(sizes)
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=parts)])


def fetch(number: int) -> bytes:
    return framed(encode_request(ApiKey.FETCH, VERSION, number, "raw", FetchRequest()))


@pytest.mark.parametrize("sizes", SIZES)
def test_the_pieces_are_the_answer(sizes: tuple[int, ...]):
    message = answer(sizes)
    pieces = encode_response_in_pieces(ApiKey.FETCH, VERSION, 7, message)
    assert b"".join(pieces) == encode_response(ApiKey.FETCH, VERSION, 7, message)
    assert has_large_records(message) == (max(sizes, default=0) >= LARGE_BYTES)
    assert len(pieces) <= 66, "more pieces than one call of the system takes"


def test_large_records_are_not_copied():
    message = answer((5, 1 << 20, 70_000))
    parts = message.responses[0].partitions
    pieces = encode_response_in_pieces(ApiKey.FETCH, VERSION, 7, message)
    assert [each for each in pieces if len(each) >= LARGE_BYTES] == [parts[1].records, parts[2].records]
    assert pieces[1] is parts[1].records


def test_an_answer_in_pieces_waits_for_those_before_it():
    """Requests of pipelined APIs may be under way beside the one Fetch."""
    connection = ServerConnection(handle=None, listener="L", peer="10.0.0.1:1")
    vote = framed(encode_request(ApiKey.API_VERSIONS, 0, 1, "raw", ApiVersionsRequest()))
    [first, second], _ = connection.feed(vote + fetch(2))
    assert connection.answer_in_pieces(second, answer((1 << 20,))) == [b""]
    assert connection.unanswered == 2
    released = connection.answer(first, ApiVersionsResponse())
    assert released.endswith(encode_response(ApiKey.FETCH, VERSION, 2, answer((1 << 20,))))
    assert (connection.unanswered, connection.weight, connection.early_bytes, connection.bulk) == (0, 0, 0, None)


@pytest.mark.parametrize("use_epoll", [True, False])
@pytest.mark.parametrize("sizes", SIZES)
async def test_a_peer_reads_the_answer_over_tcp(use_epoll: bool, sizes: tuple[int, ...]):
    """The largest answer does not fit the buffers of the sockets: its rest follows as the peer reads."""
    message = answer(sizes)
    node = Node(TcpTransport(use_epoll=use_epoll))
    node.answer_with = lambda _: message
    async with serving(node) as endpoint, await connect(endpoint) as stream:
        for number in (1, 2):
            await stream.send_all(fetch(number))
            assert await read_frames(stream, 1) == [encode_response(ApiKey.FETCH, VERSION, number, message)]


async def test_a_peer_reads_the_answer_over_tls():
    message = answer((5, 3 << 20, 70_000))
    server, client = Node(TcpTransport(tls=tls())), Node(TcpTransport(tls=tls()))
    server.answer_with = lambda _: message
    async with serving(server) as endpoint, client.running():
        outcome = await client.call(endpoint, FetchRequest())
        assert isinstance(outcome, Reply)
        assert isinstance(outcome.message, FetchResponse)
        assert outcome.message.responses[0].partitions == message.responses[0].partitions
