"""The processes of a quorum: when they began, and how much memory they hold."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


def children() -> dict[int, float]:
    """By process id each living child of this process, and when it began: seconds since the machine did."""
    own = str(os.getpid())
    found: dict[int, float] = {}
    for stat in PROC.glob("[0-9]*/stat"):
        try:
            # The second field, the name of the program, may hold spaces and brackets; the parent is the fourth.
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[1] == own:
            found[int(stat.parent.name)] = int(fields[19]) / _TICKS_PER_SECOND
    return found


def now() -> float:
    """The seconds since the machine began, of the same clock as `children`."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def resident_mb(pid: int) -> float:
    """The resident memory of a process, in MB."""
    lines = (PROC / str(pid) / "status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) * 1024 / 1e6
