"""Bugs of a replicated store: its leases, its tokens and its watches."""

from __future__ import annotations

from typing import Any

from kraft.state_machine import Position
from kraft.store.machine import StoreMachine
from planted_bugs.registry import Patches, Scope, mutant


@mutant(Scope.STORE, budget=60, faults=None)
def leases_end_by_a_clock_of_the_node(code: Patches) -> None:
    """The leases of a store end by a count of the node since its start, and not by the clock of the log."""
    sound = StoreMachine._pass_time

    def pass_time(machine: Any, at: Position) -> None:
        machine.passed = getattr(machine, "passed", 0) + 1
        machine.now_ms += 1000 if machine.passed > 20 else 0
        sound(machine, at)

    code.replace(StoreMachine, "_pass_time", pass_time)


@mutant(Scope.STORE, budget=60, faults=None)
def renewed_leases_end_when_they_first_would(code: Patches) -> None:
    """A renewal of a lease has no effect: the lease ends when its first time is over."""
    sound = StoreMachine._renew

    def renew(machine: StoreMachine, lease_id: int) -> None:
        if not machine._leases[lease_id].ends_ms:
            sound(machine, lease_id)

    code.replace(StoreMachine, "_renew", renew)


@mutant(Scope.STORE, budget=60, faults=None)
def tokens_begin_anew_after_a_snapshot(code: Patches) -> None:
    """A store that starts from a snapshot counts tokens from the keys that it finds there."""
    sound = StoreMachine.restore

    def restore(machine: StoreMachine, data: bytes) -> None:
        sound(machine, data)
        machine.revision = max((one.version for one in machine.scan()), default=0)

    code.replace(StoreMachine, "restore", restore)


@mutant(Scope.STORE, budget=60, faults=None)
def snapshots_lack_the_last_event(code: Patches) -> None:
    """The history of a store that starts from a snapshot lacks its last event."""
    sound = StoreMachine.restore

    def restore(machine: StoreMachine, data: bytes) -> None:
        sound(machine, data)
        machine._events = machine._events[:-1]

    code.replace(StoreMachine, "restore", restore)


@mutant(Scope.STORE, budget=60, faults=None)
def histories_forget_more_than_they_say(code: Patches) -> None:
    """A store forgets one event more than it says, so that a watch skips that one."""
    sound = StoreMachine._record

    def record(machine: StoreMachine, events: Any) -> None:
        compacted = machine.compacted
        sound(machine, events)
        if machine.compacted > compacted:
            del machine._events[:1]

    code.replace(StoreMachine, "_record", record)
