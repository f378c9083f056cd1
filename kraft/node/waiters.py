"""Callers that wait, each in its own task, for the replica's answers to their requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import trio
from msgspec import Struct

from kraft.node.errors import NodeStopped
from kraft.node.inbox import Inbox
from kraft.replica.interface.events import Input

D = TypeVar("D")


class _Waiting(Struct, Generic[D], eq=False):
    """One caller that waits, and how much of the limit it takes."""

    task: trio.lowlevel.Task
    weight: int
    done: D | None = None
    """What it waits for."""


class Waiters(Generic[D]):
    """What was asked of one node and is not done: callers wait their turn while it weighs `limit` or more."""

    def __init__(self, inbox: Inbox[Input], *, limit: int) -> None:
        self._inbox = inbox
        self._limit = limit
        self._next_id = 1
        self.waiting: dict[int, _Waiting[D]] = {}
        """The callers that wait, by the id of what each asked for."""
        self._weight = 0
        """Of all that wait."""
        self._turn = trio.lowlevel.ParkingLot()
        self._crowd = 0
        """How many wait for their turn."""
        self._stopped = False

    async def ask(
        self, ask: Callable[[int], Input], take_back: Callable[[int], Input] | None = None, *, weight: int = 1
    ) -> D | None:
        """Put what `ask` makes of a new id into the inbox, and wait for the word on it; None if none will come.

        A caller that is cancelled meanwhile takes it back, if that is possible. Raises `NodeStopped` if the node had
        stopped before.
        """
        while self._weight >= self._limit and not self._stopped:
            await self._wait_for_room()
        if self._stopped:
            raise NodeStopped("the node has stopped")
        waiting_id = self._next_id
        self._next_id = waiting_id + 1
        waiting: _Waiting[D] = _Waiting(trio.lowlevel.current_task(), weight)
        self.waiting[waiting_id] = waiting
        self._weight += weight
        if self._crowd:
            self._let_in()
        self._inbox.put(ask(waiting_id))

        def forget(_: Callable[[], None]) -> trio.lowlevel.Abort:
            self._remove(waiting_id)
            if take_back is not None:
                self._inbox.put(take_back(waiting_id))
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(forget)
        return waiting.done

    def finish(self, waiting_id: int, done: D) -> None:
        """Pass an answer of the replica to its caller, unless the caller was cancelled meanwhile."""
        waiting = self._remove(waiting_id)
        if waiting is not None:
            waiting.done = done
            trio.lowlevel.reschedule(waiting.task)

    def stop(self) -> None:
        """Wake all callers without an answer, as no answer follows any more."""
        self._stopped = True
        for waiting in self.waiting.values():
            trio.lowlevel.reschedule(waiting.task)
        self.waiting.clear()
        self._turn.unpark_all()

    def _remove(self, waiting_id: int) -> _Waiting[D] | None:
        waiting = self.waiting.pop(waiting_id, None)
        if waiting is not None:
            self._weight -= waiting.weight
            if self._crowd:
                self._let_in()
        return waiting

    async def _wait_for_room(self) -> None:
        self._crowd += 1
        try:
            await self._turn.park()
        finally:
            self._crowd -= 1

    def _let_in(self) -> None:
        """Each admitted caller admits the next one, as one heavy caller may have made room for many."""
        if self._weight < self._limit:
            self._turn.unpark()
