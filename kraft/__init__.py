"""The controller quorum of Apache Kafka: consensus, the controller, nodes, and the tools around them.

Names are imported on first access (PEP 562), so that `kraft.quorum` and `kraft.replica` do not import Trio.
"""

from metadata_log.lazy_names import lazy_names

TYPE_CHECKING = False  # as in typing, whose import would take most of the time of this one

if TYPE_CHECKING:
    from kraft.admin.errors import AdminError, NoController, RequestRefused
    from kraft.config import Config, ConfigError, NodeSettings, Sasl, Tls
    from kraft.node.appends import AppendHandle
    from kraft.node.backup import restore
    from kraft.node.committed import LogSnapshot
    from kraft.node.embed import open_node
    from kraft.node.errors import (
        AppendRejected,
        AppendsFull,
        ChangesSkipped,
        NodeError,
        NodeStopped,
        NotLeader,
        OffsetOutOfRange,
        OutcomeUnknown,
        SessionExpired,
        Superseded,
        TransferFailed,
    )
    from kraft.node.formatting import format
    from kraft.node.joining import create, join, observe
    from kraft.node.metrics.hook import metrics_hook
    from kraft.node.node import Latest, Node
    from kraft.node.state_machine_node import ClientSession, StateMachineNode, Watch
    from kraft.node.watching import MetadataChange
    from kraft.quorum.voters import Voter
    from kraft.state_machine import Change, CommandRefused, Position, StateMachine
    from kraft.store.errors import Compacted, Conflict, LeaseLost
    from kraft.store.locks import Election, Lock, Semaphore
    from kraft.store.machine import StoreMachine
    from kraft.store.recipes import Barrier, Counter, Queue
    from kraft.store.store import Store, connect_store, create_store, join_store, open_store
    from kraft.store.work_queue import WorkQueue
    from kraft.trio_thread import Forked, LoopEnded
else:
    _HOMES = {
        "AdminError": "kraft.admin.errors",
        "AppendHandle": "kraft.node.appends",
        "AppendRejected": "kraft.node.errors",
        "AppendsFull": "kraft.node.errors",
        "Barrier": "kraft.store.recipes",
        "Change": "kraft.state_machine",
        "ChangesSkipped": "kraft.node.errors",
        "ClientSession": "kraft.node.state_machine_node",
        "CommandRefused": "kraft.state_machine",
        "Compacted": "kraft.store.errors",
        "Config": "kraft.config",
        "ConfigError": "kraft.config",
        "Conflict": "kraft.store.errors",
        "Counter": "kraft.store.recipes",
        "Election": "kraft.store.locks",
        "Forked": "kraft.trio_thread",
        "Latest": "kraft.node.node",
        "LeaseLost": "kraft.store.errors",
        "Lock": "kraft.store.locks",
        "LogSnapshot": "kraft.node.committed",
        "LoopEnded": "kraft.trio_thread",
        "MetadataChange": "kraft.node.watching",
        "NoController": "kraft.admin.errors",
        "Node": "kraft.node.node",
        "NodeError": "kraft.node.errors",
        "NodeSettings": "kraft.config",
        "NodeStopped": "kraft.node.errors",
        "NotLeader": "kraft.node.errors",
        "OffsetOutOfRange": "kraft.node.errors",
        "OutcomeUnknown": "kraft.node.errors",
        "Position": "kraft.state_machine",
        "Queue": "kraft.store.recipes",
        "RequestRefused": "kraft.admin.errors",
        "Sasl": "kraft.config",
        "Semaphore": "kraft.store.locks",
        "SessionExpired": "kraft.node.errors",
        "StateMachine": "kraft.state_machine",
        "StateMachineNode": "kraft.node.state_machine_node",
        "Store": "kraft.store.store",
        "StoreMachine": "kraft.store.machine",
        "Superseded": "kraft.node.errors",
        "Tls": "kraft.config",
        "TransferFailed": "kraft.node.errors",
        "Voter": "kraft.quorum.voters",
        "Watch": "kraft.node.state_machine_node",
        "WorkQueue": "kraft.store.work_queue",
        "connect_store": "kraft.store.store",
        "create": "kraft.node.joining",
        "create_store": "kraft.store.store",
        "format": "kraft.node.formatting",
        "join": "kraft.node.joining",
        "join_store": "kraft.store.store",
        "metrics_hook": "kraft.node.metrics.hook",
        "observe": "kraft.node.joining",
        "open_node": "kraft.node.embed",
        "open_store": "kraft.store.store",
        "restore": "kraft.node.backup",
    }
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)


__all__ = [
    "AdminError",
    "AppendHandle",
    "AppendRejected",
    "AppendsFull",
    "Barrier",
    "Change",
    "ChangesSkipped",
    "ClientSession",
    "CommandRefused",
    "Compacted",
    "Config",
    "ConfigError",
    "Conflict",
    "Counter",
    "Election",
    "Forked",
    "Latest",
    "LeaseLost",
    "Lock",
    "LogSnapshot",
    "LoopEnded",
    "MetadataChange",
    "NoController",
    "Node",
    "NodeError",
    "NodeSettings",
    "NodeStopped",
    "NotLeader",
    "OffsetOutOfRange",
    "OutcomeUnknown",
    "Position",
    "Queue",
    "RequestRefused",
    "Sasl",
    "Semaphore",
    "SessionExpired",
    "StateMachine",
    "StateMachineNode",
    "Store",
    "StoreMachine",
    "Superseded",
    "Tls",
    "TransferFailed",
    "Voter",
    "Watch",
    "WorkQueue",
    "connect_store",
    "create",
    "create_store",
    "format",
    "join",
    "join_store",
    "metrics_hook",
    "observe",
    "open_node",
    "open_store",
    "restore",
]
