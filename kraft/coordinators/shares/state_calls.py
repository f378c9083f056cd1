"""Many calls of the persister for one piece of work, so many at a time as are answered soon.

A group may have a hundred thousand share partitions, and each is a call. What is not called waits here, within a bound.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct

from kraft.coordinators.groups.shares.states import Beginning
from kraft.coordinators.shares.persister import Persister, ShareKey, Summary
from kraft.limits import STATE_CALLS_AT_ONCE, STATE_CALLS_WAITING
from metadata_log.types import NO_EPOCH, Uuid
from transport.protocol.errors import Error

R = TypeVar("R")
SharePlace = tuple[Uuid, int]
"""A topic and a partition."""
Errors = dict[SharePlace, Error]
Summaries = dict[SharePlace, Summary | Error]


class _Work(Struct, eq=False):
    places: Iterator[Any]
    call: Callable[[Any, int, Callable[[Any, int], None]], None]
    done: Callable[[dict[Any, Any], int], None]
    left: int
    """The calls without an answer."""
    results: dict[Any, Any] = {}


class StateCalls:
    """The calls of a broker's group coordinators.

    Args:
        persister: Takes them.
    """

    def __init__(self, persister: Persister) -> None:
        self._persister = persister
        self._works: deque[_Work] = deque()
        """The works with calls that are not made yet."""
        self._open = 0
        """The calls that were made and have no answer."""
        self._waiting = 0
        """The calls that are not made yet."""

    def has_room(self, count: int) -> bool:
        """Whether so many further calls may wait."""
        return self._waiting + count <= STATE_CALLS_WAITING

    def initialize(
        self,
        group_id: str,
        epoch: int,
        asked: Sequence[Beginning],
        done: Callable[[Errors, int], None],
        now_ms: int,
    ) -> None:
        """Begin the states of share partitions anew; `done` takes the error of each."""
        starts = {(one.topic_id, one.partition): one.start_offset for one in asked}

        def call(place: SharePlace, now_ms: int, then: Callable[[Error, int], None]) -> None:
            self._persister.initialize(ShareKey(group_id, *place), epoch, starts[place], now_ms, then)

        self._begin(list(starts), call, done, now_ms)

    def delete(
        self, group_id: str, places: Sequence[SharePlace], done: Callable[[Errors, int], None], now_ms: int
    ) -> None:
        """Forget the states of share partitions; `done` takes the error of each."""

        def call(place: SharePlace, now_ms: int, then: Callable[[Error, int], None]) -> None:
            self._persister.delete(ShareKey(group_id, *place), now_ms, then)

        self._begin(places, call, done, now_ms)

    def summaries(
        self, group_id: str, places: Sequence[SharePlace], done: Callable[[Summaries, int], None], now_ms: int
    ) -> None:
        """Read how far share partitions are; `done` takes the result of each."""

        def call(place: SharePlace, now_ms: int, then: Callable[[Summary | Error, int], None]) -> None:
            self._persister.summary(ShareKey(group_id, *place), NO_EPOCH, now_ms, then)

        self._begin(places, call, done, now_ms)

    def _begin(
        self,
        places: Sequence[SharePlace],
        call: Callable[[SharePlace, int, Callable[[R, int], None]], None],
        done: Callable[[dict[SharePlace, R], int], None],
        now_ms: int,
    ) -> None:
        assert places, "nothing is asked for"
        self._works.append(_Work(iter(places), call, done, len(places)))
        self._waiting += len(places)
        self._go_on(now_ms)

    def _go_on(self, now_ms: int) -> None:
        """Make as many calls as may be open."""
        while self._works and self._open < STATE_CALLS_AT_ONCE:
            work = self._works[0]
            place = next(work.places, None)
            if place is None:
                self._works.popleft()
                continue
            self._open += 1
            self._waiting -= 1
            work.call(place, now_ms, partial(self._on_answer, work, place))

    def _on_answer(self, work: _Work, place: SharePlace, result: object, now_ms: int) -> None:
        self._open -= 1
        work.results[place] = result
        work.left -= 1
        self._go_on(now_ms)
        if not work.left:
            work.done(work.results, now_ms)
