"""The legal states of one node, independent of the other nodes (TLA+ models: `NoIllegalState`, `StatesMatchRoles`)."""

from __future__ import annotations

from typing import Final

from kraft.invariants.observation import View
from kraft.quorum.values import ElectionState
from metadata_log.types import NO_NODE

OBSERVER_STATES: Final = frozenset({"Unattached", "Voted", "Follower", "Resigned"})
"""An observer may grant a vote, as a receiver of a vote request does not check its own membership. An observer is never
a candidate.
"""


def illegal(node_id: int, view: View, election: ElectionState | None, *, is_voter: bool) -> str:
    """Why a node's state, with this content of quorum-state, is illegal; empty if the state is legal."""
    if election is None or election.epoch != view.epoch:
        return f"the node is in epoch {view.epoch}, and {election} is on its disk"
    # A resigned node remains the leader of its epoch in quorum-state, but does not name itself to other nodes.
    if election.leader_id != view.leader.leader_id and (view.state != "Resigned" or view.leader.leader_id != NO_NODE):
        return f"the node names the leader {view.leader.leader_id}, and {election} is on its disk"
    if not is_voter and view.state not in OBSERVER_STATES:
        return "the node is not a voter"
    voted = None if election.voted is None else election.voted.id
    leader_id = election.leader_id
    match view.state:
        case "Leader" | "Resigned":
            return "" if leader_id == node_id else f"the leader is {leader_id}"
        case "Follower":
            return "the node follows no other node" if leader_id in (NO_NODE, node_id) else ""
        case "Candidate":
            return "" if voted == node_id and leader_id == NO_NODE else f"a candidate votes for itself: {election}"
        case "Voted":
            # The vote may be for the node itself: a candidate with an expired election timeout and no votes left.
            return "" if voted is not None else f"the node has not voted: {election}"
        case "Unattached":
            return "" if voted is None else f"the node has voted: {election}"
        case "Prospective":
            return ""
        case _:
            return "there is no such state"
