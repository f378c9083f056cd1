"""The answers of a broker of Kafka 4.4.0 to StreamsGroupTopologyDescriptionUpdate."""

from __future__ import annotations

import gzip
import json
from typing import Final, NamedTuple

from support import DATA

RECORDED: Final = DATA / "topology_answers.json.gz"
ON: Final = "with streams groups"
OFF: Final = "group.coordinator.rebalance.protocols=classic,consumer"
"""The setting without them."""


class Exchange(NamedTuple):
    """A request about a group and its answer, without their lengths, in hexadecimal digits."""

    group: str
    request: str
    answer: str


def recorded() -> dict[str, list[Exchange]]:
    """The exchanges by what the broker was set to."""
    with gzip.open(RECORDED) as file:
        return {name: [Exchange(*one) for one in found] for name, found in json.load(file).items()}
