"""Logs of records, and the images that follow from them."""

from __future__ import annotations

from functools import cache

from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.memory_disk import MemoryDisk
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch
from support.real_data import archive


def end(offset: int) -> OffsetAndEpoch:
    return OffsetAndEpoch(epoch=1, offset=offset)


def replay(image: MetadataImage, *changes: Message) -> MetadataImage:
    delta = MetadataDelta(image)
    for offset, record in enumerate(changes, image.end.offset):
        delta.replay(record, offset)
    return delta.apply(end(image.end.offset + len(changes)))


@cache
def disk_of(name: str) -> MemoryDisk:
    """The logs and snapshots of an archive."""
    disk = MemoryDisk()
    for path, content in archive(name).items():
        if path.endswith((".log", ".checkpoint")):
            disk.mkdir(f"/{path}".rpartition("/")[0])
            file = disk.open(f"/{path}", create=True)
            file.append(content)
            file.close()
    return disk
