"""The power fails before an operation of a disk in memory: a test tries each operation of its work in turn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from metadata_log.memory_disk import MemoryDisk


class PowerFailure(Exception):
    """Nothing runs any more; what the disk keeps is for the test to say."""


class Power(Struct):
    """Whether it came to that."""

    failed: bool = False


@contextmanager
def failing_after(disk: MemoryDisk, operations: int) -> Iterator[Power]:
    """Let the power fail after so many disk operations of the block."""
    power, left = Power(), operations

    def count(operation: str, path: str) -> None:
        nonlocal left
        if left == 0:
            raise PowerFailure(operation, path)
        left -= 1

    disk.on_operation = count
    try:
        yield power
    except PowerFailure:
        power.failed = True
    finally:
        disk.on_operation = None
