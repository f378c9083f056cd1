"""What the kernel tells of a bench's processes: processor time, memory, and when they began (Linux)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pids: Iterable[int]) -> float:
    """The processor time of the processes so far, children not included."""
    fields = [_stat(PROC / str(pid)) for pid in pids]
    return sum(int(each[11]) + int(each[12]) for each in fields) / _TICKS_PER_SECOND


def resident_bytes(pid: int) -> int:
    """The memory of a process now."""
    return _memory_bytes(pid, "VmRSS:")


def peak_bytes(pid: int) -> int:
    """The most memory of a process so far."""
    return _memory_bytes(pid, "VmHWM:")


def children() -> dict[int, float]:
    """By process id each living child of this process, and when it began: seconds since the machine did."""
    own = str(os.getpid())
    found: dict[int, float] = {}
    for process in PROC.glob("[0-9]*"):
        try:
            fields = _stat(process)
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[1] == own:
            found[int(process.name)] = int(fields[19]) / _TICKS_PER_SECOND
    return found


def now() -> float:
    """The seconds since the machine began, of the same clock as `children`."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _stat(process: Path) -> list[str]:
    """The fields of `stat` behind the name of the program, which may hold spaces and brackets."""
    return (process / "stat").read_text().rpartition(")")[2].split()


def _memory_bytes(pid: int, what: str) -> int:
    lines = (PROC / str(pid) / "status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(what))
