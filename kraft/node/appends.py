"""Appends on their way into the log: each waits in its caller's task for the word of the replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import trio

from kraft.node.errors import AppendRejected, NodeStopped, NotLeader, OutcomeUnknown
from kraft.node.inbox import Inbox
from kraft.replica.events import Input, Submit, SubmitDone
from transport.protocol.errors import Error

_NOT_LEADING: Final = frozenset({Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH, Error.NOT_CONTROLLER})


class _Waiting:
    """One caller that waits, and what it waits for."""

    __slots__ = ("done", "task")

    def __init__(self, task: trio.lowlevel.Task) -> None:
        self.task = task
        self.done: SubmitDone | None = None


class Appends:
    """The outstanding appends of one node, at most `limit` of them: further callers wait their turn."""

    def __init__(self, inbox: Inbox[Input], *, limit: int) -> None:
        self._inbox = inbox
        self._limit = limit
        self._next_id = 1
        self._waiting: dict[int, _Waiting] = {}
        self._turn = trio.lowlevel.ParkingLot()
        self._crowd = 0
        """How many wait for their turn."""
        self._stopped = False

    @property
    def outstanding(self) -> int:
        """How many callers wait."""
        return len(self._waiting)

    async def append(self, values: Sequence[bytes]) -> SubmitDone:
        """Submit one atomic unit and wait until it is committed; raises what `kraft.node.errors` names."""
        while len(self._waiting) >= self._limit and not self._stopped:
            self._crowd += 1
            try:
                await self._turn.park()
            finally:
                self._crowd -= 1
        if self._stopped:
            raise NodeStopped("the node has stopped")
        submit_id = self._next_id
        self._next_id = submit_id + 1
        waiting = self._waiting[submit_id] = _Waiting(trio.lowlevel.current_task())
        self._inbox.put(Submit(submit_id, tuple(values)))

        def forget(_: Callable[[], None]) -> trio.lowlevel.Abort:
            self._remove(submit_id)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(forget)
        return _outcome(waiting.done)

    def finish(self, done: SubmitDone) -> None:
        """The replica's word on one of them; its caller may have been cancelled meanwhile."""
        waiting = self._remove(done.submit_id)
        if waiting is not None:
            waiting.done = done
            trio.lowlevel.reschedule(waiting.task)

    def stop(self) -> None:
        """No word will come any more."""
        self._stopped = True
        for waiting in self._waiting.values():
            trio.lowlevel.reschedule(waiting.task)
        self._waiting.clear()
        self._turn.unpark_all()

    def _remove(self, submit_id: int) -> _Waiting | None:
        waiting = self._waiting.pop(submit_id, None)
        if self._crowd:
            self._turn.unpark()
        return waiting


def _outcome(done: SubmitDone | None) -> SubmitDone:
    if done is None:
        raise NodeStopped("the node stopped before the append was committed; it may or may not be in the log")
    if done.is_uncertain:
        raise OutcomeUnknown(done.leader)
    if done.error in _NOT_LEADING:
        raise NotLeader(done.leader)
    if done.error is not Error.NONE:
        raise AppendRejected(done.error)
    return done
