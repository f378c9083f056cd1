"""The queue of events through which everything reaches the task that owns a replica.

Its bound is the sum of what its sources may have under way: unanswered requests and appends are limited where they come
in, replies by what the replica asked, flushes to one. `put` itself never refuses, as a lost reply would wedge the core.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import trio

E = TypeVar("E")


class Inbox(Generic[E]):
    """Events in the order they arrived, and one task that waits for them. Used in the Trio thread only.

    It parks its reader with Trio's lowest primitive: this is on the path of every commit, where a `trio.Event` or a
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
        """Let the reader look, if it waits."""
        if self._reader is not None:
            trio.lowlevel.reschedule(self._reader)
            self._reader = None

    def batch_delivered(self) -> bool:
        """Have the reader deal now, while it waits, with what was put into `events` directly. Returns whether it waits
        still.
        """
        if self.events and self._reader is not None:
            self.in_place()
        return self._reader is not None

    async def wait(self) -> None:
        """Return once there is an event, or after `wake`. Always a checkpoint: a reader with an ever full inbox lets
        other tasks run.
        """
        if self.events:
            await trio.lowlevel.checkpoint()
            return
        self._reader = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._abort)

    def _abort(self, _: Callable[[], None]) -> trio.lowlevel.Abort:
        """The reader's deadline has passed: it is scheduled already, and must not be once more."""
        self._reader = None
        return trio.lowlevel.Abort.SUCCEEDED
