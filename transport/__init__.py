"""Moves messages between nodes in Kafka's wire protocol, over TCP or in memory.

Names are loaded on first access (PEP 562), so that importing `transport.protocol` or `transport.faults` does not import
Trio.
"""

from typing import TYPE_CHECKING

from metadata_log.lazy_names import lazy_names

if TYPE_CHECKING:
    from transport.faults import FaultPlan, Faults
    from transport.interface import Cause, Endpoint, Failed, Gone, Inbound, Listener, Reply, Request, Transport
    from transport.memory import MemoryNetwork, MemoryTransport
    from transport.memory_sockets import MemoryStreams
    from transport.protocol.inbound import Principal
    from transport.tcp import TcpTransport
    from transport.tls import Tls, TlsListener
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
        "MemoryStreams": "transport.memory_sockets",
        "MemoryTransport": "transport.memory",
        "Principal": "transport.protocol.inbound",
        "Reply": "transport.interface",
        "Request": "transport.interface",
        "TcpTransport": "transport.tcp",
        "Tls": "transport.tls",
        "TlsListener": "transport.tls",
        "Transport": "transport.interface",
        "WireTransport": "transport.wire",
    }
    __getattr__ = lazy_names(__name__, _HOMES)


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
    "MemoryStreams",
    "MemoryTransport",
    "Principal",
    "Reply",
    "Request",
    "TcpTransport",
    "Tls",
    "TlsListener",
    "Transport",
    "WireTransport",
]
