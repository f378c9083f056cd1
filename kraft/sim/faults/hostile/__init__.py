"""Frames that no correct peer sends: absurd requests and responses, and forgeries with values in range."""

from kraft.sim.faults.hostile.answers import absurd_answer, forged_answer
from kraft.sim.faults.hostile.requests import absurd_request, forged_request
from kraft.sim.faults.hostile.target import AttackTarget, Hostile

__all__ = ["AttackTarget", "Hostile", "absurd_answer", "absurd_request", "forged_answer", "forged_request"]
