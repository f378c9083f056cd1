"""`kraft dump` prints of every real file what Kafka's own dump tool printed of it (`tests/data/dumps.tar.xz`)."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec import Struct

from kraft.cli.files.dump import dump_command
from support.real_data import archive, unpack

CLUSTERS = {
    "static3": [("static3", "nodes"), ("brokers", "nodes")],
    "dynamic3": [("clusters", "dynamic3/nodes")],
    "failover": [("clusters", "failover/nodes")],
    "old39": [("clusters", "old39/nodes")],
    "format": [("clusters", "format/nodes")],
    "static3 of 4.4": [("release44", "static3/nodes")],
    "dynamic3 of 4.4": [("release44", "dynamic3/nodes")],
}
RECORDS = {
    "static3": 44_634,
    "dynamic3": 7_202,
    "failover": 22_017,
    "old39": 3_515,
    "format": 163,
    "static3 of 4.4": 26_175,
    "dynamic3 of 4.4": 8_124,
}
CUT_SHORT = "a86d3abe80843a80"
"""The snapshot of which the recorded output ends after its title."""
CONTROL_NAMES = {
    "LeaderChange": "LeaderChangeMessage",
    "SnapshotHeader": "SnapshotHeaderRecord",
    "SnapshotFooter": "SnapshotFooterRecord",
    "KRaftVersion": "KRaftVersionRecord",
    "KRaftVoters": "VotersRecord",
}
BATCH = re.compile(
    r"baseOffset: (-?\d+) lastOffset: (-?\d+) count: (\d+) baseSequence: (-?\d+) lastSequence: -?\d+ "
    r"producerId: (-?\d+) producerEpoch: (-?\d+) partitionLeaderEpoch: (-?\d+) isTransactional: (\w+) "
    r"isControl: (\w+) deleteHorizonMs: OptionalLong.empty position: (\d+) CreateTime: (-?\d+) size: (\d+) "
    r"magic: (\d+) compresscodec: (\w+) crc: (\d+) isvalid: true"
)
BATCH_FIELDS = [
    "base_offset",
    "last_offset",
    "count",
    "base_sequence",
    "producer_id",
    "producer_epoch",
    "partition_leader_epoch",
    "is_transactional",
    "is_control",
    "position",
    "max_timestamp",
    "size_in_bytes",
    "magic",
    "compression",
    "crc",
]
RECORD = re.compile(
    r"\| offset: (\d+) CreateTime: (-?\d+) keySize: -?\d+ valueSize: \d+ sequence: -1 headerKeys: \[\] "
    r"(\w+):? (\{.*\})"
)
OTHER = re.compile(r"Dumping |Log starting offset: |Snapshot end offset: |KRaft bootstrap snapshot$|$")


class Shown(Struct, frozen=True):
    """The output of a tool for one file."""

    batches: list[dict[str, Any]]
    records: list[tuple[object, ...]]


def value_of(text: str) -> object:
    if text in {"true", "false"}:
        return text == "true"
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def by_kafka(text: str) -> Shown:
    shown = Shown([], [])
    for line in text.splitlines():
        if batch := BATCH.fullmatch(line):
            shown.batches.append(dict(zip(BATCH_FIELDS, map(value_of, batch.groups()), strict=True)))
        elif record := RECORD.fullmatch(line):
            place = (int(record[1]), int(record[2]), shown.batches[-1]["partition_leader_epoch"])
            body = json.loads(record[4])
            if record[3] == "payload":
                name = "".join(word.capitalize() for word in body["type"].split("_"))
                shown.records.append((*place, name, body["version"], body["data"]))
            else:
                shown.records.append((*place, CONTROL_NAMES[record[3]], body["version"], body))
        else:
            assert OTHER.match(line), line
    return shown


def by_us(directory: Path) -> dict[str, Shown]:
    """Our output for all files below a directory, in two runs."""
    shown: dict[str, Shown] = {}
    for facts in dumped(directory):
        if "base_offset" in facts:
            batch = {name: facts[name] for name in BATCH_FIELDS}
            shown.setdefault(facts["file"], Shown([], [])).batches.append(batch)
    for facts in dumped(directory, "--records", "--noop", "--show-secrets"):
        if "offset" in facts and "json" in facts:
            place = (facts["offset"], facts["timestamp"], facts["epoch"])
            shown[facts["file"]].records.append((*place, facts["name"], facts["version"], facts["json"]))
    return shown


def dumped(directory: Path, *options: str) -> list[dict[str, Any]]:
    nodes = map(str, sorted(directory.iterdir()))
    result = CliRunner().invoke(dump_command, ["--json", *options, *nodes])
    assert (result.exit_code, result.stderr) == (0, "")
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_kafkas_and_our_dump_agree_on_every_file(cluster: str, tmp_path: Path) -> None:
    """Segments and snapshots: batch by batch, then record by record with every field, none left over."""
    for name, prefix in CLUSTERS[cluster]:
        unpack(name, prefix, tmp_path)
    kafkas = archive("dumps") | {
        path.rpartition("/")[2].replace(".dump", ""): content
        for path, content in archive("release44").items()
        if path.endswith(".dump.txt")
    }
    count = 0
    shown = by_us(tmp_path)
    with_batches = [path for path in tmp_path.rglob("*") if path.suffix in {".log", ".checkpoint"}]
    assert {str(path) for path in with_batches if path.stat().st_size} <= set(shown)
    for path, ours in shown.items():
        digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]
        if digest == CUT_SHORT:
            continue
        if f"{digest}.txt" not in kafkas:
            assert path.endswith(".deleted"), "only what was about to go was not given to Kafka's tool"
            continue
        theirs = by_kafka(kafkas[f"{digest}.txt"].decode())
        assert ours.batches == theirs.batches, path
        assert ours.records == theirs.records, path
        count += len(ours.records)
    assert count == RECORDS[cluster]


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_encoding_every_file_again_gives_the_same_bytes(cluster: str, tmp_path: Path) -> None:
    """`--verify` encodes each record and each batch again, byte for byte, and finds nothing wrong between the files."""
    for name, prefix in CLUSTERS[cluster]:
        unpack(name, prefix, tmp_path)
    result = CliRunner().invoke(dump_command, ["--verify", *map(str, sorted(tmp_path.iterdir()))])
    assert (result.exit_code, result.stderr) == (0, "")
