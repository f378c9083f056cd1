"""Kafka's tools and kafka-python administer a cluster through a broker of ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing

import pytest
from kafka import KafkaProducer, errors
from kafka import admin as plain

from our_brokers import OurBrokers, our_brokers
from support.interop.broker_cluster import TOPIC_TOOL
from support.interop.kafka_tools import KafkaTools
from support.interop.real_kafka import CLUSTER_TOOL, CONFIG_TOOL, QUORUM_TOOL, KafkaInstallation, eventually

pytestmark = pytest.mark.kafka
API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurBrokers]:
    with our_brokers(tmp_path_factory.mktemp("served"), 101) as brokers:
        yield brokers


def test_kafkas_tools_create_describe_change_and_delete_topics_through_our_broker(
    kafka: KafkaInstallation, brokers: OurBrokers
):
    server = f"--bootstrap-server={brokers.bootstrap}"

    with KafkaTools(kafka) as tools:

        def done(tool: str, *args: str) -> str:
            ran = tools.run(tool, server, *args)
            assert ran.returncode == 0, f"{tool} {args}:\n{ran.stdout}\n{ran.stderr}"
            return ran.stdout

        assert "Created topic orders." in done(
            TOPIC_TOOL, "--create", "--topic=orders", "--partitions=3", "--replication-factor=1"
        )
        assert done(TOPIC_TOOL, "--list").split() == ["orders"]
        described = done(TOPIC_TOOL, "--describe", "--topic=orders")
        assert "PartitionCount: 3" in described
        assert len(re.findall(r"Leader: 101\s+Replicas: 101\s+Isr: 101\s+Elr:", described)) == 3, described
        again = tools.run(TOPIC_TOOL, server, "--create", "--topic=orders")
        assert "Topic 'orders' already exists" in again.stdout + again.stderr
        assert again.returncode == 1

        done(CONFIG_TOOL, "--alter", "--entity-type=topics", "--entity-name=orders", "--add-config=retention.ms=60000")
        of_topic = done(CONFIG_TOOL, "--describe", "--entity-type=topics", "--entity-name=orders")
        assert "retention.ms=60000" in of_topic
        of_broker = done(CONFIG_TOOL, "--describe", "--entity-type=brokers", "--entity-name=101", "--all")
        assert "node.id=101" in of_broker
        done(CONFIG_TOOL, "--alter", "--entity-type=users", "--entity-name=alice", "--add-config=producer_byte_rate=9")
        of_user = done(CONFIG_TOOL, "--describe", "--entity-type=users", "--entity-name=alice")
        assert "producer_byte_rate=9.0" in of_user

        loggers = ("--entity-type=broker-loggers", "--entity-name=101")
        done(CONFIG_TOOL, "--alter", *loggers, "--add-config=kraft.node=DEBUG")
        assert "kraft.node=DEBUG sensitive=false" in done(CONFIG_TOOL, "--describe", *loggers)
        brokers.processes[101].wait_for("log-level node=101 name=kraft.node to=debug")
        done(CONFIG_TOOL, "--alter", *loggers, "--delete-config=kraft.node")
        assert "kraft.node=INFO sensitive=false" in done(CONFIG_TOOL, "--describe", *loggers)

        done(TOPIC_TOOL, "--alter", "--topic=orders", "--partitions=5")
        assert "PartitionCount: 5" in done(TOPIC_TOOL, "--describe", "--topic=orders")
        assert "LeaderId:" in done(QUORUM_TOOL, "describe", "--status")
        assert brokers.layout.cluster_id in tools.run(CLUSTER_TOOL, "cluster-id", server).stdout
        offered = done(API_VERSIONS)
        for line in ("Metadata(3): 0 to 13 [usable: 13]", "DescribeTopicPartitions(75): 0 [usable: 0]"):
            assert line in offered
        done(TOPIC_TOOL, "--delete", "--topic=orders")
        eventually(lambda: done(TOPIC_TOOL, "--list").split() == [], "the broker knows that the topic is gone")


def test_kafka_python_administers_and_a_question_for_an_unknown_topic_creates_the_topic(brokers: OurBrokers):
    with closing(plain.KafkaAdminClient(bootstrap_servers=[brokers.bootstrap])) as admin:
        admin.create_topics({"python": {"num_partitions": 2, "replication_factor": 1}}, wait_for_metadata=True)
        [described] = admin.describe_topics(["python"])
        assert [one["leader_id"] for one in described["partitions"]] == [101, 101]
        with pytest.raises(errors.InvalidReplicationFactorError):
            admin.create_topics({"wide": {"num_partitions": 1, "replication_factor": 2}})
        assert [one["broker_id"] for one in admin.describe_cluster()["brokers"]] == [101]

    with closing(KafkaProducer(bootstrap_servers=[brokers.bootstrap], max_block_ms=30_000)) as client:
        eventually(lambda: client.partitions_for("automatic") == {0}, "the topic is created")
