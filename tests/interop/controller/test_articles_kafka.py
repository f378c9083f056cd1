"""The articles' behaviours on Apache Kafka's controller and on ours, step by step: answers and records are the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.controller.decision.request_context import DecisionSettings
from support.differential.article_scenarios import SCENARIOS, eligible_replicas
from support.differential.controller_cluster import Cluster
from support.differential.controller_sides import InProcess, by_batches
from support.differential.controller_stories import A, B, C, D, arrives, delete, unregister
from support.interop.one_controller import log_of, side_of, single
from support.interop.real_kafka import KafkaInstallation, eventually, kafka_controller, kafka_format, running
from support.wire import active_controller

pytestmark = pytest.mark.kafka


def test_scenarios(newer_kafka: KafkaInstallation, tmp_path: Path) -> None:
    """All on one pair of controllers: after each, its topics are deleted and its brokers unregistered."""
    layout = single(tmp_path / "theirs")
    kafka_format(newer_kafka, layout)
    patient = DecisionSettings(broker_session_timeout_ms=600_000)
    ours = InProcess(max_idle_interval_ms=0, decisions=patient)
    with running(layout, kafka_controller(newer_kafka, layout), name="kafka"):
        eventually(lambda: active_controller(layout.ports[1]) == 1, "it is active")
        cluster = Cluster(stage=ours, witness=side_of(layout))
        for name, scenario in SCENARIOS.items():
            print(name)
            for broker in (A, B, C, D):
                cluster.do(*arrives(broker))
            scenario(cluster)
            cluster.do(eligible_replicas(1), *map(delete, list(ours.controller.history.latest.topics)))
            cluster.do(*map(unregister, (A, B, C, D)))
        assert by_batches(ours.batches) == by_batches(log_of(layout))
