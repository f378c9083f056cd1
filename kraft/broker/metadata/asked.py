"""What a broker does with a request that its metadata answers, or that it forwards."""

from __future__ import annotations

from collections.abc import Generator

from msgspec import Struct

from metadata_log.serde import Message

ITEMS_PER_STEP = 64
"""How many entries of an answer one step makes: some hundred microseconds."""
Answering = Generator[None, None, Message]
"""An answer in steps of less than a millisecond, so that an answer about a million partitions delays no heartbeat."""


class Answer(Struct, frozen=True, gc=False):
    """Answer a request."""

    request_id: int
    message: Message


class Close(Struct, frozen=True, gc=False):
    """Close the connection of a request without an answer."""

    request_id: int
    why: str


class NoAnswer(Struct, frozen=True, gc=False):
    """A request has no answer, and its connection goes on: Produce with acks=0."""

    request_id: int


class ToController(Struct, frozen=True, gc=False):
    """Send a request to the active controller; exactly one `on_answer` with this token follows."""

    token: int
    request: Message
    timeout_ms: int
