"""Down through the levels of metadata.version and of the other features: Kafka's controllers and ours allow and refuse
the same, in the same words. (Kafka 3.9 knows neither the version of the request nor the words.)
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from metadata_log.records.metadata import FeatureLevelRecord
from metadata_log.releases import FEATURES, METADATA_VERSION, METADATA_VERSIONS, OLDEST_LEVEL, resolve_release
from support.differential.controller_sides import Side
from support.interop.kafka_or_skip import found_or_skipped
from support.interop.one_controller import log_of, side_of, single
from support.interop.our_nodes import our_controller, our_format
from support.interop.real_kafka import QuorumLayout, eventually, kafka_controller, running
from support.kafka_jars import KAFKA_VERSION, NEWER_VERSION
from transport.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

pytestmark = pytest.mark.kafka

UPGRADE, SAFE, UNSAFE = KINDS = (1, 2, 3)
Outcome = tuple[int, str | None]
FIRST: Final = "3.3-IV3"


def changed(side: Side, name: str, level: int, kind: int, *, only_check: bool = False) -> Outcome:
    """The answer of a controller to one update."""
    update = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
    answer = side.ask(UpdateFeaturesRequest(feature_updates=[update], validate_only=only_check), 2)
    return answer["error_code"], answer["error_message"]


def ways_down(side: Side, last: int) -> dict[tuple[str, int, int, int], Outcome]:
    """From the first level to `last`: each level below each one, asked for as safe and as unsafe; then the features.

    Where the next lower level is allowed, it is set and left again.
    """
    told: dict[tuple[str, int, int, int], Outcome] = {}
    for level in range(OLDEST_LEVEL, last + 1):
        if level > OLDEST_LEVEL:
            told[METADATA_VERSION, level - 1, level, UPGRADE] = changed(side, METADATA_VERSION, level, UPGRADE)
        for lower in range(OLDEST_LEVEL, level):
            for kind in KINDS:
                told[METADATA_VERSION, level, lower, kind] = changed(
                    side, METADATA_VERSION, lower, kind, only_check=True
                )
        if told.get((METADATA_VERSION, level, level - 1, SAFE)) == (0, None):
            assert changed(side, METADATA_VERSION, level - 1, SAFE) == (0, None)
            assert changed(side, METADATA_VERSION, level, UPGRADE) == (0, None)
    for name, feature in FEATURES.items():
        highest = feature.default_at(last)
        told[name, 0, highest, UPGRADE] = changed(side, name, highest, UPGRADE)
        for lower in reversed(range(highest)):
            for kind in KINDS:
                told[name, highest, lower, kind] = changed(side, name, lower, kind)
    return told


def levels_in(layout: QuorumLayout) -> list[int]:
    """The levels in a log, of all features."""
    written = (record for batch in log_of(layout) for _, record in batch)
    return [record.feature_level for record in written if isinstance(record, FeatureLevelRecord)]


def is_begun(layout: QuorumLayout) -> bool:
    """Whether the first record is written. (A controller describes no cluster below 3.7-IV0.)"""
    return any(layout.partition(1).glob("*.log")) and levels_in(layout)[:1] == [OLDEST_LEVEL]


@pytest.mark.parametrize("version", [NEWER_VERSION, pytest.param(KAFKA_VERSION, marks=pytest.mark.soak)])
def test_levels_are_lowered_as_far_as_kafka_lowers_them(version: str, tmp_path: Path) -> None:
    kafka = found_or_skipped(version)
    theirs, ours = single(tmp_path / "theirs"), single(tmp_path / "ours")
    for layout in (theirs, ours):
        our_format(layout, release=FIRST)
    with (
        running(theirs, kafka_controller(kafka, theirs), name="kafka"),
        running(ours, our_controller(ours), name="ours"),
    ):
        eventually(lambda: is_begun(theirs) and is_begun(ours), "the first records are there")
        last = METADATA_VERSIONS[resolve_release(version)]
        kafkas = ways_down(side_of(theirs), last)
        assert ways_down(side_of(ours), last) == kafkas
        allowed = [way[1:3] for way, outcome in kafkas.items() if way[0] == METADATA_VERSION and outcome == (0, None)]
        print(sorted(pair for pair in set(allowed) if pair[1] < pair[0]))
        assert levels_in(ours) == levels_in(theirs)
