"""The controller quorum of Apache Kafka: consensus, the controller, nodes, and the tools around them.

Names are imported on first access (PEP 562), so that `kraft.quorum` and `kraft.replica` do not import Trio.
"""

from typing import TYPE_CHECKING

from metadata_log.lazy_names import lazy_names

if TYPE_CHECKING:
    from kraft.config import Config, ConfigError
    from kraft.node.embed import open_node
    from kraft.node.errors import (
        AppendRejected,
        ChangesSkipped,
        NodeError,
        NodeStopped,
        NotLeader,
        OffsetOutOfRange,
        OutcomeUnknown,
        SessionExpired,
        Superseded,
    )
    from kraft.node.node import Node
    from kraft.node.state_machine_node import ClientSession, StateMachineNode, Watch
    from kraft.node.watching import MetadataChange
    from kraft.state_machine import Change, Position, Refused, StateMachine
else:
    _HOMES = {
        "AppendRejected": "kraft.node.errors",
        "Change": "kraft.state_machine",
        "ChangesSkipped": "kraft.node.errors",
        "ClientSession": "kraft.node.state_machine_node",
        "Config": "kraft.config",
        "ConfigError": "kraft.config",
        "MetadataChange": "kraft.node.watching",
        "Node": "kraft.node.node",
        "NodeError": "kraft.node.errors",
        "NodeStopped": "kraft.node.errors",
        "NotLeader": "kraft.node.errors",
        "OffsetOutOfRange": "kraft.node.errors",
        "OutcomeUnknown": "kraft.node.errors",
        "Position": "kraft.state_machine",
        "Refused": "kraft.state_machine",
        "SessionExpired": "kraft.node.errors",
        "StateMachine": "kraft.state_machine",
        "StateMachineNode": "kraft.node.state_machine_node",
        "Superseded": "kraft.node.errors",
        "Watch": "kraft.node.state_machine_node",
        "open_node": "kraft.node.embed",
    }
    __getattr__ = lazy_names(__name__, _HOMES)


__all__ = [
    "AppendRejected",
    "Change",
    "ChangesSkipped",
    "ClientSession",
    "Config",
    "ConfigError",
    "MetadataChange",
    "Node",
    "NodeError",
    "NodeStopped",
    "NotLeader",
    "OffsetOutOfRange",
    "OutcomeUnknown",
    "Position",
    "Refused",
    "SessionExpired",
    "StateMachine",
    "StateMachineNode",
    "Superseded",
    "Watch",
    "open_node",
]
