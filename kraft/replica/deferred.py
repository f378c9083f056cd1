"""Answers held until their offset is committed (Kafka: `DeferredEventQueue`)."""

from __future__ import annotations

from collections import deque

from msgspec import Struct

from kraft.replica.application import ForRequest, ForSubmit


class Held(Struct, frozen=True, gc=False):
    """Somebody who is told once everything up to and including `last_offset` is committed."""

    base_offset: int
    last_offset: int
    waiting: ForRequest | ForSubmit


class Deferred:
    """Those who wait, in the order of their offsets."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held: deque[Held] = deque()

    def hold(self, held: Held) -> None:
        """Keep somebody waiting."""
        assert not self.held or held.last_offset >= self.held[-1].last_offset, (held, self.held[-1])
        self.held.append(held)

    def release(self, committed_offset: int) -> list[Held]:
        """Those whose records are all below `committed_offset`."""
        held = self.held
        released: list[Held] = []
        while held and held[0].last_offset < committed_offset:
            released.append(held.popleft())
        return released

    def abandon(self) -> list[Held]:
        """Everybody: what they wait for may never be committed."""
        abandoned = list(self.held)
        self.held.clear()
        return abandoned

    def fork(self) -> Deferred:
        """An independent copy."""
        copy = Deferred()
        copy.held = self.held.copy()
        return copy

    def facts(self) -> tuple[object, ...]:
        """Who waits for what."""
        return tuple(
            (one.last_offset, one.waiting.request_id if isinstance(one.waiting, ForRequest) else ~one.waiting.submit_id)
            for one in self.held
        )
