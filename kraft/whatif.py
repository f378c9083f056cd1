"""Predicts the controller's reaction to an event: runs its decisions on a copy of an image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches

from msgspec import Struct

from kraft.config.data_settings import TopicDefaults
from kraft.controller.brokers.broker_states import begin_controlled_shutdown, fence
from kraft.controller.decision.result import Records, found
from kraft.controller.decision.topic_configs import min_isr
from kraft.controller.topics.leader_selection import Election
from kraft.controller.topics.partition_change import RECOVERING, PartitionTarget
from kraft.controller.topics.partition_updates import all_partitions, change_of, elect_leaders
from kraft.controller.topics.reassignment_steps import begin
from metadata_log.errors import MetadataLogError
from metadata_log.image import Broker, MetadataDelta, MetadataImage, Partition
from metadata_log.image.persistent_map import in_key_order
from metadata_log.image.topics import NO_LEADER
from metadata_log.records.frame import VersionedRecord
from metadata_log.types import OffsetAndEpoch

Decision = Callable[[MetadataImage], Iterable[VersionedRecord | None]]
BrokerDecision = Callable[[MetadataImage, Broker, TopicDefaults], Records]


class UnknownName(MetadataLogError):
    """The image lacks a requested broker, rack, topic or partition."""


class PartitionOutcome(Struct, frozen=True, kw_only=True):
    """The change of one partition; `min_isr` is that of its topic."""

    topic: str
    partition: int
    before: Partition
    after: Partition
    min_isr: int

    @property
    def moves(self) -> bool:
        """Whether the partition gets another leader."""
        return NO_LEADER != self.after.leader != self.before.leader

    @property
    def goes_offline(self) -> bool:
        """Whether the partition loses its leader without a successor."""
        return self.after.leader == NO_LEADER != self.before.leader

    @property
    def falls_below_min_isr(self) -> bool:
        """Whether the partition has a leader, but refuses writes with acks=all from now on."""
        return self.after.leader != NO_LEADER and len(self.after.isr) < self.min_isr <= len(self.before.isr)

    @property
    def loses_data(self) -> bool:
        """Whether the new leader may lack committed records."""
        return self.after.leader_recovery_state == RECOVERING != self.before.leader_recovery_state


class ImageOutcome(Struct, frozen=True):
    """The images before and after, the records of the change, and the changed partitions, by topic and number."""

    before: MetadataImage
    after: MetadataImage
    records: tuple[VersionedRecord, ...]
    partitions: tuple[PartitionOutcome, ...]


def fail(image: MetadataImage, broker_ids: Sequence[int], defaults: TopicDefaults) -> ImageOutcome:
    """Fence failed brokers in this order; each fencing sees the result of the former one."""
    return _outcome(image, [_of_broker(broker_id, fence, defaults) for broker_id in broker_ids], defaults)


def shut_down(image: MetadataImage, broker_ids: Sequence[int], defaults: TopicDefaults) -> ImageOutcome:
    """Shut brokers down gracefully, one after the other: its leaderships move, then the broker is fenced."""
    steps = (begin_controlled_shutdown, fence)
    return _outcome(image, [_of_broker(one, step, defaults) for one in broker_ids for step in steps], defaults)


def fail_rack(image: MetadataImage, rack: str, defaults: TopicDefaults) -> ImageOutcome:
    """Fail all brokers of a rack; raises `UnknownName` if no broker is registered in the rack."""
    broker_ids = [broker_id for broker_id, broker in in_key_order(image.brokers.by_id) if broker.rack == rack]
    if not broker_ids:
        racks = sorted({broker.rack for _, broker in in_key_order(image.brokers.by_id) if broker.rack is not None})
        known = f"The racks are {', '.join(racks)}." if racks else "No broker names a rack."
        raise UnknownName(f"no broker is registered in rack {rack}", hint=known)
    return fail(image, broker_ids, defaults)


def elect(image: MetadataImage, election: Election, defaults: TopicDefaults) -> ImageOutcome:
    """Elect leaders of all partitions, as on an administrator's request."""

    def decide(now: MetadataImage) -> Records:
        return elect_leaders(now, all_partitions(now), election, defaults)

    return _outcome(image, [decide], defaults)


def reassign(
    image: MetadataImage, targets: Mapping[tuple[str, int], Sequence[int]], defaults: TopicDefaults
) -> ImageOutcome:
    """Reassign partitions to these replicas, let the new replicas get in sync, and complete the reassignments.

    Raises `UnknownName` for an unknown topic, partition or broker.
    """
    for (topic, number), replicas in targets.items():
        if topic not in image.topics or number not in range(len(image.topics[topic].partitions)):
            raise UnknownName(f"there is no partition {topic}-{number}", hint=_nearest(topic, image))
        for broker_id in replicas:
            _broker(image, broker_id)

    def begins(now: MetadataImage) -> Iterator[VersionedRecord]:
        for (topic, number), replicas in targets.items():
            assignment = begin(now.topics[topic].partitions[number], replicas)
            target = PartitionTarget(
                replicas=assignment.replicas, removing=assignment.removing, adding=assignment.adding
            )
            yield from change_of(now, now.topics[topic], number, target, defaults)

    def comes_into_sync(now: MetadataImage) -> Iterator[VersionedRecord]:
        for topic, number in targets:
            partition = now.topics[topic].partitions[number]
            caught_up = tuple(one for one in partition.adding_replicas if one not in partition.isr)
            yield from change_of(
                now, now.topics[topic], number, PartitionTarget(isr=(*partition.isr, *caught_up)), defaults
            )

    return _outcome(image, [begins, comes_into_sync], defaults)


def leaderships(image: MetadataImage) -> dict[int, int]:
    """The number of partitions that each registered broker leads; -1 counts the leaderless ones, if there are any."""
    counts = Counter(partition.leader for _, _, partition in all_partitions(image))
    leading = {broker_id: counts.pop(broker_id, 0) for broker_id, _ in in_key_order(image.brokers.by_id)}
    return leading | dict(sorted(counts.items()))


def _nearest(topic: str, image: MetadataImage) -> str | None:
    """A hint: similar topics, or the last partition of the topic."""
    if topic in image.topics:
        return f"The last one is {topic}-{len(image.topics[topic].partitions) - 1}."
    close = get_close_matches(topic, list(image.topics), n=3)
    return f"Did you mean {' or '.join(close)}?" if close else None


def _broker(image: MetadataImage, broker_id: int) -> Broker:
    broker = image.brokers.by_id.get(broker_id)
    if broker is None:
        known = ", ".join(str(one) for one, _ in in_key_order(image.brokers.by_id))
        hint = f"The brokers are {known}." if known else "No broker is registered."
        raise UnknownName(f"broker {broker_id} is not registered", hint=hint)
    return broker


def _of_broker(broker_id: int, decide: BrokerDecision, defaults: TopicDefaults) -> Decision:
    return lambda image: decide(image, _broker(image, broker_id), defaults)


def _outcome(image: MetadataImage, decisions: Iterable[Decision], defaults: TopicDefaults) -> ImageOutcome:
    """Run the decisions in turn; each sees the image after the former ones."""
    now = image
    records: list[VersionedRecord] = []
    for decide in decisions:
        delta = MetadataDelta(now)
        decided = found(decide(now))
        for number, versioned in enumerate(decided):
            delta.replay(versioned.record, now.end.offset + number)
        if decided:
            now = delta.apply(OffsetAndEpoch(epoch=now.end.epoch, offset=now.end.offset + len(decided)))
        records += decided
    return ImageOutcome(image, now, tuple(records), tuple(_differences(image, now, defaults)))


def _differences(before: MetadataImage, after: MetadataImage, defaults: TopicDefaults) -> Iterator[PartitionOutcome]:
    for name in before.topics:
        old, new = before.topics[name], after.topics[name]
        if old is new:
            continue
        topic_min_isr = min_isr(before, old, defaults)
        for number, (was, becomes) in enumerate(zip(old.partitions, new.partitions, strict=True)):
            if was != becomes:
                yield PartitionOutcome(topic=name, partition=number, before=was, after=becomes, min_isr=topic_min_isr)
