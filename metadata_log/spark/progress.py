"""How far a stream has come in each cluster's log, and what happened to what it has read: KIP-320's check, for readers.

What Spark keeps in its checkpoint is `{cluster: {"offset": next, "epochs": [[epoch, start], …]}}`. The epochs
tell a log whose tail was truncated and written again from one that only grew, also when it is the longer one by now.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from metadata_log.errors import MetadataLogError
from metadata_log.spark.log_index import Epochs, LogIndex, common_end, epochs_until

_REMEMBERED_EPOCHS: Final = 64
"""A tail that no majority had spans few epochs; beyond these a stream begins again at the start of the log."""


class DataLoss(MetadataLogError):
    """Records that a stream has not read are gone (option `failOnDataLoss`)."""


class TruncatedTail(MetadataLogError):
    """Records that a stream has read are no longer in the log (option `onTruncation`)."""


class Progress(Struct, frozen=True):
    """The offset of the next record of one cluster, and the epochs of those before it."""

    offset: int
    epochs: Epochs = ()


Offsets = dict[str, Progress]


def to_json(offsets: Mapping[str, Progress]) -> dict[str, Any]:
    """The form in Spark's checkpoint; equal offsets give equal text."""
    return {
        cluster: {"offset": offsets[cluster].offset, "epochs": [list(each) for each in offsets[cluster].epochs]}
        for cluster in sorted(offsets)
    }


def from_json(stored: Mapping[str, Any]) -> Offsets:
    """The reverse of `to_json`."""
    return {
        cluster: Progress(one["offset"], tuple((epoch, start) for epoch, start in one["epochs"]))
        for cluster, one in stored.items()
    }


class Resume(Struct, frozen=True):
    """Where to go on in a log. `withdrawn` and `lost` are ranges of offsets, empty in the usual case."""

    offset: int
    withdrawn: range = range(0)
    """Read before, and no longer in the log; other records may stand at these offsets now, and are read from there."""
    lost: range = range(0)
    """Deleted before they were read."""


def resume(read: Progress | None, log: LogIndex) -> Resume:
    """Compare what was read with the log as it is. A cluster that is new begins where its log does."""
    start = log.start_offset
    if read is None:
        return Resume(start)
    if read.offset < start:
        return Resume(start, lost=range(read.offset, start))
    if not read.epochs or read.offset == start:
        return Resume(read.offset)
    same = max(start, common_end(read.epochs, read.offset, log.epochs, log.end_offset))
    return Resume(min(read.offset, same), withdrawn=range(same, read.offset))


def progress_at(log: LogIndex, offset: int) -> Progress:
    """What is to be remembered when everything below `offset` has been read."""
    return Progress(offset, epochs_until(log.epochs, offset)[-_REMEMBERED_EPOCHS:])


def limited(starts: Mapping[str, int], logs: Mapping[str, LogIndex], limit: int | None) -> dict[str, int]:
    """Where the next trigger ends in each cluster: at the end, or where about `limit` offsets in all are read.

    Every cluster gets a part by what it has left. Batches are never split, so that a trigger reads at least one, even a
    larger one, and otherwise not more than `limit`.
    """
    ends = {cluster: max(start, logs[cluster].end_offset) for cluster, start in starts.items()}
    left = {cluster: ends[cluster] - start for cluster, start in starts.items()}
    total = sum(left.values())
    if limit is None or total <= limit:
        return ends
    boundaries = {cluster: [batch.next_offset for batch in logs[cluster].batches] for cluster in starts}
    chosen = {
        cluster: _last_boundary(boundaries[cluster], start, start + limit * left[cluster] // total)
        for cluster, start in starts.items()
    }
    budget = limit - sum(chosen[cluster] - start for cluster, start in starts.items())
    for cluster in sorted(starts, key=lambda cluster: (chosen[cluster] != starts[cluster], -left[cluster], cluster)):
        following = bisect_right(boundaries[cluster], chosen[cluster])
        if following == len(boundaries[cluster]):
            continue
        size = boundaries[cluster][following] - chosen[cluster]
        nothing_yet = all(chosen[other] == starts[other] for other in starts)
        if size <= budget or nothing_yet:
            chosen[cluster] += size
            budget -= size
    return chosen


def _last_boundary(boundaries: list[int], start: int, most: int) -> int:
    at = bisect_right(boundaries, most)
    return max(start, boundaries[at - 1]) if at else start
