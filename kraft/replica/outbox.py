"""The results of one step of a replica: outputs for the host, and work that the same step still does."""

from __future__ import annotations

from collections import deque

from msgspec import Struct, field

from kraft.quorum.events import LogFlushed, SnapshotChecked
from kraft.replica.interface.actions import Action
from kraft.replica.interface.events import Output
from kraft.wire import WireRequest

CoreFollowUp = LogFlushed | SnapshotChecked
"""An event that results from an effect. The core gets it after the effects that follow that effect."""


class Outbox(Struct):
    """Collects what a step causes. Both fields are empty between two steps."""

    outputs: list[Output] = field(default_factory=list)
    """The outputs that leave the replica with this step, in order."""
    follow_ups: deque[Action | WireRequest | CoreFollowUp] = field(default_factory=deque)
    """The work of the replica after all effects of the event itself, in order."""
