"""The output of two programs for the same file: the dump tool of Apache Kafka, and ours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct

from metadata_log.disk import OsDisk
from metadata_log.reading.entries import Entry, read_entries
from metadata_log.reading.reader import read_file
from metadata_log.records.batch import RecordBatch
from support.interop.our_nodes import kraft
from support.interop.real_kafka import DUMP_TOOL, KafkaInstallation, QuorumLayout, eventually

CONTROL_NAMES = {
    "LeaderChange": "LeaderChangeMessage",
    "SnapshotHeader": "SnapshotHeaderRecord",
    "SnapshotFooter": "SnapshotFooterRecord",
    "KRaftVersion": "KRaftVersionRecord",
    "KRaftVoters": "VotersRecord",
}
BATCH = re.compile(r"baseOffset: .* partitionLeaderEpoch: (?P<epoch>-?\d+) .* isvalid: (?P<valid>\w+)$")
RECORD = re.compile(
    r"\| offset: (?P<offset>\d+) CreateTime: (?P<time>-?\d+) .*?headerKeys: \[\] (?P<name>\w+):? (?P<json>\{.*\})$"
)
OTHER = re.compile(
    r"Dumping |Log starting offset: |Snapshot end offset: |offset: \d+ position: \d+$|timestamp: -?\d+ offset: \d+$|$"
    r"|\S+\.index is empty\.$"
)
"""What it prints besides batches and records; of a short log of Kafka's own it, too, says that the index is empty."""

FIRST_OFFSET = re.compile(r"Non-consecutive offsets in \S+/0*(\d+)\.log\n\s+-1 is followed by \1\n")
"""What it says of every segment, Kafka's own too, that does not begin at offset 0."""


class Record(Struct, frozen=True):
    """One record as a dump shows it."""

    offset: int
    timestamp: int
    epoch: int
    name: str
    version: int | None
    """Control records do not show it."""
    content: Any


def read_by_kafka(kafka: KafkaInstallation, *files: Path) -> dict[Path, list[Record]]:
    """The records that Kafka's dump tool reads in each file; fails on any word of complaint."""
    done = kafka.run(DUMP_TOOL, "--cluster-metadata-decoder", "--files", ",".join(map(str, files)))
    complaints = FIRST_OFFSET.sub("", done.stderr)
    assert (done.returncode, complaints) == (0, ""), complaints + done.stdout[-2000:]
    found: dict[Path, list[Record]] = {}
    epoch = -1
    for line in done.stdout.splitlines():
        if line.startswith("Dumping "):
            records = found.setdefault(Path(line.removeprefix("Dumping ")), [])
        elif batch := BATCH.match(line):
            assert batch["valid"] == "true", line
            epoch = int(batch["epoch"])
        elif record := RECORD.match(line):
            records.append(_kafkas(record, epoch))
        else:
            assert OTHER.match(line), f"the dump tool complains: {line}"
    return found


def _kafkas(found: re.Match[str], epoch: int) -> Record:
    content = json.loads(found["json"])
    offset, timestamp = int(found["offset"]), int(found["time"])
    if found["name"] != "payload":
        return Record(offset, timestamp, epoch, CONTROL_NAMES[found["name"]], None, content)
    name = "".join(word.capitalize() for word in content["type"].split("_"))
    return Record(offset, timestamp, epoch, name, content["version"], content["data"])


def read_by_us(*files: Path) -> dict[Path, list[Record]]:
    """The records that `kraft dump --records --json` reads in each file; fails if it finds damage."""
    done = kraft("dump", "--records", "--json", "--noop", "--show-secrets", *map(str, files))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    found: dict[Path, list[Record]] = {file: [] for file in files}
    for facts in map(json.loads, done.stdout.splitlines()):
        version = None if facts["is_control"] else facts["version"]
        record = Record(facts["offset"], facts["timestamp"], facts["epoch"], facts["name"], version, facts["json"])
        found[Path(facts["file"])].append(record)
    return found


def logs_of(directories: Iterable[Path]) -> list[Path]:
    """The segments of several nodes' metadata logs."""
    return [file for directory in directories for file in sorted(directory.glob("*.log"))]


def records_named(name: str, partition: Path) -> list[Entry]:
    """The records of one type in a node's log, read in this process, while the node may be writing it."""
    disk = OsDisk()
    return [
        entry
        for file in logs_of([partition])
        for batch in read_file(disk, str(file))
        if isinstance(batch, RecordBatch)
        for entry in read_entries(batch, str(file))
        if isinstance(entry, Entry) and entry.name == name
    ]


def wait_for_registrations(layout: QuorumLayout) -> None:
    """Wait until each node's log has the registrations of all controllers, which they ask for when they start."""
    for node in layout.ports:
        eventually(
            lambda node=node: (
                len(records_named("RegisterControllerRecord", layout.partition(node))) >= len(layout.ports)
            ),
            f"node {node} knows all registrations",
        )
