"""The agenda has the first of all times, and a turn takes what is due in the order of the slots."""

from __future__ import annotations

from random import Random

from kraft.agenda import Agenda, Slot
from metadata_log.types import NEVER_MS


def test_the_deadline_is_always_the_first_of_all_times() -> None:
    rng, agenda = Random(1), Agenda()
    slots = range(len(agenda.times))
    for _ in range(2000):
        slot, due_ms = rng.choice(slots), rng.choice((NEVER_MS, rng.randrange(1, 50)))
        known = list(agenda.times)
        match rng.randrange(4):
            case 0:
                agenda.at(slot, due_ms)
                known[slot] = due_ms
            case 1:
                agenda.by(slot, due_ms)
                known[slot] = min(known[slot], due_ms)
            case 2:
                agenda.now(slot)
                known[slot] = 0
            case _:
                due = [one for one in slots if known[one] <= due_ms]
                assert list(agenda.take_due(due_ms)) == due
                known = [NEVER_MS if at_ms <= due_ms else at_ms for at_ms in known]
        assert agenda.times == known
        assert agenda.deadline_ms == min(known)


def test_work_makes_later_slots_due_in_the_same_turn_and_earlier_ones_in_the_next() -> None:
    agenda = Agenda()
    agenda.now(Slot.COORDINATORS)
    taken = []
    for slot in agenda.take_due(1000):
        taken.append(slot)
        if slot == Slot.COORDINATORS:
            agenda.now(Slot.WAITING_REQUESTS)
            agenda.now(Slot.CHANGES)
            agenda.at(Slot.COORDINATORS, 1000)
    assert taken == [Slot.COORDINATORS, Slot.WAITING_REQUESTS]
    assert agenda.deadline_ms == 0
    assert list(agenda.take_due(1000)) == [Slot.CHANGES, Slot.COORDINATORS]
    assert agenda.deadline_ms == NEVER_MS
