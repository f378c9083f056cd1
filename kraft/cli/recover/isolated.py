"""Starts the recovered controllers on copies, and holds the result against the recovery."""

from __future__ import annotations

import os
import shutil
from random import SystemRandom

from kraft.config import UsageError, parse_host_port
from kraft.operate.isolated_start import IsolatedNode, Started, start_isolated
from kraft.operate.kafka_start import start_kafka
from kraft.operate.recover.verify import Check, Recovered

_LISTENER = "CONTROLLER"
_FIRST_PORT = 9093


def start_recovered(recovered: Recovered, seconds: float) -> Started:
    """Start every voter of a recovery in isolation; errors as of `start_isolated`."""
    facts = recovered.facts
    return start_isolated(
        _nodes(recovered),
        dynamic=facts["kraftVersion"] > 0,
        log_end=facts["logEnd"],
        seconds=seconds,
        seed=SystemRandom().getrandbits(32),
    )


def start_recovered_on_kafka(recovered: Recovered, kafka: str, seconds: float) -> Started:
    """Start the only voter of a recovery as a controller of Apache Kafka; errors as of `start_kafka`.

    `kafka` is an installation, or the directory of its jars. Raises `UsageError` for several voters: they would have to
    reach each other at the addresses in the log, which are those of the real hosts.
    """
    nodes, facts = _nodes(recovered), recovered.facts
    if len(nodes) > 1:
        raise UsageError(
            f"--kafka starts a result with one voter, and this one has {len(nodes)}",
            hint="Leave --kafka out: the nodes of this software start all voters on a network of their own.",
        )
    libs = f"{kafka}/libs"
    jars = libs if os.path.isdir(libs) else kafka
    if not any(name.startswith("kafka") and name.endswith(".jar") for name in os.listdir(jars)):
        raise UsageError(f"there are no jars of Apache Kafka in {jars}", hint="Name the directory with libs in it.")
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if java is None:
        raise UsageError("there is no Java to start Apache Kafka with", hint="Set JAVA_HOME.")
    return start_kafka(
        java, jars, nodes[0], dynamic=facts["kraftVersion"] > 0, log_end=facts["logEnd"], seconds=seconds
    )


def _nodes(recovered: Recovered) -> list[IsolatedNode]:
    facts = recovered.facts
    nodes = []
    for number, voter in enumerate(facts["voters"]):
        listener, host, port = _LISTENER, f"node-{voter['id']}", _FIRST_PORT + number
        if voter["endpoint"] is not None:
            listener, _, address = voter["endpoint"].partition("://")
            name, _, text = address.rpartition(":")
            host, port = parse_host_port(f"[{name}]:{text}" if ":" in name else address)
        nodes.append(
            IsolatedNode(
                id=voter["id"],
                directory=f"{recovered.path}/{voter['dir']}",
                listener=listener,
                host=host,
                port=port,
            )
        )
    return nodes


def check_started(recovered: Recovered, started: Started, name: str = "start") -> list[Check]:
    """The leader must be a planned voter, in the epoch behind the recovery's, with all topics and brokers."""
    facts = recovered.facts
    image = next(copy.image for _, copy in recovered.inventory.copies if copy.image is not None)
    expected = facts["epoch"] + 1
    return [
        Check(
            name=f"{name}: epoch",
            subject=f"node {started.leader_id}",
            problem=None if started.epoch >= expected else f"the leader has epoch {started.epoch}, not {expected}",
        ),
        Check(
            name=f"{name}: topics",
            subject=f"node {started.leader_id}",
            problem=None
            if set(started.image.topics) == set(image.topics)
            else f"the leader knows {len(started.image.topics)} topics, and the log has {len(image.topics)}",
        ),
    ]
