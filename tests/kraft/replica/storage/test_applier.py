"""Committed batches on their way to the application: from the memory of a leader, or from the log, each once."""

from __future__ import annotations

import pytest

from kraft.committed import CommittedBatch
from kraft.replica import applier as module
from kraft.replica.applier import Applier
from metadata_log.errors import CorruptBatch
from metadata_log.log.log import MetadataLog
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import RecordBatch, read_batch
from metadata_log.records.batch_builder import build_batch, write_batch
from metadata_log.records.metadata import NoOpRecord
from metadata_log.records.record import Record


def remembered(base_offset: int, count: int = 3) -> CommittedBatch:
    return CommittedBatch(base_offset, base_offset + count, 1, 5, (b"memory",) * count, 100)


def log_of(*counts: int) -> MetadataLog:
    """A log with batches of so many records."""
    log = MetadataLog.open(MemoryDisk(), "d")
    for count in counts:
        log.append(build_batch(log.end_offset, 1, 5, [b"log"] * count))
    return log


def test_a_leader_applies_what_it_has_appended_without_reading_it() -> None:
    applier = Applier(log_of(), 0)
    for base_offset in (0, 3, 6):
        applier.remember(remembered(base_offset))
    assert list(applier.advance(2)) == [], "no part of a batch"
    assert list(applier.advance(6)) == [remembered(0), remembered(3)]
    assert applier.next_offset == 6
    assert list(applier.advance(9)) == [remembered(6)]


def test_batches_from_before_the_leadership_are_read_first() -> None:
    applier = Applier(log_of(3, 3), 0)
    applier.remember(remembered(3))
    applier.remember(remembered(6))
    assert [batch.values[0] for batch in applier.advance(3)] == [b"log"]
    assert list(applier.advance(9)) == [remembered(3), remembered(6)]


def test_a_former_leader_reads_what_another_leader_has_written() -> None:
    applier = Applier(log_of(3), 0)
    applier.remember(remembered(0))
    applier.forget()
    (batch,) = applier.advance(3)
    assert (batch.base_offset, batch.next_offset, batch.values) == (0, 3, (b"log",) * 3)


def test_a_batch_applied_from_the_log_is_not_applied_again_from_memory() -> None:
    applier = Applier(log_of(3), 0)
    assert len(list(applier.advance(3))) == 1
    applier.remember(remembered(0))
    applier.remember(remembered(3))
    assert list(applier.advance(6)) == [remembered(3)]


def test_an_application_that_reads_no_batches_keeps_none_in_memory() -> None:
    applier = Applier(log_of(), 0)
    applier.remember(remembered(0))
    applier.skip(3)
    assert (applier.next_offset, len(applier._remembered)) == (3, 0)
    applier.skip(2)
    assert applier.next_offset == 3


@pytest.mark.parametrize("jumps", ["skip", "begin_at"])
def test_a_batch_that_is_half_read_is_not_completed_after_a_jump(jumps: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot takes the place of all records before its end, that batch included."""
    monkeypatch.setattr(module, "DECODED_RECORDS_PER_TURN", 4)
    applier = Applier(log_of(10, 2), 0)
    assert list(applier.advance(12)) == []
    getattr(applier, jumps)(10)
    (batch,) = applier.advance(12)
    assert (batch.base_offset, batch.next_offset) == (10, 12)


def test_a_jump_forgets_what_a_leader_has_appended() -> None:
    """A snapshot that another leader sends has taken the place of the records, and others follow it."""
    applier = Applier(log_of(3, 3), 0)
    applier.remember(remembered(3))
    applier.begin_at(3)
    assert [batch.values[0] for batch in applier.advance(6)] == [b"log"]


def test_a_committed_record_without_a_value_cannot_be_applied() -> None:
    log = log_of()
    log.append(write_batch([Record(0, 5, 0, None, b"fine"), Record(1, 5, 0, None, None)], epoch=1))
    with pytest.raises(CorruptBatch, match="the data record at offset 1 has no value"):
        list(Applier(log, 0).advance(2))


def kept(applier: Applier, log: MetadataLog, offset: int, *, size: int = 3) -> RecordBatch:
    """The batch at an offset, decoded before its commit into records that no replay would make."""
    batch = log.batch_in_memory(offset)
    assert batch is not None
    applier.keep(batch, [b"kept"] * size, [NoOpRecord()] * size)
    return batch


def test_a_follower_takes_what_it_has_decoded_without_reading_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as one step has room."""
    log = log_of(3, 3, 3)
    applier = Applier(log, 0)
    size = sum(kept(applier, log, offset).size_bytes for offset in (0, 3, 6)) // 3
    monkeypatch.setattr(module, "APPLIED_BYTES_PER_STEP", 2 * size)
    assert [batch.base_offset for batch in applier.advance(2)] == [], "no part of a batch"
    monkeypatch.setattr(log, "read_batches", None)
    assert [batch.base_offset for batch in applier.advance(9)] == [0, 3]
    assert [batch.base_offset for batch in applier.advance(9)] == [6]
    assert not applier._kept


def test_what_was_decoded_of_a_truncated_batch_is_not_applied() -> None:
    log = log_of(3, 3)
    applier = Applier(log, 0)
    kept(applier, log, 3)
    log.truncate(3)
    log.append(build_batch(3, 2, 5, [b"later"] * 3))
    assert [batch.values[0] for batch in applier.advance(6)] == [b"log", b"later"]


def test_what_was_decoded_of_a_batch_that_was_not_appended_is_not_applied() -> None:
    log = log_of(3)
    applier = Applier(log, 0)
    applier.keep(read_batch(log.read(0, 1)), [b"kept"] * 3, [])
    assert [batch.values[0] for batch in applier.advance(3)] == [b"log"]


def test_a_follower_far_behind_keeps_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """And has room again once those are applied."""
    log = log_of(3, 3, 3)
    applier = Applier(log, 0)
    size = kept(applier, log, 0).size_bytes
    monkeypatch.setattr(module, "KEPT_BYTES", 2 * size)
    for offset in (0, 3, 6):
        kept(applier, log, offset)
    assert sorted(applier._kept) == [0, 3]
    assert len(list(applier.advance(9))) == 3
    log.append(build_batch(9, 1, 5, [b"log"] * 3))
    kept(applier, log, 9)
    assert [batch.values[0] for batch in applier.advance(12)] == [b"kept"]
    assert applier._kept == {}
    assert applier._kept_bytes == 0


def test_what_was_never_applied_is_forgotten_once_it_is_passed() -> None:
    log = log_of(3, 3)
    applier = Applier(log, 0)
    kept(applier, log, 0)
    applier.begin_at(3)
    assert [batch.values[0] for batch in applier.advance(6)] == [b"log"]
    assert applier._kept == {}
