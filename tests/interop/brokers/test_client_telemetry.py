"""The metrics of clients at a broker of ours and at one of Kafka's that has a class to take them (KIP-714)."""

from __future__ import annotations

import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import pytest
from prometheus_client.parser import text_string_to_metric_families

from one_node import one_node
from support.eventually import eventually
from support.interop.our_nodes import told as commanded
from support.interop.real_kafka import KafkaInstallation
from support.loopback import free_ports
from support.wire import ask, reaction, request_bytes
from telemetry_requests import LAST, MAX_BYTES, SUBSCRIPTIONS, Talk, gets, learned, pushes, told
from transport.protocol.apis import ApiKey
from transport.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    GetTelemetrySubscriptionsRequest,
    PushTelemetryRequest,
)

pytestmark = pytest.mark.kafka

RECEIVER: Final = Path(__file__).parents[1] / "TelemetryBroker.java"
KEYS: Final = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)
TURNED_ON: Final = {
    "kafka": "metric.reporters=TelemetryBroker$Receiver",
    "ours": "kraft.client.telemetry.enable=true",
}
TOOL: Final = "org.apache.kafka.tools.ClientMetricsCommand"
LEAST: Final = 50
"""How many requests of each API there are at least."""


def offered(port: int) -> list[tuple[int, int, int]]:
    apis = ask(port, ApiVersionsRequest(), 0, ApiVersionsResponse).api_keys
    return [(one.api_key, one.min_version, one.max_version) for one in apis if one.api_key in KEYS]


def strange(kafka: KafkaInstallation, root: Path, make: str) -> dict[str, Any]:
    settings = (TURNED_ON[make], f"telemetry.max.bytes={MAX_BYTES}")
    with one_node(kafka, root, make, *settings, main=str(RECEIVER)) as (_, port):
        broker = ("--bootstrap-server", f"127.0.0.1:{port}")
        for name, values in SUBSCRIPTIONS.items():
            lines = [f"{key}={value}" for key, value in values.items()]
            commanded("configs", "set", "client-metrics", name, *lines, *broker)
        client, interval_ms = LAST
        last = Talk(port, client)
        request = GetTelemetrySubscriptionsRequest()
        eventually(lambda: last(request).push_interval_ms == interval_ms, "is known", 30)
        common = learned(port)
        found: dict[str, Any] = {"offered": offered(port), **gets(port, common)}
        for name, messages in pushes(common):
            connection = Talk(port)
            for number, message in enumerate(messages):
                found[f"push {name}, {number}"] = told(connection(message))
            connection.close()
        for asked in (request, PushTelemetryRequest()):
            sound, name = request_bytes(asked, 0), type(asked).__name__
            found[f"{name} of version 1"] = reaction(port, sound[:7] + b"\1" + sound[8:])
            found[f"{name} that is cut"] = reaction(port, _cut(sound))
            found[f"{name} with more behind"] = len(reaction(port, _longer(sound))[0])
        return found


def _cut(sound: bytes) -> bytes:
    return (len(sound) - 4 - 9).to_bytes(4, "big") + sound[4:-9]


def _longer(sound: bytes) -> bytes:
    return (len(sound) - 4 + 3).to_bytes(4, "big") + sound[4:] + b"abc"


def test_strange_requests_have_the_answers_of_kafka(newer_kafka: KafkaInstallation, tmp_path: Path) -> None:
    theirs, ours = (strange(newer_kafka, tmp_path / make, make) for make in ("kafka", "ours"))
    assert sum(name.startswith("push") for name in theirs) >= LEAST
    differing = {name: (ours[name], theirs[name]) for name in theirs if ours[name] != theirs[name]}
    for name, pair in differing.items():
        print(f"{name}\n  ours   {pair[0]}\n  theirs {pair[1]}")
    assert not differing
    assert len(theirs["offered"]) == len(KEYS)


def test_without_a_receiver_neither_make_offers_the_apis(newer_kafka: KafkaInstallation, tmp_path: Path) -> None:
    for make in ("kafka", "ours"):
        with one_node(newer_kafka, tmp_path / make, make) as (_, port):
            assert offered(port) == []


# What is pushed, and where it is seen


def ours(metrics: int) -> tuple[str, ...]:
    return TURNED_ON["ours"], f"kraft.metrics.listener=127.0.0.1:{metrics}"


def shown(metrics: int) -> dict[str, list[dict[str, str]]]:
    """The series of clients at the metrics listener: by name the labels of each."""
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=20) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    found: dict[str, list[dict[str, str]]] = {}
    for family in families:
        for sample in family.samples:
            if sample.name.startswith("org_apache_kafka_"):
                found.setdefault(sample.name, []).append(sample.labels)
    return found


def test_the_metrics_of_a_java_producer_and_consumer_are_shown(newer_kafka: KafkaInstallation, tmp_path: Path) -> None:
    (metrics,) = free_ports(1)
    with one_node(newer_kafka, tmp_path / "ours", "ours", *ours(metrics)) as (_, port):
        broker = ("--bootstrap-server", f"127.0.0.1:{port}")
        everything = ("--alter", "--name", "everything", "--metrics", "*", "--interval", "500")
        newer_kafka.tool(TOOL, *broker, *everything)
        described = newer_kafka.tool(TOOL, *broker, "--describe", "--name", "everything")
        assert {one.strip() for one in described.splitlines()[1:]} == {"interval.ms=500", "match=", "metrics=*"}
        assert newer_kafka.tool(TOOL, *broker, "--list").split() == ["everything"]
        commanded("topics", "create", "t", "--partitions", "1", *broker)
        producer = newer_kafka.command(
            *("org.apache.kafka.tools.ConsoleProducer", *broker, "--topic", "t"),
            *("--command-property", "client.id=java-producer"),
        )
        consumer = newer_kafka.command(
            *("org.apache.kafka.tools.consumer.ConsoleConsumer", *broker, "--topic", "t", "--from-beginning"),
            *("--command-property", "client.id=java-consumer", "--command-property", "group.id=g"),
        )
        with started(producer) as producing, started(consumer):
            assert producing.stdin is not None
            producing.stdin.write(b"a\nb\n")
            producing.stdin.flush()
            wanted = {
                "org_apache_kafka_producer_connection_creation_total": "java-producer",
                "org_apache_kafka_producer_record_queue_time_avg": "java-producer",
                "org_apache_kafka_consumer_fetch_manager_fetch_latency_avg": "java-consumer",
            }
            eventually(lambda: all(_names(shown(metrics), name) >= {who} for name, who in wanted.items()), "shown", 90)
            found = shown(metrics)
        for labels in found["org_apache_kafka_producer_connection_creation_total"]:
            assert labels["client_software_name"] == "apache-kafka-java"
            assert labels["client_software_version"] == newer_kafka.release
        groups = {one.get("group_id") for one in found["org_apache_kafka_consumer_fetch_manager_fetch_latency_avg"]}
        assert groups == {"g"}
        newer_kafka.tool(TOOL, *broker, "--delete", "--name", "everything")
        assert newer_kafka.tool(TOOL, *broker, "--list").split() == []


@contextmanager
def started(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs in the block."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _names(found: dict[str, list[dict[str, str]]], name: str) -> set[str]:
    return {labels["client_id"] for labels in found.get(name, ())}


def test_the_metrics_of_librdkafka_are_shown(newer_kafka: KafkaInstallation, tmp_path: Path) -> None:
    (metrics,) = free_ports(1)
    with one_node(newer_kafka, tmp_path / "ours", "ours", *ours(metrics)) as (_, port):
        broker = ("--bootstrap-server", f"127.0.0.1:{port}")
        match = "match=client_software_name=confluent-kafka-python.*,client_id=shop-[0-9]"
        commanded("configs", "set", "client-metrics", "shop", "metrics=*", "interval.ms=500", match, *broker)
        producer = confluent_kafka.Producer({"bootstrap.servers": f"127.0.0.1:{port}", "client.id": "shop-1"})
        name = "org_apache_kafka_producer_connection_creation_total"

        def pushed() -> bool:
            producer.produce("t", b"x")
            producer.poll(0.1)
            return "shop-1" in _names(shown(metrics), name)

        eventually(pushed, "shown", 60)
        [labels] = shown(metrics)[name]
        assert labels["client_software_name"].startswith("confluent-kafka-python")
        assert producer.flush(30) == 0
