"""Directories of partitions that brokers of Apache Kafka wrote, on disks in memory."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from kraft.partitions.log.options import LogOptions
from metadata_log.disk import Disk
from metadata_log.log.partition_names import PartitionName, parse_partition_name
from metadata_log.memory_disk import MemoryDisk
from support.real_data import archive

NOW_MS = 1_795_390_000_000
"""A time shortly after the brokers stopped: no producer has expired."""
NODES = ("b101", "b102", "b103", "b103-second")
LIVE = "nodes"
KILLED = (
    "unclean/b101-killed-with-tail",
    "unclean/b102-killed",
    "unclean/b103-moving/b103",
    "unclean/b103-moving/b103-second",
)


@cache
def partition_directories(log_directory: str) -> tuple[str, ...]:
    """The names of the partition directories of a log directory in the archive."""
    found = set[str]()
    for path in archive("partitions"):
        if path.startswith(f"{log_directory}/"):
            first, slash, _ = path[len(log_directory) + 1 :].partition("/")
            if slash and parse_partition_name(first) is not None:
                found.add(first)
    return tuple(sorted(found))


def files_below(path: str) -> dict[str, bytes]:
    """The files directly in a directory of the archive, by name."""
    return {
        name[len(path) + 1 :]: content
        for name, content in archive("partitions").items()
        if name.startswith(f"{path}/") and "/" not in name[len(path) + 1 :]
    }


def put(disk: Disk, directory: str, files: dict[str, bytes]) -> None:
    """Write files into a directory, durably."""
    disk.mkdir(directory)
    for name, content in files.items():
        file = disk.open(f"{directory}/{name}", create=True)
        file.append(content)
        file.fsync()
        file.close()
    disk.fsync_dir(directory)


def disk_with(log_directory: str, name: str) -> MemoryDisk:
    """A disk with the checkpoint files of a log directory, and one partition directory, under `d`."""
    disk = MemoryDisk()
    put(disk, "d", files_below(log_directory))
    put(disk, f"d/{name}", files_below(f"{log_directory}/{name}"))
    return disk


@cache
def expected(path: str) -> Any:
    """A JSON file of the archive."""
    return json.loads(archive("partitions")[path])


def options_of(topic: str) -> LogOptions:
    """The settings of a topic, as the brokers had them."""
    configs = expected("final/state.json")["configs"].get(f"TOPIC:{topic}", {})
    return LogOptions(
        index_interval_bytes=int(configs.get("index.interval.bytes", 4096)),
        index_bytes=int(configs.get("segment.index.bytes", 10 << 20)),
        segment_bytes=int(configs.get("internal.segment.bytes", 1 << 30)),
    )


def topic_of(directory: str) -> PartitionName:
    """The partition of a directory name."""
    name = parse_partition_name(directory)
    assert name is not None, directory
    return name
