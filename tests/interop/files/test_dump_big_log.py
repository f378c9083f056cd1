"""The largest log in the repository as Kafka's dump tool and ours read it now, record by record, every field."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.interop.dumps import read_by_kafka, read_by_us
from support.interop.real_kafka import KafkaInstallation
from support.real_data import unpack

pytestmark = pytest.mark.kafka


def compare(kafka: KafkaInstallation, segments: list[Path]) -> int:
    """How many records both tools read, all of them the same; one file after the other, to need little memory."""
    count = 0
    for segment in segments:
        ours, theirs = read_by_us(segment)[segment], read_by_kafka(kafka, segment)[segment]
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert one == other
        count += len(ours)
    return count


def test_the_last_segment(kafka: KafkaInstallation, tmp_path: Path) -> None:
    last = max(unpack("big", "", tmp_path).glob("*.log"))
    assert compare(kafka, [last]) == 4_341


@pytest.mark.soak
def test_the_whole_log(kafka: KafkaInstallation, tmp_path: Path) -> None:
    assert compare(kafka, sorted(unpack("big", "", tmp_path).glob("*.log"))) == 653_294
