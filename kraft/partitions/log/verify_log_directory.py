"""Checks what stands beside the partitions of a log directory, for `kraft dump --verify` (Kafka: `LogManager`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kraft.partitions.log.checkpoints import CLEANED, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, parse_offsets
from kraft.partitions.log.verify_partition import FileVerdict
from metadata_log.disk import Disk
from metadata_log.errors import DecodeError
from metadata_log.reading.damage import Damage
from metadata_log.reading.missing import foreign_directories
from metadata_log.reading.verify import Verdict

_CHECKPOINTS: Final = {
    RECOVERY_POINTS: "recovery point",
    HIGH_WATERMARKS: "high watermark",
    LOG_STARTS: "log start",
    CLEANED: "cleaned offset",
}


def verify_log_directory(disk: Disk, path: str, ends: Mapping[str, int]) -> Iterator[FileVerdict]:
    """Check the checkpoint files of a log directory, and look for directories that are no partitions.

    Args:
        disk: The disk.
        path: The log directory.
        ends: The end of the log in each partition directory, by its name.

    Yields:
        One verdict for each file, and for each directory that is no partition.

    Raises:
        OSError: A file cannot be read.
    """
    names = disk.list(path)
    # A controller without a broker does not care for other directories.
    foreign = foreign_directories(disk, path, names) if ends or not _CHECKPOINTS.keys().isdisjoint(names) else []
    for name in names:
        where = f"{path}/{name}"
        if name in _CHECKPOINTS:
            yield FileVerdict(where, name, Verdict(damages=tuple(_offsets(disk, where, _CHECKPOINTS[name], ends))))
        elif name in foreign:
            what = "this directory is no partition, and was not checked: Kafka's broker does not start beside it"
            damage = Damage(where=where, what=what, expected="partition directories only")
            yield FileVerdict(where, "directory", Verdict(damages=(damage,)))


def _offsets(disk: Disk, path: str, kind: str, ends: Mapping[str, int]) -> Iterator[Damage]:
    """Compare the offsets of a checkpoint file with the ends of the logs. Kafka leaves a new file empty."""
    content = disk.read(path)
    try:
        offsets = parse_offsets(content, where=path)
    except DecodeError as bad:
        yield Damage(where=path, what=bad.what, expected="a topic, a partition and an offset on each line")
        return
    for name, offset in offsets.items():
        end = ends.get(str(name))
        if end is not None and offset > end:
            what = f"the {kind} of {name} is {offset}, and its log ends at offset {end}"
            yield Damage(where=path, what=what, expected="offsets within the log", offset=offset)
