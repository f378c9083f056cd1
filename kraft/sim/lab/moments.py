"""The moments of a watched run as the page shows them: what happened, who is in which state now, and why."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kraft.sim.lab.votes import answer_in, asked_in, why
from kraft.sim.pictures.execution import HeardTrace, NodeState, Notes
from kraft.sim.pictures.wording import change_text, label_of
from kraft.sim.runs.simulator import Simulator
from kraft.sim.world.actions import Action, Deliver, Return, RoundTrip
from kraft.sim.world.host import Host
from kraft.sim.world.member_interface import WriteOutcome
from kraft.sim.world.world import World
from transport.faults import BOTH


class LabNode(Struct, frozen=True, omit_defaults=True):
    """The state of a node, what its disk says, and which faults it has."""

    now: NodeState
    stored_epoch: int = 0
    """The epoch in quorum-state."""
    voters: tuple[int, ...] = ()
    """The voters as the node knows them."""
    is_paused: bool = False
    flush_ms: int = 1
    """The longest time of an fsync."""
    role: str = "voter"


class Came(Struct, frozen=True):
    """A message that arrives: who sent it, and with which moment."""

    sender: int
    receiver: int
    sent: int
    what: str


class LabMoment(Struct, frozen=True, omit_defaults=True):
    """One moment; `nodes` has those whose state has changed."""

    at_ms: int
    node: int
    what: str
    details: tuple[str, ...] = ()
    is_fault: bool = False
    nodes: dict[int, LabNode] = {}
    came: tuple[Came, ...] = ()
    cuts: tuple[tuple[int, int], ...] | None = None
    """The pairs of nodes without a connection, if that has changed."""
    why: str = ""


_ENDS: Final = {
    WriteOutcome.COMMITTED: "{} is acknowledged",
    WriteOutcome.REFUSED: "{} is refused",
    WriteOutcome.UNKNOWN: "{} is not acknowledged",
}
"""The words for the outcome of a record, as a client hears it."""


def readable_value(value: bytes) -> str:
    """The record of a client for a reader."""
    return value.decode(errors="replace")


class LabNotes(Notes):
    """Describes the moments of a run, and sends only what has changed."""

    def __init__(self, trace: HeardTrace, simulator: Simulator | None) -> None:
        super().__init__(trace)
        self._simulator = simulator
        self.told: list[LabMoment] = []
        self._last: dict[int, LabNode] = {}
        self._cuts: tuple[tuple[int, int], ...] = ()
        self._ended: list[str] = []
        """The outcomes of records that clients have heard of since the last moment."""
        self.on_done = self.on_heard

    def on_heard(self, node_id: int, value: bytes, outcome: WriteOutcome) -> None:
        """A client has heard what became of its record."""
        self._ended.append(_ENDS[outcome].format(readable_value(value)))

    def on_performed(self, world: World, action: Action) -> None:
        """An action has happened."""
        asked = asked_in(world, action)
        before = self.moments[-1].nodes.get(asked.voter) if asked is not None and self.moments else None
        super().on_performed(world, action)
        moment = self.moments[-1]
        reason = ""
        if asked is not None and before is not None:
            reason = why(asked, before, moment.nodes[asked.voter], answer_in(world, action))
        changed, removed = {}, list[str]()
        for node_id, state in moment.nodes.items():
            node, last = self._node(node_id, world.hosts[node_id], state), self._last.get(node_id)
            if last is not None and 0 <= state.log_end_offset < last.now.log_end_offset:
                removed.append(f"the log of node {node_id} loses what follows offset {state.log_end_offset}")
            if node != last:
                changed[node_id] = self._last[node_id] = node
        cuts = self._cuts_in(world)
        told = LabMoment(
            at_ms=moment.at_ms,
            node=moment.node,
            what="; ".join((label_of(moment), *self._ended)),
            details=(*map(change_text, moment.details), *removed),
            is_fault=moment.is_fault or moment.what.startswith("visitor: "),
            nodes=changed,
            came=tuple(self._came(world, action)),
            cuts=cuts if cuts != self._cuts else None,
            why=reason,
        )
        self._cuts = cuts
        self._ended.clear()
        self.told.append(told)

    def _node(self, node_id: int, host: Host, state: NodeState) -> LabNode:
        election = host.member.stored_election()
        times = None if self._simulator is None else self._simulator.queue.times[node_id]
        return LabNode(
            now=state,
            stored_epoch=0 if election is None else election.epoch,
            voters=tuple(sorted(one.id for one in host.member.voters())) if host.is_running else (),
            is_paused=times is not None and host.is_running and times.paused_until_ms > self._now_ms(),
            flush_ms=1 if times is None else times.flush_ms,
        )

    def _now_ms(self) -> int:
        return 0 if self._simulator is None else self._simulator.now_ms

    def _cuts_in(self, world: World) -> tuple[tuple[int, int], ...]:
        if self._simulator is None:
            return ()
        plan, ids = self._simulator.faults, world.node_ids
        if not plan.has_cuts:
            return ()
        return tuple(
            (one, other)
            for one in ids
            for other in ids
            if one < other and any(plan.is_cut(one, other, kind) or plan.is_cut(other, one, kind) for kind in BOTH)
        )

    def _came(self, world: World, action: Action) -> list[Came]:
        match action:
            case Deliver(node=node, sender=sender, number=number):
                known = self._asked.get((sender, number))
                return [] if known is None else [Came(sender, node, known[0], action.kind)]
            case Return(node=node, peer=peer, number=number, copy=copy):
                answered = self._answered.get((node, number, copy))
                return [] if answered is None else [Came(peer, node, answered[0], f"answer to {action.kind}")]
            case RoundTrip(node=node, peer=peer, number=number):
                known = self._asked.get((node, number))
                sent = [] if known is None else [Came(node, peer, known[0], action.kind)]
                copy = len(world.exchanges[node, number].answers) - 1
                has_answer = (node, number, copy) in self._answered
                return (
                    [*sent, Came(peer, node, len(self.moments) - 1, f"answer to {action.kind}")] if has_answer else sent
                )
            case _:
                return []
