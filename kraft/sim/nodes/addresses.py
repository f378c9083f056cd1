"""The addresses of simulated nodes: host names that contain the node id."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from kraft.quorum.values import DEFAULT_LISTENER, Endpoints, ListenerAddress
from kraft.sim.world.member_interface import NOWHERE

PORT: Final = 9000
"""The port of each controller at the beginning."""
_BROKER_PORT: Final = 9092
_HOST: Final = re.compile("[nbv][1-9][0-9]{0,5}")
"""The host names of nodes; other names come from forged frames."""
_INDIRECT: Final = "v"
_REMEMBERED: Final = 1024


def endpoints_of(node_id: int, port: int = PORT) -> Endpoints:
    """The endpoints of a controller, with a host name of its own."""
    return Endpoints((ListenerAddress(DEFAULT_LISTENER, f"n{node_id}", port),))


def endpoints_of_broker(node_id: int) -> Endpoints:
    """The endpoints of a broker."""
    return Endpoints((ListenerAddress("PLAINTEXT", f"b{node_id}", _BROKER_PORT),))


def bootstrap_of(node_id: int) -> ListenerAddress:
    """An address of a controller that the controller does not advertise, such as that of a load balancer."""
    return ListenerAddress(DEFAULT_LISTENER, f"{_INDIRECT}{node_id}", PORT)


def is_indirect(host: str) -> bool:
    """Whether a host name is that of a bootstrap address."""
    return host.startswith(_INDIRECT)


@lru_cache(_REMEMBERED)
def node_at(host: str) -> int:
    """The id of the node with a host name, or `NOWHERE`."""
    return int(host[1:]) if _HOST.fullmatch(host) else NOWHERE
