"""How much a step of a node has to do: so a simulated owner can be as late as a real one would be.

A controller's work is counted in records that it replays, as it does for each record that it decides on and for each
that others have committed; that of another application in records that reach it. Nothing of the product is changed for
that, only a method is replaced while a step lasts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kraft.replica.replica import Replica
from metadata_log.image import MetadataDelta


class Work:
    """Counts the records of one node."""

    def __init__(self) -> None:
        self._records = 0

    def take(self) -> int:
        """How many there were since this was last asked."""
        records, self._records = self._records, 0
        return records

    @contextmanager
    def counted(self, replica: Replica) -> Iterator[None]:
        """Count what a step inside of the block does."""
        sound = vars(MetadataDelta)["replay"]
        before = replica.status().applied_offset
        replayed = 0

        def replay(delta: MetadataDelta, *arguments: Any, **named: Any) -> None:
            nonlocal replayed
            replayed += 1
            sound(delta, *arguments, **named)

        setattr(MetadataDelta, "replay", replay)  # noqa: B010 -- mypy lets nobody assign to a method
        try:
            yield
        finally:
            setattr(MetadataDelta, "replay", sound)  # noqa: B010 -- as above
        self._records += max(replayed, replica.status().applied_offset - before)
