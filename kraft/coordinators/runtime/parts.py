"""Requests that take several operations, each for a part of what they name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic

from kraft.handling.api import M
from kraft.wire import WireRequest
from metadata_log.serde import Message


class InParts(ABC, Generic[M]):
    """The answer to a request in parts, which is complete with the result of the last one.

    Args:
        request: The request.
        count: How many parts it has.
    """

    def __init__(self, request: WireRequest[M], count: int) -> None:
        self.request = request
        self._left = count

    def ended(self) -> Message | None:
        """The operation of one part has ended; returns the answer if none is left."""
        self._left -= 1
        return None if self._left else self.answer()

    @abstractmethod
    def answer(self) -> Message:
        """The answer, from the results of all parts."""
