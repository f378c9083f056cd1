"""The open rows of a saved pass of the format before, as rows of cells.

That format kept an open row of `leader_history`, `isr_history` or `isr_flaps` as the values of its columns. A cell with
these values gives the same row when it ends; what the row does not show is empty in the cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from metadata_log.history.causes import Reason
from metadata_log.history.open_rows import OpenRow
from metadata_log.history.partition_rows import GONE, ISR_FLAPS, LEADER_HISTORY, Cell, Head, Shape
from metadata_log.image.names import LEADER_RECOVERY_STATES
from metadata_log.image.topics import Partition

_CODES = {text: code for code, text in LEADER_RECOVERY_STATES.items()}
MakeShape = Callable[[Partition], Shape]


def cells_of_rows(
    view: str, rows: Mapping[Any, OpenRow], keys: Mapping[tuple[str, int], tuple[bytes, Head]], shape: MakeShape
) -> Iterator[tuple[bytes, Any, Cell]]:
    """The open rows of a view as keys, what comes before each cell, and cells.

    Args:
        view: One of the three views.
        rows: The open rows by topic id and partition; of `isr_flaps` by these two and the broker.
        keys: By topic id and partition the key and the head of each partition.
        shape: Makes a shape.
    """
    for of, row in rows.items():
        key, head = keys[of[0] if view == ISR_FLAPS else of]
        before, partition, epoch, election = _MADE_OF.get(view, _of_isr)(row.values[3:], shape)
        code, record, offset, broker, text = row.cause
        reason = Reason(code, broker, election, text)
        since = row.since
        told = (reason, since.offset, since.timestamp, since.epoch, record, offset)
        yield key, before, (head, shape(partition), epoch, 0, *told)


_Made = tuple[Any, Partition, int, str | None]
"""The history before the cell, its partition, its leader epoch, and the election."""


def _of_leader(values: tuple[Any, ...], shape: MakeShape) -> _Made:
    leader, epoch, previous, _, state, replicas, isr, election = values
    code = _CODES[state] if state in _CODES else int(state)
    before = None if previous is None else shape(replace(GONE.partition, leader=previous))
    changes = {"leader": leader, "leader_recovery_state": code, "replicas": replicas, "isr": isr}
    return before, replace(GONE.partition, **changes), epoch, election


def _of_isr(values: tuple[Any, ...], shape: MakeShape) -> _Made:
    isr, elr, last_known, joined, left, leader, replicas = values
    was = (*(broker for broker in isr if broker not in joined), *left)
    changes = {"isr": isr, "elr": elr, "last_known_elr": last_known, "leader": leader, "replicas": replicas}
    return shape(replace(GONE.partition, isr=was)), replace(GONE.partition, **changes), 0, None


def _of_flap(values: tuple[Any, ...], _: MakeShape) -> _Made:
    broker, leader = values
    return broker, replace(GONE.partition, leader=leader), 0, None


_MADE_OF = {LEADER_HISTORY: _of_leader, ISR_FLAPS: _of_flap}
