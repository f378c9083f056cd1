"""The queue of events for the task that owns a replica.

Its sources bound it: unanswered requests and appends have limits, each reply has a request of the replica, and at most
one flush is outstanding. `put` itself never refuses an event, as a lost reply would block the core.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import trio

E = TypeVar("E")


class Inbox(Generic[E]):
    """Events in the order they arrived, and one task that waits for them. Used in the Trio thread only.

    The reader parks by Trio's lowest primitive. The inbox is on the path of each commit, where a `trio.Event` or a
    memory channel would cost as much as encoding the batch.
    """

    __slots__ = ("_reader", "events", "in_place")

    def __init__(self) -> None:
        self.events: deque[E] = deque()
        self.in_place: Callable[[], None] = self.wake
        """Handles events in the task that delivered them, for the reader; must not raise."""
        self._reader: trio.lowlevel.Task | None = None

    def put(self, event: E) -> None:
        """Append an event and wake the reader."""
        self.events.append(event)
        if self._reader is not None:
            self.wake()

    def wake(self) -> None:
        """Wake the reader, if it waits."""
        if self._reader is not None:
            trio.lowlevel.reschedule(self._reader)
            self._reader = None

    def batch_delivered(self) -> bool:
        """Handle the events that were put into `events` directly, while the reader waits; returns whether it waits."""
        if self.events and self._reader is not None:
            self.in_place()
        return self._reader is not None

    async def wait(self) -> None:
        """Return once there is an event, or after `wake`. This is always a checkpoint, so that other tasks run even if
        the inbox is never empty.
        """
        if self.events:
            await trio.lowlevel.checkpoint()
            return
        self._reader = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._abort)

    def _abort(self, _: Callable[[], None]) -> trio.lowlevel.Abort:
        """Forget the reader, whose deadline has passed: Trio has scheduled it, and `wake` must not do so again."""
        self._reader = None
        return trio.lowlevel.Abort.SUCCEEDED
