"""Runs Kafka's own cleaner.

`PYTHONPATH=tests python -m support.interop.kafkas_cleaner` records what the cleaner makes of the logs of each seed.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path

from support import TESTS
from support.broker.cleaned_logs import RECORDED, SEEDS, Outcome, Round, hashes, rounds_of
from support.broker.dirty_logs import TOPIC_CONFIGS
from support.interop.kafka_or_skip import found_or_skipped, oracle
from support.interop.real_kafka import KafkaInstallation

SOURCE = TESTS / "interop" / "CleanerOracle.java"


def cleaned_by_kafka(kafka: KafkaInstallation, rounds: Iterable[Round], scratch: Path) -> list[Outcome]:
    """The outcome of Kafka's cleaner on the files before each round."""
    lines = list[str]()
    places = list[Path]()
    for number, one in enumerate(rounds):
        place = scratch / str(number) / "p-0"
        place.mkdir(parents=True)
        for name, data in one.before.items():
            (place / name).write_bytes(data)
        places.append(place)
        words = (str(place), str(one.now_ms), str(one.checkpoint), str(one.buffer_bytes), *TOPIC_CONFIGS)
        lines.append("\t".join(words))
    outcomes = list[Outcome]()
    for line, place in zip(oracle(kafka, SOURCE, lines).splitlines(), places, strict=True):
        first_dirty, uncleanable, end_offset, _ = (int(word) for word in line.split())
        files = {path.name: path.read_bytes() for path in place.iterdir()}
        outcomes.append((first_dirty, uncleanable, end_offset, hashes(files)))
    return outcomes


def record() -> None:
    """Write what Kafka's cleaner makes of every seed."""
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for seed in SEEDS:
            found[str(seed)] = list(rounds_of(seed))
        rounds = [one for rounds in found.values() for one in rounds]
        outcomes = iter(cleaned_by_kafka(found_or_skipped(), rounds, Path(scratch)))
        made = {seed: [next(outcomes) for _ in rounds] for seed, rounds in found.items()}
    with gzip.GzipFile(RECORDED, "wb", mtime=0) as file:
        file.write(json.dumps(made, separators=(",", ":")).encode())


if __name__ == "__main__":
    record()
