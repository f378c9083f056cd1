"""The budget of requests to an object store: for each directory, of a query and of a stream's trigger."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from metadata_log.disk import OsDisk
from metadata_log.log.indexes import OffsetIndex
from metadata_log.log.segment import file_name, scan_headers
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import ConfigRecord
from metadata_log.spark.options import parse_options
from metadata_log.spark.rows import spark_schema
from metadata_log.spark.stream import KraftStreamReader
from metadata_log.spark.tasks import flat
from support.real_data import unpack
from support.spark.counted_store import PROTOCOL, CountedStore
from support.spark.fleets import NO_OP, PARTITION, write_log
from support.spark.in_process import read, reader, table

PLANNING = 4
"""Two listings, partition.metadata and meta.properties."""
QUIET_TRIGGER = 2
"""Two listings: a log that did not change is not read."""
LONG = encode_record(ConfigRecord(resource_type=2, resource_name="t", name="x", value="y" * 300), 0)
COLUMNS = ("cluster", "segment", "position", "offset", "epoch", "timestamp", "type", "value")


@pytest.fixture
def store() -> Iterator[type[CountedStore]]:
    CountedStore.clear()
    yield CountedStore
    CountedStore.clear()


def put(directory: Path, name: str) -> None:
    for path in directory.rglob("*"):
        if path.is_file():
            CountedStore().pipe_file(f"/fleet/{name}/{path.relative_to(directory)}", path.read_bytes())


def quiet_log(directory: Path, cluster: str, megabytes: float, *, epoch: int = 1) -> Path:
    """A log of many small batches, with Kafka's index and epoch checkpoint beside it."""
    partition = directory / PARTITION
    partition.mkdir(parents=True)
    content, offset = bytearray(), 0
    index = OffsetIndex(0)
    indexed_at = 0
    while len(content) < megabytes * 2**20:
        if len(content) - indexed_at > 4096:
            index.append(offset + 2, len(content))
            indexed_at = len(content)
        content += build_batch(offset, epoch, 1_000 + offset, [LONG] * 3)
        offset += 3
    (partition / file_name(0)).write_bytes(content)
    # The index of an active segment is a file of fixed length, with zeros after the entries.
    (partition / file_name(0, ".index")).write_bytes(index.encode().ljust(1 << 20, b"\0"))
    (partition / "leader-epoch-checkpoint").write_text(f"0\n1\n{epoch} 0\n")
    (directory / "meta.properties").write_text(f"#\nnode.id=1\nversion=1\ncluster.id={cluster}\n")
    return partition


def rows_of(found: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in COLUMNS) for row in found.to_pylist())


def test_planning_asks_four_requests_a_directory_and_reading_one_a_small_file(
    tmp_path: Path, store: type[CountedStore]
) -> None:
    count = 50
    for number in range(count):
        write_log(tmp_path / f"c{number}", [1, 1, 2], cluster=f"id-{number}")
        put(tmp_path / f"c{number}", f"c{number}")
    for view in ("records", "partition_history"):
        store.reset()
        query = reader(f"{PROTOCOL}://fleet/*", view=view)
        tasks = query.partitions()
        assert store.total() <= PLANNING * count + 1, store.requests
        assert len(tasks) < count / 2
    store.reset()
    found = table(reader(f"{PROTOCOL}://fleet/*"))
    assert rows_of(found) == rows_of(table(reader(f"{tmp_path}/*")))
    assert store.total() <= (PLANNING + 1) * count + 1, store.requests


def test_the_parts_of_a_large_segment_are_read_side_by_side_and_give_its_rows(
    tmp_path: Path, store: type[CountedStore]
) -> None:
    partition = quiet_log(tmp_path / "a", "a", 3)
    put(tmp_path / "a", "a")
    query = reader(f"{PROTOCOL}://fleet/*", splitBytes=str(1 << 19))
    parts = flat(partition.value for partition in query.partitions())
    assert len(parts) >= 5
    store.reset()
    found = table(query)
    assert rows_of(found) == rows_of(table(reader(f"{tmp_path}/*")))
    size = (partition / file_name(0)).stat().st_size
    assert store.read_bytes < 2 * size
    assert store.total() <= PLANNING + 1 + 8 * len(parts), store.requests


def test_a_stream_reads_ends_and_not_logs(tmp_path: Path, store: type[CountedStore]) -> None:
    """The first trigger reads what is small; one with nothing new reads nothing; one with new records reads these."""
    count, megabytes = 3, 3
    for number in range(count):
        quiet_log(tmp_path / f"c{number}", f"id-{number}", megabytes)
        put(tmp_path / f"c{number}", f"c{number}")
    options = parse_options({"path": f"{PROTOCOL}://fleet/*"})
    stream = KraftStreamReader(options, spark_schema(options))
    begin = stream.initialOffset()
    store.reset()
    end = stream.latestOffset(begin, ReadAllAvailable())
    # Besides the four of planning: the index, the end of the log, and the epochs.
    assert store.total() <= (PLANNING + 3) * count + 1, store.requests
    assert store.read_bytes < 0.03 * count * megabytes * 2**20
    tasks = stream.partitions(begin, end)
    batches = [batch for task in tasks for batch in stream.read(task)]
    assert rows_of(pa.Table.from_batches(batches)) == rows_of(table(reader(f"{tmp_path}/*")))

    store.reset()
    assert stream.latestOffset(end, ReadAllAvailable()) == end
    assert store.total() <= QUIET_TRIGGER * count + 1, store.requests
    assert store.read_bytes == 0

    path = tmp_path / "c0" / PARTITION / file_name(0)
    last = list(scan_headers(OsDisk().open(str(path), writable=False)))[-1].next_offset
    with path.open("ab") as file:
        file.write(build_batch(last, 2, 10**9, [NO_OP] * 3))
    (path.parent / "leader-epoch-checkpoint").write_text(f"0\n2\n1 0\n2 {last}\n")
    put(tmp_path / "c0", "c0")
    store.reset()
    after = stream.latestOffset(end, ReadAllAvailable())
    tasks = stream.partitions(end, after)
    batches = [batch for task in tasks for batch in stream.read(task)]
    assert pa.Table.from_batches(batches)["offset"].to_pylist() == [last, last + 1, last + 2]
    assert store.read_bytes < 0.1 * megabytes * 2**20
    assert after["id-0"] == {"offset": last + 3, "epochs": f"1@0 2@{last}"}


def test_ranges_of_real_logs_in_a_store_give_the_rows_of_the_disk(tmp_path: Path, store: type[CountedStore]) -> None:
    """Logs of Kafka, with random sizes of ranges; the seed is printed."""
    seed = int(os.environ.get("SCAN_SEED", Random().randrange(1 << 32)))
    print(f"SCAN_SEED={seed}")
    rng = Random(seed)
    unpack("static3", "nodes/c1", tmp_path / "a")
    put(tmp_path / "a", "a")
    wanted = rows_of(table(reader(f"{tmp_path}/*")))
    for _ in range(10):
        size = rng.randint(2_000, 60_000)
        assert rows_of(table(reader(f"{PROTOCOL}://fleet/*", splitBytes=str(size)))) == wanted, size


def test_a_history_in_a_store_is_that_of_the_disk(tmp_path: Path, store: type[CountedStore]) -> None:
    unpack("static3", "nodes/c1", tmp_path / "a")
    put(tmp_path / "a", "a")
    for view in ("partition_history", "topics_state", "quorum_epochs"):
        assert read(f"{PROTOCOL}://fleet/*", view=view) == read(f"{tmp_path}/*", view=view)
