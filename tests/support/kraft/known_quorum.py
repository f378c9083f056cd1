"""The quorum of a part that a test hosts alone."""

from __future__ import annotations

from msgspec import Struct

from kraft.controller import QuorumController
from kraft.controller.server import ControllerServer
from kraft.quorum.values import LeaderAndEpoch


class KnownQuorum(Struct):
    """What a part asks of its replica, said by a test."""

    leader: LeaderAndEpoch = LeaderAndEpoch(1, 1)
    is_full: bool = False


def served(controller: QuorumController, *, is_full: bool = False) -> ControllerServer:
    """A controller as a part."""
    host = ControllerServer(controller)
    host.quorum = KnownQuorum(is_full=is_full)
    return host
