"""The figures of one node that only its metrics listener has: fsync times, the longest turn, its own epoch."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct
from prometheus_client.parser import text_string_to_metric_families

from kraft.operate.top.samples import NodeFigures

_ID: Final = re.compile(r"[0-9]{1,10}")
_NODE: Final = "kraft_node_info"
_EPOCH: Final = "kafka_server_raft_metrics_current_epoch"
_FSYNC_SUM: Final = "kraft_fsync_seconds_sum"
_FSYNC_COUNT: Final = "kraft_fsync_seconds_count"
_OLDEST_FSYNC: Final = "kraft_fsync_oldest_seconds"
_LONGEST_TURN: Final = "kraft_event_loop_longest_turn_seconds"
_NO_LEADER: Final = "kraft_no_leader_reason_info"
_BEYOND: Final = 2.0**63
"""No figure is negative or as large as this. NaN is not below it either: what a listener says of itself is a claim."""
_OF_LOG: Final = {"file": "log"}


class Fsyncs(Struct, frozen=True):
    """The fsyncs of the log since the start of a node: their number, and their seconds together."""

    count: float = 0.0
    seconds: float = 0.0


def figures_of(address: str, text: str, before: Fsyncs | None) -> tuple[NodeFigures, Fsyncs]:
    """The figures in the text of a scrape, and what the next scrape needs of this one.

    Args:
        address: The address of the listener.
        text: The answer in Prometheus's text format.
        before: The fsyncs of the scrape before; None for the first one, which takes the mean since the node's start.

    Raises:
        ValueError: The text is not in Prometheus's format.
    """
    values: dict[str, float] = {}
    labels: dict[str, dict[str, str]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                is_number = 0 <= sample.value < _BEYOND
                if is_number and (not sample.name.startswith("kraft_fsync_seconds") or sample.labels == _OF_LOG):
                    values[sample.name], labels[sample.name] = sample.value, sample.labels
    except Exception as bad:  # the parser has an exception of its own for each way in which a text can be wrong
        raise ValueError("the answer is not in the text format of Prometheus") from bad
    fsyncs = Fsyncs(values.get(_FSYNC_COUNT, 0.0), values.get(_FSYNC_SUM, 0.0))
    node = labels.get(_NODE, {}).get("node_id", "")
    epoch = values.get(_EPOCH)
    figures = NodeFigures(
        address=address,
        node_id=int(node) if _ID.fullmatch(node) else None,
        epoch=None if epoch is None else int(epoch),
        fsync_s=_fsync_s(fsyncs, before, values.get(_OLDEST_FSYNC, 0.0)),
        longest_turn_s=values.get(_LONGEST_TURN),
        no_leader_reason=labels.get(_NO_LEADER, {}).get("reason"),
        problem=None if _NODE in values else "not a node of trio-kraft: the metric kraft_node_info is absent",
    )
    return figures, fsyncs


def _fsync_s(now: Fsyncs, before: Fsyncs | None, oldest_s: float) -> float | None:
    """The mean time of an fsync; a node that has started again counts from 0. None without any fsync."""
    since = before if before is not None and before.count < now.count else Fsyncs()
    count = now.count - since.count
    mean_s = (now.seconds - since.seconds) / count if count > 0 else None
    if mean_s is None:
        return oldest_s or None
    return max(mean_s, oldest_s)
