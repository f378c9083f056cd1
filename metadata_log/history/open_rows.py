"""Open rows: each is kept until its interval ends, and is written then (the intervals of every view)."""

from __future__ import annotations

from collections.abc import Container, Hashable
from typing import Any, Final

from msgspec import Struct

from metadata_log.history.causes import LOST_SIGHT, SNAPSHOT, CauseRow, Reason
from metadata_log.history.partition_rows import CELL_VIEWS, GONE, Cell, Ended, Head, Shape, TopicHead, whole_rows
from metadata_log.history.views import VIEWS

Row = tuple[Any, ...]


class Sink:
    """Collects the rows of the requested views, with the cluster as their first column, until `take`."""

    __slots__ = ("_rows", "cluster", "ended", "wanted")

    def __init__(self, cluster: str, wanted: Container[str]) -> None:
        self.cluster = cluster
        self.wanted = wanted
        self._rows: list[tuple[str, Row]] = []
        self.ended: dict[str, list[Ended]] = {view: [] for view in CELL_VIEWS if view in wanted}
        """The rows of those of `CELL_VIEWS` that are requested, which only their families append."""

    def emit(self, view: str, values: Row) -> None:
        """Write a row without its first column, if its view is requested."""
        if view in self.wanted:
            self._rows.append((view, (self.cluster, *values)))

    def take(self) -> list[tuple[str, Row]]:
        """The rows since the last call."""
        rows = self.take_plain()
        for view, ended in self.ended.items():
            if ended:
                rows += [(view, row) for row in whole_rows(view, ended)]
                ended.clear()
        return rows

    def take_plain(self) -> list[tuple[str, Row]]:
        """The same without the rows in `ended`."""
        rows, self._rows = self._rows, []
        return rows


SNAPSHOT_TEXT: Final = "taken from a snapshot; the history before the snapshot is not known"


class When(Struct, frozen=True, gc=False):
    """Offset, time in ms and controller epoch of a change."""

    offset: int
    timestamp: int
    epoch: int


def when_of(cell: Cell) -> When:
    """Since when a cell holds."""
    return When(*cell[5:8])


_NOWHERE: Final = Head(TopicHead("", "", ""), -1)
_LOST: Final = Reason(LOST_SIGHT, None, None, "")


def lost_sight(when: When) -> Cell:
    """The cell that ends every other one, as the following history is unknown."""
    return (_NOWHERE, GONE, 0, 0, _LOST, when.offset, when.timestamp, when.epoch, None, None)


def cause_of_snapshot() -> CauseRow:
    """The cause of a row that a snapshot begins."""
    return (SNAPSHOT, None, None, None, SNAPSHOT_TEXT)


class OpenRow(Struct, frozen=True, gc=False):
    """The columns of a row that are known at its beginning."""

    values: Row
    since: When
    cause: CauseRow


class OpenRows:
    """The open rows of one view by key; at most one of each key.

    Rows of a view that is not requested are not kept. A column `seconds` is filled in at the end of a row.
    """

    __slots__ = ("_rows", "_seconds_at", "_sink", "_wanted", "view")

    def __init__(self, view: str, sink: Sink) -> None:
        self.view = view
        self._sink = sink
        self._wanted = view in sink.wanted
        self._rows: dict[Hashable, OpenRow] = {}
        names = VIEWS[view].names
        self._seconds_at = names.index("seconds") - 1 if "seconds" in names else None

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._rows

    def begin(self, key: Hashable, values: Row, when: When, cause: CauseRow) -> None:
        """Begin a row; an open row of the same key ends for the same cause."""
        if not self._wanted:
            return
        former = self._rows.pop(key, None)
        if former is not None:
            self._write(former, when, cause[0])
        self._rows[key] = OpenRow(values, when, cause)

    def end(self, key: Hashable, when: When, end_cause: str) -> None:
        """End a row, if one is open."""
        former = self._rows.pop(key, None)
        if former is not None:
            self._write(former, when, end_cause)

    def get(self, key: Hashable) -> OpenRow | None:
        """The open row of a key."""
        return self._rows.get(key)

    def replace(self, key: Hashable, row: OpenRow) -> None:
        """Replace an open row by one with more columns known."""
        self._rows[key] = row

    def drop(self, key: Hashable = None) -> None:
        """Drop a row, or without a key all rows, without writing any."""
        if key is None:
            self._rows.clear()
        else:
            self._rows.pop(key, None)

    def open_keys(self) -> list[Hashable]:
        """The keys of all open rows, in the order of their beginnings."""
        return list(self._rows)

    def lose_sight(self, when: When) -> None:
        """End every row: the following history is unknown."""
        for key in self.open_keys():
            self.end(key, when, LOST_SIGHT)

    def finish(self, now: When) -> None:
        """Write every open row at the end of the history."""
        for row in self._rows.values():
            since = row.since
            self._sink.emit(
                self.view,
                (*self._values(row, now), since.offset, since.timestamp, None, None, None, since.epoch, *row.cause),
            )
        self._rows.clear()

    def _write(self, row: OpenRow, when: When, end_cause: str) -> None:
        since = row.since
        until = (when.offset, when.timestamp, end_cause)
        self._sink.emit(
            self.view, (*self._values(row, when), since.offset, since.timestamp, *until, since.epoch, *row.cause)
        )

    def _values(self, row: OpenRow, until: When) -> Row:
        at = self._seconds_at
        if at is None:
            return row.values
        return (*row.values[:at], seconds_between(row.since, until), *row.values[at:])


class CellRows:
    """The open rows of one of `CELL_VIEWS` by partition, each a cell with the shape before."""

    __slots__ = ("_ended", "_rows", "view")

    def __init__(self, view: str, sink: Sink) -> None:
        self.view = view
        self._ended = sink.ended.get(view)
        self._rows: dict[bytes, tuple[Shape | None, Cell]] = {}

    @property
    def is_wanted(self) -> bool:
        """Whether the view is requested; else no row is kept."""
        return self._ended is not None

    def follow(self, _: object, key: bytes, old: Cell | None, new: Cell) -> None:
        """End the row of a partition, and begin another one, unless the partition is gone."""
        if self._ended is None:
            return
        former = self._rows.pop(key, None)
        if former is not None:
            before, since = former
            self._ended.append((before, since, new))
        if new[1] is not GONE:
            self._rows[key] = (None if old is None else old[1], new)

    def lose_sight(self, when: When) -> None:
        """End every row: the following history is unknown."""
        if self._ended is not None:
            lost = lost_sight(when)
            self._ended.extend([(*row, lost) for row in self._rows.values()])
        self._rows.clear()

    def finish(self, _: When) -> None:
        """Write every open row at the end of the history."""
        if self._ended is not None:
            self._ended.extend([(*row, None) for row in self._rows.values()])
        self._rows.clear()


def seconds_between(since: When, until: When) -> float:
    """How long something lasted, in seconds."""
    return (until.timestamp - since.timestamp) / 1000
