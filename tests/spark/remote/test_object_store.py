"""A fleet in an object store: a real S3 client against a server on this machine that speaks S3."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from moto.server import ThreadedMotoServer
from pyspark.sql import SparkSession

from metadata_log.log.segment import file_name
from support.spark.fleets import write_log

BUCKET = "fleet"


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, object]]:
    """Options of s3fs that lead to an empty bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        options: dict[str, object] = {
            "key": "test",
            "secret": "nothing",
            "client_kwargs": {"endpoint_url": f"http://{host}:{port}"},
        }
        fsspec.filesystem("s3", **options).mkdir(BUCKET)
        yield options
    finally:
        server.stop()


def test_a_fleet_in_an_object_store(spark: SparkSession, tmp_path: Path, store: dict[str, object]) -> None:
    """The same rows as from disk, found by the same globs; a stream sees that an object became longer."""
    write_log(tmp_path / "a", [1, 1, 2], cluster="x")
    write_log(tmp_path / "a", [2], base=6)
    write_log(tmp_path / "b", [5])
    files = fsspec.filesystem("s3", **store)
    files.put(f"{tmp_path}/a", f"{BUCKET}/a", recursive=True)
    files.put(f"{tmp_path}/b", f"{BUCKET}/b", recursive=True)
    there = spark.read.format("kraft").option("storageOptions", json.dumps(store)).load(f"s3://{BUCKET}/*")
    here = spark.read.format("kraft").load(f"{tmp_path}/*")
    columns = ("cluster", "segment", "position", "offset", "epoch", "timestamp", "type", "value")
    assert sorted(there.select(*columns).collect()) == sorted(here.select(*columns).collect())
    assert there.select("directory").distinct().count() == 2

    stream = spark.readStream.format("kraft").option("storageOptions", json.dumps(store)).load(f"s3://{BUCKET}/*")
    seen: list[tuple[str, int]] = []
    checkpoint = str(tmp_path / "checkpoint")
    for wanted in ([("b", 0), ("b", 1), *(("x", offset) for offset in range(8))], [("b", 2), ("b", 3)]):
        seen.clear()
        writer = stream.writeStream.foreachBatch(
            lambda batch, _: seen.extend((row.cluster, row.offset) for row in batch.collect())
        )
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
        assert sorted(seen) == wanted
        partition = write_log(tmp_path / "b", [5, 5])
        files.put(f"{partition}/{file_name(0)}", f"{BUCKET}/b/{partition.name}/{file_name(0)}")


def test_a_missing_segment_in_an_object_store_is_reported(
    spark: SparkSession, tmp_path: Path, store: dict[str, object]
) -> None:
    """Files of an object store are read side by side: whether they fit together shows only where each one ends."""
    for base in (0, 4):
        write_log(tmp_path / "gap", [1], base=base)
    files = fsspec.filesystem("s3", **store)
    files.put(f"{tmp_path}/gap", f"{BUCKET}/gap", recursive=True)
    reader = spark.read.format("kraft").option("storageOptions", json.dumps(store))
    with pytest.raises(Exception, match="the segment begins at offset 4 where 2 comes next"):
        reader.load(f"s3://{BUCKET}/gap").count()
    found = reader.option("mode", "PERMISSIVE").load(f"s3://{BUCKET}/gap")
    assert found.where("damage is not null").count() == 1
    assert found.where("damage is null").count() == 4
