"""Explains a quorum without progress: which node waits for which other node, and for what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraft.invariants.observation import View
from kraft.sim.world.host import Host
from kraft.sim.world.simulated_quorum import STUCK_MS, SimulatedQuorum
from metadata_log.types import NO_NODE

_SOUGHT: Final = {"Prospective": "pre-votes", "Candidate": "votes"}
"""What a node in this state needs from the other voters."""


def waits(world: SimulatedQuorum, target: int) -> list[str]:
    """What each part of a quorum waits for that has not settled: nodes for other nodes, the high watermark for voters,
    and clients for nodes. Every node has to know everything below `target` as committed.
    """
    nodes = [text for node_id, host in world.hosts.items() if (text := _of_node(world, node_id, host, target))]
    watched = "" if world.watch is None else world.watch.unsettled(world)
    return [*nodes, *_of_submissions(world), *([watched] if watched else [])]


def _of_node(world: SimulatedQuorum, node_id: int, host: Host, target: int) -> str:
    view = host.view
    if not host.is_running or view is None:
        is_held_back = world.disk_losses.is_damaged(node_id) and not world.may_start(node_id)
        return f"node {node_id} is down" + (
            ", and waits for a quorum that bears the loss on its disk" if is_held_back else ""
        )
    waits = [_for_leader(world, node_id, view), _for_commits(world, node_id, view, target)]
    told = " and ".join(filter(None, waits))
    under_way = ", ".join(f"{one.kind} to node {one.target}" for one in host.waiting.values())
    asked = f" (requests without an answer: {under_way})" if told and under_way else ""
    return f"node {node_id} {told}{asked}" if told else ""


def _for_leader(world: SimulatedQuorum, node_id: int, view: View) -> str:
    place = f"({view.state} in epoch {view.epoch})"
    if view.state in _SOUGHT:
        others = [one for one in world.invariants.voters_of(node_id).ids if one != node_id]
        return f"{place} waits for {_SOUGHT[view.state]} of the voters {_listed(others)}"
    leader_id = view.leader.leader_id
    if leader_id == NO_NODE:
        return f"{place} waits for a leader"
    leader = world.hosts.get(leader_id)
    known = None if leader is None or not leader.is_running else leader.view
    if known is None:
        return f"{place} waits for its leader, node {leader_id}, which is down"
    if known.state != "Leader" or known.epoch != view.epoch:
        return f"{place} waits for its leader, node {leader_id}, which is {known.state} in epoch {known.epoch}"
    return ""


def _for_commits(world: SimulatedQuorum, node_id: int, view: View, target: int) -> str:
    if view.high_watermark >= target:
        return ""
    known = f"has the high watermark {view.high_watermark}, below {target}"
    if view.state != "Leader":
        return f"{known}, and waits for node {view.leader.leader_id}" if view.leader.leader_id != NO_NODE else known
    behind = [
        f"{voter_id} (flushed to {world.invariants.observed(voter_id).flushed_offset})"
        for voter_id in world.invariants.voters_of(node_id).ids
        if world.invariants.observed(voter_id).flushed_offset < min(target, view.log_end_offset)
    ]
    if view.log_end_offset < target:
        return f"{known}, and waits for submissions: its log ends at {view.log_end_offset}"
    return f"{known}, and waits for the voters {', '.join(behind) or 'none: all have flushed its log'}"


def _of_submissions(world: SimulatedQuorum) -> Iterator[str]:
    stuck = world.stuck()
    for node_id in sorted({node_id for node_id, _ in stuck}):
        ids = [submit_id for one, submit_id in stuck if one == node_id]
        what = f"submission {ids[0]} waits" if len(ids) == 1 else f"submissions {_listed(ids)} wait"
        yield f"{what} for node {node_id} since more than {STUCK_MS} ms"


def _listed(ids: list[int]) -> str:
    return ", ".join(map(str, ids)) or "none"
