"""How far a stream has come in each cluster's log, and what happened to what it has read: KIP-320's check, for readers.

What Spark keeps in its checkpoint is `{cluster: {"offset": next, "epochs": "epoch@start …"}}`. The epochs tell a log
whose tail was truncated and written again from one that only grew, also when it is the longer one by now.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from metadata_log.spark.log_index import Epochs, LogIndex, common_end, epochs_until

_PROBLEMS: Final = "(problems)"
_REMEMBERED_EPOCHS: Final = 64
"""A tail that no majority had spans few epochs; beyond these a stream begins again at the start of the log."""


class Progress(Struct, frozen=True):
    """The offset of the next record of one cluster, and the epochs of those before it."""

    offset: int
    epochs: Epochs = ()


class StreamOffset(Struct, frozen=True):
    """What Spark keeps: the progress in each cluster, and a digest of the problems that rows have told of."""

    clusters: dict[str, Progress] = {}
    problems: str = ""


def to_json(offset: StreamOffset) -> dict[str, Any]:
    """The form in Spark's checkpoint; equal offsets give equal text."""
    clusters = {
        cluster: {
            "offset": progress.offset,
            "epochs": " ".join(f"{epoch}@{start}" for epoch, start in progress.epochs),
        }
        for cluster, progress in sorted(offset.clusters.items())
    }
    return {**clusters, _PROBLEMS: {"digest": offset.problems}} if offset.problems else clusters


def from_json(stored: Mapping[str, Any]) -> StreamOffset:
    """The reverse of `to_json`."""
    clusters = {
        cluster: Progress(one["offset"], tuple(_epoch(text) for text in one["epochs"].split()))
        for cluster, one in stored.items()
        if cluster != _PROBLEMS
    }
    return StreamOffset(clusters, stored.get(_PROBLEMS, {"digest": ""})["digest"])


def _epoch(text: str) -> tuple[int, int]:
    epoch, _, start = text.partition("@")
    return int(epoch), int(start)


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


def limited(
    starts: Mapping[str, int], logs: Mapping[str, LogIndex], limit: int | None, targets: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Where the next trigger ends in each cluster: at the end, or where about `limit` offsets in all are read.

    Every cluster gets a part by what it has left. Batches are never split, so that a trigger reads at least one, even a
    larger one, and otherwise not more than `limit`. With `targets` nothing beyond these offsets is read.
    """
    ends = {
        cluster: max(
            start,
            min(logs[cluster].end_offset, logs[cluster].end_offset if targets is None else targets.get(cluster, start)),
        )
        for cluster, start in starts.items()
    }
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
        if following == len(boundaries[cluster]) or boundaries[cluster][following] > ends[cluster]:
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
