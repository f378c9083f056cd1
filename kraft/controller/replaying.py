"""Records on their way into the image, a portion at a time, so that neither a large batch nor a snapshot takes a long
turn (Kafka: `QuorumController.replay`, `QuorumMetaLogListener.handleLoadSnapshot`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from metadata_log.image import MetadataDelta, MetadataImage, TopicImage
from metadata_log.image.topics import Shared
from metadata_log.records.metadata import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    UnregisterBrokerRecord,
)
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch

RECORDS_PER_IMAGE: Final = 1000
"""After so many records there is an image of them, unless partitions are missing in between."""
PARTITIONS_PER_RECORD: Final = 16
"""To remove so many partitions takes about as long as to replay a record."""
EVERYTHING: Final = 2**62
"""Room for any number of records."""
_OF_BROKERS: Final = {RegisterBrokerRecord, UnregisterBrokerRecord, BrokerRegistrationChangeRecord}
"""The records that say something of a broker's session."""


class BatchReplay:
    """The records of one batch on an image. Nothing changes before `apply`."""

    __slots__ = ("_before", "_clearing", "_delta", "_pending", "base_offset", "count", "of_brokers", "removed_topics")

    def __init__(self, image: MetadataImage, base_offset: int) -> None:
        self._before = image
        self._delta = MetadataDelta(image)
        self._pending = 0
        self._clearing: list[str] = []
        """The topics to which a `ClearElrRecord` for all topics was not applied yet, the next one last."""
        self.base_offset = base_offset
        self.count = 0
        """How many records were replayed so far."""
        self.of_brokers: list[tuple[Message, int]] = []
        """Those of them that say something of a broker's session, with their offsets."""
        self.removed_topics: list[TopicImage] = []
        """The topics that the batch has removed, as far as it was applied."""

    def fits(self, image: MetadataImage, base_offset: int) -> bool:
        """Whether the records were replayed on this very image, with the offsets that they have got."""
        return self._before is image and self.base_offset == base_offset

    def go_on(self, records: Iterable[Message], room: int = EVERYTHING) -> int:
        """Replay the next records, while there is room; returns how much of it is left.

        A record takes a room of one, and one more for some dozens of partitions that it removes, or whose eligible
        leaders it may clear. A record that clears those of all topics is replayed topic by topic, and may need several
        calls; nothing behind it is replayed before. Raises `ReplayError` where a record contradicts the image.
        """
        if self._clearing:
            room = self._clear(room)
        if room <= 0:
            return room
        offset = self.base_offset + self.count
        for record in records:
            if type(record) is ClearElrRecord and not record.topic_name:
                self._clearing = self._delta.topics.names()
                self._clearing.reverse()
                offset += 1
                self.count = offset - self.base_offset
                room = self._clear(room - 1)
                if room <= 0:
                    break
                continue
            weight = self._weight(record)
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
        """Whether the last of the replayed records is not applied to all topics yet."""
        return bool(self._clearing)

    def _clear(self, room: int) -> int:
        """Apply the last record to the next topics, while there is room; returns how much of it is left."""
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

    def _weight(self, record: Message) -> int:
        if type(record) is not RemoveTopicRecord:
            return 1
        topic = self._before.topics.by_id.get(record.topic_id)
        return 1 if topic is None else 1 + len(topic.partitions) // PARTITIONS_PER_RECORD

    def _compact(self) -> None:
        """Go on from an image of what was replayed, which nobody sees: one for the whole batch would take a turn.

        Not after a change of features, as the offset of their last change is that of the end of the batch.
        """
        delta = self._delta
        if delta.is_whole and delta.features is self._before.features:
            self.removed_topics += delta.removed_topics
            self._delta = MetadataDelta(delta.apply(delta.end))
            self._pending = 0

    def apply(self, end: OffsetAndEpoch) -> MetadataImage:
        """The image after the batch, which ends at `end`; raises `ReplayError` if it is not whole."""
        assert not self.is_behind, self.base_offset
        self.removed_topics += self._delta.removed_topics
        return self._delta.apply(end)


class SnapshotReplay:
    """The records of a snapshot on an empty image. One large change at the end would take seconds: there are many small
    ones on the way.
    """

    __slots__ = ("_delta", "_pending", "_shared", "end", "of_brokers")

    def __init__(self, end: OffsetAndEpoch) -> None:
        self.end = end
        self.of_brokers: list[tuple[Message, int]] = []
        """The records that say something of a broker's session, as if all stood at the end of the snapshot."""
        self._shared: Shared = {}
        self._delta = MetadataDelta(MetadataImage(), is_snapshot=True, shared=self._shared)
        self._pending = 0

    def go_on(self, records: Iterable[Message], room: int = EVERYTHING) -> int:
        """Replay the next records, while there is room; returns how much of it is left.

        Raises `ReplayError` where a record contradicts those before it.
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
        """The image that the snapshot holds; raises `ReplayError` if it is not whole."""
        return self._delta.apply(self.end)
