"""The image and the events of live clusters: other epochs, snapshots in pieces, causes in sentences."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import trio.testing

from kraft.admin import AdminError
from kraft.cli.files.image_at import image_at
from kraft.observer import read_image
from kraft.observer.live_events import LiveEvent, LiveEvents
from metadata_log.disk import OsDisk
from metadata_log.errors import UnsupportedVersion
from metadata_log.history.engine import rows
from metadata_log.history.views import VIEWS
from metadata_log.image import MetadataImage
from metadata_log.reading.entries import Entry
from metadata_log.reading.timeline import Base, TimelineBatch, read_timeline
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import FeatureLevelRecord
from metadata_log.types import OffsetAndEpoch
from scripted_leader import EPOCH, UNTIL, answer, following, piece, topics
from support.real_data import unpack
from transport.protocol import messages as m
from transport.protocol.errors import Error
from transport.protocol.messages import fetch


async def test_a_live_image_holds_only_committed_records(autojump_clock: trio.testing.MockClock) -> None:
    log = topics(0, "a", "b") + topics(2, "c", "d") + topics(4, "e")
    seen: list[tuple[int, int]] = []
    async with following(answer(records=log[:-3]), high_watermark=-1) as (_, admin):
        image = await read_image(admin, lambda offset, end: seen.append((offset, end)))
    assert list(image.topics) == ["a", "b", "c", "d"]
    assert (image.end.offset, image.end.epoch, seen) == (UNTIL, EPOCH, [(UNTIL, UNTIL)])


async def test_a_live_image_follows_a_new_leader_epoch(autojump_clock: trio.testing.MockClock) -> None:
    script = (answer(error_code=Error.FENCED_LEADER_EPOCH), answer(records=topics(0, "a", "b", "c", "d")))
    async with following(*script) as (leader, admin):
        image = await read_image(admin)
        assert len(image.topics) == 4
        assert len(leader.asked) == 2


async def test_a_snapshot_is_fetched_in_pieces(autojump_clock: trio.testing.MockClock) -> None:
    snapshot = topics(0, "a", "b", "c")
    script = (
        answer(snapshot_id=fetch.SnapshotId(end_offset=3, epoch=EPOCH)),
        piece(0, snapshot[:50], len(snapshot)),
        piece(50, b"", len(snapshot), Error.FENCED_LEADER_EPOCH),
        piece(0, snapshot[:40], len(snapshot)),
        piece(40, snapshot[40:], len(snapshot)),
        answer(records=topics(3, "d")),
    )
    async with following(*script) as (leader, admin):
        image = await read_image(admin)
        assert list(image.topics) == ["a", "b", "c", "d"]
        last = leader.asked[-1]
        assert isinstance(last, m.FetchRequest)
        assert last.topics[0].partitions[0].fetch_offset == 3


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ((answer(records=b""),), "no whole batch from offset 0 on, and 4 are committed"),
        ((answer(records=topics(0, "a"), error_code=0), answer(records=b"")), "no whole batch from offset 1 on"),
        ((answer(diverging_epoch=fetch.EpochEndOffset(epoch=1, end_offset=0)),), "was truncated"),
        ((answer(snapshot_id=fetch.SnapshotId(end_offset=3, epoch=1)), piece(0, b"", 9)), "ends after 0 of 9 bytes"),
        ((answer(error_code=Error.CLUSTER_AUTHORIZATION_FAILED),), "CLUSTER_AUTHORIZATION_FAILED"),
    ],
)
async def test_unreadable_responses_are_errors(
    autojump_clock: trio.testing.MockClock, script: tuple[m.FetchResponse | m.FetchSnapshotResponse, ...], what: str
) -> None:
    async with following(*script) as (_, admin):
        with pytest.raises(AdminError, match=what):
            await read_image(admin)


async def test_a_record_of_an_unknown_type_ends_the_reading(autojump_clock: trio.testing.MockClock) -> None:
    value = bytearray(encode_record(FeatureLevelRecord(name="f", feature_level=1), 0))
    value[1] = 99
    async with following(answer(records=build_batch(0, EPOCH, 0, [bytes(value)]))) as (_, admin):
        with pytest.raises(UnsupportedVersion, match=r"a record of type 99 in version 0 is not known.*offset 0"):
            await read_image(admin)


# Live events of real clusters: the changes and causes of their histories, in sentences.


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
