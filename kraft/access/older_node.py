"""The entries of the audit log: denied operations, and nodes that lack a feature of the cluster."""

from __future__ import annotations

from msgspec import Struct

from kraft.access.authorizer import Denial


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


Audited = Denial | OlderNode
"""An entry of the audit log of a node."""
