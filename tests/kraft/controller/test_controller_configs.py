"""IncrementalAlterConfigs: what each operation writes, resource by resource."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errors_of_answers import error_codes
from kraft.access.authorizer import AuthorizerSettings
from kraft.controller.decision.request_context import AdminSettings
from metadata_log.image.replaying import BatchReplay
from metadata_log.records.metadata import ClearElrRecord, ConfigRecord
from metadata_log.types import OffsetAndEpoch
from support.differential.controller_cluster import Cluster
from support.differential.controller_stories import (
    APPEND,
    BROKER,
    DELETE,
    GROUP,
    LOGGER,
    METRICS,
    SET,
    SUBTRACT,
    TOPIC,
    A,
    configure,
    create,
    topic,
)
from transport.protocol.errors import Error
from transport.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

Change = tuple[str, int, str | None]
WRITTEN: dict[str, tuple[int, str, tuple[Change, ...], list[tuple[str, str | None]]]] = {
    "a new value": (TOPIC, "t", (("retention.ms", SET, "2"),), [("retention.ms", "2")]),
    "the value that it has": (TOPIC, "t", (("retention.ms", SET, "1"),), []),
    "the value that it has, of a broker": (BROKER, "101", (("x", DELETE, None),), [("x", None)]),
    "no value": (TOPIC, "t", (("retention.ms", DELETE, None),), [("retention.ms", None)]),
    "no value where there is none": (TOPIC, "t", (("flush.ms", DELETE, None),), []),
    "null": (TOPIC, "t", (("retention.ms", SET, None),), [("retention.ms", None)]),
    "an element more than the default": (
        TOPIC,
        "t",
        (("cleanup.policy", APPEND, "compact"),),
        [("cleanup.policy", "delete,compact")],
    ),
    "all elements less": (TOPIC, "t", (("cleanup.policy", SUBTRACT, "delete"),), [("cleanup.policy", "")]),
    "the last of two": (TOPIC, "t", (("flush.ms", SET, "1"), ("flush.ms", SET, "2")), [("flush.ms", "2")]),
    "two bounds that meet": (
        TOPIC,
        "t",
        (("max.compaction.lag.ms", SET, "9"), ("min.compaction.lag.ms", SET, "9")),
        [("max.compaction.lag.ms", "9"), ("min.compaction.lag.ms", "9")],
    ),
    "of a group": (
        GROUP,
        "g",
        (("consumer.session.timeout.ms", SET, "45000"),),
        [("consumer.session.timeout.ms", "45000")],
    ),
    "of a subscription": (METRICS, "m", (("interval.ms", SET, "1000"),), [("interval.ms", "1000")]),
}
REFUSED: dict[str, tuple[int, str, tuple[Change, ...], Error]] = {
    "a topic that is not there": (TOPIC, "u", (("retention.ms", SET, "2"),), Error.UNKNOWN_TOPIC_OR_PARTITION),
    "a key that is none": (TOPIC, "t", (("nonsense", SET, "2"),), Error.INVALID_CONFIG),
    "an element more of a number": (TOPIC, "t", (("retention.ms", APPEND, "2"),), Error.INVALID_CONFIG),
    "a broker that is not there": (BROKER, "99", (("x", SET, "2"),), Error.BROKER_ID_NOT_REGISTERED),
    "a broker without a number": (BROKER, "first", (("x", SET, "2"),), Error.INVALID_REQUEST),
    "all groups": (GROUP, "", (("consumer.session.timeout.ms", SET, "45000"),), Error.INVALID_REQUEST),
    "loggers, which this software does not have": (LOGGER, "1", (("kafka", SET, "INFO"),), Error.UNSUPPORTED_VERSION),
}


def cluster() -> Cluster:
    made = Cluster(A)
    made.do(create(topic("t", [A], retention_ms="1")))
    return made


@pytest.mark.parametrize("what", WRITTEN)
def test_incremental_changes_write_the_expected_config_records(what: str) -> None:
    kind, name, changes, expected = WRITTEN[what]
    written = cluster().records(configure(kind, name, *changes))
    assert written == [
        ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value) for key, value in expected
    ]


@pytest.mark.parametrize("what", REFUSED)
def test_invalid_config_changes_are_refused_and_write_nothing(what: str) -> None:
    kind, name, changes, error = REFUSED[what]
    on = cluster()
    before = len(on.controller.batches)
    assert list(error_codes(on.do(configure(kind, name, *changes)))) == [error]
    assert on.since(before) == []


def test_a_change_of_min_insync_replicas_clears_the_elr() -> None:
    written = cluster().records(configure(TOPIC, "t", ("min.insync.replicas", SET, "2")))
    assert written[1:] == [ClearElrRecord(topic_name="t")]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([SET, APPEND, SUBTRACT, DELETE]), st.sampled_from(["compact", "delete", "delete,compact"])
        ),
        max_size=8,
    )
)
def test_append_and_subtract_change_list_settings(operations: list[tuple[int, str]]) -> None:
    on = cluster()
    expected: list[str] | None = None
    for operation, text in operations:
        on.do(configure(TOPIC, "t", ("cleanup.policy", operation, text)))
        named, now = text.split(","), ["delete"] if expected is None else expected
        if operation == SET:
            expected = named
        elif operation == APPEND:
            expected = now + [one for one in named if one not in now]
        else:
            expected = None if operation == DELETE else [one for one in now if one not in named]
    value = on.controller.controller.history.latest.configs.of((TOPIC, "t")).get("cleanup.policy")
    assert value == (None if expected is None else ",".join(expected))


NOW_MS = 1_000


@pytest.mark.parametrize("what", [*WRITTEN, *REFUSED])
def test_a_change_of_one_resource_is_decided_at_once_as_in_steps(what: str) -> None:
    """The same records, the same answer, and the same image after them."""
    kind, name, changes, _ = {**WRITTEN, **REFUSED}[what]
    made = cluster()
    controller = made.controller.controller
    [(build, _)] = [configure(kind, name, *changes)]
    request = build(made.side)
    found = controller.at_once(request, 1, NOW_MS)
    assert found is not None
    assert found == controller.handle(request, 1, 1, NOW_MS)
    for written in found.records:
        before = controller.history.latest
        replay = BatchReplay(before, before.end.offset)
        replay.go_on([written.record])
        end = OffsetAndEpoch(epoch=before.end.epoch, offset=before.end.offset + 1)
        assert isinstance(written.record, ConfigRecord)
        assert before.with_config(written.record, end) == replay.apply(end)


def test_a_standby_commits_a_batch_of_one_change_without_a_delta_as_with_one() -> None:
    controller = cluster().controller.controller
    controller.renounce()
    before = controller.history.committed
    end = OffsetAndEpoch(epoch=before.end.epoch, offset=before.end.offset + 1)
    changed = ConfigRecord(TOPIC, "t", "retention.ms", "7")
    replay = BatchReplay(before, before.end.offset)
    replay.go_on([changed])
    contradiction = ConfigRecord(BROKER, "no number", "x", "1")
    assert not controller.commit_at_once(contradiction, end)
    assert not controller.commit_at_once(ClearElrRecord(topic_name="t"), end)
    assert controller.history.latest is controller.history.committed is before
    assert controller.commit_at_once(changed, end)
    assert controller.history.latest is controller.history.committed
    assert controller.history.committed == replay.apply(end)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param((("min.insync.replicas", SET, "2"),), id="a record about all partitions of the topic"),
        pytest.param(tuple((f"k{number}", SET, "1") for number in range(17)), id="many keys"),
    ],
)
def test_what_may_take_long_is_not_decided_at_once(changes: tuple[Change, ...]) -> None:
    made = cluster()
    [(build, _)] = [configure(TOPIC, "t", *changes)]
    assert made.controller.controller.at_once(build(made.side), 1, NOW_MS) is None


def test_nothing_is_decided_at_once_on_two_resources_with_an_authorizer_or_without_the_lead() -> None:
    made = cluster()
    request = configure(TOPIC, "t", ("retention.ms", SET, "2"))[0](made.side)
    assert isinstance(request, IncrementalAlterConfigsRequest)
    twice = IncrementalAlterConfigsRequest(resources=[*request.resources, *request.resources])
    assert made.controller.controller.at_once(twice, 1, NOW_MS) is None
    strict = Cluster(A, admin=AdminSettings(authorizer=AuthorizerSettings(frozenset(("User:ANONYMOUS",)))))
    assert strict.controller.controller.at_once(request, 1, NOW_MS) is None
    made.controller.controller.renounce()
    assert made.controller.controller.at_once(request, 1, NOW_MS) is None
