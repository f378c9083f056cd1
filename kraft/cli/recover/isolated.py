"""Starts the recovered controllers on copies, and holds the result against the recovery; and `kraft recover
unblock-ghost`, with which an upgrade goes on that the registration of a vanished controller blocks.
"""

from __future__ import annotations

import os
import shutil
from random import Random, SystemRandom
from typing import Any

import click

from kraft.admin import AdminClient
from kraft.cli.cluster.administration import Cluster, on_a_cluster
from kraft.config import UsageError, parse_host_port
from kraft.operate.isolated_start import IsolatedNode, Started, start_isolated, start_kafka
from kraft.operate.recover.live.ghost import Ghost, find_ghost, register_ghost
from kraft.operate.recover.verify import Check, Recovered

_LISTENER = "CONTROLLER"
_FIRST_PORT = 9093


def start_recovered(recovered: Recovered, seconds: float) -> Started:
    """Start every voter of a recovery in isolation; errors as of `start_isolated`."""
    facts = recovered.facts
    return start_isolated(
        _nodes(recovered),
        dynamic=facts.kraft_version > 0,
        log_end=facts.log_end,
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
    return start_kafka(java, jars, nodes[0], dynamic=facts.kraft_version > 0, log_end=facts.log_end, seconds=seconds)


def _nodes(recovered: Recovered) -> list[IsolatedNode]:
    facts = recovered.facts
    nodes = []
    for number, voter in enumerate(facts.voters):
        listener, host, port = _LISTENER, f"node-{voter.id}", _FIRST_PORT + number
        if voter.endpoint is not None:
            listener, _, address = voter.endpoint.partition("://")
            name, _, text = address.rpartition(":")
            host, port = parse_host_port(f"[{name}]:{text}" if ":" in name else address)
        nodes.append(
            IsolatedNode(
                id=voter.id,
                directory=f"{recovered.path}/{voter.dir}",
                listener=listener,
                host=host,
                port=port,
            )
        )
    return nodes


def check_started(recovered: Recovered, started: Started, name: str = "start") -> list[Check]:
    """The leader must be a planned voter, in the epoch after the recovery's, with all topics and brokers."""
    facts = recovered.facts
    image = next(copy.image for _, copy in recovered.inventory.copies if copy.image is not None)
    expected = facts.epoch + 1
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


@click.command(
    "unblock-ghost",
    short_help="Free an upgrade from a controller that is gone.",
    epilog="Example: kraft recover unblock-ghost 99 --execute --bootstrap-controller 127.0.0.1:9093",
)
@click.argument("controller_id", metavar="ID", type=click.IntRange(min=0))
@click.option("--execute", is_flag=True, help="Register. Without this option the command only shows what it would do.")
@on_a_cluster
def unblock_ghost_command(controller_id: int, *, execute: bool, cluster: Cluster) -> None:
    """Register a controller that is gone once more, with the feature ranges of the leader.

    Registrations of controllers are never removed. One with old ranges refuses every upgrade: "Controller 99 only
    supports versions 7-27". Voters and controllers that have fetched within five minutes are refused. The request needs
    CLUSTER_ACTION on the cluster. The quorum runs meanwhile, with controllers of Apache Kafka or of this software.
    """

    async def work(admin: AdminClient) -> Ghost:
        ghost = await find_ghost(admin, controller_id)
        if execute and ghost.features:
            await register_ghost(admin, ghost, Random(SystemRandom().getrandbits(128)))
        return ghost

    ghost = cluster.ask(work)
    is_done = execute and bool(ghost.features)
    facts: dict[str, Any] = {
        "controller": controller_id,
        "rangesOf": ghost.leader.id,
        "features": [{"feature": name, "registered": old, "wanted": new} for name, old, new in ghost.features],
        "changed": is_done,
    }
    cluster.say(facts, _lines(ghost, is_done=is_done))


def _lines(ghost: Ghost, *, is_done: bool) -> list[str]:
    node = f"controller {ghost.registration.id}"
    if not ghost.features:
        return [f"{node.capitalize()} is registered with the ranges of the leader already: nothing to do."]
    lines = [
        f"{name}: {node} supports {_range(old)}, the leader (controller {ghost.leader.id}) {_range(new)}"
        for name, old, new in ghost.features
    ]
    if is_done:
        return [*lines, f"Registered {node} with the ranges of the leader. Try the upgrade again."]
    return [*lines, f"Would register {node} with the ranges of the leader. Nothing was changed: add --execute."]


def _range(levels: tuple[int, int] | None) -> str:
    return "nothing" if levels is None else f"{levels[0]} to {levels[1]}"
