"""Bugs of the cleaner of logs, seen by the coordinators whose logs it cleans, and of what they make of cleaned logs."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kraft.partitions.log.cleaning import cleaner
from kraft.partitions.log.cleaning.batch_filter import Filter
from kraft.partitions.log.cleaning.offset_map import OffsetMap
from kraft.partitions.log.cleaning.transactions import CleanedTransactions
from planted_bugs.registry import Patches, Scope, mutant, survivor

_KAFKAS_FILES = (
    "tests/kraft/partitions/log/test_cleaning.py::test_three_cleanings_write_the_files_that_kafkas_cleaner_wrote"
)


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None, profile="small-logs")
def cleaning_keeps_the_first_value(code: Patches) -> None:
    """Of two records with one key the cleaner keeps the older one."""
    sound = OffsetMap.put

    def put(offsets: OffsetMap, key: bytes, offset: int) -> None:
        if offsets.get(key) < 0:
            sound(offsets, key, offset)

    code.replace(OffsetMap, "put", put)
    code.replace(Filter, "_keeps", lambda kept, offset, key, **_: offset <= kept.offsets.get(key or b""))


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None, profile="small-logs")
def cleaning_takes_partitions_of_a_group_for_one_key(code: Patches) -> None:
    """The cleaner compares keys without their last four bytes, which are the partition of a committed offset."""
    put, get = OffsetMap.put, OffsetMap.get
    code.replace(OffsetMap, "put", lambda offsets, key, offset: put(offsets, key[:-4], offset))
    code.replace(OffsetMap, "get", lambda offsets, key: get(offsets, key[:-4]))


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None, profile="small-logs")
def cleaning_takes_markers_at_once(code: Patches) -> None:
    """The cleaner removes the end of a transaction whose records it keeps."""
    sound = Filter.filtering

    def filtering(kept: Filter, batch: Any, *, may_discard: bool) -> Any:
        if batch.is_control and not kept._is_last_of_producer(batch):
            return b""
        return (yield from sound(kept, batch, may_discard=may_discard))

    code.replace(Filter, "filtering", filtering)


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None, profile="small-logs")
def cleaning_maps_aborted_records(code: Patches) -> None:
    """A record of an aborted transaction replaces the committed one with its key."""
    sound = CleanedTransactions.read

    def read(transactions: CleanedTransactions, batch: Any, *, where: str) -> bool:
        is_gone = sound(transactions, batch, where=where)
        return is_gone and batch.is_control

    code.replace(CleanedTransactions, "read", read)


@survivor(
    Scope.COORDINATOR_CLUSTER,
    because="One cleaning removes a deletion with all that it deletes: only a follower that was behind, and then"
    " leads, would know better.",
    killed_by=_KAFKAS_FILES,
)
def cleaning_takes_deletions_at_once(code: Patches) -> None:
    """The cleaner removes a deletion with what it deletes, in the runs of segments that it cleans together."""

    def keeps(kept: Filter, offset: int, key: bytes | None, *, has_value: bool, is_over: bool) -> bool:
        return offset > kept.offsets.latest_offset or (
            key is not None and has_value and offset >= kept.offsets.get(key)
        )

    code.replace(Filter, "_keeps", keeps)


@survivor(
    Scope.COORDINATOR_CLUSTER,
    because="Records whose keys were not looked at stay, so that the log is only longer than it must be.",
    killed_by=_KAFKAS_FILES,
)
def cleaning_begins_after_what_is_dirty(code: Patches) -> None:
    """A second cleaning maps only the newer half of what is new, and takes the rest as cleaned."""
    sound = cleaner._Cleaner._map

    def mapped(one: Any, offsets: OffsetMap) -> Any:
        found = one._found
        half = (found.first_dirty_offset + found.end_offset) // 2
        if found.first_dirty_offset:
            one._found = replace(found, first_dirty_offset=half)
        yield from sound(one, offsets)

    code.replace(cleaner._Cleaner, "_map", mapped)
