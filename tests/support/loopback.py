"""Ports of the loopback address for servers that a test starts by their number."""

from __future__ import annotations

import os
import socket
from collections import deque
from random import SystemRandom

PORTS = range(15_000, 32_000)
"""Below the range from which the operating system takes the ports of outgoing connections."""

TRIED = 200
"""How many ports may be taken by others before a test gives up."""

_given: deque[int] = deque(maxlen=500)
"""The last ports that were given: the server that is to have one of them may not listen yet."""


def own_ports() -> range:
    """The part of `PORTS` for this process of pytest-xdist: no two of them may choose the same port at once."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    size = len(PORTS) // workers
    first = worker % workers * size
    return PORTS[first : first + size]


def free_ports(count: int) -> list[int]:
    """Free ports, all different, none of which the system gives to an outgoing connection meanwhile."""
    candidates = list(set(own_ports()).difference(_given))
    ports: list[int] = []
    for port in SystemRandom().sample(candidates, count + TRIED):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            _given.extend(ports)
            return ports
    raise AssertionError(f"of {count + TRIED} ports of {own_ports()} fewer than {count} are free")
