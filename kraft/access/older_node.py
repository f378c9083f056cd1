"""A node that lacks a feature of the cluster, for the log of whoever refuses it or warns of it."""

from __future__ import annotations

from msgspec import Struct


class OlderNode(Struct, frozen=True):
    """A node of an older release, which has asked for its registration.

    Args:
        node: The node, such as `broker 201`.
        lacks: The levels of the cluster that the node does not support.
        remedy: What an operator can do, with the command.
    """

    node: str
    lacks: str
    remedy: str
