"""A user's state machine on the replicated log: its interface, and the part of a process that hosts it."""

from kraft.state_machine.machine import C, Change, Codec, Position, R, Refused, StateMachine

__all__ = ["C", "Change", "Codec", "Position", "R", "Refused", "StateMachine"]
