"""Whether a node is ready: the checks behind `/readyz`, each with its value, its limit and a sentence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from kraft.metrics.cluster import applied_time
from kraft.metrics.own import no_leader_reason
from kraft.metrics.view import NodeView, core_timeout_s
from metadata_log.types import NO_NODE, NO_OFFSET

MAX_LAG_RECORDS: Final = 1000
MAX_LAG_MS: Final = 10_000
MAX_FSYNC_S: Final = 10.0
OF_QUORUM: Final = frozenset({"leader", "contact"})
"""The checks that need other nodes, which `?exclude=quorum` leaves out."""


class Check(Struct, frozen=True):
    """One check. `value` and `limit` are numbers or names; `text` is a sentence for people."""

    name: str
    ok: bool
    value: float | int | str | None
    limit: float | int | str | None
    text: str


def readiness(view: NodeView) -> list[Check]:
    """Every check of a node that has recovered its log."""
    return [_running(view), _leader(view), _contact(view), _caught_up(view), _member(view), _disk(view)]


def is_ready(checks: Iterable[Check], *, without_quorum: bool = False) -> bool:
    """Whether all checks pass; `without_quorum` leaves out those that need other nodes."""
    return all(one.ok for one in checks if not (without_quorum and one.name in OF_QUORUM))


def _running(view: NodeView) -> Check:
    if view.is_stopping:
        return Check("running", False, "stopping", "running", "The node is shutting down.")
    if view.is_resigned:
        return Check("running", False, "resigned", "running", "The node has resigned its leadership.")
    return Check("running", True, "running", "running", "The node runs.")


def _leader(view: NodeView) -> Check:
    leader = view.replica.core.leader
    if leader.leader_id == NO_NODE:
        text = f"The node knows no leader of epoch {leader.epoch}: {no_leader_reason(view)}."
        return Check("leader", False, None, None, text)
    own = leader.leader_id == view.replica.options.node_id
    if own and not view.replica.is_active:
        return Check("leader", False, leader.leader_id, None, "The node was elected and is not active yet.")
    text = f"Node {leader.leader_id} leads epoch {leader.epoch}."
    return Check("leader", True, leader.leader_id, None, text)


def _contact(view: NodeView) -> Check:
    age_s, limit_s = view.contact_age_s, 2 * core_timeout_s(view)
    what = "a majority of the voters" if view.replica.core.is_leader else "the leader"
    if view.heard_ms is None:
        text = f"The node has not heard {what} since its start: {no_leader_reason(view)}."
        return Check("contact", False, None, limit_s, text)
    ok = age_s < limit_s
    text = f"The node heard {what} {age_s:.1f} s ago"
    reason = None if ok else no_leader_reason(view)
    return Check("contact", ok, age_s, limit_s, f"{text}: {reason}." if reason else f"{text}.")


def _caught_up(view: NodeView) -> Check:
    high_watermark = view.replica.core.log.high_watermark
    if high_watermark == NO_OFFSET:
        # Only other nodes know the high watermark; the checks of leader and contact say whether they are reached.
        is_alone = view.heard_ms is None
        return Check("caught-up", is_alone, None, MAX_LAG_RECORDS, "The high watermark is not known yet.")
    lag = max(0, high_watermark - view.replica.status().applied_offset)
    _, lag_ms = applied_time(view)
    ok = lag <= MAX_LAG_RECORDS or lag_ms <= MAX_LAG_MS
    text = f"The node has {lag} committed records to apply."
    return Check("caught-up", ok, lag, MAX_LAG_RECORDS, text)


def _member(view: NodeView) -> Check:
    core = view.replica.core
    local = core.local
    if core.is_voter:
        return Check("member", True, "voter", None, "The node is a voter.")
    voter = core.voters.find(local.id)
    if voter is not None:
        text = (
            f"The voter {local.id} has directory {voter.key.directory_id}, and this node has {local.directory_id}:"
            " its disk is another one."
        )
        return Check("member", False, "other-directory", "voter", text)
    if core.history.removes(local):
        return Check("member", False, "removed", "voter", "The node was removed from the voters.")
    return Check("member", True, "observer", None, "The node is an observer.")


def _disk(view: NodeView) -> Check:
    oldest_s = view.counted.oldest_fsync_s
    text = "No fsync takes long." if oldest_s < MAX_FSYNC_S else f"An fsync has not returned for {oldest_s:.1f} s."
    return Check("disk", oldest_s < MAX_FSYNC_S, oldest_s, MAX_FSYNC_S, text)
