"""`kraft dump` prints the records of a topic byte for byte as Kafka's dump tool prints them, control characters too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record
from support.interop.real_kafka import DUMP_TOOL, KafkaInstallation

pytestmark = pytest.mark.kafka
VALUES = (
    b"plain",
    bytes(range(32)),
    b"\x7f\x1b[31m red\n| offset: 7 forged",
    "ünï \u202e \U0001f600".encode(),
    b"\xc2\x85\xe2\x80\xa8",
    b"\xff\xfe\xc3\x28\xf0\x9f",
    b"\xed\xa0\x80",
    b"",
    None,
)


def test_keys_and_values_equal_those_of_kafkas_tool(kafka: KafkaInstallation, tmp_path: Path) -> None:
    directory = tmp_path / "raw-0"
    directory.mkdir()
    segment = directory / "00000000000000000000.log"
    records = [Record(offset, 1_795_390_000_000 + offset, 0, value, value) for offset, value in enumerate(VALUES)]
    segment.write_bytes(write_batch(records, epoch=0))
    options = (*kafka.quick_start, "-Dstdout.encoding=UTF-8", "-Dfile.encoding=UTF-8")
    tool = kafka.command(DUMP_TOOL, "--print-data-log", "--files", str(segment), options=options)
    theirs = subprocess.run(tool, capture_output=True, check=True, timeout=120).stdout
    ours = subprocess.run(
        [sys.executable, "-m", "kraft", "dump", "--records", str(segment)], capture_output=True, check=True, timeout=120
    ).stdout
    assert ours == theirs
