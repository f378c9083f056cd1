"""Replays a partition of `__consumer_offsets` as a coordinator does, for what cleaning has removed from it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kraft.coordinators.groups.state import GroupsState, lacking_before, replay_groups
from kraft.coordinators.runtime.shard import Record
from kraft.operate.doctor.read_records import records_of
from metadata_log.disk import Disk
from metadata_log.errors import MetadataLogError
from metadata_log.records.consumer_offsets import LegacyOffsetCommitKey, OffsetCommitKey
from metadata_log.records.coordinator import CONSUMER_OFFSETS, decode_pair

_OFFSETS: Final = OffsetCommitKey, LegacyOffsetCommitKey


def lacking_records(disk: Disk, path: str, names: Iterable[str]) -> tuple[str, ...]:
    """The records of a partition of groups that others follow on and the log lacks, in words, up to the first damaged
    byte.

    Args:
        disk: The disk.
        path: The directory of the partition.
        names: The names of its files.
    """
    state, found = GroupsState(), list[str]()
    try:
        for one in records_of(disk, path, names):
            pair = decode_pair(CONSUMER_OFFSETS, one.key or b"", one.value)
            # Nothing follows on an offset.
            if pair is not None and not isinstance(pair.key, _OFFSETS):
                record = Record(pair.key, pair.value, pair.version)
                if what := lacking_before(state, record):
                    found.append(f"offset {one.offset}: {what}")
                state = replay_groups(state, record, one.offset, -1)
    except MetadataLogError:
        # Other checks tell of damaged files.
        pass
    return tuple(found)
