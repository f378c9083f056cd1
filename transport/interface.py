"""The only thing a node sees of the network: requests come in, answers go out, and the other way round.

Kafka: `NetworkChannel` and `SocketServer` behind one door. Every callback and every method below is synchronous, in the
Trio thread; `TcpTransport` and `MemoryTransport` pass one contract test.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import trio
from msgspec import Struct

if TYPE_CHECKING:
    from metadata_log.serde import Message


class Endpoint(Struct, frozen=True, order=True):
    """Where a peer listens: a host name or numeric address, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Listener(Struct, frozen=True):
    """Where this node listens; port 0 takes a free one from the operating system. An empty host means every address."""

    name: str
    host: str
    port: int


class Cause(StrEnum):
    """Why a request got no answer. Only `REFUSED` and `RESET` are the word of the peer's own host."""

    REFUSED = "refused"
    """The peer's own host says that nobody listens there."""
    RESET = "reset"
    """The peer closed or reset the connection before it answered."""
    TIMEOUT = "timeout"
    """No answer or no connection in time; also a host that is unknown or cannot be reached."""
    UNSUPPORTED_VERSION = "unsupported-version"
    """The peer has no version of this API that can carry the message."""
    BAD_BYTES = "bad-bytes"
    """The peer answered with bytes that do not follow the schema."""
    CLOSED = "closed"
    """This side closed the connection or ended the transport."""


class Request(Struct, eq=False):
    """A request of a peer, to be passed to `Transport.answer` or `Transport.drop` exactly once."""

    handle: object
    """For the transport that delivered it; nobody else looks inside."""
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    message: Message
    listener: str
    """The name of the listener it came in by."""
    peer: str
    """The peer's address, for logs and errors."""
    encoded: bytes | memoryview = b""
    """The frame as it came, header included, without its length; empty where the message never was bytes."""


class Reply(Struct, eq=False):
    """The answer to the `request` that had this token."""

    token: int
    message: Message


class Failed(Struct, eq=False):
    """The `request` that had this token will not be answered; `detail` is a sentence for the log."""

    token: int
    cause: Cause
    detail: str


Inbound = Request | Reply | Failed
"""What a transport delivers."""


class Transport(Protocol):
    """Moves messages between nodes; knows Kafka's wire and nothing of quorums."""

    def listen(self, listener: Listener) -> Endpoint:
        """Bind now and return where; `OSError` if the address cannot be had. Peers are served once `run` has begun."""

    async def run(
        self, deliver: Callable[[Inbound], None], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Own every socket until cancelled, then close them all. Runs once.

        `deliver` is called for each thing that comes in; it must not wait, and may call `request`, `answer` and `drop`.
        `task_status.started()` is called when `request` may be.
        """

    def request(self, endpoint: Endpoint, token: int, message: Message, *, timeout_ms: int, client_id: str) -> None:
        """Send a request, connecting first where needed; `token` must be new.

        Exactly one `Reply` or `Failed` with this token is delivered later, never from inside this call. The version is
        the highest that both sides know. While the peer is within its reconnect back-off (50 ms growing to 500 ms) the
        request fails at once with the cause of the last attempt.
        """

    def answer(self, request: Request, message: Message) -> None:
        """Answer a request, in any order: answers leave in the order of their requests, as Kafka's clients expect."""

    def drop(self, request: Request) -> None:
        """Close the connection that this request came by, without an answer."""

    def close_peer(self, endpoint: Endpoint) -> None:
        """Close the connection to a peer; requests still waiting for it end with `Cause.CLOSED`."""
