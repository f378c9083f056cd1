"""One node of Apache Kafka that is controller and broker."""

from __future__ import annotations

from pathlib import Path

from one_node import CLUSTER_ID, node_lines
from support.interop.broker_cluster import HEAP
from support.interop.our_nodes import told
from support.interop.real_kafka import KafkaInstallation, Process, free_ports


def one_node(kafka: KafkaInstallation, root: Path) -> tuple[Process, str]:
    """Kafka with both roles in one process, and the address of its broker."""
    controller, port = free_ports(2)
    path = root / "node.properties"
    path.write_text("".join(f"{line}\n" for line in node_lines(root, controller, port)))
    told("format", "-c", str(path), "--cluster-id", CLUSTER_ID)
    return Process(kafka.command("kafka.Kafka", str(path), log="info", heap=HEAP), root / "node.log"), (
        f"127.0.0.1:{port}"
    )
