"""One replica as one synchronous object over a `Disk`: `Replica`, its inputs and outputs, and what it can host."""

from kraft.quorum.events import BeginShutdown, Resign, Tick
from kraft.replica.hosts.controller_host import ControllerHost, host_controller
from kraft.replica.interface.application import (
    Application,
    ApplicationFactory,
    RawLog,
    host_raw_log,
    host_silent_raw_log,
)
from kraft.replica.interface.events import (
    Answer,
    Committed,
    CommittedBatch,
    Drop,
    FlushDone,
    Input,
    Output,
    SendWire,
    StartFlush,
    Submit,
    SubmitDone,
    Trace,
    WireFailed,
    WireReply,
    WireRequest,
)
from kraft.replica.interface.options import ReplicaOptions, SnapshotOptions
from kraft.replica.interface.status import ReplicaStatus
from kraft.replica.replica import Replica

__all__ = [
    "Answer",
    "Application",
    "ApplicationFactory",
    "BeginShutdown",
    "Committed",
    "CommittedBatch",
    "ControllerHost",
    "Drop",
    "FlushDone",
    "Input",
    "Output",
    "RawLog",
    "Replica",
    "ReplicaOptions",
    "ReplicaStatus",
    "Resign",
    "SendWire",
    "SnapshotOptions",
    "StartFlush",
    "Submit",
    "SubmitDone",
    "Tick",
    "Trace",
    "WireFailed",
    "WireReply",
    "WireRequest",
    "host_controller",
    "host_raw_log",
    "host_silent_raw_log",
]
