"""The progress of a stream in each cluster's log, and the detection of truncation: KIP-320's check, for readers.

Spark's checkpoint holds `{cluster: {"offset": next, "epochs": "epoch@start …"}}`. The epochs distinguish a log with a
truncated and rewritten tail from a log that only grew, even if the rewritten log is longer.

Spark asks for the first offset again when it plans a batch, also after a restart, when the logs have grown. So the end
of a batch holds where the batch begins in logs of which the offset before says nothing that lasts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from metadata_log.spark.log_index import Epochs, LogIndex, common_end, epochs_until

_PROBLEMS: Final = "(problems)"
_BEGINS: Final = "(begins)"
_REMEMBERED_EPOCHS: Final = 64
"""An uncommitted tail spans few epochs; with more, a stream begins again at the start of the log."""


class Progress(Struct, frozen=True):
    """The offset of the next record of one cluster, and the epochs of the records before."""

    offset: int
    epochs: Epochs = ()


class StreamOffset(Struct, frozen=True):
    """The state in Spark's checkpoint: the progress in each cluster, and a digest of the reported problems."""

    clusters: dict[str, Progress] = {}
    problems: str = ""
    begins: dict[str, Progress] = {}
    """Where the batch that ends here begins, in clusters of which no batch before has read."""

    @property
    def is_first(self) -> bool:
        """Whether this is where a query begins, so that nothing was read before."""
        return self.begins == self.clusters


def to_json(offset: StreamOffset) -> dict[str, Any]:
    """The form in Spark's checkpoint; equal offsets give equal text."""
    stored = _to_json(offset.clusters)
    if offset.problems:
        stored[_PROBLEMS] = {"digest": offset.problems}
    if offset.begins:
        stored[_BEGINS] = _to_json(offset.begins)
    return stored


def _to_json(clusters: Mapping[str, Progress]) -> dict[str, Any]:
    return {
        cluster: {
            "offset": progress.offset,
            "epochs": " ".join(f"{epoch}@{start}" for epoch, start in progress.epochs),
        }
        for cluster, progress in sorted(clusters.items())
    }


def from_json(stored: Mapping[str, Any]) -> StreamOffset:
    """The inverse of `to_json`."""
    problems = stored.get(_PROBLEMS, {"digest": ""})["digest"]
    return StreamOffset(_from_json(stored), problems, _from_json(stored.get(_BEGINS, {})))


def _from_json(stored: Mapping[str, Any]) -> dict[str, Progress]:
    return {
        cluster: Progress(one["offset"], tuple(_epoch(text) for text in one["epochs"].split()))
        for cluster, one in stored.items()
        if cluster not in (_PROBLEMS, _BEGINS)
    }


def _epoch(text: str) -> tuple[int, int]:
    epoch, _, start = text.partition("@")
    return int(epoch), int(start)


class Resume(Struct, frozen=True):
    """The position to continue in a log. `withdrawn` and `lost` are ranges of offsets, usually empty."""

    offset: int
    withdrawn: range = range(0)
    """Read before and no longer in the log; the records at these offsets now are read anew."""
    lost: range = range(0)
    """Deleted before they were read."""


def resume(read: Progress | None, log: LogIndex) -> Resume:
    """Compare the read part with the present log. A new cluster begins at the start of its log."""
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
    """The progress after reading everything below `offset`."""
    return Progress(offset, epochs_until(log.epochs, offset)[-_REMEMBERED_EPOCHS:])


def limited(
    starts: Mapping[str, int], logs: Mapping[str, LogIndex], limit: int | None, targets: Mapping[str, int] | None = None
) -> dict[str, int]:
    """The end of the next trigger in each cluster: the end of the log, or after about `limit` offsets in all.

    Every cluster gets a share in proportion to its unread records. Batches are never split, so a trigger reads at least
    one batch of any size, and otherwise at most `limit` offsets. `targets` are upper bounds.
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
