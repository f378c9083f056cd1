"""One simulated node beside its own state: its clock, its pending requests and fsyncs, and the step in progress."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kraft.invariants.observation import View
from kraft.sim.world.driver import Exchange
from kraft.sim.world.member_interface import Member, Output
from metadata_log.serde import Message

START_MS: Final = 1_700_000_000_000
"""The time of a correct clock at the beginning of a run."""


class Held(Struct, frozen=True):
    """The result of a step while the node is still busy with that step."""

    view: View
    outputs: list[Output]
    what: str


class Host(Struct):
    """One node and its simulation state. `life` counts the starts."""

    member: Member
    view: View | None = None
    shown: str = ""
    """The view, for the trace."""
    clock_offset_ms: int = 0
    clock_drift: int = 0
    """The excess speed of the clock, in thousandths."""
    clock_set_ms: int = 0
    """The virtual time since which the drift counts."""
    life: int = 0
    is_running: bool = False
    crash_seed: int = 0
    requests: int = 0
    waiting: dict[int, Exchange] = {}
    """The pending requests since the last start, by number."""
    is_disk_failing: bool = False
    """Whether a fault of the disk was injected since the last start."""
    is_disk_limited: bool = False
    was_disk_limited: bool = False
    """Whether the disk has been limited since the last start: a log directory that has failed so stays failed."""
    full_directory: str = ""
    """The log directory whose disk is full; empty for none. The node has others, and goes on."""
    submitted: dict[int, int] = {}
    """The times of the pending submissions since the last start, by id, in virtual time."""
    administered: dict[int, Message] = {}
    """The requests of clients without an answer since the last start, by id."""
    flushes: int = 0
    flushing: dict[int, int] = {}
    """The tickets of the pending fsyncs, by number."""
    record_us: int = 0
    """The time for each record that the node decides on or applies, in µs."""
    held: Held | None = None
    """The step in progress; the node takes no events meanwhile."""
    asked: dict[int, tuple[Exchange, int]] = {}
    """The deliveries without an answer, by their request id at this node."""

    def clock_ms(self, now_ms: int) -> int:
        """The time by the clock of the node at a virtual time."""
        clock_ms = START_MS + now_ms + self.clock_offset_ms
        if self.clock_drift:
            clock_ms += (now_ms - self.clock_set_ms) * self.clock_drift // 1000
        return clock_ms

    def deadline_ms(self) -> int:
        """The next deadline of the running node, in virtual time."""
        deadline_ms = self.member.deadline_ms() - START_MS - self.clock_offset_ms
        if self.clock_drift:
            wait_ms = deadline_ms - self.clock_set_ms
            deadline_ms = self.clock_set_ms - (-wait_ms * 1000 // (1000 + self.clock_drift))
        return deadline_ms
