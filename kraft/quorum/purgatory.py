"""Fetches parked until there is new data or their maximum wait time ends (Kafka: `FuturePurgatory`, KIP-1166)."""

from __future__ import annotations

from msgspec import Struct

from kraft.quorum.messages import Fetch, FetchReply
from metadata_log.types import NEVER_MS


class ParkedFetch(Struct, frozen=True, gc=False):
    """A parked Fetch. `timeout_reply` is the reply at the deadline, as computed when the Fetch arrived."""

    request_id: int
    request: Fetch
    timeout_reply: FetchReply
    deadline_ms: int


class Purgatory:
    """The parked fetches in order of arrival."""

    def __init__(self) -> None:
        self.parked: dict[int, ParkedFetch] = {}
        """The fetches by request id."""
        self.deadline_ms = NEVER_MS
        """The earliest deadline of a fetch; a removed fetch may still count."""

    def park(self, fetch: ParkedFetch) -> None:
        """Park a fetch."""
        self.parked[fetch.request_id] = fetch
        self.deadline_ms = min(self.deadline_ms, fetch.deadline_ms)

    def take_all(self) -> list[ParkedFetch]:
        """Remove and return every parked fetch; the caller answers each one."""
        taken = list(self.parked.values())
        self.parked = {}
        self.deadline_ms = NEVER_MS
        return taken

    def remove(self, request_id: int) -> bool:
        """Remove a fetch; returns whether the fetch was parked."""
        return self.parked.pop(request_id, None) is not None

    def cap_deadlines(self, reply: FetchReply, deadline_ms: int) -> None:
        """Set the reply of every parked fetch, and move later deadlines to `deadline_ms`."""
        self._keep(
            [
                ParkedFetch(fetch.request_id, fetch.request, reply, min(fetch.deadline_ms, deadline_ms))
                for fetch in self.parked.values()
            ]
        )

    def take_expired(self, now_ms: int) -> list[ParkedFetch]:
        """Remove and return the fetches that have reached their maximum wait time."""
        if now_ms < self.deadline_ms:
            return []
        expired = [fetch for fetch in self.parked.values() if fetch.deadline_ms <= now_ms]
        self._keep([fetch for fetch in self.parked.values() if fetch.deadline_ms > now_ms])
        return expired

    def _keep(self, parked: list[ParkedFetch]) -> None:
        self.parked = {fetch.request_id: fetch for fetch in parked}
        self.deadline_ms = min([fetch.deadline_ms for fetch in parked], default=NEVER_MS)
