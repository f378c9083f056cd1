"""A part of a process: the process calls the same methods of each (Kafka: `ApiRequestHandler`, `RaftClient.Listener`).

The controller, the broker, a user's state machine and a raw log are parts. None of them knows the process or another
part. A method that a part leaves out has nothing to do there.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraft.access.older_node import Audited
from kraft.agenda import Agenda
from kraft.calls import Call, CancelCall
from kraft.committed import LogReader
from kraft.replica.interface.actions import Action, RefuseSubmit
from kraft.replica.interface.events import Submit
from kraft.wire import ReplyTo, WireRequest
from metadata_log.serde import Message
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error


class Server(LogReader):
    """A part of a process: it serves requests, and follows the log.

    Args:
        agenda: The times at which the part has work; whoever makes work due says so there.
        audited: The latest entries of the audit log of the node; the process empties the list.
    """

    apis: frozenset[ApiKey] = frozenset()
    """The APIs that the part answers, besides those of the quorum."""

    def __init__(self, agenda: Agenda, audited: list[Audited] | None = None) -> None:
        self.agenda = agenda
        self.audited = [] if audited is None else audited

    def on_request(self, request: WireRequest, now_ms: int) -> Action | None:
        """Handle a request of one of `apis`; None if the outcome comes from a later `on_tick`."""
        raise AssertionError(f"nobody serves {request}")

    def on_reply(self, reply_to: ReplyTo, response: Message | None, now_ms: int) -> None:
        """Take the reply to a `Send` of the part; None if the request has failed."""
        raise AssertionError(f"nobody has asked for {reply_to}")

    def on_gone(self, request_id: int) -> None:
        """The connection of a request is closed: an answer would reach no client. Unknown ids are allowed."""

    def on_closed(self, listener: str, peer: str) -> None:
        """A connection of a peer is closed, with or without requests under way."""

    def on_software(self, listener: str, peer: str, name: str, version: str) -> None:
        """The client of a connection tells the name and the version of its software (KIP-511)."""

    def on_tick(self, now_ms: int) -> Iterable[Action]:
        """Do what the agenda says is due. The process carries out each action before it takes the next one."""
        return ()

    def on_call(self, call: Call | CancelCall | Submit, now_ms: int) -> Action | None:
        """Take a call of the host, or its end; its outcome comes now or from a later `on_tick`."""
        assert isinstance(call, Submit), call
        # Only values of a program go as they are into a log: nothing but decisions of a controller, or commands.
        return RefuseSubmit(call.submit_id, Error.INVALID_REQUEST)

    def on_begin_shutdown(self, now_ms: int) -> None:
        """The node begins its graceful shutdown: the part hands over what it leads."""

    @property
    def may_stop(self) -> bool:
        """Whether the part lets a node end that shuts down."""
        return True

    def finalized_features(self) -> tuple[tuple[tuple[str, int], ...], int]:
        """The finalized feature levels by name, and the offset at which they are known; -1 if there are none."""
        return (), -1

    def supported_features(self) -> tuple[tuple[str, int, int], ...]:
        """Features with their lowest and highest level, by name."""
        return ()
