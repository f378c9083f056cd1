"""Kafka's wire protocol by hand: one connection, bytes out, bytes in. For requests that no proper client sends."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterable
from typing import Protocol, TypeVar

from metadata_log.serde import Message, schema_of
from support.eventually import eventually
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.errors import Error
from transport.protocol.frames import FrameReader
from transport.protocol.headers import decode_response, encode_request
from transport.protocol.messages.api_versions import ApiVersionsRequest
from transport.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from transport.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

M = TypeVar("M", bound=Message)


class Listening(Protocol):
    """A quorum of nodes at known ports of the loopback address."""

    @property
    def ports(self) -> dict[int, int]:
        """The port of each node."""


ANSWER_SECONDS = 20
CONTROLLERS = 2
CLIENT_METRICS = 16
LAST = 99
"""The correlation id of the request that asks whether a connection still works."""


def framed(content: bytes) -> bytes:
    """With its length in front."""
    return len(content).to_bytes(4, "big") + content


def request_bytes(message: Message, version: int, *, correlation_id: int = 7) -> bytes:
    """A whole request, length included."""
    api_key = schema_of(type(message)).api_key
    assert api_key is not None
    return framed(encode_request(api_key, version, correlation_id, "interop", message, apis=ALL_APIS))


def reaction(port: int, sent: bytes) -> tuple[list[bytes], bool]:
    """A node's answer to these bytes, and whether the node still answers a valid request after them."""
    reader = FrameReader()
    found: list[bytes] = []
    with socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS) as connection:
        try:
            connection.sendall(sent + request_bytes(ApiVersionsRequest(), 0, correlation_id=LAST))
            while data := connection.recv(1 << 16):
                for frame in reader.feed(data):
                    if int.from_bytes(frame[:4], "big") == LAST:
                        return found, True
                    found.append(frame)
        except (ConnectionResetError, BrokenPipeError):
            pass
    return found, False


def ask(port: int, message: Message, version: int, answer: type[M]) -> M:
    """The answer of one node to one request."""
    api_key = schema_of(type(message)).api_key
    assert api_key is not None
    reader = FrameReader()
    with socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS) as connection:
        connection.sendall(request_bytes(message, version))
        frames: list[bytes] = []
        while not frames:
            data = connection.recv(1 << 16)
            assert data, f"node at {port} closed the connection instead of answering {type(message).__name__}"
            frames = reader.feed(data)
    _, body = decode_response(api_key, version, frames[0], apis=ALL_APIS)
    assert isinstance(body, answer)
    return body


def active_controller(port: int) -> int:
    """The leader's id as the node at this port knows it; -1 if the node knows no leader or does not answer."""
    try:
        return ask(port, DescribeClusterRequest(endpoint_type=CONTROLLERS), 1, DescribeClusterResponse).controller_id
    except (OSError, AssertionError):
        return -1


def known_brokers(port: int) -> set[int]:
    """The unfenced brokers, as the broker at this port knows them; empty if that broker does not answer."""
    try:
        return {one.broker_id for one in ask(port, DescribeClusterRequest(), 1, DescribeClusterResponse).brokers}
    except (OSError, AssertionError):
        return set()


def wait_until_known(brokers: Collection[int], ports: Iterable[int]) -> None:
    """Wait until the broker at each of the ports names all of these brokers.

    A client may learn the brokers from one that has just started, then ask another where to send a request, and fail
    for good because the answer names a broker that it does not know: kafka-python's administrator does.
    """
    asked = list(ports)
    eventually(lambda: all(known_brokers(one) >= set(brokers) for one in asked), f"all know the brokers {brokers}", 60)


def leader_of(layout: Listening, *, meanwhile: Callable[[], None] = lambda: None) -> int:
    """The active controller, once every node knows the same one; `meanwhile` may fail the wait before its end."""
    known: dict[int, int] = {}

    def agreed() -> bool:
        meanwhile()
        known.update({node: active_controller(port) for node, port in layout.ports.items()})
        return len(set(known.values())) == 1 and -1 not in known.values()

    try:
        eventually(agreed, "a leader that all nodes know")
    except AssertionError as error:
        error.add_note(f"node: the leader that it named last (-1 for none, or no answer): {known}")
        raise
    return known.popitem()[1]


def set_client_metrics(port: int, name: str, **configs: str) -> Error:
    """Set configs of a client-metrics resource, the one admin write that needs no broker; the error of the answer."""
    changes = [AlterableConfig(name=key, value=value) for key, value in configs.items()]
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=changes)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    return Error.of(ask(port, request, 1, IncrementalAlterConfigsResponse).responses[0].error_code)
