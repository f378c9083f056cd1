"""Helpers of the tests of the Arrow views: files in memory, and the reader's view of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from metadata_log.arrow import Decoder
from metadata_log.disk import Disk
from metadata_log.memory_disk import MemoryDisk
from metadata_log.reading.damage import Damage
from metadata_log.reading.entries import Entry, read_entries
from metadata_log.reading.reader import read_file
from metadata_log.serde.fields import Message
from metadata_log.types import Uuid

DECODERS: tuple[Decoder, ...] = ("numpy", "python")


def disk_of(files: Mapping[str, bytes]) -> MemoryDisk:
    disk = MemoryDisk()
    for path, content in files.items():
        disk.mkdir(path.rpartition("/")[0])
        disk.open(path, create=True).append(content)
    return disk


def read_whole(disk: Disk, path: str) -> Iterator[Entry | Damage]:
    """Everything in a file but an unfinished end."""
    for item in read_file(disk, path):
        if isinstance(item, Damage):
            if not item.unfinished:
                yield item
        else:
            yield from read_entries(item, path)


def shown(item: Entry | Damage) -> tuple[object, ...]:
    """The value as a row shows it."""
    return (item.offset, item.what) if isinstance(item, Damage) else (item.offset, item.name, item.value)


def plain(value: object) -> object:
    """A value of a record as Arrow gives it back."""
    match value:
        case Uuid():
            return str(value)
        case tuple() | list():
            return [plain(each) for each in value]
        case Message():
            return {name: plain(getattr(value, name)) for name in value.__struct_fields__ if name != "unknown_tagged"}
        case _:
            return value
