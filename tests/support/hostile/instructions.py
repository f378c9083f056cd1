"""Counts what nodes of this process execute, and lets their time pass by it: a turn is as long on every host.

`InstructionClock` is the clock of a Trio program. While a task of a node runs, time passes by the instructions that the
interpreter executes in our code; in between it passes as on the wall. So what a node cuts by time is cut at the same
places on a quick machine, a slow one and a busy one.
"""

from __future__ import annotations

import sys
import time
from types import FrameType
from typing import Any, Final

import trio
from msgspec import Struct

from support.work_counted import Owners, count_opcodes, is_ours

SECONDS_PER_INSTRUCTION: Final = 20e-9
"""Twice what an instruction took, with the functions in C that it calls, on two cores of 2026."""


class Work(Struct):
    """The work of the nodes since the last look."""

    instructions: int = 0
    longest_turn: int = 0
    """The most instructions between two checkpoints of one task."""
    of_task: str = ""


class InstructionClock(trio.abc.Clock, trio.abc.Instrument):
    """The clock and the instrument of `trio.run`: both in one, because a turn's instructions are its time."""

    def __init__(self) -> None:
        self.work = Work()
        self._owners = Owners()
        self._is_counting = False
        self._in_turn = False
        self._turn = 0
        self._turned_s = 0.0
        """The seconds of all turns so far, by their instructions."""
        self._mark_s = time.monotonic()
        self._waited_s = 0.0

    # The clock

    def start_clock(self) -> None:
        self._mark_s = time.monotonic()

    def current_time(self) -> float:
        if self._in_turn:
            return self._waited_s + self._turned_s + self._turn * SECONDS_PER_INSTRUCTION
        return self._waited_s + self._turned_s + time.monotonic() - self._mark_s

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - self.current_time()

    # The instrument

    def own(self) -> None:
        """The tasks below the running one are those of a node."""
        self._owners.own(1)

    def count(self) -> None:
        """Count from now on."""
        self.work = Work()
        self._is_counting = True

    def stop(self) -> Work:
        """Count no more; what was counted."""
        self._is_counting = False
        return self.work

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._is_counting and self._owners.of(task):
            self._waited_s += time.monotonic() - self._mark_s
            self._in_turn, self._turn = True, 0
            sys.settrace(self._on_call)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if not self._in_turn:
            return
        sys.settrace(None)
        self._in_turn = False
        self._turned_s += self._turn * SECONDS_PER_INSTRUCTION
        self._mark_s = time.monotonic()
        self.work.instructions += self._turn
        if self._turn > self.work.longest_turn:
            self.work.longest_turn, self.work.of_task = self._turn, task.name

    def _on_call(self, frame: FrameType, event: str, _: object) -> Any:
        if not is_ours(frame.f_code):
            return None
        count_opcodes(frame)
        return self._on_opcode

    def _on_opcode(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "opcode":
            self._turn += 1
        return self._on_opcode
