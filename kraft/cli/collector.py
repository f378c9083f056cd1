"""Python's cyclic garbage collector in a process that serves a node.

What makes a metadata image forms no cycles, and is most of what there is: a collection of everything would go through
all of it and take a tenth of a second. So what has survived for a second is not looked at any more, until there is much
more of it than there was.
"""

from __future__ import annotations

import gc
from typing import Final

import trio

THRESHOLDS: Final = (10_000, 10, 1000)
"""After so many new objects the new ones are looked at: some milliseconds."""
_EVERY_S: Final = 1.0
_GROWTH: Final = 1.5
_SPARE: Final = 200_000
"""What may come to a small node before everything is looked at."""


async def collect_what_is_new() -> None:
    """Keep collections short, for as long as the caller wants."""
    gc.set_threshold(*THRESHOLDS)
    gc.freeze()
    limit = _limit()
    while True:
        await trio.sleep(_EVERY_S)
        gc.freeze()
        if gc.get_freeze_count() > limit:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            limit = _limit()


def _limit() -> int:
    return int(gc.get_freeze_count() * _GROWTH) + _SPARE
