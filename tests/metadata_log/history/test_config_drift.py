"""`config_drift` compares a topic with the default of all brokers under every name that Kafka gives this default."""

from __future__ import annotations

from typing import Any

from history_stories import Log
from metadata_log.records.metadata import ConfigRecord
from metadata_log.records.topic_synonyms import default_of_topics

TOPIC = (2, "t")
ALL_BROKERS = (4, "")
COLUMNS = ("resource_name", "key", "value", "default_value", "seconds", "end_cause")


def config(value: str | None, name: str, resource: tuple[int, str] = ALL_BROKERS) -> ConfigRecord:
    return ConfigRecord(resource_type=resource[0], resource_name=resource[1], name=name, value=value)


def drift(*batches: list[ConfigRecord]) -> list[tuple[Any, ...]]:
    """The rows of batches that follow each other by a second."""
    log = Log()
    for batch in batches:
        log.batch(*batch)
    return [tuple(row[name] for name in COLUMNS) for row in log.tell("config_drift")["config_drift"]]


def test_a_topic_equal_to_the_default_of_all_brokers_is_no_drift_under_any_name() -> None:
    same = [
        config("168", "log.retention.hours"),
        config("604800000", "retention.ms", TOPIC),
        config("1000", "message.max.bytes"),
        config("1000", "max.message.bytes", TOPIC),
        config("-1", "log.retention.bytes"),
        config("-1", "retention.bytes", TOPIC),
    ]
    assert drift(same) == []


def test_the_synonym_that_takes_precedence_is_the_default() -> None:
    told = drift(
        [config("1", "log.retention.hours"), config("3600000", "retention.ms", TOPIC)],
        [config("120000", "log.retention.ms")],
        [config("30", "log.retention.minutes")],
        [config(None, "log.retention.ms")],
        [config(None, "log.retention.minutes")],
    )
    assert told == [
        ("t", "retention.ms", "3600000", "120000", 2.0, "config-removed"),
        ("t", "retention.ms", "3600000", "1800000", 1.0, "no-longer-different"),
    ]


def test_a_value_that_is_no_default_of_topics_hides_no_drift() -> None:
    """Brokers know no `retention.ms`, and the value of one broker is not that of all."""
    told = drift(
        [
            config("5", "retention.ms"),
            config("5", "log.retention.ms", (4, "1")),
            config("5", "retention.ms", TOPIC),
        ]
    )
    assert ("t", "retention.ms", "5", None, 0.0, None) in told
    assert ("1", "log.retention.ms", "5", None, 0.0, None) in told


def test_units_are_converted_and_no_number_stays_as_it_is() -> None:
    assert default_of_topics("segment.ms", {"log.roll.hours": "2"}) == "7200000"
    assert default_of_topics("retention.ms", {"log.retention.hours": "-5"}) == "-1"
    assert default_of_topics("retention.ms", {"log.retention.hours": "soon"}) == "soon"
    assert default_of_topics("no.such.key", {"no.such.key": "1"}) is None
