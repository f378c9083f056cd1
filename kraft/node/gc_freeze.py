"""Keeps Python's cyclic garbage collection short in a process that serves a node.

A full collection traverses the whole heap: 15 to 50 ms for a broker that has just started, some hundred for one with
100,000 groups, and nothing else has a turn meanwhile. It would find nothing. Images, logs and groups form no cycles,
and what does, as a connection and its channel, comes apart when it ends (`tests/kraft/node/test_gc_freeze.py`). Cycles
that exceptions and tasks leave behind die young. Whatever has survived for a second is therefore frozen.

Should there be cycles that nobody knows of, they do not fill the memory: when the heap has grown fourfold and by
millions of objects, one collection looks at all of it.
"""

from __future__ import annotations

import gc
from typing import Final

import trio

THRESHOLDS: Final = (10_000, 10, 1000)
"""The number of new objects after which a young collection runs, which takes some milliseconds."""
EVERY_S: Final = 1.0
GROWTH: Final = 4
SPARE: Final = 2_000_000
"""The growth, and the least number of added objects, after which a full collection is due."""
_YOUNG: Final = 1


class Survivors:
    """The frozen objects: all that there are at first, and then what survives."""

    def __init__(self, *, growth: int = GROWTH, spare: int = SPARE) -> None:
        self._growth = growth
        self._spare = spare
        gc.freeze()
        self._count()

    def freeze(self) -> None:
        """Freeze the objects that were made since the last call, but for garbage among them."""
        gc.collect(_YOUNG)
        self._most += len(gc.get_objects())
        gc.freeze()
        if self._most > self._limit:
            self._collect_if_grown()

    def _collect_if_grown(self) -> None:
        """Look for garbage among all objects, if many of those that were frozen still exist."""
        self._most = gc.get_freeze_count()
        if self._most > self._limit:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            self._count()

    def _count(self) -> None:
        # The exact number takes a walk over all of them. Until the next one, the frozen are at most so many.
        self._most = count = gc.get_freeze_count()
        self._limit = max(count * self._growth, count + self._spare)


async def freeze_survivors() -> None:
    """Keep collections short until the caller cancels this task."""
    gc.set_threshold(*THRESHOLDS)
    # The start has left many objects, and all of them live on: the first requests do not wait for a look at them.
    gc.freeze()
    await trio.sleep(EVERY_S)
    survivors = Survivors()
    while True:
        await trio.sleep(EVERY_S)
        survivors.freeze()
