"""Changes of the dynamic configuration of brokers: ours and Kafka's refuse and accept the same, with the same words."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from our_brokers import OURS, THEIRS, kafkas_broker, our_brokers
from support.interop.broker_cluster import STARTED
from support.interop.real_kafka import KafkaInstallation
from support.wire import ask
from transport.protocol.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    alter_configs,
    incremental_alter_configs,
)

pytestmark = pytest.mark.kafka
BROKER: Final = 4
SET: Final = 0
CHANGES: Final = (
    *(
        (key, value)
        for key in ("log.cleaner.threads", "log.retention.ms", "min.insync.replicas")
        for value in ("x", "-7")
    ),
    ("log.retention.ms", "0"),
    ("log.retention.ms", " 5 "),
    ("log.segment.bytes", "100"),
    ("log.roll.ms", "0"),
    ("log.roll.jitter.ms", "-1"),
    ("cordoned.log.dirs", "*"),
    ("log.cleaner.min.cleanable.ratio", "7"),
    ("compression.type", "zip"),
    ("compression.gzip.level", "0"),
    ("log.cleanup.policy", "shrink"),
    ("log.message.timestamp.type", "LogAppendTime"),
    ("unclean.leader.election.enable", "maybe"),
    ("message.max.bytes", "-1"),
    ("node.id", "7"),
    ("log.dirs", "/x"),
    ("ssl.keystore.location", "/k"),
    ("sasl.enabled.mechanisms", "PLAIN"),
    ("listener.name.plaintext.ssl.keystore.type", "PEM"),
    ("leader.replication.throttled.rate", "-1"),
    ("leader.replication.throttled.rate", "1000"),
    ("my.own.key", "x"),
    *((key, value) for key in ("log.cleaner.threads", "num.replica.fetchers") for value in ("0", "2", "3")),
    *(("num.io.threads", value) for value in ("3", "4", "16", "17")),
    *((key, "1000") for key in ("background.threads", "num.network.threads", "num.recovery.threads.per.data.dir")),
    ("log.cleaner.dedupe.buffer.size", "1048576"),
    ("max.connections.per.ip", "0"),
    *(("max.connection.creation.rate", value) for value in ("5", "0", "-1", "x")),
    *(("listener.name.plaintext.max.connection.creation.rate", value) for value in ("5", "-1", "x")),
    *(("max.connections", value) for value in ("5", "0", "-1")),
    ("max.connections.per.ip.overrides", "127.0.0.1:5"),
    *((key, value) for key in ("log.local.retention.ms", "log.local.retention.bytes") for value in ("-1", "9" * 12)),
)


def test_changes_of_brokers_are_judged_alike(kafka: KafkaInstallation, tmp_path: Path) -> None:
    with our_brokers(tmp_path, OURS) as cluster:
        process, port = kafkas_broker(kafka, cluster)
        try:
            process.wait_for(STARTED)
            cluster.wait_until_known(OURS, THEIRS, beside=port)
            ports = {OURS: int(cluster.bootstrap.rpartition(":")[2]), THEIRS: port}
            for key, value in CHANGES:
                for is_default in (False, True):
                    answers = {
                        broker: changed(ports[broker], "" if is_default else str(broker), key, value)
                        for broker in (OURS, THEIRS)
                    }
                    assert answers[OURS] == answers[THEIRS], (key, value, is_default)
            others = {broker: changed(ports[broker], "7", "log.retention.ms", "5") for broker in (OURS, THEIRS)}
            assert others[OURS] == others[THEIRS].replace(str(THEIRS), str(OURS))
            nulls = {broker: changed(ports[broker], "", "log.retention.ms", None) for broker in (OURS, THEIRS)}
            assert nulls[OURS] == nulls[THEIRS]
        finally:
            process.kill()


def changed(port: int, name: str, key: str, value: str | None) -> str:
    """The answer of a broker to a change by both requests, which it only tries."""
    one = incremental_alter_configs.AlterConfigsResource(
        resource_type=BROKER,
        resource_name=name,
        configs=[incremental_alter_configs.AlterableConfig(name=key, config_operation=SET, value=value)],
    )
    asked = IncrementalAlterConfigsRequest(resources=[one], validate_only=True)
    (first,) = ask(port, asked, 1, IncrementalAlterConfigsResponse).responses
    config = alter_configs.AlterableConfig(name=key, value=value)
    whole = alter_configs.AlterConfigsResource(resource_type=BROKER, resource_name=name, configs=[config])
    replaced = AlterConfigsRequest(resources=[whole], validate_only=True)
    (second,) = ask(port, replaced, 2, AlterConfigsResponse).responses
    return "\n".join(f"{each.error_code} {each.error_message}" for each in (first, second))
