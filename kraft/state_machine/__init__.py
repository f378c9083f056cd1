"""A user's state machine on the replicated log: its interface, and the part of a process that hosts it.

Names are imported on first access (PEP 562): a controller hosts none.
"""

from typing import TYPE_CHECKING

from metadata_log.lazy_names import lazy_names

if TYPE_CHECKING:
    from kraft.state_machine.machine import C, Change, Codec, CommandRefused, Position, R, StateMachine
else:
    _HOMES = {
        "C": "kraft.state_machine.machine",
        "Change": "kraft.state_machine.machine",
        "Codec": "kraft.state_machine.machine",
        "Position": "kraft.state_machine.machine",
        "R": "kraft.state_machine.machine",
        "CommandRefused": "kraft.state_machine.machine",
        "StateMachine": "kraft.state_machine.machine",
    }
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)


__all__ = ["C", "Change", "Codec", "CommandRefused", "Position", "R", "StateMachine"]
