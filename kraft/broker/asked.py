"""What a broker asks other nodes."""

from __future__ import annotations

from msgspec import Struct

from metadata_log.serde import Message


class ToBroker(Struct, frozen=True, gc=False):
    """Send a request to another broker; exactly one answer with this token follows.

    `target` is the id, the host and the port of the broker.
    """

    token: int
    request: Message
    timeout_ms: int
    target: tuple[int, str, int]


class ToController(Struct, frozen=True, gc=False):
    """Send a request to the active controller; exactly one `on_answer` with this token follows."""

    token: int
    request: Message
    timeout_ms: int
