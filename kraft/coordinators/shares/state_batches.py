"""Combines the batches of a share partition (Kafka: `PersisterStateBatchCombiner`).

Of the batches with one offset the one with the larger delivery count wins, and at equal counts the larger state: a
record that was released, and so delivered once more, beats what was known before. The order in which they have come
does not matter. Neighbours that are equal are joined.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from operator import attrgetter
from typing import Final

from kraft.coordinators.shares.persister import NO_OFFSET, StateBatch

Batches = tuple[StateBatch, ...]
"""Batches in order, which neither overlap nor could be joined."""
_FIRST: Final = attrgetter("first_offset")
_LAST: Final = attrgetter("last_offset")


def combined(batches: Iterable[StateBatch]) -> Batches:
    """The state of each offset, of batches in any order; those that end before they begin have none."""
    waiting = sorted((one for one in batches if one.first_offset <= one.last_offset), key=_FIRST, reverse=True)
    if len(waiting) == 1:
        return (waiting[0],)
    open_now: list[tuple[int, int, int]] = []
    """A heap of the batches that hold the present offset: the winner first, and the last offset of each."""
    found: list[StateBatch] = []
    at = 0
    while waiting or open_now:
        if not open_now:
            at = waiting[-1].first_offset
        while waiting and waiting[-1].first_offset <= at:
            one = waiting.pop()
            heappush(open_now, (-one.delivery_count, -one.delivery_state, one.last_offset))
        while open_now and open_now[0][2] < at:
            heappop(open_now)
        if not open_now:
            continue
        count, state, last = open_now[0]
        end = min(last, waiting[-1].first_offset - 1) if waiting else last
        _add(found, at, end, -state, -count)
        at = end + 1
    return tuple(found)


def _add(found: list[StateBatch], first: int, last: int, state: int, count: int) -> None:
    """Add a range behind the others, or make the last of them longer."""
    if found:
        before = found[-1]
        if before.last_offset == first - 1 and before.delivery_state == state and before.delivery_count == count:
            found[-1] = StateBatch(before.first_offset, last, state, count)
            return
    found.append(StateBatch(first, last, state, count))


def cut(batches: Batches, start_offset: int) -> Batches:
    """Batches without the offsets before a start; `NO_OFFSET` for no start."""
    if start_offset == NO_OFFSET or not batches or batches[0].first_offset >= start_offset:
        return batches
    rest = batches[bisect_left(batches, start_offset, key=_LAST) :]
    if not rest or rest[0].first_offset >= start_offset:
        return rest
    first = rest[0]
    return (StateBatch(start_offset, first.last_offset, first.delivery_state, first.delivery_count), *rest[1:])


def merged(known: Batches, added: Sequence[StateBatch], start_offset: int) -> Batches:
    """The batches that are known with those of a change, from a start on.

    Only what the change touches is combined again: the other batches of a share partition may be thousands.
    """
    known = cut(known, start_offset)
    changes = cut(combined(added), start_offset)
    if not known or not changes:
        return changes or known
    # The neighbours of the change may be joined with it.
    begin = bisect_left(known, changes[0].first_offset - 1, key=_LAST)
    end = bisect_left(known, changes[-1].last_offset + 2, key=_FIRST)
    return (*known[:begin], *combined((*known[begin:end], *changes)), *known[end:])
