"""The metrics of a node of either make, alone and with both roles, after some use."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from one_node import CLUSTER_ID, node_lines
from support.interop.broker_cluster import HEAP, STARTED
from support.interop.kafka_tools import KafkaTools
from support.interop.mbeans import Key, jmx_options, values_of_kafka, values_of_ours
from support.interop.our_nodes import told
from support.interop.real_kafka import KafkaInstallation, Process, free_ports


def values_after(kafka: KafkaInstallation, root: Path, make: str, use: Callable[[str], object]) -> dict[Key, str]:
    """The values of a node with both roles, of either make, after this use of its address."""
    root.mkdir()
    path = root / "node.properties"
    controller, port, monitor = free_ports(3)
    path.write_text("".join(f"{line}\n" for line in node_lines(root, controller, port)))
    told("format", "-c", str(path), "--cluster-id", CLUSTER_ID, "--release-version", kafka.release)
    if make == "kafka":
        options = (*kafka.quick_start, *jmx_options(monitor))
        command, started = kafka.command("kafka.Kafka", str(path), log="info", heap=HEAP, options=options), STARTED
    else:
        command = [sys.executable, "-m", "kraft", "serve", "-c", str(path), "--metrics", f"127.0.0.1:{monitor}"]
        started = "serving node="
    process = Process(command, root / "node.log")
    try:
        process.wait_for(started)
        use(f"127.0.0.1:{port}")
        if make == "ours":
            return values_of_ours(monitor)
        with KafkaTools(kafka) as tools:
            return values_of_kafka(tools, monitor)
    finally:
        process.kill()
