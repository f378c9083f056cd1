"""The epoch of every offset of the log (Kafka: `LeaderEpochFileCache`, `LeaderEpochCheckpointFile`).

`EpochHistory` is immutable: every change returns a new one, so that the core, the log and a fork can share it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from operator import attrgetter

from msgspec import Struct

from metadata_log.disk import Disk, replace_file
from metadata_log.errors import DecodeError
from metadata_log.types import OffsetAndEpoch

FILE_NAME = "leader-epoch-checkpoint"
REMEDY = f"Remove the {FILE_NAME} file: it is built again from the log."
"""For the metadata log, of which every start reads all batches."""
TOPIC_REMEDY = (
    f"Stop the broker, and remove the {FILE_NAME} file, and of the log directory the files .kafka_cleanshutdown and "
    "recovery-point-offset-checkpoint: the next start builds it from all batches. After a clean stop it reads none."
)
"""For the log of a topic."""

# The rules of Java's readLine, Integer.parseInt and split("\\s+"): str.splitlines and str.strip accept more characters.
_LINE_END = r"\r\n|\r|\n"
_NUMBER = r"[0-9]{1,10}"
_ENTRY = r"([0-9]{1,10})[ \t\v\f]+([0-9]{1,19})[ \t\v\f]*"

_epoch = attrgetter("epoch")
_offset = attrgetter("offset")


class EpochHistory(Struct, frozen=True):
    """The first offset of every epoch that has records; epochs and offsets both increase."""

    entries: tuple[OffsetAndEpoch, ...] = ()

    @property
    def last_epoch(self) -> int | None:
        """The newest epoch, or None without epochs."""
        return self.entries[-1].epoch if self.entries else None

    def assign(self, epoch: int, start_offset: int) -> EpochHistory:
        """Begin `epoch` at `start_offset`; contradicting entries are removed."""
        assert epoch >= 0, epoch
        assert start_offset >= 0, start_offset
        if self.entries:
            last = self.entries[-1]
            if epoch == last.epoch and start_offset >= last.offset:
                return self
        kept = self.entries
        while kept and (kept[-1].epoch >= epoch or kept[-1].offset >= start_offset):
            kept = kept[:-1]
        return EpochHistory((*kept, OffsetAndEpoch(epoch=epoch, offset=start_offset)))

    def truncate_end(self, end_offset: int) -> EpochHistory:
        """The history of a log that ends at `end_offset`."""
        if not self.entries or self.entries[-1].offset < end_offset:
            return self
        return EpochHistory(tuple(entry for entry in self.entries if entry.offset < end_offset))

    def truncate_start(self, start_offset: int) -> EpochHistory:
        """The history of a log that begins at `start_offset`; the epoch of that offset begins there."""
        dropped = bisect_right(self.entries, start_offset, key=_offset)
        if dropped == 0 or (dropped == 1 and self.entries[0].offset == start_offset):
            return self
        first = OffsetAndEpoch(epoch=self.entries[dropped - 1].epoch, offset=start_offset)
        return EpochHistory((first, *self.entries[dropped:]))

    def end_offset_for(self, epoch: int, log_end_offset: int) -> OffsetAndEpoch:
        """The end of the records of `epoch`, or of the last epoch before it (`RaftLog.endOffsetForEpoch`)."""
        last = self.last_epoch
        if last is None:
            return OffsetAndEpoch(epoch=0, offset=log_end_offset)
        if epoch >= last:
            return OffsetAndEpoch(epoch=last, offset=log_end_offset)
        higher = bisect_right(self.entries, epoch, key=_epoch)
        known = self.entries[higher - 1].epoch if higher else epoch
        return OffsetAndEpoch(epoch=known, offset=self.entries[higher].offset)

    def epoch_at(self, offset: int) -> int | None:
        """The epoch of the record at `offset`, or None before the history."""
        after = bisect_right(self.entries, offset, key=_offset)
        return self.entries[after - 1].epoch if after else None


def format_epochs(history: EpochHistory) -> bytes:
    """The text of a leader-epoch-checkpoint file."""
    lines = ["0", str(len(history.entries)), *(f"{entry.epoch} {entry.offset}" for entry in history.entries)]
    return ("\n".join(lines) + "\n").encode("ascii")


def parse_epochs(text: bytes, *, where: str | None = None, remedy: str = REMEDY) -> EpochHistory:
    """Read the text of a leader-epoch-checkpoint file; raises `DecodeError`, with `remedy` as its hint.

    A node that has seen no epoch leaves an empty file (Kafka: `CheckpointFile.CheckpointReadBuffer.read`).
    """
    if not text:
        return EpochHistory()
    lines = re.split(_LINE_END, text.decode("utf-8", "replace"))
    if lines[-1] == "":
        lines.pop()

    def bad(what: str, line: int) -> DecodeError:
        return DecodeError(
            f"{what} in line {line}",
            where=where,
            field=FILE_NAME,
            hint=remedy,
        )

    if not lines or lines[0] != "0":
        raise bad(f"unknown version {lines[0] if lines else ''!r}, expected 0,", 1)
    if len(lines) < 2 or not re.fullmatch(_NUMBER, lines[1]):
        raise bad("the number of entries is missing", 2)
    entries: list[OffsetAndEpoch] = []
    for number, line in enumerate(lines[2:], 3):
        words = re.fullmatch(_ENTRY, line)
        if words is None or int(words[1]) >= 2**31 or int(words[2]) >= 2**63:
            raise bad(f"{line!r} is not an epoch and an offset", number)
        entry = OffsetAndEpoch(epoch=int(words[1]), offset=int(words[2]))
        if entries and not (entry.epoch > entries[-1].epoch and entry.offset > entries[-1].offset):
            raise bad(f"epoch {entry.epoch} at offset {entry.offset} does not rise", number)
        entries.append(entry)
    if len(entries) != int(lines[1]):
        raise bad(f"{len(entries)} entries where {lines[1]} were announced", 2)
    return EpochHistory(tuple(entries))


def write_epochs(disk: Disk, directory: str, history: EpochHistory) -> None:
    """Durably replace the leader-epoch-checkpoint of a partition directory."""
    replace_file(disk, directory, FILE_NAME, format_epochs(history))
