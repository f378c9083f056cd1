"""What a broker refuses of changes of configurations before it forwards them, as Kafka 4.4.0 does."""

from __future__ import annotations

import pytest

from kraft.broker.metadata.config_changes import judged
from kraft.config.described import described_settings
from metadata_log.image import MetadataImage
from metadata_log.records.metadata import ConfigRecord
from support.broker.data_brokers import replayed
from transport.protocol.errors import Error
from transport.protocol.messages import AlterConfigsRequest, IncrementalAlterConfigsRequest, alter_configs
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


def refusal(
    changes: dict[str, str | None],
    *,
    name: str = "1",
    own: dict[str, str] | None = None,
    for_all: dict[str, str] | None = None,
    file: dict[str, str] | None = None,
) -> str | None:
    """Why a change of a broker is refused, over what is set already."""
    layers = {"1": own or {}, "": for_all or {}}
    records = [ConfigRecord(BROKER, at, key, value) for at, one in layers.items() for key, value in one.items()]
    image = replayed(MetadataImage(), *records) if records else MetadataImage()
    message = IncrementalAlterConfigsRequest(
        [change(BROKER, name, *((k, int(v is None), v) for k, v in changes.items()))]
    )
    refused = judged(message, 1, tuple(described_settings({"log.dirs": "/a", **(file or {})})), image)
    return None if refused is None else refused.answers[0].text


THREADS, MEMORY, SECRET = (
    "log.cleaner.threads",
    "log.cleaner.dedupe.buffer.size",
    "listener.name.external.ssl.key.password",
)
LITTLE = "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."


@pytest.mark.parametrize("changes", [{THREADS: "2"}, {SECRET: "x", THREADS: "2"}])
def test_the_cleaners_threads_need_their_memory(changes: dict[str, str | None]) -> None:
    """Kafka's own test of its command sets a password and the threads at once."""
    assert refusal(changes) is None
    assert refusal(changes, file={MEMORY: "2097152"}) == LITTLE
    assert refusal(changes, file={MEMORY: "2097152"}, for_all={MEMORY: "4194304"}) is None
    assert refusal(changes, own={MEMORY: "2097152"}, for_all={MEMORY: "4194304"}) == LITTLE


def test_a_value_that_goes_counts_as_what_is_behind_it() -> None:
    assert refusal({MEMORY: None}, own={MEMORY: "4194304", THREADS: "2"}, file={MEMORY: "2097152"}) == LITTLE
    assert refusal({MEMORY: None}, own={MEMORY: "4194304", THREADS: "2"}) is None
    assert refusal({THREADS: "2"}, name="", own={MEMORY: "2097152"}) == LITTLE, (
        "a default of all, behind the own memory"
    )


def test_a_whole_configuration_begins_without_any_key() -> None:
    config = alter_configs.AlterableConfig(name=THREADS, value="2")
    whole = alter_configs.AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[config])
    own = [ConfigRecord(BROKER, "1", MEMORY, "4194304")]
    file = tuple(described_settings({"log.dirs": "/a", MEMORY: "2097152"}))
    refused = judged(AlterConfigsRequest(resources=[whole]), 1, file, replayed(MetadataImage(), *own))
    assert refused is not None
    assert refused.answers[0].text == LITTLE


@pytest.mark.parametrize(
    ("value", "own", "text"),
    [
        ("16", None, None),
        ("17", None, "not be greater than double the current value 8"),
        ("4", None, None),
        ("3", None, "be at least half the current value 8"),
        ("17", {"num.io.threads": "16"}, None),
    ],
)
def test_pools_grow_and_shrink_by_half_at_most(value: str, own: dict[str, str] | None, text: str | None) -> None:
    """Kafka: `DynamicThreadPool.validateReconfiguration`, though the pools are not ours."""
    found = refusal({"num.io.threads": value}, own=own)
    assert (found is None) is (text is None)
    assert text is None or f"failed for num.io.threads={value}, value should {text} for" in (found or "")


@pytest.mark.parametrize(
    ("changes", "own", "is_fine"),
    [
        ({"log.local.retention.ms": "100"}, {}, True),
        ({"log.local.retention.ms": "100"}, {"log.retention.ms": "99"}, False),
        ({"log.retention.ms": "99"}, {"log.local.retention.ms": "100"}, False),
        ({"log.retention.ms": "-1"}, {"log.local.retention.ms": "100"}, True),
        ({"log.local.retention.ms": "-1"}, {}, False),
        ({"log.local.retention.ms": "360000001"}, {}, False),
    ],
)
def test_what_is_kept_nearby_is_a_part_of_what_is_kept(
    changes: dict[str, str | None], own: dict[str, str], *, is_fine: bool
) -> None:
    assert (refusal(changes, own=own, file={"log.retention.hours": "100"}) is None) is is_fine
