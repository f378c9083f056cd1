"""The controller quorum of Apache Kafka: consensus, the controller, nodes, and the tools around them.

Names are loaded when they are first asked for (PEP 562): `kraft.quorum` and `kraft.replica` come without Trio.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraft.config import Config, ConfigError
    from kraft.node.embed import open_node
    from kraft.node.errors import AppendRejected, NodeError, NodeStopped, NotLeader, OffsetOutOfRange, OutcomeUnknown
    from kraft.node.node import Node
else:
    _HOMES = {
        "AppendRejected": "kraft.node.errors",
        "Config": "kraft.config",
        "ConfigError": "kraft.config",
        "Node": "kraft.node.node",
        "NodeError": "kraft.node.errors",
        "NodeStopped": "kraft.node.errors",
        "NotLeader": "kraft.node.errors",
        "OffsetOutOfRange": "kraft.node.errors",
        "OutcomeUnknown": "kraft.node.errors",
        "open_node": "kraft.node.embed",
    }

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)


__all__ = [
    "AppendRejected",
    "Config",
    "ConfigError",
    "Node",
    "NodeError",
    "NodeStopped",
    "NotLeader",
    "OffsetOutOfRange",
    "OutcomeUnknown",
    "open_node",
]
