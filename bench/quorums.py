"""Quorums of three controllers to measure: ours, or Apache Kafka's; and processes of other quorums."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from controllers.brokers import CLUSTER_ID

from support.eventually import eventually
from support.interop.our_nodes import our_controller, our_format
from support.interop.real_kafka import (
    START_SECONDS,
    KafkaInstallation,
    Nodes,
    Process,
    QuorumLayout,
    kafka_format,
    running,
)
from support.kafka_jars import KAFKA_VERSION, KafkaUnavailable, find_java
from support.loopback import free_ports

__all__ = [
    "AT_ONCE",
    "CLUSTER_ID",
    "KAFKA_VERSION",
    "KafkaUnavailable",
    "Nodes",
    "QuorumLayout",
    "commands",
    "find_java",
    "free_ports",
    "jvm_flags",
    "start_process",
    "start_quorum",
    "wait_until",
]

AT_ONCE = ("controller.quorum.append.linger.ms=0",)
"""Appends do not wait for more records."""


HEAP = "512m"
"""The largest heap of a JVM, if a bench says nothing else."""


def jvm_flags(name: str, heap: str = HEAP) -> str:
    """The flags of the JVMs of Kafka's controllers, which are the same for all; nothing for ours."""
    return "" if name == "ours" else f"-Xmx{heap}"


def commands(name: str, layout: QuorumLayout, heap: str = HEAP) -> Callable[[int], list[str]]:
    """The command lines of controllers on a layout: `ours`, or of Kafka for any other name."""
    if name == "ours":
        return our_controller(layout)
    kafka = KafkaInstallation.find()
    return lambda node: kafka.command("kafka.Kafka", str(layout.properties(node)), heap=heap, options=())


def start_quorum(
    name: str, root: Path, stack: ExitStack, settings: tuple[str, ...] = (), heap: str = HEAP
) -> tuple[QuorumLayout, Nodes]:
    """Three controllers, formatted and listening until the stack closes."""
    layout = QuorumLayout(root / name, CLUSTER_ID, dict(zip((1, 2, 3), free_ports(3), strict=True)), settings)
    layout.root.mkdir()
    if name == "ours":
        our_format(layout)
    else:
        kafka_format(KafkaInstallation.find(), layout)
    return layout, stack.enter_context(running(layout, commands(name, layout, heap), name=name))


def start_process(command: Sequence[str], output: Path, stack: ExitStack) -> Process:
    """A process that is killed, by its id, when the stack closes; its output goes into a file."""
    process = Process(command, output)
    stack.callback(process.kill)
    return process


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait until servers that were started are ready; fails if they need too long."""
    eventually(condition, what, START_SECONDS)
