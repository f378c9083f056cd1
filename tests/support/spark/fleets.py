"""Small fleets of metadata logs to be read: written here batch by batch, or unpacked from what Apache Kafka wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.dataset as ds

from metadata_log.log.segment import file_name
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import (
    ConfigRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from metadata_log.serde import Message
from metadata_log.types import Uuid

PARTITION = "__cluster_metadata-0"
NO_OP = encode_record(NoOpRecord(), 0)


def topic(number: int) -> bytes:
    """A record that creates a topic named after its number."""
    return encode_record(TopicRecord(name=f"t{number}", topic_id=Uuid((number + 2).to_bytes(16, "big"))), 0)


def log_bytes(epochs: Sequence[int], *, base: int = 0, per_batch: int = 2, marks: int = 0) -> bytes:
    """Batches of topics, one for each epoch given; `marks` makes their content differ."""
    found = b""
    for index, epoch in enumerate(epochs):
        first = base + index * per_batch
        values = [topic(marks + first + at) for at in range(per_batch)]
        found += build_batch(first, epoch, 1_000 * (first + 1), values)
    return found


def write_log(
    directory: Path, epochs: Sequence[int], *, cluster: str | None = None, base: int = 0, per_batch: int = 2
) -> Path:
    """A log directory with one segment; its partition directory is returned."""
    partition = directory / PARTITION
    partition.mkdir(parents=True, exist_ok=True)
    (partition / file_name(base)).write_bytes(log_bytes(epochs, base=base, per_batch=per_batch))
    if cluster is not None:
        write_meta(directory, cluster)
    return partition


def write_meta(directory: Path, cluster: str) -> None:
    """The meta.properties of a node of a cluster."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "meta.properties").write_text(f"#\nnode.id=1\nversion=1\ncluster.id={cluster}\n")


def random_log(rng: Random, batches: int) -> bytes:
    """A log of topics and configurations that come, change and go, as a controller might write it."""
    topics: dict[Uuid, list[list[int]]] = {}
    found, offset = b"", 0
    for number in range(batches):
        values = [encode_record(one, version) for one, version in _random_records(rng, topics)]
        if values:
            found += build_batch(offset, 1 + number // 10, 1_000 * (number + 1), values)
            offset += len(values)
    return found


def write_random_fleet(root: Path, clusters: int, seed: int, batches: int) -> None:
    """The log directories `c0`, `c1`, ... of the clusters `cluster-0`, `cluster-1`, ..., each with a log of its own."""
    for number in range(clusters):
        partition = root / f"c{number}" / PARTITION
        partition.mkdir(parents=True)
        write_meta(partition.parent, f"cluster-{number}")
        (partition / file_name(0)).write_bytes(random_log(Random(f"{seed} {number}"), batches))


def _random_records(rng: Random, topics: dict[Uuid, list[list[int]]]) -> list[tuple[Message, int]]:
    kind = rng.random()
    if kind < 0.2 or not topics:
        topic_id = Uuid(rng.getrandbits(128).to_bytes(16, "big"))
        topics[topic_id] = [rng.sample(range(1, 6), 3) for _ in range(rng.randint(1, 3))]
        made: list[tuple[Message, int]] = [(TopicRecord(name=f"t{topic_id}", topic_id=topic_id), 0)]
        return made + [
            (
                PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=tuple(replicas),
                    isr=tuple(replicas[:2]),
                    leader=replicas[0],
                    leader_epoch=0,
                    partition_epoch=0,
                ),
                0,
            )
            for index, replicas in enumerate(topics[topic_id])
        ]
    topic_id = rng.choice(sorted(topics))
    if kind < 0.28:
        del topics[topic_id]
        return [(RemoveTopicRecord(topic_id=topic_id), 0)]
    if kind < 0.45:
        kind_of, name = rng.choice([(2, f"t{topic_id}"), (4, ""), (4, "1")])
        value = rng.choice([None, "1", "2", "3"])
        return [(ConfigRecord(resource_type=kind_of, resource_name=name, name="retention.ms", value=value), 0)]
    return [_random_change(rng, topic_id, topics[topic_id], rng.randrange(len(topics[topic_id]))) for _ in range(3)]


def _random_change(rng: Random, topic_id: Uuid, partitions: list[list[int]], index: int) -> tuple[Message, int]:
    replicas = partitions[index]
    if rng.random() < 0.2:
        replicas = partitions[index] = rng.sample(range(1, 6), 3)
        moved = PartitionChangeRecord(
            partition_id=index, topic_id=topic_id, replicas=tuple(replicas), isr=tuple(replicas), leader=replicas[0]
        )
        return moved, 0
    isr = tuple(rng.sample(replicas, rng.randint(1, 3))) if rng.random() < 0.6 else None
    leader = rng.choice([-2, -2, -1, *replicas])
    return PartitionChangeRecord(partition_id=index, topic_id=topic_id, isr=isr, leader=leader), 0


def table_rows(path: Path, view: str) -> Counter[str]:
    """The rows of a materialised table of Parquet without lineage, as any reader with partitions of Hive has them."""
    # A table can have open rows alone, from which no date can be inferred.
    parts = ds.partitioning(pa.schema([("cluster", pa.string()), ("date", pa.date32())]), flavor="hive")
    table = ds.dataset(path / view, format="parquet", partitioning=parts).to_table()
    names = sorted(name for name in table.schema.names if not name.startswith("lineage_") and name != "date")
    return Counter(str(row) for row in table.select(names).to_pylist())
