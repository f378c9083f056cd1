"""Replies of peers with records to check in portions, so that no reply takes a long turn (decision 0031).

For the core such an answer is still on its way: the core learns of the answer when all of it is judged, and not at all
if the core does not wait for the answer any more. So whatever happens meanwhile is what may happen while a network is
slow, except that the timers of the request and of the fetch do not end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from kraft.replica.interface.events import WireReply
from transport.protocol.messages import FetchResponse, FetchSnapshotResponse

UNITS_PER_TURN: Final = 4000
"""So many records, or what takes as long, are judged in a turn: some ten milliseconds."""
GRACE_MS: Final = 50
"""The timers of an answer that is held end no earlier than so long after the last turn."""

Basis = object
"""What an answer is judged against; compared with `==`."""
Begin = Callable[[], tuple[Basis, Iterator[int]]]
"""Begins to judge against what is known now; each number is so many units of work."""


class HeldReply:
    """One answer, and how far it is judged."""

    __slots__ = ("_basis", "_begin", "_steps", "event", "is_judged", "peer_id", "taken")

    def __init__(self, event: WireReply, peer_id: int, begin: Begin) -> None:
        self.event = event
        self.peer_id = peer_id
        self.is_judged = False
        self.taken = 0
        """How many steps were made."""
        self._begin = begin
        self._basis: Basis = None
        self._steps: Iterator[int] | None = None

    @property
    def has_begun(self) -> bool:
        """Whether any of it was judged."""
        return self._steps is not None

    def go_on(self, units: int) -> int:
        """Judge for so many units of work; returns how many are left. What was judged against a log that has changed
        since is judged anew.
        """
        basis, steps = self._begin()
        if self._steps is None or basis != self._basis:
            self._basis, self._steps, self.taken = basis, steps, 0
        while units > 0:
            step = next(self._steps, None)
            if step is None:
                self.is_judged = True
                break
            self.taken += 1
            units -= step
        return units


def records_of(message: object) -> bytes:
    """The records that an answer carries; none if there are none, or if the answer is not about one partition."""
    match message:
        case FetchResponse(responses=[topic]):
            return (topic.partitions[0].records or b"") if len(topic.partitions) == 1 else b""
        case FetchSnapshotResponse(topics=[topic]):
            return (topic.partitions[0].unaligned_records or b"") if len(topic.partitions) == 1 else b""
        case _:
            return b""
