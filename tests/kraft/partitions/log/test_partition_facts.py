"""The log directories of real brokers are read with the offsets, producers and indexes that the brokers reported."""

from __future__ import annotations

import pytest

from kraft.partitions.log.facts import PartitionFacts, read_partition
from kraft.partitions.log.loading import LoadedLog, loading
from kraft.partitions.log.options import LogOptions
from metadata_log.log.epochs import EpochHistory, format_epochs, parse_epochs
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import scan
from metadata_log.serde.codec import finished
from support.broker.broker_logs import (
    KILLED,
    NODES,
    NOW_MS,
    disk_with,
    expected,
    files_below,
    options_of,
    partition_directories,
    put,
    topic_of,
)

STOPPED = [f"nodes/{node}/{name}" for node in NODES for name in partition_directories(f"nodes/{node}")]
OF_KILLED = [f"{log_directory}/{name}" for log_directory in KILLED for name in partition_directories(log_directory)]


def facts(path: str) -> PartitionFacts:
    log_directory, _, name = path.rpartition("/")
    return read_partition(disk_with(log_directory, name), "d", name, now_ms=NOW_MS)


@pytest.mark.parametrize("path", STOPPED)
def test_a_stopped_brokers_partition_has_the_offsets_that_the_cluster_reported(path: str) -> None:
    """A replica that starts with other offsets than Kafka's would lose records or serve what is not committed."""
    found = facts(path)
    assert found.findings == ()
    assert found.is_clean
    assert found.recovery_point == found.end_offset
    want = expected("final/partitions.json").get(str(found.name))
    if found.name.suffix:
        assert want is None or found.name.suffix in {"delete", "stray"}
        assert (found.start_offset, found.end_offset) == (0, 5)
        return
    assert want is not None
    assert found.start_offset == want["log_start"]["offset"]
    assert found.end_offset == found.high_watermark == want["high_watermark"]["offset"]
    assert found.last_stable_offset == want["last_stable_offset"]["offset"]
    assert found.checkpointed_recovery_point == found.end_offset
    if found.end_offset > found.start_offset:
        assert found.last_epoch is not None
        assert found.last_epoch <= want["high_watermark"]["leaderEpoch"]


@pytest.mark.parametrize("path", STOPPED)
def test_a_stopped_brokers_producers_are_those_that_the_leader_described(path: str) -> None:
    found = facts(path)
    want = expected("final/partitions.json").get(str(found.name))
    if found.name.suffix or want is None:
        return
    described = [
        (
            each["producerId"],
            each["producerEpoch"],
            each["lastSequence"],
            each["coordinatorEpoch"],
            each["currentTxnStartOffset"],
        )
        for each in want["producers"]
    ]
    read = [
        (each.producer_id, each.epoch, each.last_sequence, each.coordinator_epoch, each.open_offset)
        for each in found.producers
    ]
    known = {each[0] for each in read}
    # A producer may have expired on one side only; no producer may be known in another state.
    assert sorted(read) == sorted(each for each in described if each[0] in known)
    assert len(read) == len(described)


def load_without_indexes(path: str) -> tuple[MemoryDisk, LoadedLog]:
    """Recover a partition from its batches alone, with the settings of its topic."""
    _, _, name = path.rpartition("/")
    disk = MemoryDisk()
    put(disk, "d/p", {file: content for file, content in files_below(path).items() if file.endswith(".log")})
    loaded = finished(
        loading(
            disk,
            "d/p",
            options_of(topic_of(name).topic),
            start_checkpoint=0,
            recovery_point=0,
            is_clean=False,
            now_ms=NOW_MS,
        )
    )
    for segment in loaded.segments:
        segment.write_indexes()
    return disk, loaded


CLOSED_IN_BETWEEN = {
    *("b101/__transaction_state-1", "b103/alerts-fail-1"),
    *("b103-second/__transaction_state-1", "b103-second/alerts-fail-0"),
}
"""Time indexes with an entry of an earlier clean stop: a broker adds the largest time when it closes a segment."""
COUNTED_AGAIN = {"b101/alerts-zstd-0", "b103-second/alerts-none-0", "b103-second/alerts-zstd-0"}
"""Offset indexes of a broker that was restarted: it begins to count the bytes since the last entry again."""
COMPACTED = {f"{node}/alerts-compact-0" for node in ("b101", "b102", "b103")}
"""Snapshots of producers with records that compaction has removed since."""


def test_indexes_rebuilt_from_the_batches_equal_the_files_of_the_brokers() -> None:
    """Offset, time and transaction indexes are the same bytes; the exceptions are counted, each with its reason."""
    same, other = dict[str, int](), list[tuple[str, str]]()
    for path in STOPPED:
        disk, _ = load_without_indexes(path)
        for file, content in files_below(path).items():
            suffix = file.rpartition(".")[2]
            if suffix in {"index", "timeindex", "txnindex"}:
                if disk.exists(f"d/p/{file}") and disk.peek(f"d/p/{file}") == content:
                    same[suffix] = same.get(suffix, 0) + 1
                else:
                    other.append((path.removeprefix("nodes/"), suffix))
    assert same == {"index": 218, "timeindex": 217, "txnindex": 9}
    expected_others = [(name, "timeindex") for name in CLOSED_IN_BETWEEN] + [(name, "index") for name in COUNTED_AGAIN]
    assert sorted(other) == sorted(expected_others)


def test_snapshots_rebuilt_from_the_batches_equal_the_files_of_the_brokers() -> None:
    """The snapshots of the last two segments and of the end; older ones cannot be rebuilt once records are gone."""
    same, other = 0, list[str]()
    for path in STOPPED:
        disk, loaded = load_without_indexes(path)
        for offset in loaded.producers.snapshots:
            file = f"{offset:020d}.snapshot"
            content = files_below(path).get(file)
            if content is not None:
                if disk.peek(f"d/p/{file}") == content:
                    same += 1
                else:
                    other.append(path.removeprefix("nodes/"))
    assert same == 202
    assert sorted(other) == sorted(COMPACTED)


@pytest.mark.parametrize("path", OF_KILLED)
def test_a_killed_brokers_partition_keeps_every_whole_batch(path: str) -> None:
    """A broker that was killed has written whole batches: the recovery finds all of them, and checks them."""
    found = facts(path)
    assert not found.is_clean
    logs = {file: content for file, content in sorted(files_below(path).items()) if file.endswith(".log")}
    batches = [batch for content in logs.values() for batch in scan(content)]
    last = list(logs)[-1] if logs else None
    want = batches[-1].next_offset if batches else int(last.partition(".")[0]) if last else 0
    assert found.end_offset == max(want, int(last.partition(".")[0]) if last else 0)
    assert found.recovery_point == min(found.checkpointed_recovery_point, found.end_offset)
    assert found.high_watermark <= found.end_offset
    assert not [finding for finding in found.findings if "truncated" in finding]


CASES = expected("recovery/cases.json")["cases"]
RECOVERIES = [f"{kind}-{case}" for kind in ("unclean", "clean") for case in CASES[kind]]

OURS = {
    "unclean-no-partition-metadata": "the log manager renames a directory without a topic id; the log is sound",
    "clean-no-partition-metadata": "the log manager renames a directory without a topic id; the log is sound",
    "clean-torn": "the JVM falls back to offset 100 and leaves whole batches behind it; this log is truncated at 105",
    "clean-garbage-tail": "the JVM exits; this log is truncated before the garbage",
    "clean-zero-tail": "the JVM exits; this log is truncated before the zeros",
}
"""Where this log deliberately does something else than a JVM broker."""
OTHER_FILES = {
    "clean-short-index": {"00000000000000000050.index"},
    "clean-no-timeindex": {"00000000000000000050.timeindex"},
    "clean-empty-active-log": {"00000000000000000100.index", "00000000000000000100.timeindex"},
    "clean-index-ahead": {"00000000000000000050.index"},
}
"""Damaged indexes: the JVM cuts, keeps or uses them, and this log leaves or rebuilds them."""


def recover(case: str) -> tuple[MemoryDisk, LoadedLog, PartitionFacts]:
    kind, _, _ = case.partition("-")
    name = f"{case}-0"
    disk = disk_with(f"recovery/{kind}-before", name)
    before = {path: disk.peek(path) for path in disk.files()}
    found = read_partition(disk, "d", name, now_ms=NOW_MS, options=RECOVERY_OPTIONS)
    assert {path: disk.peek(path) for path in disk.files()} == before, "a read-only look has changed the disk"
    loaded = finished(
        loading(
            disk,
            f"d/{name}",
            RECOVERY_OPTIONS,
            start_checkpoint=0,
            recovery_point=found.checkpointed_recovery_point,
            is_clean=found.is_clean,
            now_ms=NOW_MS,
        )
    )
    loaded.segments[-1].write_indexes()
    return disk, loaded, found


RECOVERY_OPTIONS = LogOptions(index_interval_bytes=256)


@pytest.mark.parametrize("case", RECOVERIES)
def test_a_damaged_partition_recovers_as_on_a_jvm_broker(case: str) -> None:
    """One damage each, after a kill and after a clean stop: the same offsets, producers and files as Kafka's."""
    kind, _, short = case.partition("-")
    want = CASES[kind][short]
    disk, loaded, found = recover(case)
    assert (found.start_offset, found.end_offset) == (loaded.start_offset, loaded.end_offset)
    if case in OURS:
        assert (found.start_offset, found.end_offset) == (0, 105 if case == "clean-torn" else 110)
        assert want["log_end"] != found.end_offset if "log_end" in want else want.get("error") != 0
        return
    assert found.start_offset == want["log_start"]
    assert found.end_offset == want["log_end"]
    assert [(each.producer_id, each.epoch, each.last_sequence, each.timestamp) for each in found.producers] == [
        (each["producerId"], each["producerEpoch"], each["lastSequence"], each["lastTimestamp"])
        for each in want["producers"]
    ]
    after = files_below(f"recovery/{kind}-after/{case}-0")
    mine = {path.rpartition("/")[2]: disk.peek(path) for path in disk.files() if path.startswith(f"/d/{case}-0/")}
    # The JVM brokers have since led in a newer epoch.
    epochs = "leader-epoch-checkpoint"
    newer = parse_epochs(after.pop(epochs)).entries
    assert loaded.epochs.entries == newer[:-1]
    # An epoch without a record stays in the file until it changes; on a JVM broker a thread takes it out.
    kept = parse_epochs(mine.pop(epochs, format_epochs(EpochHistory())))
    assert kept.truncate_end(found.end_offset).entries == newer[:-1]
    differing = {
        name for name in {*after, *mine} if after.get(name) != mine.get(name) and not name.endswith(".deleted")
    }
    assert differing == OTHER_FILES.get(case, set())
