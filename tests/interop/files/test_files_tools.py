"""Files that we write, read by Apache Kafka's own dump tool: every codec, and segments with their indexes checked."""

from __future__ import annotations

import re
from itertools import chain, product
from pathlib import Path

import pytest

from metadata_log.compression import Compression
from metadata_log.disk import OsDisk
from metadata_log.log.indexes import parse_offset_index, parse_time_index
from metadata_log.log.log import MetadataLog
from metadata_log.log.snapshot import list_snapshots, read_snapshot_start, snapshot_name
from metadata_log.log.snapshot_writer import SnapshotWriter
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import rebuild_batch, write_batch
from metadata_log.records.record import Header, Record, records
from support.interop.dumps import read_by_kafka, read_by_us
from support.interop.real_kafka import DUMP_TOOL, KafkaInstallation
from support.real_data import real_files, unpack

pytestmark = pytest.mark.kafka

SMALL_SEGMENTS = 40_000
DENSE_INDEX = 1000


def test_every_codec_and_attribute(kafka: KafkaInstallation, tmp_path: Path) -> None:
    """Kafka's reader unpacks what we packed: batches of several blocks, and all attributes as they were meant."""
    log = tmp_path / "00000000000000000000.log"
    wanted = []
    kinds = []
    data = b""
    offset = 0
    for codec, append_time, transactional in product(Compression, (None, 1_700_000_000_000), (False, True)):
        values = [b"small", b"", b"text " * 30_000, bytes(range(97, 123)) * 1000]
        batch = [
            Record(offset + at, 1_600_000_000_000 + at, 0, b"key", value, (Header("h", b"v"),))
            for at, value in enumerate(values)
        ]
        data += write_batch(
            batch,
            epoch=3,
            compression=codec,
            append_time_ms=append_time,
            transactional=transactional,
            producer_id=77,
            producer_epoch=2,
            base_sequence=5,
        )
        time = "LogAppendTime: 1700000000000" if append_time else "CreateTime: 16000000000{:02}"
        wanted += [
            (offset + at, time.format(at), 5 + at, "h", "key", value.decode()) for at, value in enumerate(values)
        ]
        kinds.append((codec.name.lower(), str(transactional).lower()))
        offset += len(values)
    log.write_bytes(data)
    done = kafka.run(DUMP_TOOL, "--deep-iteration", "--print-data-log", "--files", str(log))
    assert (done.returncode, done.stderr) == (0, "")
    batches = re.findall(
        r"producerId: 77 producerEpoch: 2 .*isTransactional: (\w+) isControl: false .*"
        r"magic: 2 compresscodec: (\w+) crc: \d+ isvalid: true",
        done.stdout,
    )
    assert [(codec, transactional) for transactional, codec in batches] == kinds
    found = re.findall(
        r"\| offset: (\d+) (\w+: \d+) .*sequence: (\d+) headerKeys: \[(\w+)\] key: (\w+) payload: (.*)", done.stdout
    )
    assert [(int(at), time, int(sequence), *rest) for at, time, sequence, *rest in found] == wanted


def test_segments_and_indexes(kafka: KafkaInstallation, tmp_path: Path) -> None:
    """The log of a real node, written by us in small segments: Kafka finds indexes sound and the records unchanged."""
    real = unpack("static3", "nodes/c1/__cluster_metadata-0", tmp_path / "real")
    mine = tmp_path / "__cluster_metadata-0"
    log = MetadataLog.open(OsDisk(), str(mine), segment_bytes=SMALL_SEGMENTS, index_interval_bytes=DENSE_INDEX)
    for path in sorted(real.glob("*.log")):
        for batch in scan(path.read_bytes()):
            log.append(rebuild_batch(batch, records(batch)))
    log.close()
    segments = sorted(mine.glob("*.log"))
    assert len(segments) == 9
    indexes = sorted(mine.glob("*index"))
    assert len(indexes) == 2 * len(segments)
    for index in indexes:
        parse = parse_offset_index if index.suffix == ".index" else parse_time_index
        assert len(parse(index.read_bytes(), int(index.stem))) > (1 if index.stem != segments[-1].stem else 0)
    for check in ("--index-sanity-check", "--verify-index-only"):
        done = kafka.run(DUMP_TOOL, check, "--files", ",".join(map(str, indexes)))
        assert (done.returncode, done.stderr) == (0, "")
        complaint = re.search(r"(?i)mismatch|found timestamp|out of order|unindexed|error|corrupt", done.stdout)
        assert complaint is None, done.stdout
        if check == "--index-sanity-check":
            assert done.stdout.count("passed sanity check.") == len(indexes), done.stdout
    found = read_by_kafka(kafka, *segments, *indexes)
    assert read_by_us(*segments) == {path: found[path] for path in segments}
    theirs = read_by_kafka(kafka, *sorted(real.glob("*.log")))
    assert list(chain(*(found[path] for path in segments))) == list(chain(*theirs.values()))


def test_kafkas_dump_tool_reports_a_damaged_index(kafka: KafkaInstallation, tmp_path: Path) -> None:
    """The checks of the test above can fail: an entry that points elsewhere is a mismatch."""
    mine = tmp_path / "__cluster_metadata-0"
    log = MetadataLog.open(OsDisk(), str(mine), index_interval_bytes=DENSE_INDEX)
    name, content = next((path, content) for path, content, _ in real_files() if path.endswith("c1/" + FIRST))
    assert name
    log.append(content)
    log.close()
    index = mine / FIRST.rpartition("/")[2].replace(".log", ".index")
    entries = bytearray(index.read_bytes())
    assert len(entries) >= 16
    entries[15] ^= 1
    index.write_bytes(entries)
    done = kafka.run(DUMP_TOOL, "--verify-index-only", "--files", str(index))
    assert re.search(r"(?i)mismatch|exception|error", done.stdout + done.stderr), done.stdout


def test_snapshots(kafka: KafkaInstallation, tmp_path: Path) -> None:
    """Snapshots that our writer made from real records are read by Kafka's tool with nothing to complain of."""
    real = unpack("static3", "nodes/c1/__cluster_metadata-0", tmp_path / "real")
    mine = tmp_path / "__cluster_metadata-0"
    mine.mkdir()
    disk = OsDisk()
    ids = list_snapshots(disk, str(real))
    assert ids
    for snapshot in ids:
        path = real / snapshot_name(snapshot)
        start = read_snapshot_start(disk, str(path)).header.last_contained_log_timestamp
        writer = SnapshotWriter(
            disk, str(mine), snapshot, timestamp_ms=1, last_contained_log_timestamp=start, max_batch_bytes=20_000
        )
        for batch in scan(path.read_bytes()):
            if not batch.is_control:
                for record in records(batch):
                    writer.append([record.value or b""], 2)
        writer.freeze(3)
    found = read_by_kafka(kafka, *(mine / snapshot_name(snapshot) for snapshot in ids))
    theirs = read_by_kafka(kafka, *(real / snapshot_name(snapshot) for snapshot in ids))
    contents = [[[(r.offset, r.name, r.content) for r in each] for each in read.values()] for read in (found, theirs)]
    assert contents[0] == contents[1]


FIRST = "__cluster_metadata-0/00000000000000000000.log"
