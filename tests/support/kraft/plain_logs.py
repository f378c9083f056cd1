"""Random histories of a partition as plain lists, and what follows from a list by definition.

Nothing here knows segments, indexes, snapshots or checkpoints: a log that has them is compared with these lists.
"""

from __future__ import annotations

from random import Random
from typing import Final

from msgspec import Struct

from kraft.partitions.log.options import LogOptions
from kraft.partitions.log.outcomes import Appended
from kraft.partitions.log.partition_log import PartitionLog
from kraft.partitions.log.transaction_markers import TransactionMarker
from metadata_log.log.producer_snapshot import StoredProducer
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.aborted_txn import AbortedTxn
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record

NOW_MS: Final = 1_795_390_000_000
OPTIONS: Final = LogOptions(segment_bytes=500, index_interval_bytes=150)
"""Some five batches for a segment, and an index entry for every second one."""
COORDINATOR: Final = 3


class Entry(Struct, frozen=True):
    """One batch of a history. `ends` says whether the batch is a marker, and of which kind."""

    first: int
    last: int
    epoch: int
    data: bytes
    producer: int = -1
    sequence: int = -1
    is_transactional: bool = False
    ends: str = ""

    @property
    def time(self) -> int:
        """The time of its records in ms since 1970."""
        return NOW_MS + self.first


class Transaction(Struct):
    """One transaction: its first offset, the offset of its marker, and how it has ended."""

    producer: int
    first: int
    marker: int | None = None
    is_aborted: bool = False


History = list[Entry]


def transactions(history: History) -> list[Transaction]:
    """The transactions in the order of their first records."""
    found: list[Transaction] = []
    for entry in history:
        mine = next((one for one in found if one.producer == entry.producer and one.marker is None), None)
        if entry.ends and mine is not None:
            mine.marker, mine.is_aborted = entry.first, entry.ends == "abort"
        elif entry.is_transactional and not entry.ends and mine is None:
            found.append(Transaction(entry.producer, entry.first))
    return found


def stable(history: History, high_watermark: int) -> int:
    """The last stable offset: before the first transaction whose marker is not below the high watermark."""
    unstable = [one.first for one in transactions(history) if one.marker is None or one.marker >= high_watermark]
    return min([high_watermark, *unstable])


def aborted(history: History, offset: int, end: int) -> list[tuple[int, int, int]]:
    """Producer, first offset and marker of the aborted transactions that meet a range, in the order of the markers."""
    return sorted(
        (
            (one.producer, one.first, one.marker)
            for one in transactions(history)
            if one.is_aborted and one.marker is not None and one.marker >= offset and one.first < end
        ),
        key=lambda one: one[2],
    )


def committed(history: History, offset: int, end: int) -> list[int]:
    """The offsets in a range that a reader of committed records has to see."""
    lost = [(one.producer, one.first, one.marker) for one in transactions(history) if one.is_aborted and one.marker]
    return [
        at
        for entry in history
        if not entry.ends
        and not any(
            entry.is_transactional and entry.producer == producer and first <= entry.first < marker
            for producer, first, marker in lost
        )
        for at in range(entry.first, entry.last + 1)
        if offset <= at < end
    ]


def producers(history: History) -> list[StoredProducer]:
    """The producers of a snapshot, in the order of their ids."""
    found: dict[int, StoredProducer] = {}
    opened = {one.producer: one.first for one in transactions(history) if one.marker is None}
    for entry in history:
        if entry.producer < 0:
            continue
        open_at = opened.get(entry.producer, -1)
        before = found.get(entry.producer, StoredProducer(entry.producer, 0, -1, -1, 0, -1, -1, -1))
        if entry.ends:
            sequence, last, delta, coordinator = (
                before.last_sequence,
                before.last_offset,
                before.offset_delta,
                COORDINATOR,
            )
        else:
            delta = entry.last - entry.first
            sequence, last, coordinator = entry.sequence + delta, entry.last, before.coordinator_epoch
        found[entry.producer] = StoredProducer(
            entry.producer, 0, sequence, last, delta, entry.time, coordinator, open_at
        )
    return [found[key] for key in sorted(found)]


def epochs(history: History) -> list[tuple[int, int]]:
    """Each epoch with the offset of its first record."""
    return [(one.epoch, one.first) for at, one in enumerate(history) if at == 0 or history[at - 1].epoch != one.epoch]


def seen_by(fetched: bytes, told: list[tuple[int, int]]) -> list[int]:
    """The offsets that a client of Kafka sees in an answer: of records that are not of an aborted transaction."""
    left, lost, found = sorted(told, key=lambda one: one[1]), set[int](), list[int]()
    for entry in scan(fetched):
        while left and left[0][1] <= entry.last_offset:
            lost.add(left.pop(0)[0])
        if entry.is_control:
            lost.discard(entry.producer_id)
        elif not (entry.is_transactional and entry.producer_id in lost):
            found += range(entry.base_offset, entry.last_offset + 1)
    return found


def cut(history: History, offset: int) -> History:
    """Truncate a history to an offset: whole batches stay."""
    return [entry for entry in history if entry.last < offset]


def new_log(disk: MemoryDisk | None = None, options: LogOptions = OPTIONS) -> PartitionLog:
    """An empty log."""
    return PartitionLog.open(disk or MemoryDisk(), "d/p-0", options, now_ms=NOW_MS)


def write(log: PartitionLog, rng: Random, history: History, count: int, *, epoch: int | None = None) -> None:
    """Let a leader append random batches to a log, and their entries to its history."""
    leader_epoch = epoch if epoch is not None else (history[-1].epoch if history else 0)
    for _ in range(count):
        if epoch is None and rng.random() < 0.1:
            leader_epoch += rng.randrange(1, 3)
        open_now = [one.producer for one in transactions(history) if one.marker is None]
        if open_now and rng.random() < 0.3:
            _end(log, rng.choice(open_now), rng.choice(("abort", "abort", "commit")), history, leader_epoch)
        else:
            _append(log, rng, rng.choice((-1, 5, 7, 8, 9)), history, leader_epoch)


def _append(log: PartitionLog, rng: Random, producer: int, history: History, epoch: int) -> None:
    at, size = log.end_offset, rng.randrange(1, 4)
    last = next((one for one in reversed(history) if one.producer == producer and not one.ends), None)
    sequence = -1 if producer < 0 else 0 if last is None else last.sequence + last.last - last.first + 1
    batch = write_batch(
        [Record(index, NOW_MS + at, 0, b"k", b"%05d" % (at + index)) for index in range(size)],
        epoch=-1,
        producer_id=producer,
        producer_epoch=-1 if producer < 0 else 0,
        base_sequence=sequence,
        transactional=producer > 5,
    )
    done = log.append_as_leader(batch, epoch=epoch, now_ms=NOW_MS + at)
    assert isinstance(done, Appended), done
    assert not done.is_duplicate
    data = stored(log)[-1]
    history.append(Entry(at, at + size - 1, epoch, data, producer, sequence, producer > 5))


def _end(log: PartitionLog, producer: int, how: str, history: History, epoch: int) -> None:
    at = log.end_offset
    marker = TransactionMarker(
        producer_id=producer, producer_epoch=0, is_commit=how == "commit", coordinator_epoch=COORDINATOR
    )
    done = log.append_as_leader(marker.batch(NOW_MS + at), epoch=epoch, now_ms=NOW_MS + at, is_client=False)
    assert isinstance(done, Appended), done
    history.append(Entry(at, at, epoch, stored(log)[-1], producer, -1, True, how))


def stored(log: PartitionLog) -> list[bytes]:
    """The batches in the files of a log."""
    return [
        batch.data
        for segment in log.segments
        for batch in scan(segment.batches.file.pread(segment.batches.size_bytes, 0))
    ]


def bases(log: PartitionLog) -> list[int]:
    """The base offset of each segment."""
    return [segment.base_offset for segment in log.segments]


def as_told(found: list[AbortedTxn]) -> list[tuple[int, int, int]]:
    """The aborted transactions of a log in the form of `aborted`."""
    return [(one.producer_id, one.first_offset, one.last_offset) for one in found]


def check(
    log: PartitionLog, history: History, where: object = "", *, begun: list[tuple[int, int]] | None = None
) -> None:
    """Compare all that a log holds with its history. `begun` has the epochs, if they are not those of the batches."""
    assert stored(log) == [entry.data for entry in history], where
    states = log.producers.states
    assert sorted(states.stored(), key=lambda one: one.producer_id) == producers(history), where
    still = {one.first: one.producer for one in transactions(history) if one.marker is None}
    assert states.open_transactions == still, where
    assert list(states.open_transactions) == sorted(still), where
    assert log.last_stable_offset == stable(history, log.high_watermark), where
    assert as_told(log.aborted(0, log.end_offset)) == aborted(history, 0, log.end_offset), where
    assert [(one.epoch, one.offset) for one in log.epochs.entries] == (epochs(history) if begun is None else begun), (
        where
    )
