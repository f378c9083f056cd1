"""What goes into a `Process`; what comes out is `kraft.replica.interface.events.Output`."""

from __future__ import annotations

from kraft.calls import Call, CancelCall
from kraft.quorum.events import BeginShutdown, Resign, Resumed, Tick
from kraft.replica.interface.events import FlushDone, MakeSnapshot, Submit
from kraft.wire import WireFailed, WireGone, WireReply, WireRequest

Input = (
    Tick
    | WireRequest
    | WireReply
    | WireFailed
    | WireGone
    | FlushDone
    | Submit
    | Call
    | CancelCall
    | MakeSnapshot
    | Resign
    | Resumed
    | BeginShutdown
)
