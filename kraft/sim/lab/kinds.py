"""The kinds of nodes as the page of the lab offers them: every kind of the simulator, those for newcomers first."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kraft.sim.nodes.cluster import CLUSTERS, WITH_VOTER_CHANGES
from kraft.sim.nodes.dynamic import DYNAMIC
from kraft.sim.search.seed_search import KINDS


class KnownKind(Struct, frozen=True):
    """A kind of nodes: its name, what the page calls it, and what it has besides voters."""

    name: str
    label: str
    has_brokers: bool
    changes_voters: bool
    takes_records: bool
    """Whether a client may write any text; state machines take commands of their own."""


_LABELS: Final = {
    "replica": "quorum",
    "dynamic": "quorum, voters change",
    "data-cluster": "data cluster",
    "coordinator-cluster": "groups and transactions",
    "core": "bare cores",
    "controller": "controllers",
    "dynamic-controller": "controllers, voters change",
    "cluster": "brokers without data",
    "combined-cluster": "some nodes are controller and broker",
    "dynamic-data-cluster": "data cluster, voters change",
}
"""The label of a kind in the page; the others have their own names."""


CHANGES_VOTERS: Final = (*DYNAMIC, *WITH_VOTER_CHANGES)
TAKES_COMMANDS: Final = ("state-machine", "store")


def known_kinds() -> tuple[KnownKind, ...]:
    """All kinds, those with labels first."""
    order = (*(name for name in _LABELS if name in KINDS), *(name for name in KINDS if name not in _LABELS))
    return tuple(
        KnownKind(
            name,
            _LABELS.get(name, name.replace("-", " ")),
            has_brokers=name in CLUSTERS,
            changes_voters=name in CHANGES_VOTERS,
            takes_records=name not in TAKES_COMMANDS,
        )
        for name in order
    )
