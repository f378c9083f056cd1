"""The listeners of a broker: they open when the broker says so, and a request may have no answer."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest
import trio
from msgspec.structs import replace

from metadata_log.serde import Message
from support.transport.conversation import LISTENER, Node
from transport import TcpTransport
from transport.memory_sockets import MemoryStreams
from transport.protocol.apis import ApiKey
from transport.protocol.broker_listener import AT_BROKERS, broker_request_limit
from transport.protocol.headers import encode_request
from transport.protocol.inbound import Request
from transport.protocol.limits import request_limit
from transport.protocol.messages import MetadataRequest, MetadataResponse, ProduceRequest
from transport.protocol.server_connection import ServerConnection
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
