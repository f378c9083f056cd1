"""Limits Python's cyclic garbage collection in a process that serves a node.

The objects of a metadata image form no cycles, and are most of the heap. A full collection would traverse all of them
and take a tenth of a second. Objects that have survived for a second are therefore frozen, until their number has grown
considerably.
"""

from __future__ import annotations

import gc
from typing import Final

import trio

THRESHOLDS: Final = (10_000, 10, 1000)
"""The number of new objects after which a young collection runs, which takes some milliseconds."""
_EVERY_S: Final = 1.0
_GROWTH: Final = 1.5
_SPARE: Final = 200_000
"""The minimum number of added objects before a full collection."""


async def freeze_survivors() -> None:
    """Keep collections short until the caller cancels this task."""
    gc.set_threshold(*THRESHOLDS)
    gc.freeze()
    # The exact count walks over all frozen objects: the first requests do not wait for it.
    await trio.sleep(_EVERY_S)
    gc.freeze()
    most, limit = _counted()
    while True:
        await trio.sleep(_EVERY_S)
        # Not the exact count: an idle broker would spend most of its time on that.
        most += len(gc.get_objects())
        gc.freeze()
        if most <= limit:
            continue
        most = gc.get_freeze_count()
        if most > limit:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            most, limit = _counted()


def _counted() -> tuple[int, int]:
    """How many objects are frozen, and how many may be before the next full collection."""
    count = gc.get_freeze_count()
    return count, int(count * _GROWTH) + _SPARE
