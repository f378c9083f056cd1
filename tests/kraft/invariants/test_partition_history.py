"""The controller's decisions are Kafka's own: each time that a real broker was fenced, came back or began to shut down,
ours are made on the image of that moment and compared with the records that Kafka wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from msgspec import Struct

from kraft.config.data_settings import TopicDefaults
from kraft.controller.brokers.broker_states import begin_controlled_shutdown, fence, restart, unfence, unregister
from kraft.controller.topics.partition_change import PartitionTarget, partition_change
from kraft.controller.topics.partition_updates import rules_by_topic
from metadata_log.disk import OsDisk
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.reading.damage import Damage
from metadata_log.reading.entries import Entry
from metadata_log.reading.timeline import Base, TimelineBatch, read_timeline
from metadata_log.records.frame import VersionedRecord
from metadata_log.records.metadata import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch
from support.real_data import unpack

DEFAULTS = TopicDefaults()
HISTORIES = {
    ("static3", "nodes/c1"): (8, 11, 1),
    ("clusters", "failover/nodes/c1"): (8, 11, 2),
    ("clusters", "old39/nodes/c1"): (4, 6, 1),
    ("clusters", "dynamic3/nodes/b101"): (0, 3, 0),
}
"""Directories, and how often in each a broker is fenced, comes back, and begins to shut down."""


class Moment(Struct, frozen=True):
    """A record, and the image it was written on."""

    offset: int
    version: int
    record: Message
    before: MetadataImage


def moments(directory: Path) -> Iterator[Moment]:
    """Every record of a directory's log, with the image before it."""
    image = MetadataImage()
    for item in read_timeline(OsDisk(), str(directory), from_base="earliest"):
        assert not isinstance(item, Damage), item
        read = item.entries if isinstance(item, Base) else item.entries()
        entries = [entry for entry in read if isinstance(entry, Entry) and not entry.is_control]
        in_log = isinstance(item, TimelineBatch)
        for entry in entries:
            assert entry.record is not None
            if in_log:
                yield Moment(entry.offset, entry.version, entry.record, image)
            delta = MetadataDelta(image)
            delta.replay(entry.record, entry.offset)
            image = delta.apply(OffsetAndEpoch(epoch=entry.epoch, offset=entry.offset + 1))


def decided(steps: Iterable[VersionedRecord | None]) -> list[VersionedRecord]:
    """The records of a decision that is made in steps."""
    return [one for one in steps if one is not None]


def changes(records: list[VersionedRecord]) -> dict[tuple[bytes, int], tuple[int, PartitionChangeRecord]]:
    return {
        (each.record.topic_id, each.record.partition_id): (each.version, each.record)
        for each in records
        if isinstance(each.record, PartitionChangeRecord)
    }


def expected(written: list[Moment]) -> dict[tuple[bytes, int], tuple[int, PartitionChangeRecord]]:
    return changes([VersionedRecord(each.record, each.version) for each in written])


def run_before(history: list[Moment], index: int) -> list[Moment]:
    """The PartitionChange records that stand directly before a record."""
    start = index
    while start and isinstance(history[start - 1].record, PartitionChangeRecord):
        start -= 1
    return history[start:index]


def run_after(history: list[Moment], index: int) -> list[Moment]:
    """The PartitionChange records that stand directly after a record."""
    end = index + 1
    while end < len(history) and isinstance(history[end].record, PartitionChangeRecord):
        end += 1
    return history[index + 1 : end]


@pytest.mark.parametrize(("archive", "node", "events"), [(*place, events) for place, events in HISTORIES.items()])
def test_fencing_and_unfencing_write_kafkas_partition_changes(
    archive: str, node: str, events: tuple[int, int, int], tmp_path: Path
) -> None:
    history = list(moments(unpack(archive, node, tmp_path)))
    fences = unfences = shutdowns = 0
    for index, moment in enumerate(history):
        record = moment.record
        if not isinstance(record, BrokerRegistrationChangeRecord):
            continue
        broker = moment.before.brokers.by_id[record.broker_id]
        if record.fenced == 1 and not broker.fenced:
            written = run_before(history, index)
            # Changes of another event may stand before it in the log: ours must be all that follow those.
            begins = [
                start
                for start in range(len(written) + 1)
                if changes(decided(fence((written[start:] or [moment])[0].before, broker, DEFAULTS)))
                == expected(written[start:])
            ]
            assert begins, f"offset {moment.offset}: broker {record.broker_id} is fenced"
            fences += 1
        elif record.fenced == -1:
            ours = decided(unfence(moment.before, broker, DEFAULTS))
            written = run_after(history, index)[: len(ours) - 1]
            assert changes(ours) == expected(written), f"offset {moment.offset}: broker {record.broker_id} is unfenced"
            unfences += 1
        elif record.in_controlled_shutdown == 1:
            ours = decided(begin_controlled_shutdown(moment.before, broker, DEFAULTS))
            written = run_after(history, index)[: len(ours) - 1]
            assert changes(ours) == expected(written), f"offset {moment.offset}: broker {record.broker_id} shuts down"
            shutdowns += 1
    assert (fences, unfences, shutdowns) == events


RESTARTS = {
    ("static3", "nodes/c1"): (6, 1),
    ("clusters", "failover/nodes/c1"): (8, 0),
    ("clusters", "old39/nodes/c1"): (4, 0),
    ("clusters", "dynamic3/nodes/b101"): (0, 0),
}
"""How often in each a broker registers anew, and is unregistered."""


@pytest.mark.parametrize(("archive", "node", "events"), [(*place, events) for place, events in RESTARTS.items()])
def test_a_registration_writes_kafkas_partition_changes(
    archive: str, node: str, events: tuple[int, int], tmp_path: Path
) -> None:
    history = list(moments(unpack(archive, node, tmp_path)))
    restarts = removals = 0
    for index, moment in enumerate(history):
        written = run_before(history, index)
        before = (written or [moment])[0].before
        match moment.record:
            case RegisterBrokerRecord(broker_id=broker_id, incarnation_id=incarnation_id):
                old = before.brokers.by_id.get(broker_id)
                if old is not None and old.incarnation_id != incarnation_id:
                    ways = [
                        changes(decided(restart(before, broker_id, DEFAULTS, is_clean=clean)))
                        for clean in (True, False)
                    ]
                    assert expected(written) in ways, f"offset {moment.offset}: broker {broker_id} registers"
                    restarts += 1
            case UnregisterBrokerRecord(broker_id=broker_id):
                ours = decided(unregister(before, before.brokers.by_id[broker_id], DEFAULTS))
                assert changes(ours) == expected(written), f"offset {moment.offset}"
                assert ours[-1].record == moment.record
                removals += 1
    assert (restarts, removals) == events


@pytest.mark.parametrize(("archive", "node"), list(HISTORIES)[:3])
def test_an_isr_change_gives_kafkas_partition_change(archive: str, node: str, tmp_path: Path) -> None:
    """Whatever follows from a new ISR, eligible replicas and completed reassignments among it, follows from it here."""
    compared = 0
    for moment in moments(unpack(archive, node, tmp_path)):
        record, image = moment.record, moment.before
        if not isinstance(record, PartitionChangeRecord) or record.isr is None or record.leader != -2:
            continue
        topic = image.topics.by_id[record.topic_id]
        partition = topic.partitions[record.partition_id]
        if record.leader_recovery_state != -1 or not set(record.isr) >= set(partition.isr):
            continue
        target = PartitionTarget(isr=record.isr)
        rules = rules_by_topic(image, DEFAULTS)(topic.id)
        ours = partition_change(topic.id, record.partition_id, partition, target, rules)
        assert ours == record, f"offset {moment.offset}"
        compared += 1
    assert compared
