"""Checks of a live quorum: its leader, the lag of its voters, their addresses and clocks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from kraft.operate.doctor.checks.check import Check, listed, minutes
from kraft.operate.doctor.facts.finding import Finding, Need, Severity
from kraft.operate.doctor.facts.node import Facts, LiveFacts, LiveReplica
from kraft.quorum.voters import majority

LAG_RECORDS: Final = 1_000
LAG_MS: Final = 30_000
MANY_EPOCHS: Final = 3
SKEW_MS: Final = 1_000


def no_leader(facts: Facts) -> Iterator[Finding]:
    """No leader, or one after the other."""
    live = facts.live
    if live is None:
        return
    rises = sum(after > before for before, after in pairwise(live.epochs_seen))
    if live.leader_id >= 0 and rises <= MANY_EPOCHS:
        return
    told = [
        f"{_name(one.id, one.address)}: " + (one.problem or _state(one.epoch, one.leader_id)) for one in live.answers
    ]
    silent = [one for one in live.answers if one.problem]
    what = (
        f"the epoch rose {rises} times, to {live.epochs_seen[-1]}"
        if live.leader_id >= 0
        else f"no controller leads ({live.problem})"
    )
    yield Finding(
        id="no-leader",
        severity=Severity.FATAL,
        subjects=tuple(one.address for one in silent),
        read=(f"{live.bootstrap}: DescribeCluster, DescribeQuorum, Fetch",),
        evidence=f"{what}; {'; '.join(told) or 'no controller is known'}",
        remedy=""
        if not silent
        else f"Start the controllers at {listed(one.address for one in silent)}, then "
        f"kraft quorum status --why --bootstrap-controller {live.bootstrap}",
    )


def _name(node_id: int, address: str) -> str:
    return f"controller {node_id} at {address}" if node_id >= 0 else f"the controller at {address}"


def _state(epoch: int, leader_id: int) -> str:
    return f"epoch {epoch}, " + ("no leader" if leader_id < 0 else f"leader {leader_id}")


def is_behind(live: LiveFacts, voter: LiveReplica) -> bool:
    """Whether a voter lags behind the leader by many records or a long time."""
    leader = live.leader
    if leader is None or voter.id == leader.id:
        return False
    too_old = voter.caught_up_ms_ago is not None and voter.caught_up_ms_ago > LAG_MS
    return voter.log_end_offset < leader.log_end_offset - LAG_RECORDS or too_old or voter.caught_up_ms_ago is None


def voter_lag(facts: Facts) -> Iterator[Finding]:
    """Voters behind the leader."""
    live = facts.live
    if live is None or live.leader is None:
        return
    behind = [voter for voter in live.voters if is_behind(live, voter)]
    left = len(live.voters) - len(behind)
    is_bare = left <= majority(len(live.voters))
    for voter in behind:
        ago = "never" if voter.caught_up_ms_ago is None else f"{minutes(voter.caught_up_ms_ago)} ago"
        yield Finding(
            id="voter-lag",
            severity=Severity.ERROR if is_bare else Severity.WARN,
            nodes=(f"node {voter.id}",),
            subjects=(str(voter.id),),
            read=(f"{live.bootstrap}: DescribeQuorum",),
            evidence=f"voter {voter.id} lacks {max(live.leader.log_end_offset - voter.log_end_offset, 0):,} records, "
            f"and had all of them {ago}; {left} of {len(live.voters)} voters have caught up",
        )


def voter_endpoint_unreachable(facts: Facts) -> Iterator[Finding]:
    """Voters that do not answer, and addresses where another node or cluster answers."""
    live = facts.live
    if live is None:
        return
    for one in live.answers:
        if one.problem:
            yield Finding(
                id="voter-endpoint-unreachable",
                severity=Severity.ERROR,
                nodes=(f"node {one.id}",) if one.id >= 0 else (),
                subjects=(one.address,),
                read=(f"{one.address}: Fetch",),
                evidence=f"{_name(one.id, one.address)}: {one.problem}",
            )


def live_observer(facts: Facts) -> Iterator[Finding]:
    """Registered controllers that fetch and do not vote."""
    live = facts.live
    if live is None or facts.image is None:
        return
    voters = {one.id: one.directory_id for one in live.voters}
    for one in live.fetching:
        if one.id not in facts.image.image.controllers.by_id:
            continue
        other = voters.get(one.id)
        if other is not None:
            yield Finding(
                id="directory-id-not-voter",
                severity=Severity.ERROR,
                nodes=(f"node {one.id}",),
                subjects=(str(one.id),),
                read=(f"{live.bootstrap}: DescribeQuorum",),
                evidence=f"controller {one.id} fetches with directory {one.directory_id}, and the voter has {other}",
                remedy=f"kraft quorum remove {one.id} --directory-id {other}, then kraft quorum add {one.id}",
            )
        else:
            yield Finding(
                id="observer-controller",
                severity=Severity.WARN,
                nodes=(f"node {one.id}",),
                subjects=(str(one.id),),
                read=(f"{live.bootstrap}: DescribeQuorum",),
                evidence=f"controller {one.id} fetches, and the voters are {listed(sorted(voters))}",
                remedy=f"kraft quorum add {one.id}, or stop the node",
            )


def live_clock_skew(facts: Facts) -> Iterator[Finding]:
    """A leader with another time than this host."""
    live = facts.live
    if live is None or live.clock_ms is None or abs(live.clock_ms) <= SKEW_MS:
        return
    direction = "behind" if live.clock_ms > 0 else "ahead of"
    yield Finding(
        id="clock-skew",
        severity=Severity.WARN,
        nodes=(f"node {live.leader_id}",),
        subjects=(str(live.leader_id),),
        read=(f"{live.bootstrap}: DescribeQuorum, last caught-up time of the leader",),
        evidence=f"the clock of leader {live.leader_id} is {abs(live.clock_ms) / 1000:.1f} s {direction} this host",
    )


def live_cluster_mismatch(facts: Facts) -> Iterator[Finding]:
    """Directories of another cluster than the live one."""
    live = facts.live
    if live is None or not live.cluster_id:
        return
    for node in facts.nodes:
        if node.meta is not None and node.meta.cluster_id and node.meta.cluster_id != live.cluster_id:
            yield Finding(
                id="cluster-id-mismatch",
                severity=Severity.FATAL,
                nodes=(node.name,),
                subjects=(node.meta.path,),
                read=(f"{node.meta.path}: cluster.id", f"{live.bootstrap}: DescribeCluster"),
                evidence=f"cluster.id is {node.meta.cluster_id}, and the live cluster is {live.cluster_id}",
            )


CHECKS: Final = (
    Check("no-leader", no_leader, (Need.LIVE,)),
    Check("voter-lag", voter_lag, (Need.LIVE,)),
    Check("voter-endpoint-unreachable", voter_endpoint_unreachable, (Need.LIVE,)),
    Check("observer-controller", live_observer, (Need.LIVE,)),
    Check("clock-skew", live_clock_skew, (Need.LIVE,)),
    Check("cluster-id-mismatch", live_cluster_mismatch, (Need.LIVE,)),
)
