"""The records that a recovery appends, so that the image fits the brokers' data again.

Each set of records was tried on Apache Kafka. Without them brokers rename newer topics to strays, followers never get
in sync again, and producers get ids that logs hold already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from kraft.operate.recover.hazards import Stray
from kraft.operate.recover.plan import Plan
from metadata_log.errors import DirectoryError
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.image.brokers import FENCE
from metadata_log.image.records import ELR_FEATURE, partition_record, partition_version
from metadata_log.image.topics import Partition
from metadata_log.records.metadata import (
    AbortTransactionRecord,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    TopicRecord,
)
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch, Uuid

PRODUCER_ID_GAP: Final = 1_000_000
PARTITION_EPOCH_GAP: Final = 1000
FIRST_PARTITION_EPOCH: Final = 100
"""The partition epoch of a rescued partition: above the epochs of a partition that has just been made."""
ALL_TOPICS: Final = "all"
_OLDEST_LEVEL: Final = 7

Versioned = tuple[Message, int]


def appended_records(plan: Plan, rescue: Sequence[str]) -> tuple[tuple[Versioned, ...], MetadataImage]:
    """The data records of the recovery with their versions, in order, and the image after them.

    `rescue` has the topics to rescue, or `ALL_TOPICS` for each topic that only the brokers know; `DirectoryError` if
    one cannot be rescued.
    """
    level = plan.image.features.metadata_version or _OLDEST_LEVEL
    delta = MetadataDelta(plan.image)
    appended: list[Versioned] = []

    def add(entries: Iterator[Versioned]) -> None:
        for record, version in entries:
            if not isinstance(record, AbortTransactionRecord):
                delta.replay(record, plan.append_at + len(appended))
            appended.append((record, version))

    add(_end_transaction(plan))
    add(_producer_ids(plan))
    add(_brokers_gone(plan, level))
    changed = delta.apply(OffsetAndEpoch(epoch=plan.recovery_epoch, offset=plan.append_at + len(appended)))
    add(_raised_epochs(plan, changed, level))
    add(_rescued(plan, rescue, level))
    return tuple(appended), delta.apply(
        OffsetAndEpoch(epoch=plan.recovery_epoch, offset=plan.append_at + len(appended))
    )


def _end_transaction(plan: Plan) -> Iterator[Versioned]:
    if plan.has_open_transaction:
        yield AbortTransactionRecord(reason="recovery after the loss of the majority"), 0


def _producer_ids(plan: Plan) -> Iterator[Versioned]:
    """The controller must never hand out an id of a log again. The next id must also be above the image's."""
    ids = plan.hazards.producer_ids
    if ids.must_be_raised or plan.is_behind or plan.partial_ids:
        next_id = max(ids.next_id, ids.highest_seen + 1, 0) + PRODUCER_ID_GAP
        yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=next_id), 0


def _brokers_gone(plan: Plan, level: int) -> Iterator[Versioned]:
    """Fence the brokers that will not come back, before the survivors' sessions end.

    Otherwise the survivors are fenced first, and a lost broker stays as the only eligible leader.
    """
    for broker_id in plan.options.gone:
        broker = plan.image.brokers.by_id.get(broker_id)
        if broker is not None and not broker.fenced:
            yield BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=FENCE), 0
    for one in plan.gone:
        change = PartitionChangeRecord(partition_id=one.number, topic_id=one.topic_id, isr=one.isr or None)
        if one.has_leader_changed:
            change = replace(change, leader=one.leader)
        yield change, partition_version(level)


def _raised_epochs(plan: Plan, image: MetadataImage, level: int) -> Iterator[Versioned]:
    """Leader epochs above those in the brokers' files; else followers never get in sync.

    If the seed may be behind, an equal epoch may belong to another leader, and the ISR of the image may name a replica
    that fell behind later: only the replicas with the longest logs stay in sync. The ISR is left as it is unless every
    replica's log was given, since a log that was not given may be the longest one.
    """
    is_behind = plan.is_behind
    highest: dict[tuple[Uuid, int], int] = {}
    for one in plan.hazards.epochs if is_behind else plan.hazards.epochs_behind:
        key = one.topic_id, one.number
        highest[key] = max(highest.get(key, -1), one.last_epoch)
    elr = image.features.level(ELR_FEATURE) > 0
    for (topic_id, number), epoch in highest.items():
        old = image.topics.by_id[topic_id].partitions[number]
        raised = replace(
            old,
            leader_epoch=max(epoch, old.leader_epoch) + 1,
            partition_epoch=old.partition_epoch + PARTITION_EPOCH_GAP,
        )
        if is_behind:
            raised = _with_longest(plan, topic_id, number, raised)
        yield partition_record(topic_id, number, raised, level, elr=elr), partition_version(level)


def _with_longest(plan: Plan, topic_id: Uuid, number: int, old: Partition) -> Partition:
    ends = {
        one.meta.node_id: (files.last_epoch, files.log_end)
        for one in plan.inventory.dirs
        for files in one.partitions
        if (files.topic_id, files.number) == (topic_id, number) and one.meta.node_id in old.replicas
    }
    if not ends or any(broker not in ends and broker not in plan.options.gone for broker in old.replicas):
        return old
    longest = max(ends.values())
    isr = tuple(broker for broker in old.replicas if ends.get(broker) == longest)
    return replace(old, isr=isr, leader=old.leader if old.leader in isr else isr[0], elr=(), last_known_elr=())


def rescuable(plan: Plan) -> dict[str, list[Stray]]:
    """The topics that only the brokers' directories know, with their directories."""
    strays: dict[str, list[Stray]] = {}
    for stray in plan.hazards.strays:
        if stray.why == "unknown topic":
            strays.setdefault(stray.files.topic, []).append(stray)
    return dict(sorted(strays.items()))


def _rescued(plan: Plan, rescue: Sequence[str], level: int) -> Iterator[Versioned]:
    """A topic with the id in its partition.metadata, and its partitions with the longest replicas in sync."""
    known = rescuable(plan)
    for topic in known if ALL_TOPICS in rescue else dict.fromkeys(rescue):
        strays = known.get(topic)
        if strays is None:
            raise DirectoryError(
                f"topic {topic} cannot be rescued: "
                + (
                    "the image has another topic of this name"
                    if topic in plan.image.topics
                    else "no given broker has a partition of this topic"
                ),
                hint=f"Topics to rescue: {', '.join(known) or 'none'}.",
            )
        ids = list(dict.fromkeys(stray.files.topic_id for stray in strays))
        if len(ids) > 1:
            told = ", ".join(map(str, ids))
            raise DirectoryError(
                f"topic {topic} cannot be rescued: its directories have several topic ids: {told}",
                hint="The topic was deleted and made again. Move the directories of the older topic away.",
            )
        topic_id = ids[0]
        assert topic_id is not None
        yield TopicRecord(name=topic, topic_id=topic_id), 0
        numbers = sorted({stray.files.number for stray in strays})
        if numbers != list(range(len(numbers))):
            missing = next(number for number in range(len(numbers)) if number not in numbers)
            raise DirectoryError(
                f"topic {topic} cannot be rescued: no given broker has partition {missing}",
                hint="Give the directories of all brokers.",
            )
        for number in numbers:
            partition = _rescued_partition([stray for stray in strays if stray.files.number == number])
            yield partition_record(topic_id, number, partition, level, elr=False), partition_version(level)


def _rescued_partition(strays: Sequence[Stray]) -> Partition:
    ranked = sorted(strays, key=lambda stray: (-stray.files.last_epoch, -stray.files.log_end, stray.broker))
    longest = (ranked[0].files.last_epoch, ranked[0].files.log_end)
    isr = tuple(one.broker for one in ranked if (one.files.last_epoch, one.files.log_end) == longest)
    return Partition(
        replicas=tuple(one.broker for one in ranked),
        directories=tuple(one.log_dir.meta.directory_id or Uuid.ZERO for one in ranked),
        isr=isr,
        removing_replicas=(),
        adding_replicas=(),
        elr=(),
        last_known_elr=(),
        leader=isr[0],
        leader_recovery_state=0,
        leader_epoch=max(0, longest[0]) + 1,
        partition_epoch=FIRST_PARTITION_EPOCH,
    )
