"""Histories of the real clusters as rows with names, and logs made of records for those that never happened."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import Any

from metadata_log import history
from metadata_log.disk import Disk
from metadata_log.history import VIEWS
from metadata_log.memory_disk import MemoryDisk
from metadata_log.reading.timeline import At, read_timeline
from metadata_log.records.batch_builder import build_batch, build_control_batch
from metadata_log.records.frame import encode_control, encode_record
from metadata_log.serde import Message
from metadata_log.serde.fields import schema_of
from support.real_data import archive

Row = dict[str, Any]
STATES = {
    "partition_history": "partitions_state",
    "topic_history": "topics_state",
    "broker_history": "brokers_state",
    "config_history": "configs_state",
    "acl_history": "acls_state",
    "feature_history": "features_state",
    "quota_history": "quotas_state",
    "scram_history": "scram_state",
    "token_history": "tokens_state",
    "producer_ids_history": "producer_ids_state",
    "controller_history": "controllers_state",
    "voter_history": "voters_state",
}
"""The histories with rows that form a state at each offset."""
CLUSTERS = {
    "failover": ("clusters", "/failover/nodes/b101"),
    "static3": ("static3", "/nodes/c1"),
    "dynamic3": ("clusters", "/dynamic3/nodes/b101"),
    "old39": ("clusters", "/old39/nodes/b101"),
}
"""Nodes of the real clusters that have kept the log from its first record on."""


@cache
def real_disk(name: str) -> MemoryDisk:
    """The files of the metadata logs in an archive."""
    disk = MemoryDisk()
    for path, content in archive(name).items():
        if "__cluster_metadata-0/" in path:
            directory = f"/{path}".rpartition("/")[0]
            for depth in range(2, directory.count("/") + 2):
                parent = "/".join(directory.split("/")[:depth])
                if not disk.exists(parent):
                    disk.mkdir(parent)
            write(disk, f"/{path}", content)
    return disk


def write(disk: MemoryDisk, path: str, content: bytes) -> None:
    """Make a file."""
    file = disk.open(path, create=True)
    file.append(content)
    file.close()


def named(rows: Iterable[tuple[str, Sequence[Any]]]) -> dict[str, list[Row]]:
    """Rows by their views, with the names of their columns."""
    found: dict[str, list[Row]] = {}
    for view, row in rows:
        found.setdefault(view, []).append(dict(zip(VIEWS[view].names, row, strict=True)))
    return found


def tell(
    disk: Disk,
    path: str,
    views: Collection[str],
    at: At | None = None,
    options: history.Options | None = None,
) -> dict[str, list[Row]]:
    """The rows of a directory, with every requested view."""
    chosen = options or history.Options()
    items = read_timeline(disk, path, until=at, on_damage=chosen.on_damage)
    found = named(history.rows(items, views, cluster="c", at=at, options=chosen))
    return {view: found.get(view, []) for view in views}


@cache
def real_story(cluster: str) -> dict[str, list[Row]]:
    """All views of a real cluster over its whole life."""
    name, path = CLUSTERS[cluster]
    return tell(real_disk(name), path, tuple(VIEWS), options=history.Options(show_secrets=True))


@cache
def operations(cluster: str) -> list[Row]:
    """The operations on a real cluster, in order."""
    found: list[Row] = json.loads(archive("history")[f"{cluster}/operations.json"])["operations"]
    return found


def newest(record: Message) -> int:
    """The version in which a record is written here."""
    return schema_of(type(record)).versions.highest


class Log:
    """A log in the making, batch by batch; time goes on by a second with each, unless it is given."""

    def __init__(self) -> None:
        self.content = b""
        self.offset = 0
        self.epoch = 1
        self.now_ms = 1_000_000

    def batch(self, *records: Message, after_ms: int = 1_000) -> int:
        """Append one batch; the offset of its first record."""
        return self.values(*(encode_record(record, newest(record)) for record in records), after_ms=after_ms)

    def values(self, *values: bytes, after_ms: int = 1_000) -> int:
        """Append one batch of encoded records."""
        self.now_ms += after_ms
        self.content += build_batch(self.offset, self.epoch, self.now_ms, values)
        self.offset += len(values)
        return self.offset - len(values)

    def control(self, *records: Message, after_ms: int = 1_000) -> int:
        """Append one batch of control records."""
        self.now_ms += after_ms
        encoded = [(type_, value) for type_, _, value in map(encode_control, records)]
        self.content += build_control_batch(self.offset, self.epoch, self.now_ms, encoded)
        self.offset += len(records)
        return self.offset - len(records)

    @property
    def disk(self) -> MemoryDisk:
        """The log as one segment."""
        disk = MemoryDisk()
        disk.mkdir("/log")
        write(disk, "/log/00000000000000000000.log", self.content)
        return disk

    def tell(self, *views: str, options: history.Options | None = None) -> dict[str, list[Row]]:
        """The rows of this log."""
        return tell(self.disk, "/log", views, options=options)


def valid_at(rows: Iterable[Row], offset: int) -> list[Row]:
    """The rows that hold at an offset."""
    return [
        row
        for row in rows
        if row["valid_from_offset"] <= offset and (row["valid_to_offset"] is None or offset < row["valid_to_offset"])
    ]
