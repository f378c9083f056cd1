"""Mutants of decisions that take time, and of heartbeats without a registration."""

from __future__ import annotations

from kraft.controller import decisions
from kraft.controller.controller import QuorumController
from planted_bugs.registry import Patches, Scope, mutant
from transport.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest


@mutant(Scope.LOADED, budget=5, faults=())
def decisions_in_one_turn(code: Patches) -> None:
    """The controller makes a decision with any number of records in one step, and answers no fetch meanwhile."""
    code.replace(decisions, "DECISION_STEPS_PER_TURN", 1 << 40)


@mutant(Scope.LOADED, budget=5, faults=())
def sessions_without_registration(code: Patches) -> None:
    """A heartbeat of an unregistered incarnation opens a session, which the controller has to remove later."""

    def note_contact(controller: QuorumController, beat: BrokerHeartbeatRequest, now_ms: int) -> None:
        controller._sessions.contact(beat.broker_id, beat.broker_epoch, now_ms)
        note(controller, beat, now_ms)

    note = QuorumController.note_contact
    code.replace(QuorumController, "note_contact", note_contact)
