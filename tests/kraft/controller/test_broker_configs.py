"""Changes of the dynamic configuration of brokers, judged as Kafka's brokers judge them."""

from __future__ import annotations

import pytest

from kraft.access.errors import ApiError
from kraft.broker.metadata.config_changes import judged, validate
from kraft.partitions.replicas.topic_settings import topic_settings
from metadata_log.image import ConfigsImage, ResourceType
from metadata_log.image.configs import replay_config
from metadata_log.records.metadata import ConfigRecord
from support.differential.controller_cluster import Cluster
from support.differential.controller_stories import BROKER, DELETE, SET, TOPIC, A, configure
from transport.protocol.errors import Error
from transport.protocol.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from transport.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
)

NOT_A_NUMBER = "Invalid value {} for configuration {}: Not a number of type {}"


@pytest.mark.parametrize(
    ("name", "changed", "why"),
    [
        ("1", {"log.cleaner.threads": "many"}, NOT_A_NUMBER.format("many", "log.cleaner.threads", "INT")),
        (
            "",
            {"log.segment.bytes": "100"},
            "Invalid value 100 for configuration log.segment.bytes: Value must be",
        ),
        ("1", {"log.retention.ms": "0"}, "log.retention.ms must be unlimited"),
        ("1", {"node.id": "2"}, "Cannot update these configs dynamically: [node.id]"),
        ("1", {"ssl.keystore.location": "/k"}, "only per-listener using the listener prefix: [ssl.keystore.location]"),
        ("", {"sasl.enabled.mechanisms": "PLAIN"}, "broker id must be specified: [sasl.enabled.mechanisms]"),
        ("", {"listener.name.a.ssl.keystore.type": "PEM"}, "broker id must be specified: [listener.name.a.ssl"),
        ("1", {"listener.name.a.num.network.threads": "0"}, "Value must be at least 1"),
        ("", {"leader.replication.throttled.rate": "-1"}, "Value must be at least 0"),
        ("", {"compression.type": "zip"}, "String must be one of: uncompressed, zstd"),
    ],
)
def test_a_change_through_a_broker_is_refused_with_kafkas_words(name: str, changed: dict[str, str], why: str) -> None:
    with pytest.raises(ApiError) as caught:
        validate(name, changed)
    assert caught.value.error == Error.INVALID_REQUEST
    assert why in str(caught.value.text)


def test_good_changes_and_removals_through_a_broker_are_accepted() -> None:
    validate("", {"log.retention.ms": "-1", "max.connections": "5", "listener.name.a.max.connections": "7"})
    validate("1", {"listener.name.a.ssl.keystore.location": "/k", "node.id": None, "my.own.key": "x"})


def test_a_broker_answers_for_what_it_refuses_and_forwards_the_rest() -> None:
    def resource(kind: int, name: str, key: str, value: str | None, operation: int = SET) -> AlterConfigsResource:
        change = AlterableConfig(name=key, config_operation=operation, value=value)
        return AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])

    removed = AlterableConfig(name="no.key", config_operation=DELETE, value=None)
    good = resource(BROKER, "101", "log.retention.ms", "5")
    good.configs.append(removed)
    topic = resource(TOPIC, "t", "retention.ms", "x")
    bad, other = resource(BROKER, "", "log.segment.bytes", "1"), resource(BROKER, "102", "log.retention.ms", "5")
    null = resource(TOPIC, "u", "retention.ms", None)
    assert judged(IncrementalAlterConfigsRequest(resources=[good, topic]), 101) is None
    found = judged(IncrementalAlterConfigsRequest(resources=[bad, good, other, topic, null]), 101)
    assert found is not None
    assert found.kept.resources == [good, topic]
    done = [
        AlterConfigsResourceResponse(
            error_message=None, resource_type=one.resource_type, resource_name=one.resource_name
        )
        for one in (good, topic)
    ]
    merged = found.merged(IncrementalAlterConfigsResponse(responses=done))
    assert isinstance(merged, IncrementalAlterConfigsResponse)
    assert [(one.resource_type, one.resource_name, one.error_code) for one in merged.responses] == [
        (BROKER, "", Error.INVALID_REQUEST),
        (BROKER, "101", Error.NONE),
        (BROKER, "102", Error.INVALID_REQUEST),
        (TOPIC, "t", Error.NONE),
        (TOPIC, "u", Error.INVALID_REQUEST),
    ]
    whole = [AlterConfigsResourceResponse(error_code=Error.REQUEST_TIMED_OUT)] * 5
    failed = found.merged(IncrementalAlterConfigsResponse(responses=whole))
    assert isinstance(failed, IncrementalAlterConfigsResponse)
    assert [one.error_code for one in failed.responses] == [Error.INVALID_REQUEST, 7, Error.INVALID_REQUEST, 7, 42]
    assert merged.responses[2].error_message == "Unexpected broker id, expected 101, but received 102"
    assert merged.responses[4].error_message == "Null value not supported for : retention.ms"


def test_a_controller_that_is_asked_directly_takes_any_value_as_in_kafka() -> None:
    cluster = Cluster(A)
    (outcome,) = cluster.do(configure(BROKER, "", ("log.retention.ms", SET, "0")))["responses"]
    assert outcome["error_code"] == Error.NONE


def test_a_broker_ignores_a_value_of_the_metadata_that_it_cannot_use() -> None:
    """So that no value which nobody has judged deletes records or ends a broker."""
    bad = {"log.retention.ms": "0", "log.segment.bytes": "1", "log.roll.ms": "0", "log.cleanup.policy": "shrink"}
    bad |= {"log.cleaner.min.cleanable.ratio": "7", "min.insync.replicas": "0"}
    for name in ("", "1"):
        image = ConfigsImage()
        for key, value in bad.items():
            record = ConfigRecord(resource_type=ResourceType.BROKER, resource_name=name, name=key, value=value)
            image = replay_config(image, record)
        assert topic_settings("t", image, 1, {}) == topic_settings("t", ConfigsImage(), 1, {})
        static = {"log.segment.bytes": "4000", "log.retention.ms": "7"}
        assert topic_settings("t", image, 1, static) == topic_settings("t", ConfigsImage(), 1, static)
    assert topic_settings("t", ConfigsImage(), 1, {"log.segment.bytes": "4000"}).log.segment_bytes == 4000
