"""The names of the partition directories in a log directory (Kafka: `UnifiedLog.parseTopicPartitionName`)."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

STRAY: Final = "stray"
"""A broker has found that the partition is not assigned to the broker any more."""
DELETE: Final = "delete"
"""The topic is gone, and the files are deleted soon."""
FUTURE: Final = "future"
"""A copy that moves to another log directory."""
_NAME: Final = re.compile(r"([^/]+)-(\d{1,10})(?:\.[^./]+-(stray|delete|future))?", re.ASCII)


class PartitionName(Struct, frozen=True):
    """The parts of the name of a partition directory."""

    topic: str
    number: int
    suffix: str = ""
    """`STRAY`, `DELETE` or `FUTURE`; empty for a partition in use."""

    def __str__(self) -> str:
        """The topic and the number, such as `orders-0`."""
        return f"{self.topic}-{self.number}"


def parse_partition_name(name: str) -> PartitionName | None:
    """The partition that a directory belongs to; None if the name is not that of a partition directory.

    Args:
        name: The name without its path, such as `orders-0` or `orders-0.6f1e…-delete`.
    """
    match = _NAME.fullmatch(name)
    if match is None or name.startswith("."):
        return None
    return PartitionName(match[1], int(match[2]), match[3] or "")
