"""A setting that nobody is to see (Kafka: `Password`)."""

from __future__ import annotations

from msgspec import Struct


class Secret(Struct, frozen=True):
    """A text that is hidden wherever it would be printed."""

    value: str

    def __repr__(self) -> str:
        return "[hidden]"
