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

    __slots__ = ("_reader", "events", "in_place", "loop")

    def __init__(self) -> None:
        self.events: deque[E] = deque()
        self.in_place: Callable[[], None] = self.wake
        """Handles events in the task that delivered them, for the reader; must not raise."""
        self.loop: trio.lowlevel.TrioToken | None = None
        """The Trio loop of the node; None if nobody checks who calls."""
        self._reader: trio.lowlevel.Task | None = None

    def check_caller(self) -> None:
        """Refuse a caller in another loop or thread, to wake which would end the node. Raises `RuntimeError`."""
        if self.loop is None:
            return
        is_own = trio.lowlevel.in_trio_run() and trio.lowlevel.current_trio_token() is self.loop
        if not is_own:
            raise RuntimeError(
                "the node runs in another Trio loop: call it there, as by trio.from_thread.run, or open it with"
                " kraft.sync, for calls of any thread"
            )

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
