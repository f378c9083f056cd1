"""`ClientChannel`: this node's connection to one endpoint, with its socket (Kafka: `ClusterConnectionStates`)."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from metadata_log.errors import EncodeError
from metadata_log.serde import Message
from metadata_log.serde.fields import OPEN_END
from transport.channels import Connector, Owner, Socket
from transport.interface import Cause, Endpoint, Failed
from transport.protocol.apis import Api
from transport.protocol.client_connection import ClientConnection
from transport.protocol.inbound import NOT_TRIED
from transport.protocol.limits import Limit
from transport.sasl import RENEW_AT, client_of
from transport.traffic import Traffic

if TYPE_CHECKING:
    from transport.protocol.sasl.client import SaslLogin

log = logging.getLogger("transport")

UNHEARD: Final = " before its first answer: does its port expect another security protocol?"
"""Follows the reason where a peer closes the connection instead of answering the first request, ApiVersions or one of a
login.
"""
UNKNOWN: Final = " before its first answer to a request: does its listener expect a login?"
"""Follows the reason where a peer answers ApiVersions, and closes the connection at the first request."""
DURING_LOGIN: Final = " during the login"
UNREADY_SECONDS: Final = 2.0
"""The channel closes a connection that no request waits for and that is not established after this time."""
CLOSINGS: Final = 3
"""A peer that closes so many connections in a row before it answers a request speaks another protocol. One closing may
be that of a node that stops.
"""
_ALWAYS_BACK_OFF: Final = (Cause.BAD_BYTES, Cause.AUTHENTICATION, Cause.FOREIGN)


class ClientOptions(Struct, frozen=True, kw_only=True):
    """The client's identity, its API versions, its frame limit and its reconnect backoff in milliseconds."""

    software: tuple[str, str]
    apis: Mapping[int, Api]
    answer_limits: Callable[[int], Limit]
    max_frame_bytes: int
    backoff_ms: int
    """Kafka's `reconnect.backoff.ms` of a raft client."""
    backoff_max_ms: int
    traffic: Traffic
    """The counts of all connections of this node to peers."""
    login: SaslLogin | None = None
    """The login at each peer."""


class _Open(Struct, eq=False):
    """A connection that is established or being established."""

    socket: Socket
    connection: ClientConnection
    renew_at: float = math.inf
    """When to log in again."""


class ClientChannel:
    """This node's connection to one endpoint. The channel keeps the memory of failed attempts between connections."""

    def __init__(self, owner: Owner, connector: Connector, endpoint: Endpoint, options: ClientOptions) -> None:
        self.endpoint = endpoint
        self.last_active = owner.now()
        self._owner = owner
        self._connector = connector
        self._options = options
        self._traffic = options.traffic
        self._open: _Open | None = None
        self._client_id = ""
        self._failures = 0
        self._closings: tuple[bool, int] | None = (False, 0)
        """The connections in a row that the peer closed before it answered a request, and whether it had named its
        versions. None once it has answered: it speaks this protocol, and closings come from a proxy or a restart.
        """
        self._failure: tuple[Cause, str] = (Cause.CLOSED, "")
        self._retry_at = 0.0

    def request(self, token: int, message: Message, client_id: str, highest: int = OPEN_END) -> None:
        """Send a request, connecting first where needed; or fail at once, by way of `finish_later`."""
        now = self._owner.now()
        self.last_active = now
        opened = self._open
        if opened is None:
            if now < self._retry_at:
                cause, detail = self._failure
                self._owner.finish_later(Failed(token, cause, detail + NOT_TRIED))
                return
            opened = self._connect(client_id)
        if now >= opened.renew_at:
            opened.renew_at = math.inf
            opened.socket.write(opened.connection.begin_login())
        try:
            released = opened.connection.send(token, message, client_id, highest)
        except EncodeError as bad:
            self._owner.finish_later(Failed(token, Cause.UNSUPPORTED_VERSION, f"{self.endpoint}: {bad}"))
            return
        self._traffic.requests += 1
        if released:
            self._traffic.sent_bytes += len(released)
            opened.socket.write(released)
            for outcome in opened.connection.take_unanswered():
                self._owner.finish_later(outcome)

    def keep_connected(self, client_id: str) -> None:
        """Connect if there is no connection, so that the next request does not wait for one."""
        now = self._owner.now()
        opened = self._open
        if opened is not None and self.is_idle and not opened.connection.ready:
            # An unreachable host may come back long before the operating system retries.
            if now - self.last_active >= UNREADY_SECONDS:
                self.end(Cause.TIMEOUT, f"{self.endpoint}: not connected in time")
        elif opened is None and now >= self._retry_at:
            self.last_active = now
            self._connect(client_id)

    def _connect(self, client_id: str) -> _Open:
        options = self._options
        connection = ClientConnection(
            software=options.software,
            apis=options.apis,
            answer_limits=options.answer_limits,
            max_frame_bytes=options.max_frame_bytes,
            sasl=client_of(options.login, client_id),
            peer=str(self.endpoint),
        )
        self._client_id = client_id
        self._traffic.created += 1
        self._open = _Open(self._connector.connect(self.endpoint, self, self._failures), connection)
        return self._open

    def on_connected(self) -> None:
        """Open the connection with ApiVersions."""
        opened = self._open
        assert opened is not None, self.endpoint
        opening = opened.connection.begin(self._client_id)
        self._traffic.sent_bytes += len(opening)
        opened.socket.write(opening)

    def on_data(self, data: bytes) -> int:
        """Report the outcomes of requests that these bytes decide."""
        opened = self._open
        assert opened is not None, self.endpoint
        connection = opened.connection
        self.last_active = self._owner.now()
        self._traffic.received_bytes += len(data)
        outcomes, released = connection.feed(data)
        if connection.ready:
            self._failures = 0
        if connection.has_answered:
            self._closings = None
        if released:
            self._traffic.sent_bytes += len(released)
            opened.socket.write(released)
        self._traffic.responses += len(outcomes)
        if connection.sasl is not None and connection.sasl.is_done and math.isinf(opened.renew_at):
            lifetime_ms = connection.sasl.lifetime_ms
            if lifetime_ms:
                opened.renew_at = self.last_active + lifetime_ms * RENEW_AT / 1000
        for outcome in outcomes:
            self._owner.finish(outcome)
        if connection.broken is not None and opened is self._open:
            if connection.is_refused:
                cause = Cause.AUTHENTICATION
            else:
                cause = Cause.BAD_BYTES if connection.is_known else Cause.FOREIGN
            detail = f"{self.endpoint}: {connection.broken}"
            if not self._failures or self._failure != (cause, detail):  # a refused login is tried again and again
                log.warning("closing the connection to %s: %s", self.endpoint, connection.broken)
            self._report(self.end(cause, detail))
        return connection.frames.missing if connection.frames.partial else 0

    def on_drained(self) -> None:
        """Nothing to do: the number of requests is bounded."""

    def on_closed(self, cause: Cause, detail: str) -> None:
        """The peer closed the connection, or the connection failed."""
        opened = self._open
        if cause is Cause.RESET and opened is not None and not opened.connection.has_answered:
            if opened.connection.is_unheard:
                detail += UNHEARD
            elif opened.connection.may_lack_login:
                detail += UNKNOWN
            if self._closings is not None:
                is_known, (was_known, closings) = opened.connection.is_known, self._closings
                self._closings = (is_known, closings + 1 if was_known is is_known else 1)
                if self._closings[1] >= CLOSINGS:
                    cause = Cause.FOREIGN
        elif cause is Cause.REFUSED and self._closings is not None:
            self._closings = (False, 0)  # the node has stopped meanwhile
        self._report(self.end(cause, f"{self.endpoint}: {detail}"))

    def _report(self, outcomes: list[Failed]) -> None:
        for outcome in outcomes:
            self._owner.finish(outcome)

    def end(self, cause: Cause, detail: str) -> list[Failed]:
        """Close, and begin the reconnect backoff if a connection in use failed; returns the unanswered requests."""
        if self._open is None:
            return []
        connection = self._open.connection
        self._traffic.closed += 1
        self._traffic.refused += cause is Cause.AUTHENTICATION
        self._open.socket.close()
        self._open = None
        unanswered = connection.lost(cause, detail)
        if cause in _ALWAYS_BACK_OFF or (cause is not Cause.CLOSED and unanswered and not connection.ready):
            options = self._options
            backoff_ms = min(options.backoff_ms << min(self._failures, 16), options.backoff_max_ms)
            self._failures += 1
            self._failure = (cause, detail)
            self._retry_at = self._owner.now() + backoff_ms / 1000
        return unanswered

    @property
    def stage(self) -> str:
        """Where the connection stands, as the end of a sentence about a missing answer; empty once requests flow."""
        return DURING_LOGIN if self._open is not None and self._open.connection.is_logging_in else ""

    @property
    def is_idle(self) -> bool:
        """Whether no request is pending."""
        return self._open is None or not self._open.connection.unanswered

    @property
    def is_blank(self) -> bool:
        """Whether this channel holds no state that is worth keeping."""
        return self._open is None and self._owner.now() >= self._retry_at
