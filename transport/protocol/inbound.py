"""The events that a connection delivers to its user: requests of peers, and the outcomes of its own requests."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Final

from msgspec import Struct

from metadata_log.serde import Message


class Cause(StrEnum):
    """Why a request got no answer. Only `REFUSED` and `RESET` come from the peer's own host.

    Kafka: the exceptions of `NetworkClient`, such as `DisconnectException` and `UnsupportedVersionException`.
    """

    REFUSED = "refused"
    """The peer's own host reports that no process listens at the address."""
    RESET = "reset"
    """The peer closed or reset the connection before it answered."""
    TIMEOUT = "timeout"
    """No answer or no connection in time; also an unknown or unreachable host."""
    UNSUPPORTED_VERSION = "unsupported-version"
    """The peer has no version of this API that can carry the message."""
    BAD_BYTES = "bad-bytes"
    """The peer answered with bytes that do not follow the schema."""
    CLOSED = "closed"
    """This side closed the connection or ended the transport."""
    AUTHENTICATION = "authentication"
    """One side refused the other: its certificate, or the way in which it secures the connection.

    Kafka: `AuthenticationException`.
    """
    FOREIGN = "foreign"
    """The peer speaks another protocol than this side: TLS or none, or not Kafka's."""
    UNKNOWN_HOST = "unknown-host"
    """The name of the host does not exist.

    Kafka: `UnknownHostException`.
    """


LASTING: Final = frozenset({Cause.UNSUPPORTED_VERSION, Cause.AUTHENTICATION, Cause.FOREIGN, Cause.UNKNOWN_HOST})
"""The causes that time alone does not cure: a configuration has to change."""
LASTING_OF_A_NODE: Final = LASTING - {Cause.UNKNOWN_HOST}
"""The same for a node that the cluster has named: the name of a pod in Kubernetes exists while the pod is ready."""
_NOTHING_SAID: Final = frozenset({Cause.REFUSED, Cause.TIMEOUT, Cause.UNKNOWN_HOST})
"""The causes with which a peer has said nothing about itself."""


class Principal(Struct, frozen=True, gc=False):
    """The identity of the peer of a connection (Kafka: `KafkaPrincipal`)."""

    type: str = "User"
    name: str = "ANONYMOUS"
    is_token: bool = False
    """Whether a delegation token identified the peer."""


NOT_TRIED: Final = " (not tried again yet)"
"""Follows the previous failure's reason while the reconnect backoff of a peer lasts."""
ANONYMOUS: Final = Principal()
"""The peer of a connection without authentication."""


ANY_SIZE: Final = 2**31 - 1
"""The room for an answer while memory is not short."""


class Request(Struct, eq=False):
    """A request of a peer, to be passed to `Transport.answer` or `Transport.drop` exactly once.

    Kafka: `RequestChannel.Request`, `RequestHeader`.
    """

    handle: object
    """The route of the request. Only the transport that delivered the request reads this field."""
    sequence: int
    """The position among the requests of its connection, from 0."""
    api_key: int
    """Kafka's key of the API."""
    version: int
    """The version of the request, and of its answer."""
    correlation_id: int
    """The number by which the client finds the request of an answer."""
    client_id: str | None
    """The name that the client gives itself."""
    message: Message
    """The decoded body."""
    listener: str
    """The name of the listener that received the request."""
    peer: str
    """The peer's address, for logs and errors."""
    size: int = 0
    """The bytes of the received frame, header included, without its length; 0 if the message was never encoded."""
    tag: int = 0
    """A number that the user may set, to identify the request in `Gone`."""
    principal: Principal = ANONYMOUS
    """The identity of the peer."""
    room: int = ANY_SIZE
    """The bytes that the answer should not exceed, because memory is short."""


class Gone(Struct, frozen=True, eq=False):
    """A connection closed. The answers to these requests of it would reach no peer.

    The user may forget the requests. `Transport.answer` and `Transport.drop` do nothing for them.
    """

    requests: tuple[Request, ...]
    """The requests, oldest first."""
    listener: str = ""
    """The listener of the connection."""
    peer: str = ""
    """The peer's address, as its requests had it; empty if it sent none."""


class Reply(Struct, frozen=True, gc=False):
    """The answer to a request of this side (Kafka: `ClientResponse`)."""

    token: int
    """The number that the user gave the request."""
    message: Message
    """The decoded answer, in the version of the request."""


class Failed(Struct, frozen=True, gc=False):
    """A request of this side gets no answer (Kafka: `ClientResponse.wasDisconnected`)."""

    token: int
    """The number that the user gave the request."""
    cause: Cause
    detail: str
    """A text for the log, with the address of the peer."""

    @property
    def reason(self) -> str:
        """The detail, without the remark that the peer was not tried again since."""
        return self.detail.removesuffix(NOT_TRIED)


def lasting_failure(failures: Collection[Failed]) -> Failed | None:
    """The failure that ends the attempts of a client, after each of its addresses has failed; None to try again.

    It is one that time does not cure. An address that does not answer leaves no hope beside it, since the same
    configuration would meet it later; an unknown host leaves hope in the other addresses.
    """
    lasting = [one for one in failures if one.cause in LASTING]
    spoken = [one for one in failures if one.cause not in _NOTHING_SAID]
    if spoken:
        return spoken[0] if all(one.cause in LASTING for one in spoken) else None
    return lasting[0] if lasting and len(lasting) == len(failures) else None
