"""The hash of the topics that a group wants, which tells when they have changed (Kafka: `Utils.computeGroupHash`).

Brokers of Kafka read it from our records: another hash would cost each group a rebalance when it moves to them.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Generator, Iterable, Mapping
from typing import Final

from xxhash import xxh3_64, xxh3_64_intdigest

from kraft.limits import HASHES_PER_STEP, PARTITIONS_HASHED_PER_STEP, PARTITIONS_PER_HASH, TOPIC_HASHES
from metadata_log.image import Broker, MetadataImage, TopicImage
from metadata_log.image.persistent_map import Map

_INT: Final = struct.Struct("<i")


class TopicHashes:
    """The hashes of topics, kept while a topic stays as it is. A rack that a broker has changed counts with the next
    change of the topic, as in Kafka.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[TopicImage, int]] = {}

    def of_group(self, image: MetadataImage, names: Iterable[str]) -> int:
        """The hash of the topics of these names that exist, as a signed number."""
        topics = map(image.topics.get, names)
        return group_hash({topic.name: self._of(image, topic) for topic in topics if topic is not None})

    def without_steps(self, image: MetadataImage, names: Iterable[str], before: int) -> int:
        """As `of_group`, where there is no time for steps: if that would take them, the hash of before stays, until the
        next heartbeat finds another.
        """
        topics = [topic for name in names if (topic := image.topics.get(name)) is not None and not self._knows(topic)]
        is_much = sum([len(topic.partitions) for topic in topics]) > PARTITIONS_HASHED_PER_STEP
        return before if is_much else self.of_group(image, names)

    def preparing(self, image: MetadataImage, names: Iterable[str]) -> Generator[None, None, None]:
        """Find the hash of each topic in steps of some milliseconds, so that `of_group` need not."""
        cost = 0
        for name in names:
            topic = image.topics.get(name)
            if topic is None:
                continue
            yield from self._finding(image, topic)
            cost += 1 + len(topic.partitions) % PARTITIONS_HASHED_PER_STEP // PARTITIONS_PER_HASH
            if cost >= HASHES_PER_STEP:
                cost = 0
                yield None

    def _knows(self, topic: TopicImage) -> bool:
        known = self._known.get(topic.name)
        return known is not None and known[0] is topic

    def _of(self, image: MetadataImage, topic: TopicImage) -> int:
        for _ in self._finding(image, topic):
            pass
        return self._known[topic.name][1]

    def _finding(self, image: MetadataImage, topic: TopicImage) -> Generator[None, None, None]:
        if self._knows(topic):
            return
        hashed = yield from topic_hash(topic, image.brokers.by_id)
        if len(self._known) >= TOPIC_HASHES:
            self._known.clear()
        self._known[topic.name] = topic, hashed


def topic_hash(topic: TopicImage, brokers: Map[int, Broker]) -> Generator[None, None, int]:
    """Find the hash of a topic, in portions: its id, its name, and the racks of each partition; unsigned."""
    count = len(topic.partitions)
    digest = xxh3_64(b"".join((b"\0", topic.id[7::-1], topic.id[:7:-1], _text(topic.name), _INT.pack(count))))
    # A topic may have a hundred thousand partitions, and most often there are fewer sets of replicas.
    known: dict[tuple[int, ...], bytes] = {}
    for begin in range(0, count, PARTITIONS_HASHED_PER_STEP):
        if begin:
            yield None
        end = min(begin + PARTITIONS_HASHED_PER_STEP, count)
        placed = [partition.replicas for partition in topic.partitions[begin:end]]
        found = [replicas for replicas in dict.fromkeys(placed) if replicas not in known]
        known |= {replicas: _racks(_racks_of(replicas, brokers)) for replicas in found}
        if any(known.values()):
            digest.update(b"".join([_INT.pack(at) + known[replicas] for at, replicas in enumerate(placed, begin)]))
        else:
            digest.update(struct.pack(f"<{len(placed)}i", *range(begin, end)))
    return digest.intdigest()


def _racks_of(replicas: Iterable[int], brokers: Map[int, Broker]) -> list[str]:
    registered = (brokers.get(one) for one in replicas)
    return sorted(one.rack for one in registered if one is not None and one.rack is not None)


def _racks(racks: list[str]) -> bytes:
    return b"".join(_INT.pack(len(one.encode("utf-16-le", "surrogatepass")) // 2) + _text(one) for one in racks)


def group_hash(topics: Mapping[str, int]) -> int:
    """The hash of topics with their hashes, as a signed number; 0 for none."""
    if not topics:
        return 0
    ordered = [topics[name] for name in in_java_order(topics)]
    value = xxh3_64_intdigest(struct.pack(f"<{len(ordered)}Q", *ordered))
    return value - (1 << 64) if value >> 63 else value


def _text(text: str) -> bytes:
    data = text.encode("utf-16-le", "surrogatepass")
    return data + _INT.pack(len(data) // 2)


def in_java_order(texts: Collection[str]) -> list[str]:
    """Texts in Java's order, which is that of their UTF-16 units."""
    return sorted(texts) if all(map(str.isascii, texts)) else sorted(texts, key=_units)


def _units(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
