"""Replays records into the image in portions, so that large batches and snapshots take many short turns (Kafka:
`QuorumController.replay`, `QuorumMetaLogListener.handleLoadSnapshot`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from metadata_log.image import MetadataDelta, MetadataImage, TopicImage
from metadata_log.image.topics import Shared
from metadata_log.records.metadata import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    UnregisterBrokerRecord,
)
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch

RECORDS_PER_IMAGE: Final = 1000
"""The number of records after which an intermediate image is made, unless it would lack partitions of a topic."""
PARTITIONS_PER_RECORD: Final = 16
"""The number of removed partitions that costs as much as the replay of one record."""
CHANGES_PER_RECORD: Final = 2
"""The number of changed partitions that cost as much as one other record. Compared with a change that is decided and
decoded for itself, to decide on an alike one and to replay it takes 0.4 of the time, to decode and to replay it 0.6.
"""
EVERYTHING: Final = 2**62
"""A budget for any number of records."""
_OF_BROKERS: Final = {RegisterBrokerRecord, UnregisterBrokerRecord, BrokerRegistrationChangeRecord}
"""The types of records that affect a broker's session."""


class BatchReplay:
    """Replays the records of one batch on an image. The image changes only in `apply`."""

    __slots__ = ("_before", "_clearing", "_delta", "_pending", "base_offset", "count", "of_brokers", "removed_topics")

    def __init__(self, image: MetadataImage, base_offset: int) -> None:
        self._before = image
        self._delta = MetadataDelta(image)
        self._pending = 0
        self._clearing: list[str] = []
        """The topics that a `ClearElrRecord` for all topics still has to reach, in reverse order."""
        self.base_offset = base_offset
        self.count = 0
        """The number of replayed records."""
        self.of_brokers: list[tuple[Message, int]] = []
        """The replayed records that affect a broker's session, with their offsets."""
        self.removed_topics: list[TopicImage] = []
        """The topics that the applied part of the batch has removed."""

    def fits(self, image: MetadataImage, base_offset: int) -> bool:
        """Whether the records were replayed on exactly this image, with the offsets that they got."""
        return self._before is image and self.base_offset == base_offset

    def go_on(self, records: Iterable[Message], room: int = EVERYTHING) -> int:
        """Replay the next records within the budget `room`; returns the remaining budget.

        A record costs one, plus one for some dozens of partitions that the record removes or clears of their ELR; of
        changes of partitions every second costs one. A `ClearElrRecord` for all topics is replayed topic by topic and
        may need several calls; later records wait for its end. Raises `ReplayError` if a record contradicts the image.
        """
        if self._clearing:
            room = self._clear(room)
        if room <= 0:
            return room
        offset = self.base_offset + self.count
        for record in records:
            if type(record) is PartitionChangeRecord and offset % CHANGES_PER_RECORD:
                self._delta.replay(record, offset)
                offset += 1
                continue
            if type(record) is ClearElrRecord and not record.topic_name:
                self._clearing = self._delta.topics.names()
                self._clearing.reverse()
                offset += 1
                self.count = offset - self.base_offset
                room = self._clear(room - 1)
                if room <= 0:
                    break
                continue
            weight = self._weight(record) if type(record) is RemoveTopicRecord else 1
            self._delta.replay(record, offset)
            if type(record) in _OF_BROKERS:
                self.of_brokers.append((record, offset))
            offset += 1
            self._pending += weight
            if self._pending >= RECORDS_PER_IMAGE:
                self._compact()
            room -= weight
            if room <= 0:
                break
        self.count = offset - self.base_offset
        return room

    @property
    def is_behind(self) -> bool:
        """Whether the last replayed record still has to be applied to some topics."""
        return bool(self._clearing)

    def _clear(self, room: int) -> int:
        """Apply the last record to the next topics within the budget; returns the remaining budget."""
        offset = self.base_offset + self.count - 1
        clearing = self._clearing
        while clearing and room > 0:
            name = clearing.pop()
            self._delta.replay(ClearElrRecord(topic_name=name), offset)
            topics = self._before.topics
            weight = 1 + len(topics[name].partitions) // PARTITIONS_PER_RECORD if name in topics else 1
            self._pending += weight
            if self._pending >= RECORDS_PER_IMAGE:
                self._compact()
            room -= weight
        return room

    def _weight(self, record: RemoveTopicRecord) -> int:
        topic = self._before.topics.by_id.get(record.topic_id)
        return 1 if topic is None else 1 + len(topic.partitions) // PARTITIONS_PER_RECORD

    def _compact(self) -> None:
        """Make an internal intermediate image of the replayed records. One image for the whole batch would take a long
        turn.

        A change of features prevents this, because the offset of the last such change is that of the end of the batch.
        """
        delta = self._delta
        if delta.is_whole and delta.features is self._before.features:
            self.removed_topics += delta.removed_topics
            self._delta = MetadataDelta(delta.apply(delta.end))
            self._pending = 0

    def apply(self, end: OffsetAndEpoch) -> MetadataImage:
        """The image after the batch, which ends at `end`; raises `ReplayError` if the batch is incomplete."""
        assert not self.is_behind, self.base_offset
        self.removed_topics += self._delta.removed_topics
        return self._delta.apply(end)


class SnapshotReplay:
    """Replays the records of a snapshot on an empty image. One large change at the end would take seconds, so the
    replay makes many small intermediate images.
    """

    __slots__ = ("_delta", "_pending", "_shared", "end", "of_brokers")

    def __init__(self, end: OffsetAndEpoch) -> None:
        self.end = end
        self.of_brokers: list[tuple[Message, int]] = []
        """The records that affect a broker's session, each with the offset of the snapshot's end."""
        self._shared: Shared = {}
        self._delta = MetadataDelta(MetadataImage(), is_snapshot=True, shared=self._shared)
        self._pending = 0

    def go_on(self, records: Iterable[Message], room: int = EVERYTHING) -> int:
        """Replay the next records within the budget `room`; returns the remaining budget.

        Raises `ReplayError` if a record contradicts an earlier one.
        """
        last = self.end.offset - 1
        for record in records:
            self._delta.replay(record, last)
            if type(record) in _OF_BROKERS:
                self.of_brokers.append((record, last))
            self._pending += 1
            if self._pending >= RECORDS_PER_IMAGE and self._delta.is_whole:
                self._delta = MetadataDelta(self._delta.apply(self.end), is_snapshot=True, shared=self._shared)
                self._pending = 0
            room -= 1
            if room <= 0:
                break
        return room

    def apply(self) -> MetadataImage:
        """The image in the snapshot; raises `ReplayError` if the snapshot is incomplete."""
        return self._delta.apply(self.end)
