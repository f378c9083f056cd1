"""What a broker refuses of changes of configurations before it forwards them, as Kafka 4.4.0 does."""

from __future__ import annotations

import pytest

from kraft.broker.metadata.config_changes import judged
from kraft.config.described import described_settings
from transport.protocol.errors import Error
from transport.protocol.messages import IncrementalAlterConfigsRequest
from transport.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource

BROKER, TOPIC = 4, 2
SET, DELETE, APPEND, SUBTRACT = range(4)
OWN = tuple(described_settings({"log.dirs": "/a,/b"}))


def told(*resources: AlterConfigsResource) -> list[tuple[int, Error, str | None]]:
    """The place, the error and the text of each resource that is refused."""
    refused = judged(IncrementalAlterConfigsRequest(resources=list(resources)), 1, OWN)
    found = {} if refused is None else refused.answers
    return [(place, one.error, one.text) for place, one in sorted(found.items())]


def change(kind: int, name: str, *changes: tuple[str, int, str | None]) -> AlterConfigsResource:
    return AlterConfigsResource(
        kind, name, [AlterableConfig(name=key, config_operation=how, value=value) for key, how, value in changes]
    )


@pytest.mark.parametrize(
    ("key", "operation", "error", "words"),
    [
        ("log.retention.ms", APPEND, Error.INVALID_CONFIG, "Config value append is not allowed for config key: log.re"),
        ("num.io.threads", SUBTRACT, Error.INVALID_CONFIG, "Config value subtract is not allowed for config key: num."),
        ("nope", APPEND, Error.INVALID_CONFIG, "Unknown config name: nope"),
    ],
)
def test_what_is_no_list_takes_no_further_entries(key: str, operation: int, error: Error, words: str) -> None:
    [(_, found, text)] = told(change(BROKER, "1", (key, operation, "1")))
    assert found is error
    assert text is not None
    assert text.startswith(words)


@pytest.mark.parametrize(
    ("value", "is_refused"),
    [("/a", False), ("/a,/b", False), ("*", False), ("", False), ("/c", True), ("/a,/c", True), ("*,/a", True)],
)
def test_only_directories_of_the_broker_are_cordoned(value: str, *, is_refused: bool) -> None:
    for operation in (SET, APPEND):
        found = told(change(BROKER, "1", ("cordoned.log.dirs", operation, value)))
        assert [error for _, error, _ in found] == [Error.INVALID_REQUEST] * is_refused, (value, found)


def test_a_resource_and_a_key_stand_there_once() -> None:
    one = change(TOPIC, "t", ("retention.ms", SET, "1"))
    other = change(TOPIC, "u", ("retention.ms", SET, "1"))
    found = told(one, other, one)
    assert [(place, error) for place, error, _ in found] == [(0, Error.INVALID_REQUEST), (2, Error.INVALID_REQUEST)]
    found = told(change(TOPIC, "t", ("retention.ms", SET, "1"), ("retention.ms", SET, "1")))
    assert [error for _, error, _ in found] == [Error.INVALID_REQUEST]


def test_only_a_deletion_has_no_value() -> None:
    found = told(change(TOPIC, "t", ("retention.ms", SET, None)), change(TOPIC, "u", ("retention.ms", DELETE, None)))
    assert [(place, error) for place, error, _ in found] == [(0, Error.INVALID_REQUEST)]
