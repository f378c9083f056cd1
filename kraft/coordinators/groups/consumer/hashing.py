"""The hash of the topics that a group wants, which tells when they have changed (Kafka: `Utils.computeGroupHash`).

Brokers of Kafka read it from our records: another hash would cost each group a rebalance when it moves to them.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Generator, Iterable, Mapping
from typing import Final

from xxhash import xxh3_64_intdigest

from kraft.limits import HASHES_PER_STEP, PARTITIONS_PER_HASH, TOPIC_HASHES
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

    def preparing(self, image: MetadataImage, names: Iterable[str]) -> Generator[None, None, None]:
        """Find the hash of each topic in steps of some milliseconds, so that `of_group` need not."""
        cost = 0
        for name in names:
            topic = image.topics.get(name)
            if topic is not None:
                self._of(image, topic)
                cost += 1 + len(topic.partitions) // PARTITIONS_PER_HASH
                if cost >= HASHES_PER_STEP:
                    cost = 0
                    yield None

    def _of(self, image: MetadataImage, topic: TopicImage) -> int:
        name = topic.name
        known = self._known.get(name)
        if known is not None and known[0] is topic:
            return known[1]
        if len(self._known) >= TOPIC_HASHES:
            self._known.clear()
        hashed = topic_hash(topic, image.brokers.by_id)
        self._known[name] = topic, hashed
        return hashed


def topic_hash(topic: TopicImage, brokers: Map[int, Broker]) -> int:
    """The hash of a topic: its id, its name, and the racks of each partition; unsigned."""
    parts = [b"\0", topic.id[7::-1], topic.id[:7:-1], _text(topic.name), _INT.pack(len(topic.partitions))]
    # A topic may have a hundred thousand partitions, and there are fewer sets of replicas.
    placed = [partition.replicas for partition in topic.partitions]
    known = {replicas: _racks(_racks_of(replicas, brokers)) for replicas in dict.fromkeys(placed)}
    if any(known.values()):
        parts += [_INT.pack(number) + known[replicas] for number, replicas in enumerate(placed)]
    else:
        parts.append(struct.pack(f"<{len(placed)}i", *range(len(placed))))
    return xxh3_64_intdigest(b"".join(parts))


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
