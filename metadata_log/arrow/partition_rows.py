"""The rows of `partition_history` as Arrow columns, straight from the cells of the engine (`history.partition_rows`).

As tuples these rows cost more than their replay. Most have their shape, with its lists, and their reason in common with
others, so these are converted once for each batch and taken by number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from metadata_log.arrow.columns import array_of
from metadata_log.arrow.schema import schema_of
from metadata_log.history.engine import HistoryPass
from metadata_log.history.partition_rows import PARTITION_HISTORY, Ended

ROWS: Final = 1 << 14
"""The rows of a batch."""
_SHAPE: Final = ("replicas", "isr", "elr", "last_known_elr", "adding_replicas", "removing_replicas")
_STATE: Final = (*_SHAPE, "leader_recovery_state", "directories")
"""The columns of a shape, in order."""


def partition_batches(
    passes: Iterable[tuple[HistoryPass, Iterator[None]]], columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of passes that write `partition_history` alone; short histories share batches.

    Args:
        passes: Passes, each with an iterator that advances it.
        columns: The columns and their order; None for all.

    Returns:
        An iterator of record batches in the schema of `schema_of`. Errors are those of the iterators.
    """
    schema = schema_of(PARTITION_HISTORY, columns)
    held: list[Ended] = []
    for story, steps in passes:
        ended = story.sink.ended
        for _ in steps:
            if ended:
                held += ended
                ended.clear()
                while len(held) >= ROWS:
                    yield _batch(held[:ROWS], schema)
                    del held[:ROWS]
    if held:
        yield _batch(held, schema)


def _batch(ended: Sequence[Ended], schema: pa.Schema) -> pa.RecordBatch:
    cells, until, until_ms, end_causes = zip(*ended, strict=True)
    heads, shapes, leader_epochs, epochs, reasons, since, since_ms, controllers, records, said = zip(
        *cells, strict=True
    )
    clusters, topics, topic_ids, partitions = zip(*heads, strict=True)
    plain: dict[str, Sequence[Any]] = {
        "cluster": clusters,
        "topic": topics,
        "topic_id": topic_ids,
        "partition": partitions,
        "leader_epoch": leader_epochs,
        "partition_epoch": epochs,
        "valid_from_offset": since,
        "valid_from": since_ms,
        "valid_to_offset": until,
        "valid_to": until_ms,
        "end_cause": end_causes,
        "epoch": controllers,
        "cause_record": records,
        "cause_offset": said,
    }
    each_shape, shape_of = _numbered(shapes)
    each_reason, reason_of = _numbered(reasons)
    arrays = []
    for name, kind in zip(schema.names, schema.types, strict=True):
        if name in plain:
            arrays.append(array_of(plain[name], kind))
        elif name == "leader" or name in _STATE:
            place = -1 if name == "leader" else _STATE.index(name)
            values = [one.leader if place < 0 else one.columns[place] for one in each_shape]
            arrays.append(array_of(values, kind).take(shape_of))
        else:
            attribute = _OF_REASON[name]
            arrays.append(array_of([getattr(one, attribute) for one in each_reason], kind).take(reason_of))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


_OF_REASON: Final = {"election": "election", "cause": "code", "cause_broker": "broker", "cause_text": "text"}


def _numbered(objects: Sequence[Any]) -> tuple[list[Any], pa.Array]:
    """Each object once, and for each place the number of its object. Objects are compared by identity."""
    ids = list(map(id, objects))
    each = dict(zip(ids, objects, strict=True))
    numbers = {one: number for number, one in enumerate(each)}
    return list(each.values()), pa.array([numbers[one] for one in ids], pa.int32())
