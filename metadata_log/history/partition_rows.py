"""The states of partitions as they are kept until they end, and the rows that are made of them.

A replay writes most rows of the views in `CELL_VIEWS`, so such a row stays a reference to two states of a partition
until it leaves the engine: as a tuple, or as a part of Arrow columns (`metadata_log.arrow.partition_rows`). Both are
made of `CellColumns`, where what many rows have in common is found once.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, Final

from msgspec import Struct

from metadata_log.history.causes import SNAPSHOT, CauseRow, Reason, without
from metadata_log.history.changes import Template
from metadata_log.history.values import partition_values
from metadata_log.history.views import VIEWS
from metadata_log.image.topics import NO_LEADER, Partition

PARTITION_HISTORY: Final = "partition_history"
LEADER_HISTORY: Final = "leader_history"
ISR_HISTORY: Final = "isr_history"
ISR_FLAPS: Final = "isr_flaps"
LEADERSHIP_CHANGES: Final = "leadership_changes"
CELL_VIEWS: Final = (PARTITION_HISTORY, LEADER_HISTORY, ISR_HISTORY, ISR_FLAPS, LEADERSHIP_CHANGES)
"""The views with rows of cells."""
UNCLEAN: Final = frozenset({"unclean", "last-known-leader"})
"""The election rules with which acknowledged records may be lost."""

_EPOCHS_END: Final = 3
"""The leader and the two epochs come first among the values of a partition."""


class Shape:
    """A partition without its epochs, as the columns of a row, and the steps from it by change."""

    __slots__ = ("columns", "leader", "partition", "steps")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader = partition.leader
        self.columns = partition_values(partition)[_EPOCHS_END:]
        self.steps: dict[Template, Step] = {}


GONE: Final = Shape(Partition((), (), (), (), (), (), (), NO_LEADER, 0, 0, 0))
"""The shape of a cell that only ends the one before: the partition was deleted, or what follows is unknown."""


class TopicHead(Struct, frozen=True, eq=False, gc=False):
    """The columns that tell a topic. Copies of a log have topics with the same ids, so these compare by identity."""

    cluster: str
    topic: str
    topic_id: str


class Head(Struct, frozen=True, eq=False, gc=False):
    """The columns that tell a partition."""

    of: TopicHead
    partition: int

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return self.of.topic

    @property
    def topic_id(self) -> str:
        """The text form of the topic's id."""
        return self.of.topic_id


Cell = tuple[Head, Shape, int, int, Reason, int, int, int, str | None, int | None]
"""The known state of a partition: the head; shape, leader epoch and partition epoch; the cause, and its offset, time
and controller epoch; the type and the offset of the record."""
Ended = tuple[Any, Cell, Cell | None]
"""A row: a cell, and the cell that ends it, None while it is open. First comes what the view needs besides: the shape
before the cell, None without one; in `isr_flaps` the broker."""
Follow = Callable[[Any, bytes, Cell | None, Cell], None]
"""Takes a change: what it means to the taker, the partition's key, the cell before, and the new one."""
Told = tuple[tuple[Follow, Any], ...]
"""The parts that are told of a change, each with what the change means to it."""


class Step:
    """The effect of one change on one shape. `reason` holds if no broker event caused the change, and is found once."""

    __slots__ = ("leader_epochs", "new", "reason", "told")

    def __init__(self, new: Shape, leader_epochs: int, told: Told) -> None:
        self.new = new
        self.leader_epochs = leader_epochs
        self.reason: Reason | None = None
        self.told = told


def cause_of(cell: Cell) -> CauseRow:
    """The columns of the cause of a cell."""
    reason = cell[4]
    return (reason.code, cell[8], cell[9], reason.broker, reason.text)


# ------------------------------------------------------------------------------------------------------------ columns


class Shared(Struct, frozen=True):
    """A column in which rows share values: the values, and for each row the place of its own."""

    values: list[Any]
    places: array[int]

    def each(self) -> Iterable[Any]:
        """The value of each row."""
        return map(self.values.__getitem__, self.places)


class Partly(Struct, frozen=True):
    """A column of numbers that some rows lack: the numbers, with 0 for none, and for each row 1 if it has one."""

    values: list[int]
    known: bytes

    def each(self) -> Iterable[int | None]:
        """The value of each row."""
        return [value if known else None for value, known in zip(self.values, self.known, strict=True)]


class _Places(dict[Hashable, int]):
    """Numbers things in the order of their first appearance."""

    def __missing__(self, key: Hashable) -> int:
        self[key] = len(self)
        return self[key]


_Numbered = tuple[list[Any], "array[int]"]
"""Things, and for each row the number of its thing."""


def _numbered(things: Iterable[Hashable]) -> _Numbered:
    """Each thing once."""
    places = _Places()
    numbers = array("i", map(places.__getitem__, things))
    return list(places), numbers


def _is_preferred(shape: Shape) -> bool:
    replicas = shape.partition.replicas
    return bool(replicas) and shape.leader == replicas[0]


def _joined(before: Shape | None, shape: Shape, *, in_snapshot: bool) -> tuple[int, ...]:
    isr = shape.partition.isr
    return () if in_snapshot else isr if before is None else without(isr, before.partition.isr)


def _left(before: Shape | None, shape: Shape) -> tuple[int, ...]:
    return () if before is None else without(before.partition.isr, shape.partition.isr)


_OF_SHAPE: Final[dict[str, Callable[[Shape], Any]]] = {
    "replicas": lambda shape: shape.columns[0],
    "isr": lambda shape: shape.columns[1],
    "elr": lambda shape: shape.columns[2],
    "last_known_elr": lambda shape: shape.columns[3],
    "adding_replicas": lambda shape: shape.columns[4],
    "removing_replicas": lambda shape: shape.columns[5],
    "leader_recovery_state": lambda shape: shape.columns[6],
    "directories": lambda shape: shape.columns[7],
    "leader": lambda shape: shape.leader,
    "to_leader": lambda shape: shape.leader,
    "preferred": _is_preferred,
}
_OF_REASON: Final[dict[str, Callable[[Reason], Any]]] = {
    "election": lambda reason: reason.election,
    "clean": lambda reason: reason.election not in UNCLEAN,
    "cause": lambda reason: reason.code,
    "cause_broker": lambda reason: reason.broker,
    "cause_text": lambda reason: reason.text,
}
_OF_CELL: Final = {
    **{"leader_epoch": 2, "partition_epoch": 3, "valid_from_offset": 5, "valid_from": 6, "epoch": 7},
    **{"offset": 5, "timestamp": 6, "cause_record": 8, "cause_offset": 9},
}
_OF_END: Final = {"valid_to_offset": 5, "valid_to": 6}
_OF_TOPIC: Final = frozenset({"cluster", "topic", "topic_id"})
_OF_PAIR: Final[dict[str, Callable[[tuple[Shape | None, Shape, bool]], Any]]] = {
    "previous_leader": lambda pair: None if pair[0] is None else pair[0].leader,
    "from_leader": lambda pair: None if pair[0] is None else pair[0].leader,
    "joined": lambda pair: _joined(pair[0], pair[1], in_snapshot=pair[2]),
    "left": lambda pair: _left(pair[0], pair[1]),
}


class CellColumns:
    """Rows of `CELL_VIEWS` as columns. What rows share is found once, for all columns that need it.

    Args:
        ended: The rows.
    """

    def __init__(self, ended: Sequence[Ended]) -> None:
        self._ended = ended
        self._cells = [row[1] for row in ended]
        self._ends = [row[2] for row in ended]
        self._fields = list(zip(*self._cells, strict=True)) or [()] * 10

    def column(self, name: str) -> Sequence[Any] | Shared | Partly:
        """The values of a column of these views, or what the rows share."""
        if name in _OF_SHAPE:
            return self._each(_OF_SHAPE[name], self._shapes)
        if name in _OF_REASON:
            return self._each(_OF_REASON[name], self._reasons)
        if name in _OF_TOPIC:
            return self._each(attrgetter(name), self._topics)
        if name in _OF_PAIR:
            return self._each(_OF_PAIR[name], self._pairs)
        if name in _OF_CELL:
            values = self._fields[_OF_CELL[name]]
            return Shared(*_numbered(values)) if name == "cause_record" else values
        if name in _OF_END:
            place = _OF_END[name]
            numbers: list[Any] = [0 if end is None else end[place] for end in self._ends]
            return Partly(numbers, self._known_ends)
        match name:
            case "partition":
                return [head.partition for head in self._fields[0]]
            case "end_cause":
                ends = _numbered([None if end is None else end[4] for end in self._ends])
                return self._each(lambda reason: None if reason is None else reason.code, ends)
            case "broker":
                return [row[0] for row in self._ended]
            case "seconds":
                return [
                    0.0 if end is None else (end[6] - cell[6]) / 1000
                    for cell, end in zip(self._cells, self._ends, strict=True)
                ]
        raise KeyError(name)

    def _each(self, make: Callable[[Any], Any], numbered: _Numbered) -> Shared:
        things, places = numbered
        return Shared(list(map(make, things)), places)

    @cached_property
    def _known_ends(self) -> bytes:
        return bytes([end is not None for end in self._ends])

    @cached_property
    def _shapes(self) -> _Numbered:
        return _numbered(self._fields[1])

    @cached_property
    def _reasons(self) -> _Numbered:
        return _numbered(self._fields[4])

    @cached_property
    def _topics(self) -> _Numbered:
        return _numbered([head.of for head in self._fields[0]])

    @cached_property
    def _pairs(self) -> _Numbered:
        """The shapes before and since, and whether a snapshot tells."""
        return _numbered([(row[0], row[1][1], row[1][4].code == SNAPSHOT) for row in self._ended])


def whole_rows(view: str, ended: Sequence[Ended]) -> list[tuple[Any, ...]]:
    """Rows as tuples in the order of the view's columns."""
    columns = CellColumns(ended)
    parts = [columns.column(name) for name in VIEWS[view].names]
    return list(zip(*(one.each() if isinstance(one, Shared | Partly) else one for one in parts), strict=True))
