"""The listeners of a broker: when they open, what they advertise, and how large requests and answers may be."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest
import trio
from msgspec.structs import replace

from conversation import LISTENER, Node
from metadata_log.serde import Message
from metadata_log.types import Uuid
from transport import TcpTransport
from transport.memory_sockets import MemoryStreams
from transport.protocol.apis import ApiKey
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.broker_listener import AT_BROKERS, broker_answer_limit, broker_request_limit
from transport.protocol.client_connection import ClientConnection
from transport.protocol.headers import encode_request, encode_response
from transport.protocol.inbound import Cause, Failed, Reply, Request
from transport.protocol.limits import request_limit
from transport.protocol.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    ApiVersionsResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
)
from transport.protocol.messages.api_versions import ApiVersion
from transport.protocol.messages.fetch import EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, PartitionData
from transport.protocol.server_connection import ServerConnection
from transport.serving import Serving, ServingLimits
from transport.wire import WireTransport

OPTIONS: dict[str, Any] = {"served": AT_BROKERS, "limits": broker_request_limit, "opens_later": True}
Make = Callable[[], WireTransport]
MAKES: dict[str, Make] = {
    "epoll": lambda: TcpTransport(use_epoll=True, **OPTIONS),
    "streams": lambda: TcpTransport(use_epoll=False, **OPTIONS),
    "memory": lambda: MemoryStreams().transport(**OPTIONS),
}


@pytest.mark.parametrize("make", ["epoll", "streams"])
async def test_the_system_refuses_connections_until_the_listeners_open(make: str):
    node = Node(MAKES[make]())
    endpoint = node.transport.listen(replace(LISTENER, port=0))
    async with node.running():
        with pytest.raises(OSError, match="connect"):
            await trio.open_tcp_stream(endpoint.host, endpoint.port)
        assert isinstance(node.transport, WireTransport)
        node.transport.open_listeners()
        stream = await trio.open_tcp_stream(endpoint.host, endpoint.port)
        await stream.aclose()


@pytest.mark.parametrize("make", ["epoll", "streams"])
async def test_a_port_that_never_opened_is_free_after_the_end(make: str):
    node = Node(MAKES[make]())
    endpoint = node.transport.listen(replace(LISTENER, port=0))
    async with node.running():
        pass
    with socket.socket() as again:
        again.bind((endpoint.host, endpoint.port))


def frame(key: ApiKey, version: int, number: int, message: Message) -> bytes:
    content = encode_request(key, version, number, "raw", message, apis=AT_BROKERS)
    return len(content).to_bytes(4, "big") + content


def connection() -> ServerConnection:
    return ServerConnection(
        handle=None, listener="PLAINTEXT", peer="h:1", served=AT_BROKERS, limits=broker_request_limit
    )


def taken(found: Request | bytes | None) -> Request:
    assert isinstance(found, Request), found
    return found


def test_the_request_behind_one_without_an_answer_is_taken_and_answered():
    server = connection()
    server.receive(frame(ApiKey.PRODUCE, 13, 1, ProduceRequest(acks=0)))
    server.receive(frame(ApiKey.METADATA, 13, 2, MetadataRequest()))
    first = taken(server.take())
    assert server.take() is None, "a connection has one request in progress"
    assert server.leave_unanswered(first) == b""
    second = taken(server.take())
    answer = server.answer(second, MetadataResponse())
    assert answer[4:8] == (2).to_bytes(4, "big")
    assert server.unanswered == 0
    assert server.lost() == ()


@pytest.mark.parametrize(("key", "version"), [(ApiKey.PRODUCE, 2), (ApiKey.INIT_PRODUCER_ID, 6), (ApiKey.VOTE, 2)])
def test_a_request_that_no_broker_serves_breaks_the_connection(key: ApiKey, version: int):
    content = b"".join((int(key).to_bytes(2, "big"), version.to_bytes(2, "big"), bytes(4), b"\xff\xff", bytes(64)))
    server = connection()
    server.receive(len(content).to_bytes(4, "big") + content)
    assert server.take() is None
    assert server.broken is not None


def test_clients_may_send_larger_produce_and_fetch_requests_than_voters():
    assert broker_request_limit(ApiKey.FETCH).values > request_limit(ApiKey.FETCH).values
    assert broker_request_limit(ApiKey.CREATE_TOPICS) == request_limit(ApiKey.CREATE_TOPICS)


# How large requests to a broker and answers to a broker may be, and which APIs a broker asks other brokers for.


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def ready(client: ClientConnection, token: int, request: Message) -> list[Reply | Failed]:
    """Send a request on a connection after the peer has named its versions."""
    versions = [ApiVersion(key, api.versions.lowest, api.versions.highest) for key, api in AT_BROKERS.items()]
    client.begin("me")
    client.send(token, request, "me")
    outcomes, _ = client.feed(
        framed(encode_response(ApiKey.API_VERSIONS, 4, 0, ApiVersionsResponse(api_keys=versions)))
    )
    return outcomes


def answered(client: ClientConnection, api_key: int, version: int, answer: Message) -> list[Reply | Failed]:
    """Feed the answer to the one request."""
    outcomes, _ = client.feed(framed(encode_response(api_key, version, 1, answer, apis=ALL_APIS)))
    return outcomes


def of_broker() -> ClientConnection:
    return ClientConnection(software=("a", "1"), apis=ALL_APIS, answer_limits=broker_answer_limit)


def server(most: int) -> ServerConnection:
    return ServerConnection(
        handle=None,
        listener="PLAINTEXT",
        peer="h:1",
        served=AT_BROKERS,
        limits=broker_request_limit,
        max_frame_bytes=most,
    )


@pytest.mark.parametrize("most", [1 << 20, 100 << 20])
def test_socket_request_max_bytes_bounds_a_produce_request(most: int) -> None:
    start = b"\x00\x00\x00\x0d"
    allowed, refused = server(most), server(most)
    allowed.receive(most.to_bytes(4, "big") + start)
    assert allowed.broken is None
    refused.receive((most + 1).to_bytes(4, "big") + start)
    assert refused.broken == f"a frame of {most + 1} bytes was announced; at most {most} are allowed"


def test_the_memory_for_requests_has_room_for_two_of_the_largest_produce_requests() -> None:
    largest = 100 << 20
    limits = ServingLimits(max_frame_bytes=largest, largest_request_bytes=largest)
    serving = Serving(limits, later=lambda *_: None, now=lambda: 0.0)
    assert serving.received_bytes == 2 * largest
    assert Serving(ServingLimits(), later=lambda *_: None, now=lambda: 0.0).received_bytes == 64 << 20


@pytest.mark.parametrize("partitions", [600, 2000])
def test_a_follower_reads_an_answer_about_all_partitions_of_a_leader(partitions: int) -> None:
    topic_id = Uuid(bytes(range(16)))
    parts = [
        PartitionData(
            partition_index=number,
            records=b"x",
            diverging_epoch=EpochEndOffset(1, 2),
            current_leader=LeaderIdAndEpoch(1, 2),
            aborted_transactions=None,
        )
        for number in range(partitions)
    ]
    answer = FetchResponse(responses=[FetchableTopicResponse(topic_id=topic_id, partitions=parts)])
    client = of_broker()
    assert ready(client, 7, FetchRequest()) == []
    assert answered(client, ApiKey.FETCH, 18, answer) == [Reply(7, answer)]


@pytest.mark.parametrize(
    ("key", "request_", "answer", "version"),
    [
        (ApiKey.LIST_OFFSETS, ListOffsetsRequest(replica_id=1), ListOffsetsResponse(), 11),
        (ApiKey.ADD_PARTITIONS_TO_TXN, AddPartitionsToTxnRequest(), AddPartitionsToTxnResponse(), 5),
    ],
    ids=["ListOffsets", "AddPartitionsToTxn"],
)
def test_a_broker_asks_another_for_what_only_brokers_answer(
    key: ApiKey, request_: Message, answer: Message, version: int
) -> None:
    client = of_broker()
    assert ready(client, 7, request_) == []
    assert answered(client, key, version, answer) == [Reply(7, answer)]


def test_a_request_of_an_api_that_this_side_does_not_ask_for_fails_alone() -> None:
    client = ClientConnection(software=("a", "1"))
    why = "the peer has no version of LIST_OFFSETS that is known here"
    assert ready(client, 7, ListOffsetsRequest(replica_id=1)) == [Failed(7, Cause.UNSUPPORTED_VERSION, why)]
    assert client.broken is None
