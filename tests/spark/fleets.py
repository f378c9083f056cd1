"""Small fleets of metadata logs to be read: written here batch by batch, or unpacked from what Apache Kafka wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from metadata_log.batch import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import NoOpRecord, TopicRecord
from metadata_log.segment import file_name
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
