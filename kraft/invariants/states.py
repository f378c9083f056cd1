"""What one node may say of itself, whatever the others do (TLA+ models: `NoIllegalState`, `StatesMatchRoles`)."""

from __future__ import annotations

from typing import Final

from kraft.invariants.observation import View
from kraft.quorum.values import ElectionState
from metadata_log.types import NO_NODE

OBSERVER_STATES: Final = frozenset({"Unattached", "Voted", "Follower", "Resigned"})
"""An observer may be asked for its vote, as membership is never tested, but does not stand for election."""


def illegal(node_id: int, view: View, election: ElectionState | None, *, is_voter: bool) -> str:
    """What is impossible about a node's state and the quorum-state file beside it; empty if nothing."""
    if election is None or election.epoch != view.epoch:
        return f"it acts in epoch {view.epoch}, and {election} is on its disk"
    # Who has resigned is the leader of its epoch for ever, and tells nobody.
    if election.leader_id != view.leader.leader_id and (view.state != "Resigned" or view.leader.leader_id != NO_NODE):
        return f"it knows the leader {view.leader.leader_id}, and {election} is on its disk"
    if not is_voter and view.state not in OBSERVER_STATES:
        return "it is no voter"
    voted = None if election.voted is None else election.voted.id
    leader_id = election.leader_id
    match view.state:
        case "Leader" | "Resigned":
            return "" if leader_id == node_id else f"the leader is {leader_id}"
        case "Follower":
            return "it follows nobody else" if leader_id in (NO_NODE, node_id) else ""
        case "Candidate":
            return "" if voted == node_id and leader_id == NO_NODE else f"it has not just voted for itself: {election}"
        case "Voted":
            # For itself, too: a candidate whose time was up, and that nobody would vote for any more.
            return "" if voted is not None else f"it has not voted: {election}"
        case "Unattached":
            return "" if voted is None else f"it has voted: {election}"
        case "Prospective":
            return ""
        case _:
            return "there is no such state"
