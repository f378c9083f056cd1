"""Brokers of Apache Kafka on a quorum of ours: they register, are unfenced, and stop in order."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from our_nodes import our_controller, our_format, told
from real_kafka import (
    KafkaInstallation,
    Nodes,
    Process,
    QuorumLayout,
    eventually,
    free_ports,
    layout_in,
    running,
)

from metadata_log import replay
from metadata_log.image import Broker

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
    ]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def brokers(layout: QuorumLayout) -> dict[int, Broker]:
    """The brokers as the log of the first controller has them."""
    image = replay(str(layout.partition(1)))
    return dict(image.brokers.by_id)


def test_brokers_register_are_unfenced_and_stop_in_order(kafka: KafkaInstallation, tmp_path: Path) -> None:
    layout = layout_in(tmp_path)
    our_format(layout)
    with running(layout, our_controller(layout), name="ours") as nodes, ExitStack() as stack:
        assert isinstance(nodes, Nodes)
        processes = {}
        for broker, port in zip(BROKERS, free_ports(len(BROKERS)), strict=True):
            properties = broker_properties(layout, broker, port)
            told("format", "-c", str(properties), "--cluster-id", layout.cluster_id)
            command = kafka.command("kafka.Kafka", str(properties), log="info")
            processes[broker] = Process(command, layout.root / f"broker-{broker}.log")
            stack.callback(processes[broker].kill)
        for process in processes.values():
            process.wait_for("Transition from STARTING to STARTED")
        registered = brokers(layout)
        assert sorted(registered) == list(BROKERS)
        assert [one.rack for _, one in sorted(registered.items())] == ["rack-1", "rack-0"]
        assert not any(one.fenced for one in registered.values())

        assert processes[101].stop(timeout=120) == TERMINATED
        assert "controlled shutdown" in processes[101].text.lower()
        eventually(lambda: brokers(layout)[101].fenced, "the broker that has stopped is fenced")
        assert not brokers(layout)[102].fenced

        processes[102].kill()
        eventually(lambda: brokers(layout)[102].fenced, "the broker that was killed is fenced after its session")
