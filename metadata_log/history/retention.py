"""The known ranges of a history, and its unknown ones (Kafka: `metadata.max.retention.*`, `MetadataLogConfig`).

Kafka keeps a week or 100 MiB of its metadata log. Earlier history is known only as the state of a snapshot.
"""

from __future__ import annotations

from typing import Final

from metadata_log.history.open_rows import Sink, When
from metadata_log.reading.damage import Damage
from metadata_log.reading.entries import Entry
from metadata_log.reading.timeline import Base
from metadata_log.releases import unknown_record_text

_UNKNOWN_TYPES_KEPT: Final = 1_000


class Retention:
    """The rows of `retention`: each range of the log, each base snapshot, each unknown range."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._first: When | None = None
        self._last: When | None = None
        self._path: str | None = None
        self._records = 0
        self._unknown: dict[tuple[int, int], tuple[When, When, int]] = {}
        self.is_lost = False
        """Whether earlier records are missing, so that the history pauses until the next snapshot."""
        self.ignored = 0

    def on_base(self, base: Base, when: When, count: int) -> None:
        """A snapshot begins the history, or continues it after a gap."""
        self._end_stretch()
        text = f"the history begins with the snapshot of offset {base.end.offset}; only the state before it is known"
        self._emit("base", base.path, when, when, count, known=True, text=text)
        self.is_lost = False

    def on_records(self, path: str, first: When, last: When, count: int) -> None:
        """The engine read records of the log."""
        if self._first is None:
            self._first, self._path, self._records = first, path, 0
        self._last = last
        self._records += count

    def on_ignored(self, first: When, last: When, count: int) -> None:
        """The engine skipped records after a gap: their effect is unknown."""
        self.ignored += count
        if self._first is None:
            self._first, self._path, self._records = first, None, 0
        self._last = last

    def on_unknown(self, entry: Entry, when: When) -> None:
        """A record of an unknown type or version."""
        key = (entry.type, entry.version)
        first, _, count = self._unknown.get(key, (when, when, 0))
        if count or len(self._unknown) < _UNKNOWN_TYPES_KEPT:
            self._unknown[key] = (first, when, count + 1)

    @property
    def unread(self) -> dict[tuple[int, int], tuple[When, When, int]]:
        """The first and the last record of each unknown type and version, and how many there are."""
        return self._unknown

    def on_damage(self, damage: Damage, offset: int, when: When | None) -> None:
        """Unreadable data: the history is unknown from `offset` on. After an unfinished tail there is nothing."""
        self._end_stretch()
        kind = "unfinished-tail" if damage.unfinished else "damage"
        text = f"{damage.what}; from here on the history is not known"
        if damage.unfinished:
            text = f"{damage.what}: a node may be writing this part"
        time = None if when is None else when.timestamp
        row = (kind, damage.where, offset, None, time, None, 0, damage.unfinished, text)
        self._sink.emit("retention", row)
        self.is_lost |= not damage.unfinished

    def on_fault(self, what: str, offset: int, when: When | None) -> None:
        """A record contradicts earlier records and was skipped."""
        time = None if when is None else when.timestamp
        self._sink.emit("retention", ("fault", None, offset, offset + 1, time, time, 1, False, f"skipped: {what}"))

    def on_transaction(self, kind: str, first: When, last: When, count: int, name: str) -> None:
        """An aborted metadata transaction, or one that is open at the end: its records change nothing."""
        verb = "was aborted" if kind == "aborted-transaction" else "is open at the end of the history"
        text = f"the metadata transaction {name!r} {verb}: its records change nothing"
        self._emit(kind, None, first, last, count, known=True, text=text)

    def finish(self, metadata_version: int | None) -> None:
        """Write the last range, and the unknown records of all ranges, with the level that the cluster has now."""
        self._end_stretch()
        for (kind, version), (first, last, count) in self._unknown.items():
            text = unknown_record_text(kind, version, metadata_version)
            self._emit("unknown-record", None, first, last, count, known=False, text=text)

    def _end_stretch(self) -> None:
        if self._first is not None and self._last is not None:
            if self.is_lost:
                text = f"{self.ignored} records behind a gap or damage are left out: their effect is not known"
                self._emit("ignored", self._path, self._first, self._last, self.ignored, known=False, text=text)
                self.ignored = 0
            else:
                text = f"the log from offset {self._first.offset} to {self._last.offset}"
                self._emit("log", self._path, self._first, self._last, self._records, known=True, text=text)
        self._first = self._last = None

    def _emit(
        self, kind: str, path: str | None, first: When, last: When, count: int, *, known: bool, text: str
    ) -> None:
        row = (kind, path, first.offset, last.offset + 1, first.timestamp, last.timestamp, count, known, text)
        self._sink.emit("retention", row)
