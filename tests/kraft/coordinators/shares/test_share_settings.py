"""Settings of share groups and levels of `share.version` are judged as by a controller of Kafka 4.4.0."""

from __future__ import annotations

import gzip
import json
from typing import Any, Final

import pytest

from kraft.config import Config, ConfigError
from kraft.config.described import described_settings
from kraft.config.group_settings import ShareGroupConfig
from kraft.handling.settings import RequestSettings
from metadata_log.serde import from_json, to_json
from support import DATA
from support.differential.controller_sides import InProcess
from transport.protocol import messages as m

FILE: Final = {
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.min.session.timeout.ms": "3000",
    "group.share.min.record.lock.duration.ms": "1000",
}
"""The settings of the recorded controller that differ from the defaults."""
REQUESTS: Final[dict[str, Any]] = {
    "IncrementalAlterConfigs": m.IncrementalAlterConfigsRequest,
    "UpdateFeatures": m.UpdateFeaturesRequest,
}


def rows(api: str) -> list[dict[str, Any]]:
    lines = gzip.decompress((DATA / "share" / "group" / "settings.jsonl.gz").read_bytes()).splitlines()
    return [row for row in map(json.loads, lines) if row["api"] == api]


def answers(api: str) -> list[tuple[dict[str, Any], Any]]:
    """Each recorded row with our answer, by one controller after the other."""
    side = InProcess(release="4.4-IV0", own_settings=tuple(described_settings(FILE)))
    found = []
    for row in rows(api):
        request = from_json(REQUESTS[api], row["version"], row["request"])
        found.append((row, to_json(side.ask(request, row["version"]), row["version"])))
    return found


def test_values_of_a_group_are_taken_and_refused_with_kafkas_words() -> None:
    compared = answers("IncrementalAlterConfigs")
    assert len(compared) == 49
    for row, ours in compared:
        assert ours == row["response"], row["request"]


def test_levels_of_the_feature_go_up_and_down() -> None:
    compared = answers("UpdateFeatures")
    assert len(compared) >= 3
    for row, ours in compared:
        theirs = row["response"]
        # Kafka has the word for no error as the text of a result.
        told = [(one["feature"], one["errorCode"]) for one in theirs["results"]]
        assert (ours["errorCode"], [(one["feature"], one["errorCode"]) for one in ours["results"]]) == (
            theirs["errorCode"],
            told,
        ), row["request"]


BROKER: Final = """process.roles=broker
node.id=1
controller.quorum.voters=100@localhost:9093
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://localhost:9092
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
"""


def share_settings(*lines: str) -> ShareGroupConfig:
    """The settings of a broker with more lines in its file."""
    config = Config.parse("\n".join((BROKER, *lines)))
    return config.of(RequestSettings, broker_id=1).groups.share


def test_the_settings_of_a_file_are_read() -> None:
    found = share_settings(
        "group.share.session.timeout.ms=46000",
        "group.share.heartbeat.interval.ms=6000",
        "group.share.assignment.interval.ms=0",
        "group.share.max.size=7",
        "group.share.initialize.retry.interval.ms=5",
        "group.share.assignors=simple",
    )
    assert (found.session_timeout_ms, found.heartbeat_interval_ms, found.assignment_interval_ms) == (46_000, 6000, 0)
    assert (found.max_size, found.initialize_retry_ms) == (7, 5)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("group.share.session.timeout.ms", "44999"),
        ("group.share.session.timeout.ms", "60001"),
        ("group.share.heartbeat.interval.ms", "4999"),
        ("group.share.assignment.interval.ms", "15001"),
        ("group.share.record.lock.duration.ms", "14999"),
        ("group.share.delivery.count.limit", "11"),
        ("group.share.partition.max.record.locks", "4001"),
        ("group.share.assignors", "uniform"),
        ("group.share.max.size", "1001"),
    ],
)
def test_a_file_with_a_value_beyond_its_bounds_is_refused(key: str, value: str) -> None:
    with pytest.raises(ConfigError) as refused:
        share_settings(f"{key}={value}")
    assert key in str(refused.value) or key in (refused.value.where or "")
