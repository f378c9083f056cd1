"""Kafka's cleaner and ours make the same files of the same logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.broker.cleaned_logs import rounds_of
from support.interop.kafkas_cleaner import cleaned_by_kafka
from support.interop.real_kafka import KafkaInstallation

SEEDS = range(1000, 1030)


@pytest.mark.kafka
def test_kafkas_cleaner_writes_the_same_bytes(kafka: KafkaInstallation, tmp_path: Path) -> None:
    """Three cleanings of each log: batches, indexes, transaction indexes and snapshots, and the offsets."""
    rounds = [one for seed in SEEDS for one in rounds_of(seed)]
    for number, (mine, theirs) in enumerate(zip(rounds, cleaned_by_kafka(kafka, rounds, tmp_path), strict=True)):
        assert mine.outcome == theirs, f"seed {SEEDS[number // 3]}, round {number % 3}"
