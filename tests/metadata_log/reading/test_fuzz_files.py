"""Fuzzing of everything that reads files: real files, changed at random, give results or named errors, never more.

A case is made from (seed, number) alone, so that a failure names all that is needed to see it again:
`FUZZ_SEED=s FUZZ_CASE=n pytest tests/metadata_log/reading/test_fuzz_files.py`.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from random import Random, SystemRandom

import pytest

from metadata_log.errors import MetadataLogError
from metadata_log.log.log import MetadataLog
from metadata_log.log.snapshot import read_snapshot, read_snapshot_start
from metadata_log.memory_disk import MemoryDisk
from metadata_log.reading.annotate import annotate
from metadata_log.reading.annotate_file import annotate_file
from metadata_log.reading.damage import Damage, DamagedFile, OnDamage
from metadata_log.reading.entries import Entry, read_entries
from metadata_log.reading.file_kinds import FileKind, kind_of
from metadata_log.reading.reader import read_file
from metadata_log.reading.small_files import read_index, read_small_file
from metadata_log.reading.verify import verify_file
from metadata_log.reading.verify_directory import verify_directory
from metadata_log.records.batch import RecordBatch
from metadata_log.records.batch_builder import rebuild_batch
from metadata_log.records.record import records
from metadata_log.serde.json_text import json_text
from support.metadata_log.tampering import resealed, tampered
from support.real_data import archive, json_lines

SLICE_SECONDS = 5.0
SOAK_SECONDS = 600.0
SOAK_PARTS = 4
CASE_SECONDS = 20.0
"""Far above what any case takes: more is a hang."""
LARGEST = 30_000
"""Of larger files a piece is taken."""

SOURCES = [
    (path.rpartition("/")[2], content)
    for name in ("static3", "clusters", "damaged")
    for path, content in sorted(archive(name).items())
    if "/nodes/" in f"/{path}" or path.startswith("cases/")
]
BATCHES = [bytes.fromhex(line["hex"]) for line in json_lines("batches", "batches.jsonl")]


def disk_with(name: str, content: bytes) -> tuple[MemoryDisk, str]:
    disk = MemoryDisk()
    disk.mkdir("d")
    disk.open(f"d/{name}", create=True).append(content)
    return disk, f"d/{name}"


def read_batches(disk: MemoryDisk, path: str) -> None:
    """Whatever the content, `skip-damage` reads to the end; each byte of each batch has a field."""
    for found in read_file(disk, path):
        if isinstance(found, Damage):
            assert found.position is not None
            assert found.expected
            continue
        assert b"".join(span.data for span in annotate(found)) == found.data
        for entry in read_entries(found, path):
            if isinstance(entry, Entry) and entry.record is not None:
                version = 0 if entry.is_control else min(entry.version, type(entry.record).__schema__.versions.highest)
                json_text(entry.record, version)


def read_strictly(disk: MemoryDisk, path: str) -> None:
    """A strict reading raises what the patient one shows first."""
    shown = next((one for one in read_file(disk, path) if isinstance(one, Damage) and not one.unfinished), None)
    ended_by = None
    try:
        for _ in read_file(disk, path, on_damage=OnDamage.STRICT):
            pass
    except DamagedFile as bad:
        ended_by = bad.damage
    assert ended_by == shown


def read_by_kind(disk: MemoryDisk, path: str) -> None:
    """Read a file as `kraft dump` does, told apart by name or content."""
    kind = kind_of(disk, path)
    verify_file(disk, path, kind)
    if kind in {FileKind.OFFSET_INDEX, FileKind.TIME_INDEX}:
        read_index(disk, path, kind)
    elif kind not in {FileKind.SEGMENT, FileKind.SNAPSHOT}:
        content = disk.read(path)
        spans = list(annotate_file(kind, content))
        assert b"".join(span.data for span in spans) == content
        read_small_file(disk, path, kind)


def recover(disk: MemoryDisk, path: str) -> None:
    """A log that opens holds only sound batches in order, and opens again without a word."""
    content = disk.read(path)
    disk, _ = disk_with(f"{0:020d}.log", content)
    log = MetadataLog.open(disk, "d")
    end = log.end_offset
    log.close()
    again = MetadataLog.open(disk, "d")
    assert (again.end_offset, again.recovered) == (end, ())
    assert content.startswith(disk.read(f"d/{0:020d}.log"))


def read_snapshots(disk: MemoryDisk, path: str) -> None:
    for _ in read_snapshot(disk, path):
        pass
    read_snapshot_start(disk, path)


def check_directory(disk: MemoryDisk, _: str) -> None:
    verify_directory(disk, "d")


def rebuild(disk: MemoryDisk, path: str) -> None:
    """Records that can be read can be written."""
    for found in read_file(disk, path):
        if isinstance(found, RecordBatch):
            contents = list(records(found))
            if not found.is_compressed:
                rebuild_batch(found, contents)


TARGETS: list[Callable[[MemoryDisk, str], None]] = [
    read_batches,
    read_strictly,
    read_by_kind,
    recover,
    read_snapshots,
    check_directory,
    rebuild,
]
NEVER_RAISE = {read_batches, read_strictly, check_directory}


def material(rng: Random) -> tuple[str, bytes]:
    """A real file under its own name, or vectors of batches as a segment."""
    if rng.random() < 0.25:
        return f"{0:020d}.log", b"".join(rng.choices(BATCHES, k=rng.randint(1, 4)))
    name, content = rng.choice(SOURCES)
    if len(content) > LARGEST:
        start = rng.choice([0, rng.randrange(len(content) - LARGEST)])
        content = content[start : start + LARGEST]
    return rng.choice([name, name, "unknown"]), content


def run_case(seed: int, number: int) -> str:
    """One case; what came out of it, in a word."""
    rng = Random(f"{seed}/{number}")
    name, content = material(rng)
    target = rng.choice(TARGETS)
    content = tampered(content, rng)
    disk, path = disk_with(name, resealed(content) if rng.random() < 0.5 else content)
    started, refusal = time.process_time(), None
    try:
        target(disk, path)
    except MetadataLogError as named:
        refusal = named
    assert refusal is None or (refusal.what and target not in NEVER_RAISE), refusal
    outcome = "result" if refusal is None else "named error"
    assert time.process_time() - started < CASE_SECONDS, "it takes too long"
    return f"{target.__name__}: {outcome}"


def fuzz(seconds: float) -> None:
    seed = int(os.environ.get("FUZZ_SEED") or SystemRandom().getrandbits(32))
    only = os.environ.get("FUZZ_CASE")
    print(f"FUZZ_SEED={seed}")
    if only is not None:
        run_case(seed, int(only))
        return
    outcomes: Counter[str] = Counter()
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        try:
            outcomes[run_case(seed, number)] += 1
        except Exception as bad:
            raise AssertionError(f"FUZZ_SEED={seed} FUZZ_CASE={number}: {bad!r}") from bad
        number += 1
    print(number, "cases:", dict(sorted(outcomes.items())))
    assert len(outcomes) > len(TARGETS), "some target has never been reached"


def test_fuzz() -> None:
    fuzz(SLICE_SECONDS)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(SOAK_PARTS))
def test_fuzz_for_ten_minutes(part: int) -> None:
    """In parts, each with a seed of its own, so that the slices of continuous integration have room for one."""
    fuzz(SOAK_SECONDS / SOAK_PARTS)
