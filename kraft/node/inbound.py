"""Passes messages of the transport to the inbox. Requests get ids, so that the replica never holds a connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kraft.node.inbox import Inbox
from kraft.node.logging import NodeLog
from kraft.process.parts import Input
from kraft.quorum.events import FailureCause
from kraft.wire import WireClosed, WireFailed, WireGone, WireReply, WireRequest
from metadata_log.serde import Message
from transport.interface import Cause, Failed, Gone, Reply, Request, Transport
from transport.protocol.apis import ApiKey
from transport.wire import WireTransport

if TYPE_CHECKING:
    from kraft.node.loggers import LoggerRequests

_CAUSES: Final = {
    Cause.REFUSED: FailureCause.REFUSED,
    Cause.RESET: FailureCause.RESET,
    Cause.TIMEOUT: FailureCause.TIMEOUT,
    Cause.UNSUPPORTED_VERSION: FailureCause.UNSUPPORTED_VERSION,
    Cause.BAD_BYTES: FailureCause.BAD_BYTES,
    Cause.CLOSED: FailureCause.CLOSED,
    Cause.AUTHENTICATION: FailureCause.AUTHENTICATION,
    Cause.FOREIGN: FailureCause.BAD_BYTES,
    Cause.UNKNOWN_HOST: FailureCause.TIMEOUT,
}
_OF_LOGGERS: Final = frozenset({ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.DESCRIBE_CONFIGS})
"""The APIs that show or change loggers, too."""


class Inbound:
    """Turns the deliveries of a transport into events, and sends the answers of the replica."""

    def __init__(self, inbox: Inbox[Input], transport: Transport, log: NodeLog, *, limit: int) -> None:
        self._inbox = inbox
        self._transport = transport
        self._log = log
        self._limit = limit
        self._next_id = 1
        self.unanswered: dict[int, Request] = {}
        """The requests, parked fetches included, that wait for an answer."""
        self.loggers: LoggerRequests | None = None
        """Answers for the loggers of the process, if requests may change them."""
        self.own: Callable[[Reply | Failed], None] | None = None
        """Takes the outcomes of requests with tokens below 0, which the replica has not sent."""
        self._with_loggers = set[int]()
        """The unanswered requests that name loggers. The set serves membership tests only, never iteration."""

    def deliver(self, thing: Request | Reply | Failed | Gone) -> None:
        """The transport's callback. The callback wakes no task, as `Inbox.batch_delivered` follows.

        Beyond the limit of unanswered requests the connection of a request is closed. The limit is for transports
        without limits of their own: `WireTransport` stops reading from connections long before.
        """
        if isinstance(thing, Request):
            if len(self.unanswered) >= self._limit:
                self._log.warn("overloaded", {"peer": thing.peer, "unanswered": len(self.unanswered)})
                self._transport.drop(thing)
                return
            request_id = self._next_id
            self._next_id = request_id + 1
            thing.tag = request_id
            self.unanswered[request_id] = thing
            message = thing.message
            if thing.api_key in _OF_LOGGERS and self.loggers is not None and self.loggers.are_in(message):
                self._with_loggers.add(request_id)
                message = self.loggers.rest_of(message)
            self._inbox.events.append(
                WireRequest(
                    request_id=request_id,
                    api_key=thing.api_key,
                    version=thing.version,
                    message=message,
                    listener=thing.listener,
                    client_id=thing.client_id,
                    peer=thing.peer,
                    principal=thing.principal,
                    room=thing.room,
                )
            )
        elif isinstance(thing, Reply):
            if thing.token < 0:
                self._tell_own(thing)
            else:
                self._inbox.events.append(WireReply(thing.token, thing.message))
        elif isinstance(thing, Failed):
            if thing.token < 0:
                self._tell_own(thing)
            else:
                self._inbox.events.append(WireFailed(request_id=thing.token, cause=_CAUSES[thing.cause]))
        else:
            for request in thing.requests:
                if self.unanswered.pop(request.tag, None) is not None:
                    self._with_loggers.discard(request.tag)
                    self._inbox.events.append(WireGone(request_id=request.tag))
            if thing.peer:
                self._inbox.events.append(WireClosed(thing.listener, thing.peer))

    def _tell_own(self, outcome: Reply | Failed) -> None:
        assert self.own is not None, outcome
        self.own(outcome)

    def answer(self, request_id: int, message: Message) -> None:
        """Send the replica's answer, if the connection of the request is still open."""
        request = self.unanswered.pop(request_id, None)
        if request is not None:
            if request_id in self._with_loggers and self.loggers is not None:
                self._with_loggers.remove(request_id)
                message = self.loggers.answer(request, message)
            self._transport.answer(request, message)

    def leave_unanswered(self, request_id: int, mute_ms: int) -> None:
        """Finish a request that has no answer, if its connection is still open, and mute the connection."""
        request = self.unanswered.pop(request_id, None)
        if request is not None:
            assert isinstance(self._transport, WireTransport), "only this transport has requests without an answer"
            self._transport.leave_unanswered(request, mute_ms)

    def drop(self, request_id: int, why: str) -> None:
        """Close the connection of a request, if it is still open."""
        request = self.unanswered.pop(request_id, None)
        if request is None:
            return
        self._with_loggers.discard(request_id)
        self._log.warn("dropped", {"peer": request.peer, "why": repr(why)})
        self._transport.drop(request)
