"""Requests that wait: for a change of a partition, for their time-out, or for the next turn of their own steps (Kafka:
`DelayedOperationPurgatory`).

A connection has one request in flight, so that the number of connections bounds the number of waiting requests.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from heapq import heappop, heappush
from itertools import islice
from typing import Any, Final, TypeVar

from kraft.agenda import Agenda, Slot
from kraft.handling.api import Api
from kraft.handling.steps import Handling, Result, Waiting
from kraft.limits import ORPHANED_PRODUCES, UNPACKED_AT_ONCE
from kraft.wire import LeaveUnanswered, Outcome, WireRequest
from metadata_log.types import NEVER_MS

_Key = TypeVar("_Key", bound=Hashable)
EVERY_CHANGE: Final = -1
"""All bits: each change of what a request watches may end its wait."""
_AT_ONCE_MS: Final = 0


LongRequest = tuple[Api[Any], WireRequest, Handling[Result]]
"""A request with so much in it that its handling takes further turns."""


class Purgatory:
    """Waiting requests by their ids, with the changes that each one watches: most are keys of partitions. Those that go
    on by themselves are apart.

    Args:
        agenda: Where it says when a request may go on.
    """

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self._waiting: dict[int, tuple[Waiting, frozenset[Hashable], int]] = {}
        """By id the request, what it watches, and until when it waits."""
        self.watchers: dict[Hashable, dict[int, int]] = {}
        """By key the requests that watch it, with the changes that concern them."""
        self._woken: dict[int, None] = {}
        """The waiting requests with a change that nobody has looked at yet."""
        self._told: list[Hashable] = []
        """The keys of which rooms have told since the last turn."""
        self._deadlines: list[tuple[int, int]] = []
        """A heap of times in ms and request ids. An answered request stays in it until its time."""
        self.long: dict[int, LongRequest] = {}
        """The requests that make steps in the next turns."""
        self._turns = 0

    def __len__(self) -> int:
        """The number of waiting requests."""
        return len(self._waiting) + len(self.long)

    def park(self, waiting: Waiting, now_ms: int, concerns: int = EVERY_CHANGE) -> None:
        """Let a request wait; `concerns` are the changes of its partitions that may end the wait."""
        request_id, watched = waiting.request.request_id, frozenset(waiting.keys)
        watchers = self.watchers
        for key in watched:
            if key in watchers:
                watchers[key][request_id] = concerns
            else:
                watchers[key] = {request_id: concerns}
        deadline_ms, deadlines = now_ms + max(0, waiting.timeout_ms), self._deadlines
        self._waiting[request_id] = waiting, watched, deadline_ms
        heappush(deadlines, (deadline_ms, request_id))
        if deadlines[0][1] == request_id:
            self._agenda.by(Slot.WAITING_REQUESTS, deadline_ms)

    def forget(self, request_id: int) -> Waiting | None:
        """Remove a request, because the request is complete or its connection is gone; None if it does not wait."""
        waiting = self._waiting.pop(request_id, None)
        if waiting is None:
            return None
        for key in waiting[1]:
            watchers = self.watchers[key]
            del watchers[request_id]
            if not watchers:
                del self.watchers[key]
        deadlines = self._deadlines
        if deadlines and (deadlines[0][1] not in self._waiting or len(deadlines) > 2 * len(self._waiting) + 64):
            self._trim()
        return waiting[0]

    def wake(self, changes: Mapping[_Key, int]) -> None:
        """Partitions have changed: the requests that this concerns may be complete, in the order of their ids."""
        watchers = self.watchers
        if not watchers:
            return
        woken: list[int] = []
        for key, change in changes.items():
            if key in watchers:
                woken += [one for one, concerns in watchers[key].items() if concerns & change]
        if woken:
            self._woken.update(dict.fromkeys(sorted(woken)))
            self._agenda.now(Slot.WAITING_REQUESTS)

    def tell(self, key: Hashable) -> None:
        """The requests that watch this key may go on in the next turn, one too that is parked only after this call."""
        self._told.append(key)
        self._agenda.now(Slot.CHANGES)

    def wake_told(self) -> None:
        """As `wake`, for the keys that rooms have told of."""
        if self._told:
            told, self._told = self._told, []
            self.wake_in_turn(told)

    def wake_in_turn(self, keys: Iterable[Hashable]) -> None:
        """As `wake`, but in the order of the changes; those that watch one of them, in the order of their arrival."""
        watchers = self.watchers
        for key in keys:
            if key in watchers:
                self._woken.update(dict.fromkeys(watchers[key]))
                self._agenda.now(Slot.WAITING_REQUESTS)

    def take_woken(self, most: int) -> list[Waiting]:
        """The requests that may be complete, at most `most` of them. They wait on."""
        woken = self._woken
        if len(woken) <= most:
            ids, self._woken = woken, {}
        else:
            ids = dict.fromkeys(islice(woken, most))
            for request_id in ids:
                del woken[request_id]
        waiting = self._waiting
        return [waiting[request_id][0] for request_id in ids if request_id in waiting]

    def due(self, now_ms: int, most: int) -> list[Waiting]:
        """Take the requests with a time-out that is over, at most `most` of them."""
        taken: list[Waiting] = []
        while self._deadlines and self._deadlines[0][0] <= now_ms and len(taken) < most:
            deadline_ms, request_id = heappop(self._deadlines)
            # A request that has begun to wait anew has a time of before, too.
            entry = self._waiting.get(request_id)
            if entry is not None and entry[2] == deadline_ms:
                self.forget(request_id)
                taken.append(entry[0])
        return taken

    def deadline_ms(self) -> int:
        """When something is due: at once with a woken request, else the next time-out; `NEVER_MS` without one."""
        if self._woken:
            return _AT_ONCE_MS
        return self._deadlines[0][0] if self._deadlines else NEVER_MS

    # Long requests

    def go_on_later(self, api: Api[Any], request: WireRequest, work: Handling[Result], now_ms: int) -> None:
        """A request makes its next steps in a later turn."""
        self.long[request.request_id] = api, request, work
        self._agenda.by(Slot.LONG_REQUESTS, now_ms + 1 if api.pauses else _AT_ONCE_MS)

    def next_long(self, now_ms: int) -> list[LongRequest]:
        """Two requests to go on with: one of the oldest that look into batches, and one of the others."""
        unpacking = (key for key, (api, *_) in self.long.items() if api.unpacks)
        oldest = list(islice(unpacking, UNPACKED_AT_ONCE))
        self._turns += 1
        chosen = oldest[self._turns % len(oldest) :][:1] if oldest else []
        other = next((key for key, (api, *_) in self.long.items() if not api.unpacks), None)
        if other is not None:
            chosen.append(other)
            self.long[other] = self.long.pop(other)
        if len(chosen) < len(self.long):
            self._agenda.by(Slot.LONG_REQUESTS, now_ms + 1)
        return [self.long[key] for key in chosen]

    def withdraw(self, request_id: int) -> None:
        """The connection of a request is gone: the request waits no longer. Unknown ids are allowed."""
        if self.forget(request_id) is not None:
            self._agenda.at(Slot.WAITING_REQUESTS, self.deadline_ms())
        if request_id in self.long:
            api, request, work = self.long[request_id]
            if api.outlives_client and len(self.long) <= ORPHANED_PRODUCES:
                self.long[request_id] = api, request, _without_wait(request, work)
            else:
                del self.long[request_id]

    def _trim(self) -> None:
        """Drop the time-outs of answered requests, so that the heap is never much larger than what waits."""
        while self._deadlines and self._deadlines[0][1] not in self._waiting:
            heappop(self._deadlines)
        if len(self._deadlines) > 2 * len(self._waiting) + 64:
            self._deadlines = sorted(each for each in self._deadlines if each[1] in self._waiting)


def _without_wait(request: WireRequest, work: Handling[Result]) -> Handling[Result]:
    """The handling of a request that nobody waits for: what it appends counts, and its answer does not."""
    result = yield from work
    return result if isinstance(result, Outcome) else LeaveUnanswered(request.request_id)
