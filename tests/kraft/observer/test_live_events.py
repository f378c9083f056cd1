"""Live events of real clusters: the changes and causes of their histories, in sentences."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from kraft.cli.files.image_at import image_at
from kraft.observer.live_events import LiveEvent, LiveEvents
from metadata_log.disk import OsDisk
from metadata_log.history.engine import rows
from metadata_log.history.views import VIEWS
from metadata_log.image import MetadataImage
from metadata_log.reading.entries import Entry
from metadata_log.reading.timeline import Base, TimelineBatch, read_timeline
from metadata_log.types import OffsetAndEpoch
from support.real_data import unpack


def events_of(path: Path) -> tuple[list[LiveEvent], MetadataImage]:
    """The events of a log, and the image at its end."""
    live, events = LiveEvents(), []
    for item in read_timeline(OsDisk(), str(path)):
        assert not isinstance(item, Base)
        assert isinstance(item, TimelineBatch)
        entries = [entry for entry in item.entries() if isinstance(entry, Entry)]
        end = OffsetAndEpoch(epoch=item.batch.epoch, offset=item.batch.next_offset)
        events += live.take(entries, end, item.batch.max_timestamp)
    return events, live.image.stable


@pytest.mark.parametrize(("archive", "node"), [("static3", "nodes/c1"), ("clusters", "failover/nodes/c3")])
def test_live_events_have_the_changes_and_causes_of_the_history(tmp_path: Path, archive: str, node: str) -> None:
    path = unpack(archive, node, tmp_path)
    events, image = events_of(path)
    assert image.topics == image_at(str(path), None).image.topics
    assert image.brokers == image_at(str(path), None).image.brokers
    told = Counter((name, event.cause) for event in events for name in event.partitions)
    names = VIEWS["partition_history"].names
    history = [
        dict(zip(names, row, strict=True))
        for _, row in rows(read_timeline(OsDisk(), str(path)), {"partition_history"}, cluster="x")
    ]
    assert told == Counter(
        (f"{row['topic']}-{row['partition']}", row["cause"])
        for row in history
        if row["cause_record"] == "PartitionChangeRecord"
    )
    offsets = [event.offset for event in events]
    assert offsets == sorted(offsets)


def test_a_lost_broker_is_one_event_with_the_partitions_that_it_changed(tmp_path: Path) -> None:
    events, _ = events_of(unpack("clusters", "failover/nodes/c3", tmp_path))
    [lost] = [event for event in events if event.offset == 1805]
    assert lost.text == (
        "broker 102 was fenced: its session timed out; "
        "31 partitions of 8 topics (alerts-4, catalog-15, clicks-19, …) have no leader; "
        "80 partitions of 20 topics (alerts-16, alerts-4, audit-1, …) have a new leader; "
        "62 partitions of 17 topics (alerts-16, alerts-4, audit-1, …) have fewer replicas in sync"
    )
    assert (lost.cause, len(lost.partitions)) == ("session-timeout", 173)
    texts = [event.text for event in events]
    assert "topic metrics-0 was created; partitions: 10, replicas of each: 2" in texts
    assert "topic metrics-0: min.insync.replicas = 1" in texts
    assert "broker 101 registered" in texts
    assert "controller 1 leads in epoch 3, with the votes of 1, 3" in texts
    one = "invoices-18-4: the leader 103 reported: 102 joined the ISR, having caught up"
    assert texts.count(one) == 3
