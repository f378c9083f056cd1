"""How two copies of the metadata log differ: their common beginning, and the records that only one of them holds."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from kraft.operate.recover.copies import MetadataCopy
from metadata_log.disk import Disk
from metadata_log.errors import DirectoryError
from metadata_log.reading.damage import Damage
from metadata_log.reading.entries import Entry, read_entries
from metadata_log.records import metadata
from metadata_log.types import Uuid

MOST_NAMED = 50
"""How many records a list names one by one."""


class Records(Struct, frozen=True, kw_only=True):
    """Some records of a copy: offsets, epochs, the number by type, and the names of what they are about."""

    start: int
    end: int
    first_epoch: int
    last_epoch: int
    by_type: dict[str, int]
    named: tuple[str, ...]

    @property
    def count(self) -> int:
        """The number of records."""
        return sum(self.by_type.values())


class Difference(Struct, frozen=True, kw_only=True):
    """A copy held against the best one.

    Args:
        name: The directory.
        log_end: The log end offset of the copy.
        common_end: The end of the common beginning: batch for batch the same bytes.
        is_diverged: Whether both copies hold more than the common beginning.
        only_here: The records at `common_end` or later in this copy; None if there are none.
    """

    name: str
    log_end: int
    common_end: int
    is_diverged: bool
    only_here: Records | None


def common_end(best: MetadataCopy, other: MetadataCopy, names: tuple[str, str]) -> int:
    """The end of the common beginning of two copies: the first batch that differs, or the end of the shorter copy.

    Records below a log start cannot be compared: a snapshot has replaced them, and snapshots hold committed records.
    `DirectoryError` if the copies have different bytes at one offset of one epoch. No quorum writes that.
    """
    start = max(best.log_start, other.log_start)
    shorter = min(best.end.offset, other.end.offset)
    for one, two in zip(best.batches_from(start), other.batches_from(start), strict=False):
        if one.is_same(two):
            continue
        if one.epoch == two.epoch and one.base_offset == two.base_offset:
            raise DirectoryError(
                f"{names[0]} and {names[1]} have different bytes at offset {one.base_offset} of epoch {one.epoch}"
                " (diverged-log)",
                where=best.segment_path(one),
                position=one.position,
                hint="One of the copies was edited, or an epoch was used twice. Find out which one, and leave it out.",
            )
        return min(one.base_offset, two.base_offset)
    return shorter


def compare(disk: Disk, best: MetadataCopy, other: MetadataCopy, names: tuple[str, str]) -> Difference:
    """Hold a copy against the best one; `names` are those of the best and of the other. Errors as of `common_end`."""
    end = common_end(best, other, names)
    return Difference(
        name=names[1],
        log_end=other.end.offset,
        common_end=end,
        is_diverged=other.end.offset > end and best.end.offset > end,
        only_here=records_from(disk, other, end),
    )


def records_from(disk: Disk, copy: MetadataCopy, start: int, end: int | None = None) -> Records | None:
    """The records of a copy from an offset on, before `end`; None if there are none.

    Names stand for at most `MOST_NAMED` records. Values, which may be secrets, are not part of the result.
    """
    by_type: Counter[str] = Counter()
    named: list[str] = []
    epochs: list[int] = []
    topics: dict[bytes, str] = {}
    if copy.image is not None:
        topics = {bytes(topic_id): topic.name for topic_id, topic in copy.image.topics.by_id.items()}
    first = last = -1
    for batch, path in copy.read_from(disk, start):
        if end is not None and batch.base_offset >= end:
            break
        epochs.append(batch.epoch)
        first = batch.base_offset if first < 0 else first
        last = batch.next_offset
        for entry in read_entries(batch, path):
            if isinstance(entry, Damage):
                by_type["unreadable record"] += 1
                continue
            by_type[entry.name] += 1
            name = name_of(entry, topics)
            if name is not None and len(named) < MOST_NAMED and name not in named[-1:]:
                named.append(name)
    if first < 0:
        return None
    return Records(
        start=first,
        end=last,
        first_epoch=epochs[0],
        last_epoch=epochs[-1],
        by_type=dict(sorted(by_type.items())),
        named=tuple(named),
    )


_RESOURCES = {2: "topic", 4: "broker", 8: "broker logger", 16: "client metrics", 32: "group"}


def name_of(entry: Entry, topics: dict[bytes, str]) -> str | None:
    """The subject of a record, without any value; None for a record that is not about something with a name."""

    def topic(topic_id: Uuid) -> str:
        return f"{topics.get(bytes(topic_id), 'of an unknown name')}, id {topic_id}"

    match entry.record:
        case metadata.TopicRecord(name=name, topic_id=topic_id):
            topics[bytes(topic_id)] = name
            return f"topic {topic(topic_id)}"
        case metadata.RemoveTopicRecord(topic_id=topic_id):
            return f"removal of topic {topic(topic_id)}"
        case metadata.ConfigRecord(resource_type=kind, resource_name=resource, name=key):
            return f"configuration {key} of {_RESOURCES.get(kind, str(kind))} {resource or '(default)'}"
        case metadata.FeatureLevelRecord(name=name, feature_level=level):
            return f"feature {name} level {level}"
        case metadata.AccessControlEntryRecord(principal=principal, resource_name=resource):
            return f"access rule of {principal} for {resource}"
        case metadata.RemoveAccessControlEntryRecord():
            return "removal of an access rule"
        case metadata.UserScramCredentialRecord(name=name):
            return f"credential of user {name}"
        case metadata.RemoveUserScramCredentialRecord(name=name):
            return f"removal of a credential of user {name}"
        case metadata.DelegationTokenRecord(owner=owner):
            return f"delegation token of {owner}"
        case metadata.RegisterBrokerRecord(broker_id=broker_id):
            return f"registration of broker {broker_id}"
        case metadata.UnregisterBrokerRecord(broker_id=broker_id):
            return f"unregistration of broker {broker_id}"
        case metadata.ProducerIdsRecord(next_producer_id=next_id):
            return f"producer ids below {next_id}"
        case _:
            return None
