"""Callers that wait, each in its own task, for the replica's answers to their requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import trio
from msgspec import Struct

from kraft.node.errors import NodeStopped
from kraft.node.inbox import Inbox
from kraft.node.room import Room
from kraft.process.parts import Input

D = TypeVar("D")


class _Waiting(Struct, Generic[D], eq=False):
    """One caller that waits, and its share of the limit."""

    task: trio.lowlevel.Task
    weight: int
    done: D | None = None
    """The answer that the caller waits for."""


class Waiters(Generic[D]):
    """The outstanding requests to one replica. Further callers wait while their weight is `limit` or more."""

    def __init__(self, inbox: Inbox[Input], *, limit: int) -> None:
        self._inbox = inbox
        self._next_id = 1
        self.waiting: dict[int, _Waiting[D]] = {}
        """The callers that wait, by the ids of their requests."""
        self._room = Room(limit)

    async def ask(
        self, ask: Callable[[int], Input], take_back: Callable[[int], Input] | None = None, *, weight: int
    ) -> D | None:
        """Put the request that `ask` makes of a new id into the inbox, and wait for the answer; None if none will come.

        If the caller is cancelled meanwhile, `take_back` makes the event that withdraws the request, if there is one.
        Raises `NodeStopped` if the node has stopped before, and `RuntimeError` in another Trio loop.
        """
        if self._room.is_full:
            await self._room.wait()
        if self._room.is_closed:
            raise NodeStopped("the node has stopped")
        self._inbox.check_caller()
        waiting_id = self._next_id
        self._next_id = waiting_id + 1
        waiting: _Waiting[D] = _Waiting(trio.lowlevel.current_task(), weight)
        self.waiting[waiting_id] = waiting
        self._room.add(weight)
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
        for waiting in self.waiting.values():
            trio.lowlevel.reschedule(waiting.task)
        self.waiting.clear()
        self._room.close()

    def _remove(self, waiting_id: int) -> _Waiting[D] | None:
        waiting = self.waiting.pop(waiting_id, None)
        if waiting is not None:
            self._room.add(-waiting.weight)
        return waiting
