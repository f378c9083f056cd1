"""The stored facts of releases are what their jars say, and the jars alone are enough to make them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from metadata_log.releases import NEWEST_RELEASE, SUPPORTED_RELEASES
from metadata_log.serde.declare import read_facts
from metadata_log.serde.declare_tables import Facts
from support.interop.kafka_or_skip import found_or_skipped
from support.interop.release_facts import release_facts

pytestmark = pytest.mark.kafka

DATA: Final = Path(__file__).parents[2] / "data"


def metrics(facts: Facts) -> set[str]:
    """The metrics but those of connections, which a node makes while it starts, or soon after."""
    return {row["metric"] for row in facts["metrics.json"] if "channel-metrics" not in row["metric"]}


@pytest.mark.parametrize(
    ("release", "file"),
    [
        pytest.param(NEWEST_RELEASE, "schemas.json.gz", id="newest"),
        pytest.param(
            SUPPORTED_RELEASES[-2], f"schemas-{SUPPORTED_RELEASES[-2]}.json.gz", id="before", marks=pytest.mark.soak
        ),
    ],
)
def test_the_stored_facts_are_those_of_the_jars(release: str, file: str) -> None:
    stored, found = read_facts([DATA / file]), release_facts(found_or_skipped(release))
    assert stored.keys() == found.keys()
    for name in stored:
        if name != "metrics.json":
            assert stored[name] == found[name], name
    assert metrics(stored) == metrics(found)
