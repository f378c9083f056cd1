"""The offset checkpoints of a log directory (Kafka: `OffsetCheckpointFile`, `CheckpointFile`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from metadata_log.disk import Disk, replace_file
from metadata_log.errors import DecodeError
from metadata_log.log.partition_names import PartitionName

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
"""The first offset of each partition that may not be on disk."""
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
"""The high watermark of each partition."""
LOG_STARTS: Final = "log-start-offset-checkpoint"
"""The log start of each partition with a first segment that begins before the log start."""
CLEANED: Final = "cleaner-offset-checkpoint"
"""The offset up to which the cleaner has looked at each compacted partition."""
CHECKPOINTS: Final = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANED)
"""All of them."""

_VERSION: Final = "0"
_ENTRY: Final = r"(?a)(\S+)\s+(\d{1,10})\s+(-?\d{1,19})\s*"


def format_offsets(offsets: Mapping[PartitionName, int]) -> bytes:
    """The text of a checkpoint file, in the order of the mapping."""
    lines = [_VERSION, str(len(offsets)), *(f"{name.topic} {name.number} {at}" for name, at in offsets.items())]
    return ("\n".join(lines) + "\n").encode()


def parse_offsets(text: bytes, *, where: str) -> dict[PartitionName, int]:
    """Read the text of a checkpoint file.

    Args:
        text: The content of the file.
        where: The path of the file, for errors.

    Returns:
        The offset of each partition, in the order of the file; none for an empty file.

    Raises:
        DecodeError: The file has another version, a wrong line, or another number of lines than it announces.
    """
    if not text:
        return {}  # Kafka makes the files like this, and so reads them (`CheckpointFile`)
    lines = text.decode("utf-8", "replace").splitlines()

    def bad(what: str, line: int) -> DecodeError:
        return DecodeError(
            f"{what} in line {line}",
            where=where,
            hint="Remove the file: the broker then starts from the content of the logs.",
        )

    if lines[0] != _VERSION:
        raise bad(f"unknown version {lines[0]!r}, expected 0,", 1)
    if len(lines) < 2 or not (lines[1].isascii() and lines[1].isdigit()):
        raise bad("the number of entries is missing", 2)
    offsets: dict[PartitionName, int] = {}
    for number, line in enumerate(lines[2:], 3):
        words = re.fullmatch(_ENTRY, line)
        if words is None:
            raise bad(f"{line!r} is not a topic, a partition and an offset", number)
        offsets[PartitionName(words[1], int(words[2]))] = int(words[3])
    if len(lines) - 2 != int(lines[1]):
        raise bad(f"{len(lines) - 2} entries where {lines[1]} were announced", 2)
    return offsets


def read_offsets(disk: Disk, directory: str, name: str) -> tuple[dict[PartitionName, int], str | None]:
    """The offsets in a checkpoint file of a log directory.

    Args:
        disk: The disk.
        directory: The log directory.
        name: The name of the file, such as `RECOVERY_POINTS`.

    Returns:
        The offsets, and the defect of the file as a text. A missing or malformed file has no offsets, as in Kafka.

    Raises:
        OSError: The disk failed.
    """
    path = f"{directory}/{name}"
    if not disk.exists(path):
        return {}, None
    try:
        return parse_offsets(disk.read(path), where=path), None
    except DecodeError as bad:
        return {}, str(bad)


def write_offsets(disk: Disk, directory: str, name: str, offsets: Mapping[PartitionName, int]) -> None:
    """Durably replace a checkpoint file of a log directory; raises `OSError`."""
    replace_file(disk, directory, name, format_offsets(offsets))
