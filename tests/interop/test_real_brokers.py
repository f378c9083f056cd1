"""Brokers of Apache Kafka on a quorum of ours: they register, are unfenced, and stop in order."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from our_nodes import our_controller, our_format, told
from real_kafka import (
    KafkaInstallation,
    Process,
    QuorumLayout,
    eventually,
    free_ports,
    layout_in,
    running,
)

from metadata_log import replay
from metadata_log.image import MetadataImage

pytestmark = pytest.mark.kafka
BROKERS = (101, 102)
TERMINATED = 128 + signal.SIGTERM


def broker_properties(layout: QuorumLayout, broker: int, port: int) -> Path:
    """The configuration of a broker, formatted with our own command."""
    path = layout.root / f"broker-{broker}.properties"
    lines = [
        "process.roles=broker",
        f"node.id={broker}",
        f"log.dirs={layout.root / f'broker-{broker}'}",
        f"broker.rack=rack-{broker % 2}",
        "controller.listener.names=CONTROLLER",
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        f"listeners=PLAINTEXT://127.0.0.1:{port}",
        f"controller.quorum.voters={layout.voters}",
        "offsets.topic.replication.factor=2",
        "offsets.topic.num.partitions=2",
        "group.initial.rebalance.delay.ms=0",
    ]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def image_of(layout: QuorumLayout) -> MetadataImage:
    """The cluster as the log of the first controller has it."""
    return replay(str(layout.partition(1)))


@contextmanager
def brokers_running(kafka: KafkaInstallation, layout: QuorumLayout) -> Iterator[dict[int, Process]]:
    """Brokers of Kafka beside our controllers, started and unfenced."""
    with ExitStack() as stack:
        processes = {}
        for broker, port in zip(BROKERS, free_ports(len(BROKERS)), strict=True):
            properties = broker_properties(layout, broker, port)
            told("format", "-c", str(properties), "--cluster-id", layout.cluster_id)
            command = kafka.command("kafka.Kafka", str(properties), log="info")
            processes[broker] = Process(command, layout.root / f"broker-{broker}.log")
            stack.callback(processes[broker].kill)
        for process in processes.values():
            process.wait_for("Transition from STARTING to STARTED")
        yield processes


def test_brokers_live_on_our_quorum(kafka: KafkaInstallation, tmp_path: Path) -> None:
    """They register and are unfenced; a topic is made with Kafka's own tool; one stops in order, one is killed."""
    layout = layout_in(tmp_path)
    our_format(layout)
    with running(layout, our_controller(layout), name="ours"), brokers_running(kafka, layout) as processes:
        registered = image_of(layout).brokers.by_id
        assert sorted(registered) == list(BROKERS)
        assert [registered[broker].rack for broker in BROKERS] == ["rack-1", "rack-0"]
        assert not any(registered[broker].fenced for broker in BROKERS)
        bootstrap = "--bootstrap-server=" + ",".join(
            f"{one.endpoints[0].host}:{one.endpoints[0].port}" for one in registered.values()
        )
        topics = "org.apache.kafka.tools.TopicCommand"
        kafka.tool(
            topics,
            bootstrap,
            "--create",
            "--topic=orders",
            "--partitions=4",
            "--replication-factor=2",
            "--config=min.insync.replicas=1",
        )
        described = kafka.tool(topics, bootstrap, "--describe", "--topic=orders")
        assert (
            len(
                re.findall(r"Partition: \d+\s+Leader: 10[12]\s+Replicas: 10[12],10[12]\s+Isr: 10[12],10[12]", described)
            )
            == 4
        )
        assert len(image_of(layout).topics["orders"].partitions) == 4
        (ours,) = json.loads(
            told("topics", "describe", "orders", "--json", "--bootstrap-controller", layout.bootstrap)
        )["topics"]
        assert [
            (
                str(each["partition"]),
                str(each["leader"]),
                *(",".join(map(str, each[key])) for key in ("replicas", "isr")),
            )
            for each in ours["partitions"]
        ] == re.findall(r"Partition: (\d+)\s+Leader: (\d+)\s+Replicas: ([\d,]+)\s+Isr: ([\d,]+)", described)
        assert f"TopicId: {ours['topicId']}" in described
        assert ours["configs"] == {"min.insync.replicas": "1"}

        kafka.tool(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic=orders", "--num-records=200", "--record-size=100", "--throughput=-1"),
            *(
                "--command-property",
                bootstrap.removeprefix("--").replace("bootstrap-server", "bootstrap.servers"),
                "acks=all",
            ),
        )
        consumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
        read = kafka.tool(
            consumer,
            bootstrap,
            "--topic=orders",
            "--from-beginning",
            "--max-messages=200",
            "--group=readers",
            "--timeout-ms=60000",
        )
        assert len(read.splitlines()) == 200
        assert "__consumer_offsets" in image_of(layout).topics
        configs = "kafka.admin.ConfigCommand"
        kafka.tool(configs, bootstrap, "--alter", "--topic=orders", "--add-config=retention.ms=123456")
        assert image_of(layout).configs.of((2, "orders"))["retention.ms"] == "123456"
        kafka.tool(topics, bootstrap, "--alter", "--topic=orders", "--partitions=6")
        plan = tmp_path / "plan.json"
        plan.write_text('{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [102]}]}')
        reassign = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        kafka.tool(reassign, bootstrap, "--execute", f"--reassignment-json-file={plan}")
        eventually(lambda: image_of(layout).topics["orders"].partitions[0].replicas == (102,), "it was moved")
        assert processes[101].stop(timeout=120) == TERMINATED
        eventually(lambda: image_of(layout).brokers.by_id[101].fenced, "the broker that has stopped is fenced")
        assert {each.leader for each in image_of(layout).topics["orders"].partitions} == {102}

        processes[102].kill()
        eventually(lambda: image_of(layout).brokers.by_id[102].fenced, "the broker that was killed is fenced")
        assert {each.leader for each in image_of(layout).topics["orders"].partitions} == {-1}
