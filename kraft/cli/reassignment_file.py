"""Reads and writes the JSON file with the target brokers of partitions (Kafka: `ReassignPartitionsCommand`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from kraft.config import UsageError

Partition = TypeVar("Partition", bound=tuple[str, int])
_HINT: Final = 'It looks like {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}.'
_ANY: Final = "any"


class _PartitionMove(msgspec.Struct):
    topic: str
    partition: int
    replicas: list[int]
    log_dirs: list[str] = []


class _ReassignmentFile(msgspec.Struct):
    partitions: list[_PartitionMove]
    version: int = 1


def read_targets(file: str) -> dict[tuple[str, int], list[int]]:
    """The target replicas of each partition.

    Raises `UsageError` for a file in another format, and for one that names log directories.
    """
    try:
        content = msgspec.json.decode(Path(file).read_bytes(), type=_ReassignmentFile)
    except msgspec.DecodeError as bad:
        raise UsageError(f"this is no file of kafka-reassign-partitions: {bad}", where=file, hint=_HINT) from bad
    targets: dict[tuple[str, int], list[int]] = {}
    for each in content.partitions:
        if (each.topic, each.partition) in targets:
            raise UsageError(f"partition {each.topic}-{each.partition} is named twice", where=file)
        if any(directory != _ANY for directory in each.log_dirs):
            raise UsageError(
                f"partition {each.topic}-{each.partition} names a log directory",
                where=file,
                hint="Brokers move replicas between their directories, not controllers: use kafka-reassign-partitions.",
            )
        targets[each.topic, each.partition] = each.replicas
    return targets


def file_content(targets: Mapping[Partition, Sequence[int]]) -> str:
    """The content of such a file, one partition a line."""
    lines = [
        json.dumps({"topic": topic, "partition": number, "replicas": list(replicas)}, ensure_ascii=False)
        for (topic, number), replicas in sorted(targets.items())
    ]
    inside = ",\n  ".join(lines)
    return f'{{"version": 1, "partitions": [\n  {inside}\n]}}' if lines else '{"version": 1, "partitions": []}'
