"""`kraft recover unblock-ghost`: an upgrade that the registration of a vanished controller blocks can go on."""

from __future__ import annotations

from random import Random, SystemRandom
from typing import Any

import click

from kraft.admin import AdminClient
from kraft.cli.cluster.administration import Cluster, on_a_cluster
from kraft.operate.recover.live.ghost import Ghost, find_ghost, register_ghost


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
