"""`kraft brokers`: lists, describes and unregisters brokers (Kafka: `ClusterTool`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import click

from kraft.admin import unregister_broker
from kraft.cli.cluster.administration import Cluster, image_of, on_a_cluster
from kraft.cli.near import unknown_broker
from kraft.cli.text import table
from kraft.operate.top.metadata import broker_state
from metadata_log.image import MetadataImage
from metadata_log.image.names import SECURITY_PROTOCOLS, listener_text
from metadata_log.image.persistent_map import in_key_order


@click.group(
    "brokers",
    short_help="List, describe and unregister brokers.",
    epilog="Example: kraft brokers list --bootstrap-controller 127.0.0.1:9093",
)
def brokers_command() -> None:
    """The brokers that are registered with the controllers, ours or Apache Kafka's."""


@brokers_command.command(
    "list",
    short_help="All brokers, one a line.",
    epilog="Example: kraft brokers list --bootstrap-controller 127.0.0.1:9093",
)
@on_a_cluster
def list_command(*, cluster: Cluster) -> None:
    """List the registered brokers: whether each is active, fenced or about to stop, how many of its log directories
    are cordoned, how many replicas it has, how many partitions it leads, and where it listens.
    """
    brokers = _brokers(cluster.ask(image_of))
    rows = [
        (
            each["id"],
            each["state"],
            each["rack"] or "-",
            len(each["directories"]),
            len(each["cordonedDirectories"]),
            each["replicas"],
            each["leads"],
            ",".join(each["endpoints"]),
        )
        for each in brokers
    ]
    names = ("ID", "STATE", "RACK", "DIRECTORIES", "CORDONED", "REPLICAS", "LEADS", "ENDPOINTS")
    cluster.say({"brokers": brokers}, table(names, rows) if rows else ["No broker is registered."])


@brokers_command.command(
    "describe",
    short_help="Everything about one broker.",
    epilog="Example: kraft brokers describe 101 --bootstrap-controller 127.0.0.1:9093",
)
@click.argument("broker", type=int)
@on_a_cluster
def describe_command(broker: int, *, cluster: Cluster) -> None:
    """Describe the broker with this id."""
    known = {each["id"]: each for each in _brokers(cluster.ask(image_of))}
    if broker not in known:
        raise unknown_broker(broker, known)
    facts = known[broker]
    cluster.say(facts, _describe_lines(facts))


def _describe_lines(broker: dict[str, Any]) -> Iterator[str]:
    cordoned = broker["cordonedDirectories"]
    facts = {
        "id": broker["id"],
        "state": broker["state"],
        "rack": broker["rack"] or "none",
        "epoch": broker["epoch"],
        "incarnation": broker["incarnationId"],
        "endpoints": ", ".join(broker["endpoints"]),
        "directories": ", ".join(f"{one} (cordoned)" if one in cordoned else one for one in broker["directories"]),
        "replicas": broker["replicas"],
        "in sync": broker["inSync"],
        "leads": broker["leads"],
        "features": ", ".join(f"{name} {low}-{high}" for name, (low, high) in broker["features"].items()),
    }
    width = max(map(len, facts)) + 2
    return (f"{name + ':':<{width}}{value}" for name, value in facts.items())


@brokers_command.command(
    "unregister",
    short_help="Remove the registration of a broker.",
    epilog="Example: kraft brokers unregister 101 --bootstrap-controller 127.0.0.1:9093",
)
@click.argument("broker", type=int)
@on_a_cluster
def unregister_command(broker: int, *, cluster: Cluster) -> None:
    """Remove the registration of a lost broker. Move its replicas away first: see `kraft reassign plan`."""
    cluster.ask(lambda admin: unregister_broker(admin, broker), is_forwarded=True)
    cluster.say({"id": broker, "unregistered": True}, [f"unregistered broker {broker}"])


def _brokers(image: MetadataImage) -> list[dict[str, Any]]:
    """Each broker with its partition counts."""
    replicas, in_sync, leads = Counter[int](), Counter[int](), Counter[int]()
    for name in image.topics:
        for partition in image.topics[name].partitions:
            replicas.update(partition.replicas)
            in_sync.update(partition.isr)
            leads[partition.leader] += 1
    return [
        {
            "id": broker_id,
            "state": broker_state(broker),
            "rack": broker.rack,
            "epoch": broker.epoch,
            "incarnationId": str(broker.incarnation_id),
            "endpoints": [
                listener_text(one.name, one.host, one.port)
                + ("" if one.name == (protocol := SECURITY_PROTOCOLS.get(one.security_protocol)) else f" ({protocol})")
                for one in broker.endpoints
            ],
            "directories": [str(one) for one in broker.directories],
            "cordonedDirectories": [str(one) for one in broker.cordoned_directories or ()],
            "features": {name: (lowest, highest) for name, lowest, highest in broker.features},
            "replicas": replicas[broker_id],
            "inSync": in_sync[broker_id],
            "leads": leads[broker_id],
        }
        for broker_id, broker in in_key_order(image.brokers.by_id)
    ]
