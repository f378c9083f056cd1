"""A log directory of a real broker is opened and closed with the checkpoints that the broker wrote."""

from __future__ import annotations

from struct import pack

import pytest

from kraft.partitions.log.checkpoints import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    format_offsets,
    parse_offsets,
    read_offsets,
)
from kraft.partitions.log.log_directory import LogDirectory
from kraft.partitions.log.options import LogOptions
from metadata_log.errors import DecodeError
from metadata_log.log.clean_shutdown import CLEAN_SHUTDOWN_FILE
from metadata_log.log.epochs import parse_epochs
from metadata_log.log.partition_names import PartitionName
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch_builder import build_batch
from support.broker.broker_logs import NODES, NOW_MS, files_below, options_of, partition_directories, put

CHECKPOINTS = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS)


def node_disk(node: str) -> MemoryDisk:
    disk = MemoryDisk()
    put(disk, "d", files_below(f"nodes/{node}"))
    for name in partition_directories(f"nodes/{node}"):
        put(disk, f"d/{name}", files_below(f"nodes/{node}/{name}"))
    return disk


def opened(disk: MemoryDisk) -> LogDirectory:
    return LogDirectory.open(disk, "d", lambda name: options_of(name.topic), now_ms=NOW_MS)


@pytest.mark.parametrize("node", NODES)
def test_a_brokers_directory_that_is_opened_and_closed_is_the_same(node: str) -> None:
    """Every file of every partition, and what the checkpoints say; the next start is clean again."""
    disk = node_disk(node)
    before = {path: disk.peek(path) for path in disk.files()}
    logs = opened(disk)
    assert logs.is_clean
    assert (logs.failed, logs.findings) == ({}, [])
    assert not disk.exists(f"d/{CLEAN_SHUTDOWN_FILE}")
    logs.close(broker_epoch=77)
    after = {path: disk.peek(path) for path in disk.files()}
    for name in CHECKPOINTS:
        assert parse_offsets(after.pop(f"/d/{name}"), where=name) == parse_offsets(before.pop(f"/d/{name}"), where=name)
    assert after.pop(f"/d/{CLEAN_SHUTDOWN_FILE}") == b'{"version":0,"brokerEpoch":77}'
    del before[f"/d/{CLEAN_SHUTDOWN_FILE}"]
    # An epoch that a leader began at the end, without a record, is gone after a start, as in Kafka, but for the file.
    for partition, log in logs.logs.items():
        in_file = parse_epochs(before[f"/d/{partition}/leader-epoch-checkpoint"])
        assert log.epochs == in_file.truncate_end(log.end_offset)
    differing = {path for path in {*after, *before} if after.get(path) != before.get(path)}
    # A start removes snapshots at no segment's base and files that wait for their deletion; an empty log may gain one.
    assert all(
        path.endswith(".deleted") or (path.endswith(".snapshot") and path not in before.keys() & after.keys())
        for path in differing
    ), differing
    assert len(differing) < 10
    assert opened(disk).is_clean


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_file_of_a_broker_has_the_same_bytes_when_written_again(node: str, name: str) -> None:
    content = files_below(f"nodes/{node}")[name]
    assert format_offsets(parse_offsets(content, where=name)) == content
    assert parse_offsets(b"", where=name) == {}  # Kafka makes the files like this


@pytest.mark.parametrize(
    "content", [b"\n", b"1\n0\n", b"0\n", b"0\nx\n", b"0\n1\n", b"0\n1\na b\n", b"0\n1\na 0 1\nb 0 1\n"]
)
def test_a_malformed_checkpoint_file_has_no_offsets_and_is_reported(content: bytes) -> None:
    with pytest.raises(DecodeError):
        parse_offsets(content, where="file")
    disk = MemoryDisk()
    put(disk, "d", {RECOVERY_POINTS: content})
    offsets, defect = read_offsets(disk, "d", RECOVERY_POINTS)
    assert offsets == {}
    assert defect is not None
    assert f"d/{RECOVERY_POINTS}" in defect


def test_one_damaged_partition_stops_no_other_and_no_clean_shutdown_is_claimed() -> None:
    disk = node_disk("b103")
    damaged = "d/alerts-sess-3/leader-epoch-checkpoint"
    disk.remove(damaged)
    put(disk, "d/alerts-sess-3", {"leader-epoch-checkpoint": b"0\n1\n0 zero\n"})
    logs = opened(disk)
    assert list(logs.failed) == [PartitionName("alerts-sess", 3)]
    assert damaged in str(logs.failed[PartitionName("alerts-sess", 3)])
    assert len(logs.logs) == 22 - 1
    logs.close(broker_epoch=1)
    assert not disk.exists(f"d/{CLEAN_SHUTDOWN_FILE}")


@pytest.mark.parametrize("entries", [(5, -7), (-1, 0), (90, 10, 80, 20), (3, 20, 4, 20)], ids=str)
def test_an_index_with_entries_out_of_order_is_made_anew(entries: tuple[int, ...]) -> None:
    """A read at a position before the file would fail as a broken disk does, and take the whole directory offline."""
    disk = MemoryDisk()
    name = PartitionName("orders", 0)
    logs = LogDirectory.open(disk, "d", lambda _: LogOptions(), now_ms=NOW_MS)
    log = logs.add(name, LogOptions(), now_ms=NOW_MS)
    log.append_as_follower(build_batch(0, 1, NOW_MS, [b"a", b"b"]), leader_epoch=1, now_ms=NOW_MS)
    logs.close(broker_epoch=5)
    put(disk, "d/orders-0", {f"{0:020d}.index": pack(f">{len(entries)}i", *entries)})
    again = LogDirectory.open(disk, "d", lambda _: LogOptions(), now_ms=NOW_MS)
    assert again.failed == {}
    assert again.logs[name].end_offset == 2
    assert again.logs[name].segments[0].batches.index_entries[0] == 0


def test_a_new_partition_survives_a_clean_stop_with_its_watermark() -> None:
    disk = MemoryDisk()
    name = PartitionName("orders", 0)
    logs = LogDirectory.open(disk, "d", lambda _: LogOptions(), now_ms=NOW_MS)
    log = logs.add(name, LogOptions(), now_ms=NOW_MS)
    log.append_as_follower(build_batch(0, 1, NOW_MS, [b"a", b"b"]), leader_epoch=1, now_ms=NOW_MS)
    log.raise_high_watermark(1)
    logs.close(broker_epoch=5)
    disk.crash()
    again = LogDirectory.open(disk, "d", lambda _: LogOptions(), now_ms=NOW_MS).logs[name]
    assert (again.end_offset, again.high_watermark, again.recovery_point, again.recovered) == (2, 1, 2, ())


@pytest.mark.parametrize(
    ("is_clean", "has_led", "logs_per_step", "steps"),
    [
        (True, False, 32, 2),
        (True, True, 32, 2),
        (True, True, 1, 80),
        (False, True, 32, 40),
    ],
)
def test_a_step_of_a_start_opens_many_logs_that_need_no_more_than_a_look(
    *, is_clean: bool, has_led: bool, logs_per_step: int, steps: int
) -> None:
    """Nor is anything flushed for them: the epoch of a leader without a record stays in the file until a change."""
    disk = MemoryDisk()
    logs = LogDirectory.open(disk, "d", lambda _: LogOptions(), now_ms=NOW_MS)
    for number in range(40):
        log = logs.add(PartitionName("orders", number), LogOptions(), now_ms=NOW_MS)
        if has_led:
            log.assign_epoch(3)
    logs.close(broker_epoch=5)
    if not is_clean:
        disk.remove(f"d/{CLEAN_SHUTDOWN_FILE}")
    done: list[str] = []
    disk.on_operation = lambda operation, path: done.append(f"{operation} {path}")
    load = LogDirectory.opening(disk, "d", lambda _: LogOptions(), now_ms=NOW_MS, logs_per_step=logs_per_step)
    assert sum(1 for _ in load) == steps
    assert (done == [f"remove d/{CLEAN_SHUTDOWN_FILE}", "fsync_dir d"]) == is_clean
