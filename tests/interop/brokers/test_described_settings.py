"""DescribeConfigs of a broker: ours and Kafka's describe the same settings with the same values, sources and texts."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from our_brokers import OURS, THEIRS, kafkas_broker, our_brokers
from support.eventually import eventually
from support.interop.broker_cluster import SMALL_TOPICS, STARTED
from support.interop.real_kafka import KafkaInstallation
from support.wire import ask
from transport.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    create_topics,
    incremental_alter_configs,
)
from transport.protocol.messages.describe_configs import DescribeConfigsResource, DescribeConfigsResourceResult

pytestmark = pytest.mark.kafka
TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
IN_FILE: Final = 4
"""The source of what the file of a broker sets."""
OF_ONE: Final = {
    "leader.replication.throttled.rate": "100000",
    "listener.name.plaintext.ssl.keystore.password": "hidden",
    "log.cleaner.threads": "2",
    "log.retention.ms": "999999",
    "max.connections": "77",
    "message.max.bytes": "2222222",
    "my.own.key": "x",
}
OF_ALL: Final = {"compression.type": "lz4", "log.cleaner.backoff.ms": "4", "log.retention.bytes": "88888888"}
OF_A_TOPIC: Final = {"retention.ms": "777", "segment.bytes": "1048577"}
OF_A_GROUP: Final = {"consumer.session.timeout.ms": "50000"}
OF_A_SUBSCRIPTION: Final = {"interval.ms": "1000", "metrics": "org.apache"}
ASKED: Final[tuple[tuple[int, str, tuple[str, ...], int], ...]] = (
    (BROKER, "own", (), 4),
    (BROKER, "own", (), 1),
    (BROKER, "own", ("log.retention.ms", "my.own.key", "nonsense"), 4),
    (BROKER, "", (), 4),
    (TOPIC, "t", (), 4),
    (TOPIC, "t", (), 2),
    (TOPIC, "t", ("nonsense", "retention.ms"), 4),
    (GROUP, "g", (), 4),
    (GROUP, "nobody", (), 4),
    (CLIENT_METRICS, "cm", (), 4),
    (CLIENT_METRICS, "nothing", (), 4),
)


THEIR_OWN: Final = {"broker.id", "listeners", "log.dirs", "node.id"}
"""The settings of the file to which each broker gives a value of its own."""


def test_settings_are_described_alike(newer_kafka: KafkaInstallation, tmp_path: Path) -> None:
    with our_brokers(tmp_path, OURS, settings=SMALL_TOPICS) as cluster:
        process, port = kafkas_broker(newer_kafka, cluster)
        try:
            process.wait_for(STARTED)
            cluster.wait_until_known(OURS, THEIRS, beside=port)
            ports = {OURS: int(cluster.bootstrap.rpartition(":")[2]), THEIRS: port}
            configs = [create_topics.CreatableTopicConfig(*one) for one in OF_A_TOPIC.items()]
            topic = create_topics.CreatableTopic("t", 1, 1, [], configs)
            ask(port, CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
            for broker in (OURS, THEIRS):
                change(ports[broker], BROKER, str(broker), OF_ONE)
            change(port, BROKER, "", OF_ALL)
            change(port, GROUP, "g", OF_A_GROUP)
            change(port, CLIENT_METRICS, "cm", OF_A_SUBSCRIPTION)
            eventually(lambda: all(is_known(one) for one in ports.values()), "both brokers know the changes")
            assert set_in_file(ports[OURS], OURS) == set_in_file(ports[THEIRS], THEIRS) >= THEIR_OWN
            for kind, name, keys, version in ASKED:
                found = {
                    broker: describe(ports[broker], kind, str(broker) if name == "own" else name, keys, version)
                    for broker in (OURS, THEIRS)
                }
                told = {broker: without_own_values(one) for broker, one in found.items()}
                assert told[OURS] == told[THEIRS], (kind, name, keys, version)
        finally:
            process.kill()


def change(port: int, kind: int, name: str, values: dict[str, str]) -> None:
    configs = [incremental_alter_configs.AlterableConfig(name=key, value=value) for key, value in values.items()]
    one = incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[one])
    (answer,) = ask(port, request, 1, IncrementalAlterConfigsResponse).responses
    assert answer.error_code == 0, answer


def describe(
    port: int, kind: int, name: str, keys: tuple[str, ...] = (), version: int = 4
) -> dict[str, DescribeConfigsResourceResult]:
    resource = DescribeConfigsResource(kind, name, list(keys) or None)
    request = DescribeConfigsRequest([resource], include_synonyms=True, include_documentation=version >= 3)
    (answer,) = ask(port, request, version, DescribeConfigsResponse).results
    assert (answer.error_code, answer.error_message) == (0, "")
    return {one.name: one for one in answer.configs}


def is_known(port: int) -> bool:
    """Whether a broker has the last of the changes."""
    return describe(port, CLIENT_METRICS, "cm")["interval.ms"].value == "1000"


def without_own_values(found: dict[str, DescribeConfigsResourceResult]) -> dict[str, DescribeConfigsResourceResult]:
    """The settings, and of those with values of their own everything but these."""
    return {
        name: one
        if name not in THEIR_OWN
        else replace(
            one,
            value=None,
            synonyms=[replace(each, value=None) if each.source == IN_FILE else each for each in one.synonyms],
        )
        for name, one in found.items()
    }


def set_in_file(port: int, broker: int) -> set[str]:
    """The settings that the file of a broker sets."""
    found = describe(port, BROKER, str(broker))
    return {name for name, one in found.items() if any(each.source == IN_FILE for each in one.synonyms)}
