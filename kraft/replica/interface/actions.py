"""The wishes of the parts of a process: records in the log, confirmed reads, answers (Kafka:
`RaftClient.prepareAppend`).

No part appends by itself: it returns actions, and the process carries them out and reports the offsets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from msgspec import Struct

from kraft.calls import Returned
from kraft.committed import Noted
from kraft.wire import Answer, Drop, LeaveUnanswered, Send, WireRequest
from metadata_log.records.frame import VersionedRecord
from metadata_log.serde import Message
from transport.protocol.errors import Error


class QuorumLevel(Struct, frozen=True, gc=False):
    """A level of kraft.version. The quorum sets it, because kraft.version is in no metadata record."""

    level: int
    validate_only: bool


class Unit(Struct, frozen=True, gc=False):
    """Record values that are appended atomically, in one batch. `records` holds the decoded values, if any."""

    values: tuple[bytes, ...]
    records: tuple[VersionedRecord, ...] = ()


class ForRequest(Struct, frozen=True, gc=False):
    """A client waits for the proposal; `response` is the client's answer once everything is committed."""

    request_id: int
    request: Message
    response: Message


class ForSubmit(Struct, frozen=True, gc=False):
    """The host of a raw log waits for the proposal."""

    submit_id: int


@final
class Proposal(Struct, frozen=True, gc=False):
    """Records to append, in order. A proposal without records is answered once all outstanding records are committed:
    the decision may depend on them.
    """

    units: tuple[Unit, ...] = ()
    waiting: ForRequest | ForSubmit | None = None
    quorum_level: QuorumLevel | None = None
    """A level of kraft.version to raise first. If the level cannot be raised, nothing is appended."""


class Redirect(Struct, frozen=True, gc=False):
    """Handle a forwarded request as a request of the quorum, at once. `seal` wraps the answer before it is sent."""

    request: WireRequest
    seal: Callable[[Message], Message]


class RefuseSubmit(Struct, frozen=True, gc=False):
    """Refuse the values of a `Submit`."""

    submit_id: int
    error: Error


class Confirm(Struct, frozen=True, gc=False):
    """Confirm that no other leader has committed anything; `on_confirmed` with this token follows."""

    token: int


Action = Proposal | Answer | LeaveUnanswered | Drop | Redirect | RefuseSubmit | Send | Confirm | Returned | Noted
