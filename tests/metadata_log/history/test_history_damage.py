"""Histories of logs that are damaged, incomplete, mixed up or of a newer Kafka: no wrong row without a report."""

from __future__ import annotations

import json
from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from history_stories import Log, Row, newest, real_disk, tell, write
from metadata_log import history
from metadata_log.errors import MetadataLogError
from metadata_log.history import Options
from metadata_log.history.changes import Templates, whole_record
from metadata_log.image import ReplayError
from metadata_log.memory_disk import MemoryDisk
from metadata_log.reading.damage import Damage, DamagedFile, OnDamage
from metadata_log.reading.entries import read_entries
from metadata_log.reading.timeline import read_timeline
from metadata_log.records.batch import read_batch, scan
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import (
    ConfigRecord,
    EndTransactionRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from metadata_log.releases import unknown_record_text
from metadata_log.types import Uuid
from support.real_data import archive

SKIP = Options(on_damage=OnDamage.SKIP)
STOP = Options(on_damage=OnDamage.STOP)
TOPIC = Uuid(b"t" * 16)
STATIC3 = "/nodes/c1/__cluster_metadata-0"
LONE = "/lone/__cluster_metadata-0"


def one_topic(log: Log, name: str = "orders") -> None:
    partition = PartitionRecord(topic_id=TOPIC, partition_id=0, replicas=(1, 2), isr=(1, 2), leader=1)
    log.batch(TopicRecord(name=name, topic_id=TOPIC), partition)


def copy_of_static3(*left_out: str) -> MemoryDisk:
    """The real directory, to be harmed."""
    disk = MemoryDisk()
    disk.mkdir("/lone")
    disk.mkdir(LONE)
    source = real_disk("static3")
    for name in source.list(STATIC3):
        if name not in left_out:
            write(disk, f"{LONE}/{name}", source.read(f"{STATIC3}/{name}"))
    return disk


def flip(disk: MemoryDisk, path: str, position: int) -> None:
    content = bytearray(disk.read(path))
    content[position] ^= 0xFF
    disk.remove(path)
    write(disk, path, bytes(content))


def test_no_rows_are_given_behind_damage_without_a_snapshot() -> None:
    """Where no snapshot is left that says how things stand."""
    snapshots = [name for name in real_disk("static3").list(STATIC3) if name.endswith(".checkpoint")]
    disk = copy_of_static3(*snapshots)
    path = f"{LONE}/00000000000000001893.log"
    damaged = list(scan(disk.read(path)))[40]
    flip(disk, path, damaged.position + 70)
    with pytest.raises(DamagedFile):
        tell(disk, LONE, ("partition_history",))
    rows = tell(disk, LONE, ("partition_history", "broker_history", "quorum_epochs", "retention"), options=SKIP)
    for view in ("partition_history", "broker_history", "quorum_epochs"):
        assert rows[view]
        for row in rows[view]:
            assert row["valid_from_offset"] < damaged.base_offset
            assert row["valid_to_offset"] <= damaged.base_offset
        lost = [row for row in rows[view] if row["end_cause"] == "unknown-history"]
        assert {row["valid_to_offset"] for row in lost} == {damaged.base_offset}
    known, damage, ignored = rows["retention"]
    assert (known["kind"], known["known"], known["to_offset"]) == ("log", True, damaged.base_offset)
    assert (damage["kind"], damage["known"], damage["from_offset"]) == ("damage", False, damaged.base_offset)
    assert (ignored["kind"], ignored["known"], ignored["from_offset"]) == ("ignored", False, damaged.next_offset)
    assert "from here on the history is not known" in damage["text"]


def test_rows_continue_from_the_next_snapshot_behind_a_gap() -> None:
    disk = copy_of_static3("00000000000000001893.log")
    rows = tell(disk, LONE, ("partition_history", "topic_history", "retention"), options=SKIP)
    kinds = [(row["kind"], row["from_offset"], row["known"]) for row in rows["retention"]]
    assert kinds == [
        ("log", 0, True),
        ("damage", 1893, False),
        ("base", 3125, True),
        ("log", 3126, True),
    ]
    begun = [row for row in rows["partition_history"] if row["cause"] == "snapshot"]
    assert {row["valid_from_offset"] for row in begun} == {3125}
    assert {(row["cause_record"], row["cause_offset"], row["election"]) for row in begun} == {(None, None, None)}
    between = [row for row in rows["partition_history"] if 1893 <= row["valid_from_offset"] < 3125]
    assert between == []
    assert {row["valid_to_offset"] for row in rows["topic_history"] if row["end_cause"] == "unknown-history"} == {1893}


CASES = {one["case"]: one for one in json.loads(archive("damaged")["cases.json"])}


@pytest.mark.parametrize("case", CASES)
def test_documented_damage_is_reported_or_changes_no_row(case: str) -> None:
    """The rows are those of the whole log, or `retention` says from where on they are not."""
    disk = copy_of_static3()
    for name in CASES[case]["removed_files"]:
        path = f"{LONE}/{name.rpartition('/')[2]}"
        if "__cluster_metadata-0/" in name and disk.exists(path):
            disk.remove(path)
    prefix = f"cases/{case}/__cluster_metadata-0/"
    for name, content in archive("damaged").items():
        if name.startswith(prefix):
            path = f"{LONE}/{name.removeprefix(prefix)}"
            if disk.exists(path):
                disk.remove(path)
            write(disk, path, content)
    if not any(name.endswith((".log", ".checkpoint")) for name in disk.list(LONE)):
        with pytest.raises(MetadataLogError, match="neither a log nor a snapshot"):
            tell(disk, LONE, TOLD)
        return
    found, whole = tell(disk, LONE, (*TOLD, "retention"), options=SKIP), whole_static3()
    suspect = [row for row in found["retention"] if not row["known"] or row["kind"] in ("unfinished-tail", "base")]
    for view in TOLD:
        if not suspect:
            assert found[view] == whole[view]
        elif suspect[0]["kind"] != "base":
            lost = min(row["from_offset"] for row in suspect)
            before = [
                row for row in whole[view] if row["valid_to_offset"] is not None and row["valid_to_offset"] < lost
            ]
            assert found[view][: len(before)] == before


TOLD = ("partition_history", "quorum_epochs")


@cache
def whole_static3() -> dict[str, list[Row]]:
    return tell(copy_of_static3(), LONE, TOLD)


# Records that are not understood


def test_records_of_a_newer_kafka_are_counted() -> None:
    log = Log()
    one_topic(log)
    first = log.values(b"\x01\x63\x00", b"\x01\x63\x00abc")
    log.batch(ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="5"))
    with pytest.raises(DamagedFile, match="a record of type 99 in version 0 is not known"):
        log.tell("config_history")
    rows = log.tell("config_history", "retention", options=SKIP)
    assert [row["value"] for row in rows["config_history"]] == ["5"]
    [unknown] = [row for row in rows["retention"] if row["kind"] == "unknown-record"]
    assert (unknown["from_offset"], unknown["to_offset"], unknown["records"]) == (first, first + 2, 2)
    assert unknown["known"] is False
    assert unknown["text"] == unknown_record_text(99, 0, None)


def contradictions() -> list[tuple[str, list[bytes]]]:
    topic = TopicRecord(name="orders", topic_id=Uuid(b"u" * 16))
    change = PartitionChangeRecord(topic_id=TOPIC, partition_id=7, isr=(1,))
    strange = PartitionChangeRecord(topic_id=TOPIC, partition_id=0, leader_recovery_state=5)
    found = [topic, change, strange, RemoveTopicRecord(topic_id=Uuid(b"u" * 16)), EndTransactionRecord()]
    return [(type(one).__name__, [encode_record(one, newest(one))]) for one in found]


@pytest.mark.parametrize(("name", "values"), contradictions())
def test_a_record_that_contradicts_the_rest_is_an_error_or_is_named(name: str, values: list[bytes]) -> None:
    log = Log()
    one_topic(log)
    shrink = PartitionChangeRecord(topic_id=TOPIC, partition_id=0, isr=(1,))
    grow = PartitionChangeRecord(topic_id=TOPIC, partition_id=0, isr=(1, 2))
    encoded = [encode_record(one, newest(one)) for one in (shrink, grow)]
    offset = log.values(encoded[0], *values, encoded[1]) + 1
    with pytest.raises(ReplayError):
        log.tell("partition_history")

    rows = log.tell("partition_history", "partitions_state", "retention", options=SKIP)
    [fault] = [row for row in rows["retention"] if row["kind"] == "fault"]
    assert (fault["from_offset"], fault["known"]) == (offset, False)
    assert [row["isr"] for row in rows["partition_history"]] == [(1, 2), (1,), (1, 2)]
    assert [row["isr"] for row in rows["partitions_state"]] == [(1, 2)]

    stopped = log.tell("partition_history", "partitions_state", options=STOP)
    assert stopped["partition_history"][-1]["end_cause"] == "unknown-history"
    assert stopped["partitions_state"] == []


def test_batches_of_two_logs_are_refused() -> None:
    one, other = Log(), Log()
    one_topic(one)
    one_topic(other, "payments")
    other.batch(NoOpRecord())
    items = [*read_timeline(one.disk, "/log"), *read_timeline(other.disk, "/log")]
    with pytest.raises(ReplayError, match="a batch from offset 0 on follows offset 1"):
        list(history.rows(items, ("topic_history",), cluster="c"))
    rows = list(history.rows(items, ("topic_history", "retention"), cluster="c", options=SKIP))
    assert [row[1] for view, row in rows if view == "topic_history"] == ["orders"]
    assert [row[1] for view, row in rows if view == "retention"] == ["log", "damage", "ignored"]


def test_a_view_that_is_not_known_is_an_error_at_once() -> None:
    with pytest.raises(KeyError, match="no_view"):
        list(history.rows([], ("no_view",), cluster="c"))


# The short way through a batch


def plainly(content: bytes) -> list[tuple[int, object]]:
    [batch] = scan(content)
    found: list[tuple[int, object]] = []
    for entry in read_entries(batch, ""):
        assert not isinstance(entry, Damage)
        if not isinstance(entry.record, NoOpRecord):
            found.append((entry.offset, entry.record))
    return found


def quickly(content: bytes) -> list[tuple[int, object]] | None:
    changes = Templates().read(read_batch(content))
    if changes is None:
        return None
    return [(offset, whole_record(record, key)) for offset, record, key in changes.all]


@pytest.mark.parametrize("name", ["static3", "clusters"])
def test_the_quick_decoder_agrees_with_the_general_one(name: str) -> None:
    seen = 0
    for path, content in archive(name).items():
        if path.endswith(".log"):
            for batch in scan(content):
                if not batch.is_control:
                    assert quickly(batch.data) == plainly(batch.data)
                    seen += 1
    assert seen > 700


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 1 << 32))
def test_the_quick_decoder_agrees_or_refuses_on_damaged_batches(seed: int) -> None:
    """Whatever is done to the bytes of a batch, the short way gives what the long way gives, or leaves it to that."""
    rng = Random(seed)
    log = Log()
    records = [
        PartitionChangeRecord(
            partition_id=rng.randrange(300),
            topic_id=Uuid(rng.randbytes(16)),
            isr=rng.choice([None, (), (1, 2), tuple(range(rng.randrange(40)))]),
            leader=rng.choice([-2, -1, 3]),
        )
        for _ in range(rng.randint(1, 5))
    ]
    created = PartitionRecord(
        partition_id=rng.randrange(300),
        topic_id=Uuid(rng.randbytes(16)),
        replicas=tuple(range(rng.randrange(40))),
        isr=(1, 2),
        directories=tuple(Uuid(rng.randbytes(16)) for _ in range(rng.randrange(5))),
    )
    others = rng.choices([NoOpRecord(), TopicRecord(name="t" * 70), TopicRecord(name="t" * 35), created], k=3)
    log.batch(*records, *others, *[NoOpRecord()] * rng.choice([0, 0, 70]), created)
    assert quickly(log.content) == plainly(log.content)
    harmed = bytearray(log.content)
    harmed[rng.randrange(61, len(harmed))] ^= 1 << rng.randrange(8)
    [batch] = scan(log.content)
    harmed_batch = type(batch)(
        **{**{name: getattr(batch, name) for name in batch.__struct_fields__}, "data": bytes(harmed)}
    )
    quick = Templates().read(harmed_batch)
    slow = list(read_entries(harmed_batch, ""))
    if quick is not None:
        assert not any(isinstance(entry, Damage) for entry in slow)
        kept = [one for one in slow if not isinstance(one, Damage) and not isinstance(one.record, NoOpRecord)]
        assert [change[0] for change in quick.all] == [entry.offset for entry in kept]
