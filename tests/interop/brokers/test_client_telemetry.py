"""A client of librdkafka pushes its metrics to a broker of ours, whose metrics listener shows them (KIP-714)."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import confluent_kafka
import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.eventually import eventually
from support.interop.one_node import one_node
from support.interop.our_nodes import told as commanded
from support.interop.real_kafka import KafkaInstallation
from support.loopback import free_ports

pytestmark = pytest.mark.kafka


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


def _names(found: dict[str, list[dict[str, str]]], name: str) -> set[str]:
    return {labels["client_id"] for labels in found.get(name, ())}


def test_the_metrics_of_librdkafka_are_shown(newer_kafka: KafkaInstallation, tmp_path: Path) -> None:
    (metrics,) = free_ports(1)
    settings = ("kraft.client.telemetry.enable=true", f"kraft.metrics.listener=127.0.0.1:{metrics}")
    with one_node(newer_kafka, tmp_path / "ours", "ours", *settings) as (_, port):
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
