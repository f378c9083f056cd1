"""Rounds of cleaning of logs from a seed, for our cleaner and for Kafka's."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from random import Random

from msgspec import Struct

from kraft.partitions.log.cleaning.choice import CleanerSettings, cleanable
from kraft.partitions.log.cleaning.cleaner import cleaning
from kraft.partitions.log.partition_log import PartitionLog
from metadata_log.memory_disk import MemoryDisk
from metadata_log.serde.codec import finished
from support import DATA
from support.broker.broker_logs import put
from support.broker.dirty_logs import HOUR_MS, OPTIONS, Producers

RECORDED = DATA / "cleaned_logs.json.gz"
SEEDS = range(25)
_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
Outcome = tuple[int, int, int, dict[str, str]]
"""The first dirty offset, the first that may not be cleaned, the end of the cleaning or -1, and hashes of the files."""


class Round(Struct):
    """One cleaning: the files before and after it."""

    before: dict[str, bytes]
    checkpoint: int
    now_ms: int
    buffer_bytes: int
    outcome: Outcome
    after: dict[str, bytes]


def files_in(disk: MemoryDisk, directory: str) -> dict[str, bytes]:
    """The files of a directory by name."""
    return {name: disk.peek(f"{directory}/{name}") for name in disk.list(directory)}


def hashes(files: Mapping[str, bytes]) -> dict[str, str]:
    """The hashes of the files of segments."""
    return {name: sha256(data).hexdigest()[:16] for name, data in sorted(files.items()) if name.endswith(_SUFFIXES)}


def rounds_of(seed: int) -> Iterator[Round]:
    """Three cleanings of a log that grows between them."""
    rng = Random(seed)
    buffer_bytes = rng.choice((1 << 20, 1 << 20, 24 * 8))
    files: dict[str, bytes] = {}
    checkpoint = -1
    state: Producers | None = None
    for batches, later_ms in ((60, 0), (30, HOUR_MS // 2), (20, 2 * HOUR_MS)):
        disk = MemoryDisk()
        put(disk, "p-0", files)
        log = opened(disk, 0 if state is None else state.time_ms)
        if state is None:
            state = Producers(log, rng)
        state.log = log
        state.time_ms += later_ms
        state.write(batches)
        log.close()
        before = files_in(disk, "p-0")
        now_ms = state.time_ms + 1000
        log = opened(disk, now_ms)
        log.cleaned_offset = None if checkpoint < 0 else checkpoint
        found = cleanable(log, now_ms=now_ms)
        if found.dirty_bytes:
            settings = CleanerSettings(buffer_bytes=buffer_bytes)
            done = finished(cleaning(log, disk, found, settings, now_ms=now_ms))
            assert done is not None
            end_offset = done.end_offset
        else:
            end_offset = -1
        log.close()
        for path in log.doomed:
            disk.remove(path)
        files = files_in(disk, "p-0")
        outcome = (found.first_dirty_offset, found.end_offset, end_offset, hashes(files))
        yield Round(before, checkpoint, now_ms, buffer_bytes, outcome, files)
        checkpoint = end_offset if end_offset >= 0 else checkpoint


def opened(disk: MemoryDisk, now_ms: int) -> PartitionLog:
    """The log after a clean stop, committed to its end."""
    log = PartitionLog.open(disk, "p-0", OPTIONS, now_ms=now_ms, is_clean=True)
    log.raise_high_watermark(log.end_offset)
    return log


def recorded() -> dict[str, list[Outcome]]:
    """The outcomes of Kafka's cleaner for the rounds of each seed."""
    with gzip.open(RECORDED) as file:
        found: dict[str, list[Outcome]] = json.load(file)
    return found
