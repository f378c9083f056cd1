"""A node of either make with both roles, for requests to one broker."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.interop.broker_cluster import HEAP, SMALL_TOPICS, STARTED
from support.interop.our_nodes import told
from support.interop.real_kafka import KafkaInstallation, Process, free_ports

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
NODE = 1


def node_lines(root: Path, controller: int, port: int) -> tuple[str, ...]:
    """The settings of a node with both roles."""
    return (
        "process.roles=broker,controller",
        f"node.id={NODE}",
        f"log.dirs={root / 'node'}",
        "controller.listener.names=CONTROLLER",
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        f"controller.quorum.voters={NODE}@127.0.0.1:{controller}",
        *(
            line.replace("replication.factor=3", "replication.factor=1")
            for line in SMALL_TOPICS
            if "min.isr" not in line
        ),
    )


@contextmanager
def one_node(
    kafka: KafkaInstallation,
    root: Path,
    make: str,
    *settings: str,
    features: tuple[str, ...] = (),
    main: str = "kafka.Kafka",
) -> Iterator[tuple[int, int]]:
    """Start a node, Kafka's or ours, at the level of this release of Kafka; its ports for controllers and clients.
    `features` are levels such as `share.version=0`; `main` is the class of Kafka's node, or a file with one.
    """
    root.mkdir()
    path = root / "node.properties"
    controller, port = free_ports(2)
    lines = (*node_lines(root, controller, port), *settings)
    path.write_text("".join(f"{line}\n" for line in lines))
    levels = [word for one in features for word in ("--feature", one)]
    told("format", "-c", str(path), "--cluster-id", CLUSTER_ID, "--release-version", kafka.release, *levels)
    command, started = kafka.command(main, str(path), log="info", heap=HEAP), STARTED
    if make == "ours":
        command, started = [sys.executable, "-m", "kraft", "serve", "-c", str(path)], "serving node="
    process = Process(command, root / "node.log")
    try:
        process.wait_for(started)
        yield controller, port
    finally:
        process.kill()
