"""Quorums of three to measure: ours, or Apache Kafka's."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "interop"))

from our_nodes import our_controller, our_format
from real_kafka import KafkaInstallation, Nodes, QuorumLayout, free_ports, kafka_format, running

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"


def start_quorum(name: str, root: Path, stack: ExitStack, settings: tuple[str, ...] = ()) -> tuple[QuorumLayout, Nodes]:
    """Three controllers, formatted and listening until the stack closes: `ours`, or of Kafka for any other name."""
    layout = QuorumLayout(root / name, CLUSTER_ID, dict(zip((1, 2, 3), free_ports(3), strict=True)), settings)
    layout.root.mkdir()
    if name == "ours":
        our_format(layout)
        command = our_controller(layout)
    else:
        kafka = KafkaInstallation.find()
        kafka_format(kafka, layout)

        def command(node: int) -> list[str]:
            return kafka.command("kafka.Kafka", str(layout.properties(node)), heap="512m", options=())

    return layout, stack.enter_context(running(layout, command, name=name))
