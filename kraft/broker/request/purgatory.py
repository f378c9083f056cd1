"""Requests that wait for a change of a partition, or for their time-out (Kafka: `DelayedOperationPurgatory`).

A connection has one request in flight, so that the number of connections bounds the number of waiting requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Generic, TypeVar

from kraft.broker.partitions.key import PartitionKey
from metadata_log.types import NEVER_MS

Waiting = TypeVar("Waiting")


class Purgatory(Generic[Waiting]):
    """Waiting requests by their ids, with the partitions that each one watches."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[Waiting, frozenset[PartitionKey]]] = {}
        self._watchers: dict[PartitionKey, dict[int, None]] = {}
        self._deadlines: list[tuple[int, int]] = []
        """A heap of times in ms and request ids. An answered request stays in it until its time."""

    def __len__(self) -> int:
        """The number of waiting requests."""
        return len(self._waiting)

    def park(self, request_id: int, waiting: Waiting, keys: Iterable[PartitionKey], deadline_ms: int) -> None:
        """Let a request wait.

        Args:
            request_id: The id of the request.
            waiting: What the handler needs to go on.
            keys: The partitions with changes that may complete the request.
            deadline_ms: When the request ends at the latest, in ms.
        """
        watched = frozenset(keys)
        self._waiting[request_id] = waiting, watched
        for key in watched:
            self._watchers.setdefault(key, {})[request_id] = None
        heappush(self._deadlines, (deadline_ms, request_id))

    def forget(self, request_id: int) -> Waiting | None:
        """Remove a request, because the request is complete or its connection is gone; None if it does not wait."""
        found = self._waiting.pop(request_id, None)
        if found is None:
            return None
        for key in found[1]:
            watchers = self._watchers[key]
            del watchers[request_id]
            if not watchers:
                del self._watchers[key]
        self._trim()
        return found[0]

    def get(self, request_id: int) -> Waiting | None:
        """A waiting request; None if it does not wait any more."""
        found = self._waiting.get(request_id)
        return None if found is None else found[0]

    def watching(self, keys: Iterable[PartitionKey]) -> list[int]:
        """The ids of the requests that watch one of these partitions, in their order."""
        return sorted({request_id for key in keys for request_id in self._watchers.get(key, ())})

    def all(self) -> list[tuple[int, Waiting]]:
        """All waiting requests, in the order of their arrival."""
        return [(request_id, waiting) for request_id, (waiting, _) in self._waiting.items()]

    def due(self, now_ms: int, most: int | None = None) -> list[Waiting]:
        """Take the requests with a time-out that is over, at most `most` of them."""
        taken: list[Waiting] = []
        while self._deadlines and self._deadlines[0][0] <= now_ms and (most is None or len(taken) < most):
            _, request_id = heappop(self._deadlines)
            waiting = self.forget(request_id)
            if waiting is not None:
                taken.append(waiting)
        return taken

    def deadline_ms(self) -> int:
        """The next time-out; `NEVER_MS` if no request waits."""
        return self._deadlines[0][0] if self._deadlines else NEVER_MS

    def _trim(self) -> None:
        """Drop the time-outs of answered requests, so that the heap is never much larger than what waits."""
        while self._deadlines and self._deadlines[0][1] not in self._waiting:
            heappop(self._deadlines)
        if len(self._deadlines) > 2 * len(self._waiting) + 64:
            self._deadlines = sorted(each for each in self._deadlines if each[1] in self._waiting)
