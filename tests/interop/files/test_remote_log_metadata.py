"""Records of `__remote_log_metadata`: the stored vectors are Kafka's, and the dump shows the lines of Kafka's tool."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record
from remote_records import damaged, vectors
from support.interop.real_kafka import DUMP_TOOL, KafkaInstallation
from support.serde_golden import golden

pytestmark = pytest.mark.kafka


def test_the_vectors_are_kafkas(newer_kafka: KafkaInstallation) -> None:
    sound = list(golden("remote_records"))
    assert list(vectors(newer_kafka)) == sound
    assert list(damaged(newer_kafka, sound)) == list(golden("invalid_remote_records"))


def test_the_lines_are_those_of_kafkas_tool(newer_kafka: KafkaInstallation, tmp_path: Path) -> None:
    directory = tmp_path / "__remote_log_metadata-0"
    directory.mkdir()
    segment = directory / "00000000000000000000.log"
    values = [bytes.fromhex(line["frame"] + line["hex"]) for line in golden("remote_records")]
    records = [Record(offset, 1_795_390_000_000 + offset, 0, None, value) for offset, value in enumerate(values)]
    segment.write_bytes(write_batch(records, epoch=0))
    options = (*newer_kafka.quick_start, "-Dstdout.encoding=UTF-8", "-Dfile.encoding=UTF-8")
    asked = ("--remote-log-metadata-decoder", "--files", str(segment))
    theirs = subprocess.run(
        newer_kafka.command(DUMP_TOOL, *asked, options=options), capture_output=True, check=True, timeout=120
    ).stdout
    ours = [sys.executable, "-m", "kraft", "dump", "--records"]
    for command in ([*ours, str(segment)], [*ours, "--remote-log-metadata-decoder", str(segment)]):
        assert subprocess.run(command, capture_output=True, check=True, timeout=120).stdout == theirs
