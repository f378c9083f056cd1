"""Counts over all partitions, in steps, with each unchanged topic counted once (Kafka: `ControllerMetricsChanges`)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from msgspec import Struct, structs

from metadata_log.image.persistent_map import Map
from metadata_log.image.topics import LEADERLESS, NO_LEADER, NO_PARTITIONS, TopicImage, TopicsImage
from metadata_log.types import Uuid

PER_STEP: Final = 2_000
"""The topics and partitions that one step looks at: about a millisecond."""


class TopicCounts(Struct, frozen=True):
    """The counts of one moment. `is_complete` is False if they are older than the metadata."""

    topics: int = 0
    partitions: int = 0
    offline: int = 0
    imbalanced: int = 0
    unclean_elections: int = 0
    """The leaders from outside of the ISR, since the start of the node."""
    elr_elections: int = 0
    """The leaders from the eligible leader replicas, since the start of the node."""
    is_complete: bool = True


NO_TOPICS: Final = TopicCounts()


class TopicCounter:
    """Counts partitions of images. An image is immutable, so that the steps of one count see one moment."""

    def __init__(self) -> None:
        self.counts = NO_TOPICS
        self._by_id: Map[Uuid, TopicImage] | None = None
        self._counted: dict[Uuid, tuple[TopicImage, int]] = {}
        """Each counted topic with the number of its imbalanced partitions."""
        self._partitions = self._imbalanced = self._unclean = self._elr = 0

    def counting(self, topics: TopicsImage) -> Generator[None, None, TopicCounts]:
        """Count in steps; returns the counts. The caller may stop between two steps and begin again."""
        if topics.by_id is not self._by_id:
            yield from self._recount(topics.by_id)
            self._by_id = topics.by_id
        self.counts = TopicCounts(
            topics=len(topics.by_id),
            partitions=self._partitions,
            offline=offline_partitions(topics),
            imbalanced=self._imbalanced,
            unclean_elections=self._unclean,
            elr_elections=self._elr,
        )
        return self.counts

    def latest(self, topics: TopicsImage) -> TopicCounts:
        """The last counts, with what the image itself knows of this moment."""
        return structs.replace(
            self.counts,
            topics=len(topics.by_id),
            offline=offline_partitions(topics),
            is_complete=topics.by_id is self._by_id,
        )

    def _recount(self, by_id: Map[Uuid, TopicImage]) -> Generator[None, None, None]:
        counted = self._counted
        left = PER_STEP
        for topic_id, topic in by_id.items():
            known = counted.get(topic_id)
            left -= 1
            if known is None or known[0] is not topic:
                if known is not None:
                    self._note_elections(known[0], topic)
                self._forget(topic_id)
                imbalanced = sum(one.leader != one.replicas[0] for one in topic.partitions)
                counted[topic_id] = (topic, imbalanced)
                self._partitions += len(topic.partitions)
                self._imbalanced += imbalanced
                left -= len(topic.partitions)
            if left <= 0:
                yield
                left = PER_STEP
        if len(counted) > len(by_id):
            for topic_id in [one for one in counted if one not in by_id]:
                self._forget(topic_id)

    def _forget(self, topic_id: Uuid) -> None:
        known = self._counted.pop(topic_id, None)
        if known is not None:
            self._partitions -= len(known[0].partitions)
            self._imbalanced -= known[1]

    def _note_elections(self, before: TopicImage, after: TopicImage) -> None:
        """Count the new leaders from outside of the ISR. Elections of a partition between two counts are one."""
        for old, new in zip(before.partitions, after.partitions, strict=False):
            if new is old or new.leader in (NO_LEADER, old.leader) or new.leader in old.isr:
                continue
            if new.leader in old.elr:
                self._elr += 1
            else:
                self._unclean += 1


def offline_partitions(topics: TopicsImage) -> int:
    """The number of partitions without a leader, from the index of the image."""
    return sum(bits.bit_count() for bits in topics.members.get(LEADERLESS, NO_PARTITIONS).values())
