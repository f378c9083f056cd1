"""Kafka's own table of settings, and its verdict on values near bounds and on random settings that belong together."""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

import pytest

from judged_settings import BROKER, CONTROLLER, verdicts
from kraft.config import Config, ConfigError
from kraft.config.checks import AT_MOST, BELOW, TIERED_STORAGE
from kraft.config.definitions import CLIENT_METRICS, GROUP, NODE, TOPIC, Definition
from kraft.config.kafka_keys import REFUSED
from kraft.config.keys import NARROWER, SEGMENT_BYTES_OVERRIDE
from support.interop.kafka_or_skip import oracle
from support.interop.one_controller import both
from support.interop.real_kafka import KafkaInstallation
from support.interop.settings_table import DOCUMENTATION, MODULE, ORACLE, QUESTION, TEXTS, module_of
from support.wire import ask
from transport.protocol.errors import Error
from transport.protocol.messages import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from transport.protocol.messages.delete_topics import DeleteTopicState
from transport.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource

pytestmark = pytest.mark.kafka

VERDICTS: Final = Path(__file__).parents[2] / "data/config_verdicts.json.xz"
BITS: Final = {"SHORT": 16, "INT": 32, "LONG": 64}
STRICTER: Final = {
    *NARROWER,
    *REFUSED,
    TIERED_STORAGE,
    SEGMENT_BYTES_OVERRIDE,
    "authorizer.class.name",
    "config.providers",
    "replica.selector.class",
}
"""The settings of which we refuse values that Kafka reads; docs/differences.md says why."""
LAXER: Final = {
    "controller.listener.names",
    "group.consumer.assignors",
    "group.share.assignors",
    "group.streams.assignors",
}
"""The settings of which we read values that Kafka refuses; docs/differences.md says why."""
PAIRS: Final = 300


def test_the_table_is_kafkas(newer_kafka: KafkaInstallation) -> None:
    assert MODULE.read_text() == module_of(oracle(newer_kafka, ORACLE, [QUESTION]).splitlines())
    assert json.loads(gzip.decompress(DOCUMENTATION.read_bytes())) == json.loads(oracle(newer_kafka, ORACLE, [TEXTS]))


def test_every_value_is_judged_as_by_kafka(newer_kafka: KafkaInstallation, tmp_path: Path) -> None:
    cases = [(key, f"{key}={value}\n") for key, one in NODE.items() for value in dict.fromkeys(values_of(one))]
    cases += [("", text) for text in random_pairs(Random(1))]
    assert len(cases) > 3000
    for base in (BROKER, CONTROLLER):
        answers = verdicts(newer_kafka, tmp_path, [base + text for _, text in cases])
        for (key, text), (theirs, why) in zip(cases, answers, strict=True):
            ours, because = verdict(base + text)
            if ours != theirs:
                allowed = STRICTER if ours == "refused" else LAXER
                assert key in allowed, f"{text}: Kafka {theirs}, {why}; ours {ours}, {because}"


def test_the_stored_verdicts_are_kafkas(newer_kafka: KafkaInstallation, tmp_path: Path) -> None:
    stored = json.loads(lzma.decompress(VERDICTS.read_bytes()))
    answers = verdicts(newer_kafka, tmp_path, [case["properties"] for case in stored.values()])
    assert [kind for kind, _ in answers] == [case["kafka"] for case in stored.values()]


def values_of(key: Definition) -> list[str]:
    """Values at and around the bounds of a setting, and texts of other types."""
    match key.type:
        case "BOOLEAN":
            return ["yes", "TRUE ", "false", "", "1"]
        case "SHORT" | "INT" | "LONG":
            size = 1 << (BITS[key.type] - 1)
            least, most = -size if key.least is None else key.least, size - 1 if key.most is None else key.most
            bounds = [str(one) for one in (least - 1, least, most, most + 1)]
            return [*bounds, key.default or "1", "abc", "", " 5 ", "0", "-1", "1", "1_0", "1e3", "+7", "007"]
        case "DOUBLE":
            return ["0.5", "1e-1", ".5", "x", "", "-1", "2", "1d", "0x1"]
        case "LIST":
            return ["", "a,,b", "a,a", ",", *key.words, ",".join(key.words)]
        case "STRING":
            return ["", *key.words, *map(str.upper, key.words), *map(str.lower, key.words), "bad"]
        case _:
            return []


def random_pairs(rng: Random) -> Iterator[str]:
    """Settings that depend on each other, with values near each other."""
    for _ in range(PAIRS):
        one, other = rng.choice((*AT_MOST, *BELOW))
        middle = int(NODE[rng.choice((one, other))].default or "1")
        values = (max(1, middle + rng.randint(-2, 2)) for _ in range(2))
        yield "".join(f"{key}={value}\n" for key, value in zip((one, other), values, strict=True))


def verdict(text: str) -> tuple[str, str]:
    try:
        Config.parse(text)
    except ConfigError as refused:
        return "refused", str(refused)
    return "read", ""


def test_a_controller_that_deletes_no_topics_answers_as_kafkas(kafka: KafkaInstallation, tmp_path: Path) -> None:
    with both(kafka, tmp_path, "delete.topic.enable=false") as sides:
        for version in range(1, 7):
            named = [DeleteTopicState(name="t"), DeleteTopicState(name="u")]
            request = DeleteTopicsRequest(topics=named) if version == 6 else DeleteTopicsRequest(topic_names=["t", "u"])
            theirs, ours = (ask(side.ports[1], request, version, DeleteTopicsResponse) for side in sides)
            assert ours == theirs, version
            code = Error.TOPIC_DELETION_DISABLED if version >= 3 else Error.INVALID_REQUEST
            assert [one.error_code for one in ours.responses] == [code, code]


def test_every_value_of_topics_groups_and_subscriptions_has_kafkas_answer(
    newer_kafka: KafkaInstallation, tmp_path: Path
) -> None:
    """A change of each key to each value near a bound, in one request: the error codes, and the words."""
    resources = [
        AlterConfigsResource(
            resource_type=kind,
            resource_name=f"{number}-{key.name}",
            configs=[AlterableConfig(name=key.name, config_operation=0, value=value)],
        )
        for kind, table in ((2, TOPIC), (32, GROUP), (16, CLIENT_METRICS))
        for key in table.values()
        for number, value in enumerate(dict.fromkeys([*values_of(key), *MORE.get(key.name, ())]))
    ]
    assert len(resources) > 500
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=True)
    with both(newer_kafka, tmp_path) as sides:
        theirs, ours = (ask(side.ports[1], request, 1, IncrementalAlterConfigsResponse) for side in sides)
    answers = [
        {
            (one.resource_type, one.resource_name): (
                one.error_code,
                one.error_message or "",
            )
            for one in side.responses
        }
        for side in (ours, theirs)
    ]
    assert len(answers[0]) == len(resources)
    different = [
        (resource.resource_name, resource.configs[0].value, *(side[place] for side in answers))
        for resource in resources
        if answers[0][place := (resource.resource_type, resource.resource_name)] != answers[1][place]
    ]
    assert different == []


MORE: Final = {
    "share.auto.offset.reset": ("latest", "EARLIEST", "by_duration:PT1H", "by_duration:P", "by_duration:1h"),
    "leader.replication.throttled.replicas": ("*", "0:1", "0:1,1:2", "*,*", "0:x", "0:1,"),
    "streams.rack.aware.assignment.tags": ("a,b", "a,a", "a, a", "a,,b", "a,A", " "),
    "streams.assignor.name": ("sticky", " sticky ", "Sticky", "range", ""),
    "errors.deadletterqueue.topic.name": ("__x", " __x", "_x", "x", "dlq.__x"),
    "match": ("client_id=a", "client_id", "x=y"),
    "metrics": ("a,", "*"),
}
