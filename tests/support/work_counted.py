"""Counts work in executed lines or instructions of the product, which are the same on every machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import trio

import kraft
import metadata_log
import transport

ROOTS: Final = (
    *(f"{Path(str(package.__file__)).parent}{os.sep}" for package in (kraft, metadata_log, transport)),
    "<codec",
)
"""What the file names of our code begin with; that of a compiled codec is no file."""


@cache
def is_ours(code: CodeType) -> bool:
    """Whether a function is one of this project."""
    return code.co_filename.startswith(ROOTS)


def count_opcodes(frame: FrameType) -> None:
    """Let the tracer of a frame hear of its instructions, and not of its lines."""
    frame.f_trace_opcodes = True
    frame.f_trace_lines = False


class Owners:
    """To which node a task belongs: that of the closest task above it which a node owns."""

    def __init__(self) -> None:
        self._nodes: dict[trio.lowlevel.Task, int] = {}

    def own(self, node: int) -> None:
        """The running task, and those below it, are of this node."""
        self._nodes[trio.lowlevel.current_task()] = node

    def of(self, task: trio.lowlevel.Task) -> int:
        """The node of a task; 0 for a task of none."""
        node = self._nodes.get(task)
        if node is None:
            nursery = task.parent_nursery
            node = self._nodes[task] = 0 if nursery is None else self.of(nursery.parent_task)
        return node


def trace(work: Callable[[], object], tracer: Callable[[FrameType, str, Any], Any]) -> None:
    """Let a tracer hear of each call in some work."""
    former = sys.gettrace()
    sys.settrace(tracer)
    try:
        work()
    finally:
        sys.settrace(former)


def lines_run(work: Callable[[], object]) -> int:
    """How many lines of Python a call executes."""
    count = 0

    def on_line(_: FrameType, event: str, what: Any) -> Any:
        nonlocal count
        count += event == "line"
        return on_line

    trace(work, on_line)
    return count


def instructions_run(work: Callable[[], object]) -> int:
    """How many instructions of our code a call executes."""
    count = 0

    def on_opcode(_: FrameType, event: str, what: Any) -> Any:
        nonlocal count
        count += event == "opcode"
        return on_opcode

    def on_call(frame: FrameType, event: str, what: Any) -> Any:
        if not is_ours(frame.f_code):
            return None
        count_opcodes(frame)
        return on_opcode

    trace(work, on_call)
    return count
