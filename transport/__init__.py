"""Moves messages between nodes in Kafka's wire protocol, over TCP or in memory.

Names are loaded on first access (PEP 562), so that importing `transport.protocol` or `transport.faults` does not import
Trio.
"""

from typing import TYPE_CHECKING

from metadata_log.lazy_names import lazy_names

if TYPE_CHECKING:
    from transport.faults import FaultPlan, Faults
    from transport.interface import PEERS, Cause, Endpoint, Failed, Gone, Inbound, Listener, Reply, Request, Transport
    from transport.memory import MemoryNetwork, MemoryTransport
    from transport.memory_sockets import MemoryStreams
    from transport.protocol.inbound import Principal
    from transport.protocol.sasl.client import SaslLogin
    from transport.protocol.sasl.credentials import Login, ScramKeys, TokenKeys, TokenRefused, Users
    from transport.protocol.sasl.server import SaslListener
    from transport.sasl import Sasl
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
        "Login": "transport.protocol.sasl.credentials",
        "MemoryNetwork": "transport.memory",
        "MemoryStreams": "transport.memory_sockets",
        "MemoryTransport": "transport.memory",
        "PEERS": "transport.interface",
        "Principal": "transport.protocol.inbound",
        "Reply": "transport.interface",
        "Request": "transport.interface",
        "Sasl": "transport.sasl",
        "SaslListener": "transport.protocol.sasl.server",
        "SaslLogin": "transport.protocol.sasl.client",
        "ScramKeys": "transport.protocol.sasl.credentials",
        "TcpTransport": "transport.tcp",
        "Tls": "transport.tls",
        "TlsListener": "transport.tls",
        "TokenKeys": "transport.protocol.sasl.credentials",
        "TokenRefused": "transport.protocol.sasl.credentials",
        "Transport": "transport.interface",
        "Users": "transport.protocol.sasl.credentials",
        "WireTransport": "transport.wire",
    }
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)


__all__ = [
    "PEERS",
    "Cause",
    "Endpoint",
    "Failed",
    "FaultPlan",
    "Faults",
    "Gone",
    "Inbound",
    "Listener",
    "Login",
    "MemoryNetwork",
    "MemoryStreams",
    "MemoryTransport",
    "Principal",
    "Reply",
    "Request",
    "Sasl",
    "SaslListener",
    "SaslLogin",
    "ScramKeys",
    "TcpTransport",
    "Tls",
    "TlsListener",
    "TokenKeys",
    "TokenRefused",
    "Transport",
    "Users",
    "WireTransport",
]
