"""Moving messages between nodes in Kafka's wire protocol, over TCP or in memory."""

from transport.faults import FaultPlan, Faults
from transport.interface import Cause, Endpoint, Failed, Inbound, Listener, Reply, Request, Transport
from transport.memory import MemoryNetwork, MemoryTransport
from transport.tcp import TcpTransport

__all__ = [
    "Cause",
    "Endpoint",
    "Failed",
    "FaultPlan",
    "Faults",
    "Inbound",
    "Listener",
    "MemoryNetwork",
    "MemoryTransport",
    "Reply",
    "Request",
    "TcpTransport",
    "Transport",
]
