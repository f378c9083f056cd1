"""Fetches parked until there is something to tell, or their patience ends (Kafka: `FuturePurgatory`, KIP-1166)."""

from __future__ import annotations

from msgspec import Struct

from kraft.quorum.messages import Fetch, FetchReply


class ParkedFetch(Struct, frozen=True):
    """A Fetch that waits; `timeout_reply` is the answer it gets if nothing happens, as computed on arrival."""

    request_id: int
    request: Fetch
    timeout_reply: FetchReply
    deadline_ms: int


class Purgatory:
    """The parked fetches, in the order in which they came."""

    def __init__(self) -> None:
        self._parked: list[ParkedFetch] = []

    def park(self, fetch: ParkedFetch) -> None:
        """Keep a fetch."""
        self._parked.append(fetch)

    def take_all(self) -> list[ParkedFetch]:
        """Hand out every parked fetch; the caller answers them all."""
        taken, self._parked = self._parked, []
        return taken

    def hasten(self, reply: FetchReply, deadline_ms: int) -> None:
        """Let every parked fetch have this answer, and at this time at the latest."""
        self._parked = [
            ParkedFetch(fetch.request_id, fetch.request, reply, min(fetch.deadline_ms, deadline_ms))
            for fetch in self._parked
        ]

    def take_expired(self, now_ms: int) -> list[ParkedFetch]:
        """Hand out the fetches whose patience has ended."""
        expired = [fetch for fetch in self._parked if fetch.deadline_ms <= now_ms]
        if expired:
            self._parked = [fetch for fetch in self._parked if fetch.deadline_ms > now_ms]
        return expired

    def deadline_ms(self) -> int | None:
        """When the first fetch loses patience."""
        return min((fetch.deadline_ms for fetch in self._parked), default=None)

    def fork(self) -> Purgatory:
        """An independent copy."""
        copy = Purgatory()
        copy._parked = list(self._parked)
        return copy

    def facts(self) -> tuple[object, ...]:
        """What tells this from another, for fingerprints."""
        return tuple(self._parked)
