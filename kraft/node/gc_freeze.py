"""Keeps Python's cyclic garbage collection short in a process that serves a node.

A full collection traverses the whole heap: 15 to 50 ms for a broker that has just started, some hundred for one with
100,000 groups, and nothing else has a turn meanwhile. It would find nothing. Images, logs and groups form no cycles,
and what does, as a connection and its channel, comes apart when it ends (`tests/kraft/node/test_gc_freeze.py`). Cycles
that exceptions and tasks leave behind die young. Whatever has survived for a second is therefore frozen for good.
"""

from __future__ import annotations

import gc
from typing import Final

import trio

THRESHOLDS: Final = (10_000, 10, 1000)
"""The number of new objects after which a young collection runs, which takes some milliseconds."""
EVERY_S: Final = 1.0
_YOUNG: Final = 1


def freeze_young() -> None:
    """Freeze the objects that were made since the last call, but for garbage among them."""
    gc.collect(_YOUNG)
    gc.freeze()


async def freeze_survivors() -> None:
    """Keep collections short until the caller cancels this task."""
    gc.set_threshold(*THRESHOLDS)
    # The start has left many objects, and all of them live on: the first requests do not wait for a look at them.
    gc.freeze()
    while True:
        await trio.sleep(EVERY_S)
        freeze_young()
