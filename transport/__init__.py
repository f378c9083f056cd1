"""Moving messages between nodes in Kafka's wire protocol, over TCP or in memory.

Names are loaded when they are first asked for (PEP 562): `transport.protocol` and `transport.faults` come without Trio.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transport.faults import FaultPlan, Faults
    from transport.interface import Cause, Endpoint, Failed, Gone, Inbound, Listener, Reply, Request, Transport
    from transport.memory import MemoryNetwork, MemoryTransport
    from transport.tcp import TcpTransport
    from transport.wire import WireTransport
else:
    _HOMES = {
        "Cause": "transport.interface",
        "Endpoint": "transport.interface",
        "Failed": "transport.interface",
        "FaultPlan": "transport.faults",
        "Faults": "transport.faults",
        "Gone": "transport.interface",
        "Inbound": "transport.interface",
        "Listener": "transport.interface",
        "MemoryNetwork": "transport.memory",
        "MemoryTransport": "transport.memory",
        "Reply": "transport.interface",
        "Request": "transport.interface",
        "TcpTransport": "transport.tcp",
        "Transport": "transport.interface",
        "WireTransport": "transport.wire",
    }

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)


__all__ = [
    "Cause",
    "Endpoint",
    "Failed",
    "FaultPlan",
    "Faults",
    "Gone",
    "Inbound",
    "Listener",
    "MemoryNetwork",
    "MemoryTransport",
    "Reply",
    "Request",
    "TcpTransport",
    "Transport",
    "WireTransport",
]
