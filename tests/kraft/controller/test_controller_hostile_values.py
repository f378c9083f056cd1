"""Values and names that a client makes up: whatever they are, the controller answers soon, and goes on."""

from __future__ import annotations

import gzip
import json
import re
import time
from collections.abc import Callable

import pytest

from errors_of_answers import error_codes
from kraft.access.errors import ApiError
from kraft.config.definitions import whole_number
from kraft.controller.configs import client_metrics
from kraft.controller.configs import incremental_configs as configs
from kraft.controller.configs.match_patterns import DEEPEST, is_legal
from metadata_log.records.metadata import ConfigRecord
from support import DATA
from support.differential.controller_cluster import Cluster
from support.differential.controller_stories import (
    APPEND,
    BROKER,
    GROUP,
    METRICS,
    SET,
    SUBTRACT,
    TOPIC,
    A,
    Step,
    configure,
    create,
    envelope,
    latest,
    topic,
)
from transport.protocol import messages as m
from transport.protocol.errors import Error
from transport.protocol.messages.delete_topics import DeleteTopicState
from transport.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource

LONG = 32_000
SECONDS = 1.0
"""Of processor time; each of these took several before, and takes some milliseconds now."""


def cluster() -> Cluster:
    made = Cluster(A)
    made.do(create(topic("t", [A])))
    return made


def codes(step: Step) -> list[int]:
    return list(error_codes(cluster().do(step)))


def soon(action: Callable[..., object]) -> object:
    began = time.process_time()
    result = action()
    assert time.process_time() - began < SECONDS
    return result


# Numbers


@pytest.mark.parametrize("zeros", [9, 10, 5000, LONG - 10])
def test_leading_zeros_of_a_number_are_ignored(zeros: int) -> None:
    """Python refuses to read thousands of digits, and records are replayed by the same rules as requests are judged."""
    name = "0" * zeros + str(A)
    on = cluster()
    answer = on.do(configure(BROKER, name, ("x", SET, "1")))
    assert list(error_codes(answer)) == [Error.NONE]
    value = "0" * zeros + "1"
    for kind, resource, key in (
        (TOPIC, "t", "retention.ms"),
        (TOPIC, "t", "min.compaction.lag.ms"),
        (TOPIC, "t", "min.insync.replicas"),
        (GROUP, "g", "streams.num.standby.replicas"),
    ):
        assert list(error_codes(on.do(configure(kind, resource, (key, SET, value))))) == [Error.NONE], key


@pytest.mark.parametrize("name", ["9" * LONG, "-" + "0" * LONG, "0" * LONG + "x", "+", "1" * 11])
def test_a_non_numeric_broker_name_is_refused(name: str) -> None:
    assert codes(configure(BROKER, name, ("x", SET, "1"))) in (
        [Error.INVALID_REQUEST],
        [Error.BROKER_ID_NOT_REGISTERED],
    )


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("+07", 7),
        ("-0", 0),
        (str(2**63 - 1), 2**63 - 1),
        (str(-(2**63)), -(2**63)),
        (str(2**63), None),
        ("", None),
        ("-", None),
        ("1 ", None),
        ("1_0", None),
        ("٣", None),
        ("0x1", None),
    ],
)
def test_whole_numbers(text: str, number: int | None) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize("text", ["1" * LONG + "x", "1" * LONG + ".x", "0" * LONG + "x", "1e" + "1" * LONG + "x"])
def test_long_invalid_numbers_are_refused_quickly(text: str) -> None:
    for key in ("min.cleanable.dirty.ratio", "retention.ms"):
        assert soon(lambda key=key: codes(configure(TOPIC, "t", (key, SET, text)))) == [Error.INVALID_CONFIG]


# Lists


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_long_lists_are_joined_quickly(operation: int) -> None:
    on = cluster()
    on.do(configure(BROKER, "", ("log.dirs", SET, ",".join("a" * 16_000))))
    change = configure(BROKER, "", ("log.dirs", operation, ",".join("b" * 16_000)))
    soon(lambda: on.do(change))


# Patterns


def verdicts() -> list[tuple[str, bool]]:
    """Random patterns, and whether the compiler of OpenJDK 17 takes them."""
    lines = gzip.decompress((DATA / "java_patterns.jsonl.gz").read_bytes()).splitlines()
    return [tuple(json.loads(line)) for line in lines]


def test_no_pattern_is_accepted_that_java_refuses() -> None:
    """A broker that cannot compile a pattern stops listening to the metadata."""
    found = verdicts()
    assert [pattern for pattern, of_java in found if is_legal(pattern) and not of_java] == []
    known = [pattern for pattern, of_java in found if of_java]
    assert len(known) > 500
    assert sum(map(is_legal, known)) > len(known) * 2 // 3


@pytest.mark.parametrize(
    "pattern",
    [
        "app-.*",
        "^app-[0-9]{3}$",
        "(?i)kafka-(producer|consumer)-\\d+",
        "(?:[a-z]+\\.)*example",
        "[a-zA-Z0-9._-]+",
        "10\\.0\\.[0-9]+\\.[0-9]+",
        "\\Qa.b\\E",
        "\\p{L}+",
        "[^\\s]*",
        "a++b?+c*?",
        "b69cc35a-7a54-4790-aa69-cc2bd4ee4538",
        "3\\.[5-9]\\..*|4\\..*",
    ],
)
def test_common_patterns_are_accepted(pattern: str) -> None:
    assert is_legal(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "[\u0001-\uffff]" * 4000,
        "(?i)" + "[\u0001-\uffff]" * 400,
        "(" * LONG,
        "(a)" * (LONG // 3),
        "\\Q" * (LONG // 2),
        "[" * LONG,
        "[a-" * (LONG // 3),
        "[^" + "".join(chr(300 + 2 * number) for number in range(10_000)) + "]",
        "(?:" * 5000 + "a" + ")*" * 5000,
    ],
    ids=range(9),
)
def test_a_pattern_is_checked_quickly(pattern: str) -> None:
    """Python's own compiler takes eight seconds for the first of them."""
    soon(lambda: codes(configure(METRICS, "m", ("match", SET, f"client_id={pattern}"))))


def test_groups_are_not_deeper_than_a_broker_can_compile() -> None:
    assert is_legal("(" * DEEPEST + "a" + ")" * DEEPEST)
    assert not is_legal("(" * (DEEPEST + 1) + "a" + ")" * (DEEPEST + 1))


def test_no_pattern_of_a_remote_is_compiled_or_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a pattern was compiled")

    on = cluster()
    monkeypatch.setattr(re, "compile", refuse)
    answer = on.do(configure(METRICS, "m", ("match", SET, "client_id=a.*")))
    assert list(error_codes(answer)) == [Error.NONE]


def test_the_patterns_of_a_request_are_bounded_together() -> None:
    def asked(count: int) -> Step:
        one = AlterableConfig(name="match", value="client_id=" + "a" * 9_990)
        resources = [
            AlterConfigsResource(resource_type=METRICS, resource_name=f"m{number}", configs=[one])
            for number in range(count)
        ]
        return latest(lambda _: m.IncrementalAlterConfigsRequest(resources=resources))

    assert set(codes(asked(6))) == {Error.NONE}
    assert set(codes(asked(7))) == {Error.POLICY_VIOLATION}


def test_a_pattern_accepted_by_kafka_does_not_block_other_changes() -> None:
    """Back references are legal to Kafka's controllers, and may stand in a log that they wrote."""
    before = {"match": "client_id=(a)\\1"}
    client_metrics.validate("m", {**before, "interval.ms": "1000"}, before)
    with pytest.raises(ApiError):
        client_metrics.validate("m", before, {})


# Envelopes


@pytest.mark.parametrize("count", [60_000, 466_500])
def test_an_envelope_is_bounded_like_a_frame(count: int) -> None:
    """By values, and by bytes. The broker answers its client, and does not ask again."""
    inner = m.DeleteTopicsRequest(topics=[DeleteTopicState(name="")] * count)
    answer = cluster().do(envelope(latest(lambda _: inner)))
    assert (answer["error_code"], answer["response_data"]) == (Error.POLICY_VIOLATION, None)


def test_config_records_and_requests_have_the_same_rules() -> None:
    """The names of brokers that a request may use are those that a record may have."""
    name = "+" + "0" * 20 + str(A)
    [record] = cluster().records(configure(BROKER, name, ("x", SET, "1")))
    assert record == ConfigRecord(resource_type=BROKER, resource_name=name, name="x", value="1")
    assert len(name) <= configs.LONGEST_VALUE
