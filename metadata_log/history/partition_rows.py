"""The states of partitions as they are kept until they end, and the rows of `partition_history`.

A replay writes most rows here, so a row stays a reference to a cell until the row leaves the engine: as a tuple, or as
a part of Arrow columns (`metadata_log.arrow.partition_rows`), where the values of a shape are converted once.
"""

from __future__ import annotations

from typing import Any, Final

from metadata_log.history.causes import CauseRow, Reason
from metadata_log.history.changes import Template
from metadata_log.history.values import partition_values
from metadata_log.image.topics import Partition

PARTITION_HISTORY: Final = "partition_history"


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


class Step:
    """The effect of one change on one shape. `reason` holds if no broker event caused the change, and is found once."""

    __slots__ = ("leader_epochs", "new", "reason")

    def __init__(self, new: Shape, leader_epochs: int) -> None:
        self.new = new
        self.leader_epochs = leader_epochs
        self.reason: Reason | None = None


Head = tuple[str, str, str, int]
"""Cluster, topic, topic id and number of a partition."""
Cell = tuple[Head, Shape, int, int, Reason, int, int, int, str | None, int | None]
"""The known state of a partition: the head; shape, leader epoch and partition epoch; the cause, and its offset, time
and controller epoch; the type and the offset of the record."""
Ended = tuple[Cell, int | None, int | None, str | None]
"""A cell with the offset, the time and the cause of its end; None for a cell that is still open."""


def whole_row(ended: Ended) -> tuple[Any, ...]:
    """The row of `partition_history`."""
    cell, until, until_ms, end_cause = ended
    head, shape, leader_epoch, partition_epoch, reason, since, since_ms, epoch = cell[:8]
    state = (*head, shape.leader, leader_epoch, partition_epoch, *shape.columns, reason.election)
    return (*state, since, since_ms, until, until_ms, end_cause, epoch, *cause_of(cell))


def cause_of(cell: Cell) -> CauseRow:
    """The columns of the cause of a cell."""
    reason = cell[4]
    return (reason.code, cell[8], cell[9], reason.broker, reason.text)
