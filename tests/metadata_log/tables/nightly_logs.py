"""A real metadata log as a backup shows it night by night: cut into days and segments, with tails that were rewritten
after an election, segments that arrive late, and segments that retention has deleted. Some logs begin at a snapshot.
"""

from __future__ import annotations

import struct
from functools import cache
from itertools import pairwise
from random import Random

from msgspec import Struct

from metadata_log.log.segment import file_name
from metadata_log.log.snapshot import parse_snapshot_name, snapshot_name
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import NoOpRecord, TopicRecord
from metadata_log.types import OffsetAndEpoch, Uuid
from support.real_data import archive

DIRECTORY = "/log/__cluster_metadata-0"
_EPOCH_AT = 12
LOGS = {
    "failover": ("clusters", "failover/nodes/b101"),
    "static3": ("static3", "nodes/c1"),
    "dynamic3": ("clusters", "dynamic3/nodes/b101"),
    "old39": ("clusters", "old39/nodes/b101"),
}
"""Nodes of the real clusters that have kept the log from its first record on; snapshots come from all nodes."""


class Piece(Struct, frozen=True):
    """One batch: its bytes and its offsets."""

    data: bytes
    base: int
    end: int
    epoch: int

    def raised(self, by: int) -> Piece:
        """The batch in a later epoch, which the CRC does not cover."""
        epoch = self.epoch + by
        changed = self.data[:_EPOCH_AT] + struct.pack(">i", epoch) + self.data[_EPOCH_AT + 4 :]
        return Piece(changed, self.base, self.end, epoch)


@cache
def pieces(cluster: str) -> tuple[Piece, ...]:
    """The batches of a real log."""
    name, path = LOGS[cluster]
    prefix = f"{path}/__cluster_metadata-0/"
    files = {key: data for key, data in archive(name).items() if key.startswith(prefix) and key.endswith(".log")}
    return tuple(
        Piece(data[one.position : one.end_position], one.base_offset, one.next_offset, one.epoch)
        for _, data in sorted(files.items())
        for one in scan(data)
    )


@cache
def snapshots(cluster: str) -> dict[int, bytes]:
    """The snapshots that the nodes of a real cluster have made, by the number of batches below each."""
    name, path = LOGS[cluster]
    prefix = path.partition("nodes/")[0]
    found = {
        parse_snapshot_name(key.rpartition("/")[2]): data
        for key, data in archive(name).items()
        if key.startswith(prefix) and "__cluster_metadata-0/" in key and key.endswith(".checkpoint")
    }
    by_end = {(one.offset, one.epoch): data for one, data in found.items() if one is not None}
    log = pieces(cluster)
    ends = {
        at + 1: by_end[piece.end, piece.epoch] for at, piece in enumerate(log) if (piece.end, piece.epoch) in by_end
    }
    return {at: data for at, data in ends.items() if at < len(log)}


class Night(Struct, frozen=True):
    """The files of one night by name, and what is true of them."""

    files: dict[str, bytes]
    was_rewritten: bool
    is_late: bool
    was_compacted: bool = False
    """Whether the log has lost its beginning since the night before."""
    begins_at_snapshot: bool = False
    """Whether the first night already saw a log that begins at a snapshot."""

    def disk(self) -> MemoryDisk:
        """A disk with these files."""
        disk = MemoryDisk()
        disk.mkdir("/log")
        disk.mkdir(DIRECTORY)
        for name, content in self.files.items():
            file = disk.open(f"{DIRECTORY}/{name}", create=True)
            file.append(content)
            file.close()
        return disk


def nights(rng: Random, cluster: str, days: int, *, with_snapshots: bool = True) -> tuple[list[Night], Night]:
    """The nights of a log, and its whole at the end."""
    log = pieces(cluster)
    known = snapshots(cluster) if with_snapshots else {}
    base = rng.choice(sorted(known)) if known and rng.random() < 0.3 else 0
    """The batches below the snapshot that the history begins with; 0 for a log with its beginning."""
    if len(log) - base < days:
        base = 0
    cuts = [*sorted(rng.sample(range(max(1, base), len(log)), days - 1)), len(log)]
    rewritten = {day for day in range(days - 1) if rng.random() < 0.35}
    rises = [cuts[day] for day in rewritten]
    log = tuple(piece.raised(sum(at >= rise for rise in rises)) for at, piece in enumerate(log))
    starts = {0, *rng.sample(range(len(log)), min(len(log), rng.randint(1, 3 * days)))}
    kept = {at: data for at, data in known.items() if at == base or (at > base and rng.random() < 0.6)}
    found = []
    before = base
    """The batches that the nights before could read."""
    for day, cut in enumerate(cuts):
        segments = _segments(
            log[:cut], starts, lost_tail(rng, log[:cut], rng.randint(1, 3)) if day in rewritten else b""
        )
        files = _without_beginning(log, segments, base)
        late = [name for name in files if day < days - 1 and before < _index(log, name) < cut]
        is_late = bool(late) and rng.random() < 0.4
        missing = rng.choice(late) if is_late else ""
        files.pop(missing, None)
        gone: list[str] = []
        if day and rng.random() < 0.5 and day - 1 not in rewritten:
            # Retention deletes whole segments that the night before has seen, and that was not rewritten.
            gone = [name for name, following in pairwise(sorted(files)) if _index(log, following) <= before]
        for name in gone:
            del files[name]
        files |= {_snapshot_name(log, at): data for at, data in kept.items() if at <= cut}
        found.append(Night(files, day in rewritten, is_late, bool(gone), base > 0))
        before = _index(log, missing) if is_late else cut
    whole = _without_beginning(log, _segments(log, starts, b""), base)
    return found, Night({**whole, **{_snapshot_name(log, at): data for at, data in kept.items()}}, False, False)


def _without_beginning(log: tuple[Piece, ...], files: dict[str, bytes], base: int) -> dict[str, bytes]:
    """The segments without those that are wholly below a snapshot."""
    covered = {name for name, following in pairwise(sorted(files)) if _index(log, following) <= base}
    return {name: data for name, data in files.items() if name not in covered}


def _snapshot_name(log: tuple[Piece, ...], at: int) -> str:
    return snapshot_name(OffsetAndEpoch(epoch=log[at - 1].epoch, offset=log[at - 1].end))


def _segments(log: tuple[Piece, ...], starts: set[int], tail: bytes) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    name = ""
    for at, piece in enumerate(log):
        if at in starts:
            name = file_name(piece.base)
        found[name] = found.get(name, b"") + piece.data
    found[name] += tail
    return found


def _index(log: tuple[Piece, ...], name: str) -> int:
    base = int(name.partition(".")[0])
    return next(at for at, piece in enumerate(log) if piece.base == base)


def lost_tail(rng: Random, log: tuple[Piece, ...], count: int) -> bytes:
    """Batches after a log in the epoch of its last one, which another leader would have replaced."""
    offset, epoch = log[-1].end, log[-1].epoch
    (last,) = scan(log[-1].data)
    found = b""
    for number in range(count):
        topic = TopicRecord(name=f"lost-{offset}", topic_id=Uuid(rng.getrandbits(128).to_bytes(16, "big")))
        values = [encode_record(topic, 0), encode_record(NoOpRecord(), 0)]
        found += build_batch(offset, epoch, last.max_timestamp + 500 * (number + 1), values)
        offset += len(values)
    return found
