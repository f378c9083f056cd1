"""The hash of the topics that a group wants, which tells when they have changed (Kafka: `Utils.computeGroupHash`).

Brokers of Kafka read it from our records: another hash would cost each group a rebalance when it moves to them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from xxhash import xxh3_64_intdigest

from metadata_log.image import Broker, MetadataImage, TopicImage
from metadata_log.image.persistent_map import Map

_INT: Final = struct.Struct("<i")
_LONG: Final = struct.Struct("<Q")
_ENTRIES: Final = 10_000


class TopicHashes:
    """The hashes of topics, kept while a topic stays as it is. A rack that a broker has changed counts with the next
    change of the topic, as in Kafka.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[TopicImage, int]] = {}

    def of_group(self, image: MetadataImage, names: Iterable[str]) -> int:
        """The hash of the topics of these names that exist, as a signed number."""
        hashes = [(name, self._of(image, name)) for name in names if name in image.topics.by_name]
        return group_hash(hashes)

    def _of(self, image: MetadataImage, name: str) -> int:
        topic = image.topics.by_id[image.topics.by_name[name]]
        known = self._known.get(name)
        if known is not None and known[0] is topic:
            return known[1]
        if len(self._known) >= _ENTRIES:
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


def group_hash(topics: Iterable[tuple[str, int]]) -> int:
    """The hash of topics with their hashes, as a signed number; 0 for none."""
    ordered = sorted(topics, key=lambda one: one[0].encode("utf-16-be", "surrogatepass"))
    if not ordered:
        return 0
    value = xxh3_64_intdigest(b"".join(_LONG.pack(hashed & (1 << 64) - 1) for _, hashed in ordered))
    return value - (1 << 64) if value >> 63 else value


def _text(text: str) -> bytes:
    data = text.encode("utf-16-le", "surrogatepass")
    return data + _INT.pack(len(data) // 2)
