"""A replica of the metadata log over a `Disk`: its inputs and outputs, and what a part that uses it has to do.

Names are imported on first access (PEP 562): a broker hosts no controller.
"""

from typing import TYPE_CHECKING

from metadata_log.lazy_names import lazy_names

if TYPE_CHECKING:
    from kraft.committed import Committed, CommittedBatch
    from kraft.quorum.events import BeginShutdown, Resign, Tick
    from kraft.replica.interface.application import (
        Application,
        ApplicationFactory,
        RawLog,
        host_raw_log,
        host_silent_raw_log,
    )
    from kraft.replica.interface.events import FlushDone, Input, Output, StartFlush, Submit, SubmitDone, Trace
    from kraft.replica.interface.options import ReplicaOptions, SnapshotOptions
    from kraft.replica.interface.status import ReplicaStatus
else:
    _HOMES = {
        "Application": "kraft.replica.interface.application",
        "ApplicationFactory": "kraft.replica.interface.application",
        "BeginShutdown": "kraft.quorum.events",
        "Committed": "kraft.committed",
        "CommittedBatch": "kraft.committed",
        "FlushDone": "kraft.replica.interface.events",
        "Input": "kraft.replica.interface.events",
        "Output": "kraft.replica.interface.events",
        "RawLog": "kraft.replica.interface.application",
        "ReplicaOptions": "kraft.replica.interface.options",
        "ReplicaStatus": "kraft.replica.interface.status",
        "Resign": "kraft.quorum.events",
        "SnapshotOptions": "kraft.replica.interface.options",
        "StartFlush": "kraft.replica.interface.events",
        "Submit": "kraft.replica.interface.events",
        "SubmitDone": "kraft.replica.interface.events",
        "Tick": "kraft.quorum.events",
        "Trace": "kraft.replica.interface.events",
        "host_raw_log": "kraft.replica.interface.application",
        "host_silent_raw_log": "kraft.replica.interface.application",
    }
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)


__all__ = [
    "Application",
    "ApplicationFactory",
    "BeginShutdown",
    "Committed",
    "CommittedBatch",
    "FlushDone",
    "Input",
    "Output",
    "RawLog",
    "ReplicaOptions",
    "ReplicaStatus",
    "Resign",
    "SnapshotOptions",
    "StartFlush",
    "Submit",
    "SubmitDone",
    "Tick",
    "Trace",
    "host_raw_log",
    "host_silent_raw_log",
]
