"""Changes of topics: one batch of records between one image and the next (Kafka: `TopicsDelta`)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from metadata_log.errors import ReplayError
from metadata_log.image.persistent_map import Map, with_changes
from metadata_log.image.topics import (
    NO_LEADER,
    NO_PARTITIONS,
    Partition,
    Shared,
    TopicImage,
    TopicsImage,
    index_keys,
    merge,
    partition_of,
)
from metadata_log.records.metadata import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from metadata_log.types import Uuid

Flips = dict[Uuid, dict[int, list[int]]]
"""The partitions that enter or leave the index, by topic and broker; a partition that is named twice is unchanged."""

NO_ELR: Final = PartitionChangeRecord(eligible_leader_replicas=(), last_known_elr=())


class TopicsDelta:
    """Copies the partitions of a changed topic to a list once; a faulty record changes nothing.

    New topics get their index entries when the image is made; of other topics only changes are collected.
    """

    __slots__ = (
        "_beyond",
        "_created",
        "_flips",
        "_image",
        "_left",
        "_moved",
        "_names",
        "_partitions",
        "_reassigning",
        "_removed",
        "_shared",
    )

    def __init__(self, image: TopicsImage, shared: Shared | None = None) -> None:
        self._image = image
        self._shared = shared
        self._partitions: dict[Uuid, list[Partition]] = {}
        self._beyond: dict[Uuid, dict[int, Partition]] = {}
        self._created: dict[Uuid, str] = {}
        self._removed: dict[Uuid, TopicImage] = {}
        self._names: dict[str, Uuid | None] = {}
        self._flips: Flips = {}
        self._moved: dict[tuple[tuple[int, ...], tuple[int, ...]], set[int]] = {}
        """The brokers that enter or leave the index from one ISR to another."""
        self._left: dict[int, dict[Uuid, int]] = {}
        """The bits of removed topics, by broker."""
        self._reassigning: dict[Uuid, int] = {}

    @property
    def removed(self) -> Collection[TopicImage]:
        """The removed topics of the image."""
        return self._removed.values()

    @property
    def is_whole(self) -> bool:
        """Whether every topic has all partitions up to its last one."""
        return not self._beyond

    def names(self) -> list[str]:
        """The names of all present topics."""
        of_image = [topic.name for topic_id, topic in self._image.by_id.items() if topic_id not in self._removed]
        return [*of_image, *self._created.values()]

    def id_of(self, name: str) -> Uuid | None:
        """The id of a topic, or None without a topic of this name."""
        return self._names[name] if name in self._names else self._image.by_name.get(name)

    def partitions_of(self, topic_id: Uuid) -> list[Partition]:
        """The mutable list of a topic's partitions; raises `ReplayError` for a missing topic."""
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            topic = self._image.by_id.get(topic_id)
            if topic is None or topic_id in self._removed:
                raise ReplayError(f"no topic has the id {topic_id}")
            partitions = self._partitions[topic_id] = list(topic.partitions)
        return partitions

    def replay_topic(self, record: TopicRecord) -> None:
        """Create a topic without partitions; raises `ReplayError` if the name or the id is in use."""
        taken = self.id_of(record.name)
        if taken is not None:
            raise ReplayError(f"topic {record.name} exists already, with the id {taken}")
        known = record.topic_id in self._image.by_id and record.topic_id not in self._removed
        if known or record.topic_id in self._created:
            raise ReplayError(f"the id {record.topic_id} of topic {record.name} is that of another topic")
        self._names[record.name] = record.topic_id
        self._created[record.topic_id] = record.name
        self._partitions[record.topic_id] = []

    def replay_partition(self, record: PartitionRecord) -> None:
        """Set a partition; raises `ReplayError` for a missing topic."""
        topic_id, number = record.topic_id, record.partition_id
        partitions = self.partitions_of(topic_id)
        new = partition_of(record, self._shared)
        if number == len(partitions):
            self._note(topic_id, number, None, new)
            partitions.append(new)
            if self._beyond:
                self._catch_up(topic_id, partitions)
        elif 0 <= number < len(partitions):
            self._note(topic_id, number, partitions[number], new)
            partitions[number] = new
        elif number < 0:
            raise ReplayError(f"{number} is no partition number")
        else:
            self._beyond.setdefault(topic_id, {})[number] = new

    def _catch_up(self, topic_id: Uuid, partitions: list[Partition]) -> None:
        """Add the partitions that arrived before one with a smaller number."""
        beyond = self._beyond.get(topic_id, {})
        while (new := beyond.pop(len(partitions), None)) is not None:
            self._note(topic_id, len(partitions), None, new)
            partitions.append(new)
        if not beyond:
            self._beyond.pop(topic_id, None)

    def replay_partition_change(self, record: PartitionChangeRecord) -> None:
        """Change a partition; raises `ReplayError` for a missing one."""
        topic_id, number = record.topic_id, record.partition_id
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            partitions = self.partitions_of(topic_id)
        if 0 <= number < len(partitions):
            old = partitions[number]
            new = partitions[number] = merge(old, record)
            if topic_id not in self._created:
                self._note_change(topic_id, number, old, new)
            return
        beyond = self._beyond.get(topic_id, {})
        if number not in beyond:
            raise ReplayError(f"topic {topic_id} has no partition {number}")
        beyond[number] = merge(beyond[number], record)

    def _note(self, topic_id: Uuid, number: int, old: Partition | None, new: Partition) -> None:
        """Collect the index changes of a partition, for a topic that the image has already."""
        if topic_id in self._created:
            return
        if old is not None:
            self._note_change(topic_id, number, old, new)
            return
        self._flip(topic_id, number, set(index_keys(new)))
        if new.is_reassigning:
            self._flip_reassigning(topic_id, number)

    def _note_change(self, topic_id: Uuid, number: int, old: Partition, new: Partition) -> None:
        """Collect the index changes of a partition that was there before."""
        if NO_LEADER in (old.leader, new.leader):
            keys = set(index_keys(old)) ^ set(index_keys(new))
        elif old.isr is new.isr or old.isr == new.isr:
            keys = None
        else:
            moved = (old.isr, new.isr)
            keys = self._moved.get(moved)
            if keys is None:
                keys = self._moved[moved] = set(old.isr).symmetric_difference(new.isr)
        if keys:
            self._flip(topic_id, number, keys)
        if (
            new.adding_replicas is not old.adding_replicas or new.removing_replicas is not old.removing_replicas
        ) and old.is_reassigning is not new.is_reassigning:
            self._flip_reassigning(topic_id, number)

    def _flip(self, topic_id: Uuid, number: int, keys: set[int]) -> None:
        flips = self._flips.get(topic_id)
        if flips is None:
            flips = self._flips[topic_id] = {}
        for key in keys:
            if key in flips:
                flips[key].append(number)
            else:
                flips[key] = [number]

    def _flip_reassigning(self, topic_id: Uuid, number: int) -> None:
        self._reassigning[topic_id] = self._reassigning.get(topic_id, 0) ^ 1 << number

    def replay_clear_elr(self, record: ClearElrRecord) -> None:
        """Clear the eligible leader replicas of one topic, or of all topics if the record names none.

        The partition epoch of each changed partition rises, as after a change by its own record.
        """
        if record.topic_name:
            topic_id = self.id_of(record.topic_name)
            if topic_id is None:
                raise ReplayError(f"no topic has the name {record.topic_name}")
            self._clear_elr(topic_id)
            return
        for topic_id in [*self._image.by_id, *self._created]:
            if topic_id not in self._removed or topic_id in self._created:
                self._clear_elr(topic_id)

    def _clear_elr(self, topic_id: Uuid) -> None:
        topic = self._image.by_id.get(topic_id)
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            assert topic is not None, topic_id
            if not any(partition.elr or partition.last_known_elr for partition in topic.partitions):
                return
            partitions = self.partitions_of(topic_id)
        for number, partition in enumerate(partitions):
            if partition.elr or partition.last_known_elr:
                partitions[number] = merge(partition, NO_ELR)

    def replay_remove_topic(self, record: RemoveTopicRecord) -> str:
        """Remove a topic with its partitions; returns its name. Raises `ReplayError` if no topic has this id."""
        topic_id = record.topic_id
        self.partitions_of(topic_id)
        name = self._created.pop(topic_id, None)
        if name is None:
            topic = self._image.by_id[topic_id]
            name = topic.name
            self._removed[topic_id] = topic
            self._flips.pop(topic_id, None)
            self._reassigning.pop(topic_id, None)
            self._leave_index(topic)
        del self._partitions[topic_id]
        self._beyond.pop(topic_id, None)
        self._names[name] = None
        return name

    def _leave_index(self, topic: TopicImage) -> None:
        """Remove a topic from the index: by its partitions, or by the brokers if they are fewer."""
        members = self._image.members
        if len(topic.partitions) <= len(members):
            for key, numbers in _index(topic.partitions).items():
                self._left.setdefault(key, {})[topic.id] = _bits(numbers)
            return
        for key, topics in members.items():
            bits = topics.get(topic.id)
            if bits is not None:
                self._left.setdefault(key, {})[topic.id] = bits

    def apply(self) -> TopicsImage:
        """The image after all replayed records; more records may follow.

        Raises `ReplayError` if a topic lacks a partition before its last one.
        """
        if self._beyond:
            self._refuse_holes()
        image = self._image
        by_id: dict[Uuid, TopicImage | None] = dict.fromkeys(self._removed)
        flips: dict[int, dict[Uuid, int]] = {}
        for topic_id, by_key in self._flips.items():
            for key, numbers in by_key.items():
                flips.setdefault(key, {})[topic_id] = _bits(numbers)
        for key, left in self._left.items():
            flips.setdefault(key, {}).update(left)
        reassigning = dict(self._reassigning)
        for topic_id in self._removed:
            if (bits := image.reassigning.get(topic_id)) is not None:
                reassigning[topic_id] = bits
        for topic_id, partitions in self._partitions.items():
            created = self._created.get(topic_id)
            frozen = tuple(partitions)
            by_id[topic_id] = TopicImage(image.by_id[topic_id].name if created is None else created, topic_id, frozen)
            if created is not None:
                _add_to_index(topic_id, frozen, flips, reassigning)
        return TopicsImage(
            with_changes(image.by_id, by_id),
            with_changes(image.by_name, self._names),
            _flipped(image.members, flips),
            _xored(image.reassigning, reassigning),
        )

    def _refuse_holes(self) -> None:
        for topic_id, beyond in self._beyond.items():
            name = self._created.get(topic_id) or self._image.by_id[topic_id].name
            missing = len(self._partitions[topic_id])
            raise ReplayError(f"topic {name} has a partition {min(beyond)} and no partition {missing}")


def _index(partitions: tuple[Partition, ...]) -> dict[int, list[int]]:
    """The indexed partitions of one topic, by broker."""
    by_key: dict[int, list[int]] = {}
    for number, partition in enumerate(partitions):
        for key in index_keys(partition):
            numbers = by_key.get(key)
            if numbers is None:
                by_key[key] = [number]
            elif numbers[-1] != number:
                numbers.append(number)
    return by_key


def _bits(numbers: list[int]) -> int:
    """The bit set of numbers; a number that occurs twice is not in the set."""
    if len(numbers) < 8:
        bits = 0
        for number in numbers:
            bits ^= 1 << number
        return bits
    pieces = bytearray((max(numbers) >> 3) + 1)
    for number in numbers:
        pieces[number >> 3] ^= 1 << (number & 7)
    return int.from_bytes(pieces, "little")


def _add_to_index(
    topic_id: Uuid,
    partitions: tuple[Partition, ...],
    flips: dict[int, dict[Uuid, int]],
    reassigning: dict[Uuid, int],
) -> None:
    for key, numbers in _index(partitions).items():
        topics = flips.get(key)
        if topics is None:
            topics = flips[key] = {}
        # The id of a removed topic may return in the same batch: then this step also removes its old bits.
        topics[topic_id] = topics.get(topic_id, 0) ^ _bits(numbers)
    moving = [number for number, partition in enumerate(partitions) if partition.is_reassigning]
    if moving:
        reassigning[topic_id] = reassigning.get(topic_id, 0) ^ _bits(moving)


def _flipped(members: Map[int, Map[Uuid, int]], flips: dict[int, dict[Uuid, int]]) -> Map[int, Map[Uuid, int]]:
    return with_changes(
        members,
        {key: _xored(members.get(key, NO_PARTITIONS), topics) or None for key, topics in flips.items()},
    )


def _xored(bits_of: Map[Uuid, int], flips: dict[Uuid, int]) -> Map[Uuid, int]:
    return with_changes(
        bits_of, {topic_id: bits_of.get(topic_id, 0) ^ bits or None for topic_id, bits in flips.items()}
    )
