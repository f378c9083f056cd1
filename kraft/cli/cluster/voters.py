"""`kraft quorum add | remove | upgrade`: changes the voters of a dynamic quorum (Kafka: `MetadataQuorumCommand`;
KIP-853).
"""

from __future__ import annotations

from typing import Final

import click

from kraft.admin import UpgradeType, update_features
from kraft.admin.voters import DYNAMIC, add_voter, make_dynamic, remove_voter
from kraft.cli.cluster.administration import Cluster, on_a_cluster
from kraft.config import UsageError, parse_host_port
from metadata_log.image.features import KRAFT_VERSION
from metadata_log.types import Uuid
from transport.interface import Endpoint

_WHERE: Final = "CONTROLLER"

_directory_option = click.option(
    "--directory-id", metavar="ID", help="Of the controller's metadata log, where the leader knows several of one node."
)


@click.command(
    "add",
    short_help="Make a controller a voter.",
    epilog="Example: kraft quorum add 4 --bootstrap-controller 127.0.0.1:9093",
)
@click.argument("controller", metavar="ID[@H:P]")
@_directory_option
@on_a_cluster
def add_command(controller: str, *, directory_id: str | None, cluster: Cluster) -> None:
    """Make a running controller a voter. The controller was formatted with --no-initial-controllers and has caught up.

    The new voter gets the directory from which the controller fetches. Its address is the registered one, or H:P, where
    the other controllers reach it.
    """
    node_id, endpoint = _controller(controller)
    directory = _directory(directory_id)
    added = cluster.ask(lambda admin: add_voter(admin, node_id, endpoint, directory, timeout_ms=cluster.timeout_ms))
    cluster.say(
        {"added": {"id": added.id, "directoryId": str(added.directory_id), "endpoint": str(added.endpoint)}},
        [f"Node {added.id} at {added.endpoint} votes now, with directory {added.directory_id}."],
    )


@click.command(
    "remove",
    short_help="Make a voter an observer.",
    epilog="Example: kraft quorum remove 4 --bootstrap-controller 127.0.0.1:9093",
)
@click.argument("node_id", metavar="ID", type=click.IntRange(min=0))
@_directory_option
@click.option("--force", is_flag=True, help="Even if the remaining voters lack a majority that keeps up.")
@on_a_cluster
def remove_command(node_id: int, *, directory_id: str | None, force: bool, cluster: Cluster) -> None:
    """Make a voter an observer. A leader that is removed resigns after the commit.

    A controller with controller.quorum.auto.join.enable joins again by itself.
    """
    directory = _directory(directory_id)
    found = cluster.ask(lambda admin: remove_voter(admin, node_id, directory, force=force))
    cluster.say(
        {"removed": {"id": node_id, "directoryId": str(found)}},
        [f"Node {node_id} with directory {found} votes no more."],
    )


@click.command(
    "upgrade",
    short_help="Make a static quorum dynamic.",
    epilog="Example: kraft quorum upgrade --dry-run --bootstrap-controller 127.0.0.1:9093",
)
@click.option("--dry-run", is_flag=True, help="Only check the request.")
@on_a_cluster
def upgrade_command(*, dry_run: bool, cluster: Cluster) -> None:
    """Raise kraft.version to 1, irreversibly: a static quorum becomes dynamic without a restart.

    Afterwards controller.quorum.voters has no effect; controller.quorum.bootstrap.servers replaces it.
    """
    if dry_run:
        cluster.ask(lambda admin: update_features(admin, DYNAMIC, UpgradeType.UPGRADE, validate_only=True))
    else:
        cluster.ask(lambda admin: make_dynamic(admin, timeout_ms=cluster.timeout_ms))
    level = DYNAMIC[KRAFT_VERSION]
    cluster.say(
        {"kraftVersion": level, "dryRun": dry_run}, [f"{KRAFT_VERSION} {'can be' if dry_run else 'is'} {level}."]
    )


def _controller(text: str) -> tuple[int, Endpoint | None]:
    node_id, at, address = text.partition("@")
    try:
        if not (node_id.isascii() and node_id.isdecimal()):
            raise ValueError(f"{text!r} is neither ID nor ID@HOST:PORT")
        return int(node_id), Endpoint(*parse_host_port(address)) if at else None
    except ValueError as bad:
        raise UsageError(str(bad), where=_WHERE, hint="For example 4, or 4@127.0.0.1:9096.") from bad


def _directory(text: str | None) -> Uuid | None:
    try:
        return None if text is None else Uuid.parse(text)
    except ValueError as bad:
        raise UsageError(str(bad), where="--directory-id", hint="See `kraft quorum status`.") from bad
