"""Starts the recovered controllers on copies, and holds the result against the recovery."""

from __future__ import annotations

from random import SystemRandom

from kraft.config import parse_host_port
from kraft.operate.isolated_start import IsolatedNode, Started, start_isolated
from kraft.operate.recover.verify import Check, Recovered

_LISTENER = "CONTROLLER"
_FIRST_PORT = 9093


def start_recovered(recovered: Recovered, seconds: float) -> Started:
    """Start every voter of a recovery in isolation; errors as of `start_isolated`."""
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
    return start_isolated(
        nodes,
        dynamic=facts["kraftVersion"] > 0,
        log_end=facts["logEnd"],
        seconds=seconds,
        seed=SystemRandom().getrandbits(32),
    )


def check_started(recovered: Recovered, started: Started) -> list[Check]:
    """The leader must be a planned voter, in the epoch behind the recovery's, with all topics and brokers."""
    facts = recovered.facts
    image = next(copy.image for _, copy in recovered.inventory.copies if copy.image is not None)
    expected = facts["epoch"] + 1
    return [
        Check(
            name="start: epoch",
            subject=f"node {started.leader_id}",
            problem=None if started.epoch >= expected else f"the leader has epoch {started.epoch}, not {expected}",
        ),
        Check(
            name="start: topics",
            subject=f"node {started.leader_id}",
            problem=None
            if set(started.image.topics) == set(image.topics)
            else f"the leader knows {len(started.image.topics)} topics, and the log has {len(image.topics)}",
        ),
    ]
