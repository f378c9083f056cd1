"""The common parts of the translations of all RPCs: the partition, the leader's endpoints (Kafka: `RaftUtil`)."""

from __future__ import annotations

from typing import Any, Final

from kraft.quorum.values import Endpoints, ListenerAddress
from kraft.wire import WireRequest
from metadata_log.errors import DecodeError
from metadata_log.types import METADATA_PARTITION, METADATA_TOPIC
from transport.protocol.errors import Error

NO_LEADER_EPOCH: Final = -1
_NO_ENDPOINTS: Final = Endpoints()
_MAX_PORT: Final = 2**16 - 1


def only_partition(topics: Any) -> Any:
    """The one partition of a request or reply about the metadata partition and nothing else; None for any other.

    Typed loosely: every API has classes of its own for the same shape.
    """
    if len(topics) != 1 or topics[0].topic_name != METADATA_TOPIC or len(topics[0].partitions) != 1:
        return None
    part = topics[0].partitions[0]
    return part if part.partition_index == METADATA_PARTITION else None


def checked(message: Any) -> tuple[Error, Any]:
    """The top-level error of a reply, or its only partition; raises `DecodeError` where it has neither."""
    top = Error.of(message.error_code)
    if top != Error.NONE:
        return top, None
    part = only_partition(message.topics)
    if part is None:
        raise DecodeError(f"a {type(message).__name__} is not about the metadata partition", field="topics")
    return top, part


def endpoints_of(listeners: Any) -> Endpoints:
    """The addresses in a request, without those that have no host or no port."""
    return Endpoints(tuple(ListenerAddress(one.name, one.host, one.port) for one in listeners if one.host and one.port))


def leader_address(request: WireRequest, endpoints: Endpoints) -> ListenerAddress | None:
    """The leader's address on the listener of the request, if it has one. The answer of version 0 has no address."""
    return endpoints.find(request.listener) if request.version >= 1 else None


def leader_endpoints(message: Any, leader_id: int, listener: str) -> Endpoints:
    """The leader's endpoint in a reply: that of the listener which sent the reply."""
    for node in message.node_endpoints:
        if node.node_id == leader_id:
            return endpoint(listener, node.host, node.port)
    return _NO_ENDPOINTS


def endpoint(listener: str, host: str, port: int) -> Endpoints:
    """An address in a reply, none without a host or a port; raises `DecodeError` for a port that cannot be.

    Some replies have room for more than a port (int32), and no other message could pass such a port on.
    """
    if not 0 <= port <= _MAX_PORT:
        raise DecodeError(f"the leader listens at port {port}, which no host has", field="port")
    if not host or not port:
        return _NO_ENDPOINTS
    return Endpoints((ListenerAddress(listener, host, port),))
