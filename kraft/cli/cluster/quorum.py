"""`kraft quorum`: the quorum as its leader reports it, and changes of its voters (Kafka: `MetadataQuorumCommand`;
KIP-853).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import click
import trio

from kraft.admin import (
    AdminClient,
    ClusterDescription,
    NoController,
    QuorumDescription,
    ReplicaDescription,
    UpgradeType,
    unregister_controller,
    update_features,
)
from kraft.admin.conditions import Condition, conditions_without_leader, voter_conditions
from kraft.admin.voters import DYNAMIC, add_voter, make_dynamic, remove_voter
from kraft.cli.cluster.administration import Cluster, on_a_cluster
from kraft.cli.cluster.quorum_why import NoLeaderReport, why_facts, why_lines
from kraft.cli.text import echo, echo_text
from kraft.config import UsageError, parse_host_port
from kraft.config.errors import CommandFailed
from metadata_log.image.features import KRAFT_VERSION
from metadata_log.times import iso_time
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
    removed = cluster.ask(lambda admin: remove_voter(admin, node_id, directory, force=force))
    cluster.say(
        {"removed": {"id": node_id, "directoryId": str(removed)}},
        [f"Node {node_id} with directory {removed} votes no more."],
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


WATCH_SECONDS: Final = 1.0

Facts = tuple[ClusterDescription, QuorumDescription]
Look = Callable[[AdminClient], Awaitable[str]]
"""Queries the cluster and formats the result; raises `NoController`."""


@click.group(
    "quorum",
    short_help="Show the quorum, and change its voters.",
    epilog="Example: kraft quorum status --bootstrap-controller 127.0.0.1:9093",
)
def quorum_command() -> None:
    """Show and change the quorum of this program's or Apache Kafka's controllers, like kafka-metadata-quorum."""


quorum_command.add_command(add_command)
quorum_command.add_command(remove_command)
quorum_command.add_command(upgrade_command)


_watch_option = click.option(
    "--watch",
    is_flag=True,
    help="Repeat every second until Ctrl-C, also without a leader; repaint a terminal.",
)


@quorum_command.command(
    "status",
    short_help="Leader, epoch, high watermark, lag, voters.",
    epilog="Example: kraft quorum status --why --bootstrap-controller 127.0.0.1:9093",
)
@click.option("--why", is_flag=True, help="Query each voter, too: its reachability, its leader and its lag.")
@_watch_option
@on_a_cluster
def status_command(*, why: bool, watch: bool, cluster: Cluster) -> None:
    """Print a summary of the quorum, in the format of kafka-metadata-quorum describe --status.

    With --why and without a leader, the command reports the known controllers. On a terminal the report appears after a
    second, and again only if the states have changed.
    """
    report = NoLeaderReport(explains_timeouts=not why)

    async def look(admin: AdminClient) -> str:
        try:
            facts = await _facts(admin)
        except NoController:
            if why:
                without = await conditions_without_leader(admin)
                if cluster.as_json or not report.is_shown(without):
                    cluster.say({"why": why_facts(without)}, why_lines(without, has_leader=False))
            raise
        conditions = await voter_conditions(admin, *facts) if why else None
        return status_json(facts, conditions) if cluster.as_json else status_text(facts, conditions)

    _show(cluster, look, watch, report)


@quorum_command.command(
    "replication",
    short_help="Every replica, with its lag.",
    epilog="Example: kraft quorum replication --bootstrap-controller 127.0.0.1:9093 --human-readable",
)
@click.option("--human-readable", is_flag=True, help="Times as milliseconds ago.")
@_watch_option
@on_a_cluster
def replication_command(*, human_readable: bool, watch: bool, cluster: Cluster) -> None:
    """Print one row per replica, in the format of kafka-metadata-quorum describe --replication."""

    async def look(admin: AdminClient) -> str:
        facts = await _facts(admin)
        if cluster.as_json:
            return replication_json(facts)
        return replication_text(facts[1], now_ms=time.time_ns() // 1_000_000 if human_readable else None)

    _show(cluster, look, watch)


async def _facts(admin: AdminClient) -> Facts:
    return await admin.describe_cluster(), await admin.describe_quorum()


@quorum_command.command(
    "unregister",
    short_help="Remove the registration of a lost controller.",
    epilog="Example: kraft quorum unregister 99 --bootstrap-controller 127.0.0.1:9093",
)
@click.argument("node_id", metavar="ID", type=click.IntRange(min=0))
@on_a_cluster
def unregister_command(node_id: int, *, cluster: Cluster) -> None:
    """Remove the registration of a controller that is gone, whose feature ranges block upgrades.

    The cluster must be at metadata.version 4.4-IV2 or later; before, see `kraft recover unblock-ghost`. The controller
    stays a voter if it is one. One that runs registers again.
    """
    cluster.ask(lambda admin: unregister_controller(admin, node_id))
    cluster.say({"id": node_id, "unregistered": True}, [f"unregistered controller {node_id}"])


def _show(cluster: Cluster, look: Look, watch: bool, report: NoLeaderReport | None = None) -> None:
    async def show(admin: AdminClient) -> None:
        if not watch:
            echo_text(await look(admin))
            return
        _paint(cluster, await look(admin))
        while True:
            await trio.sleep(WATCH_SECONDS)
            try:
                _paint(cluster, await look(admin))
            except NoController as silent:
                echo(f"kraft: {silent}", err=True)

    cluster.ask(show, report=report)


def _paint(cluster: Cluster, text: str) -> None:
    """Print the time and a text: a terminal is repainted, other output gets one block after another.

    JSON has no time of its own, since each line is one object.
    """
    if cluster.as_json:
        echo_text(text)
        return
    if sys.stdout.isatty():
        click.clear()
    echo_text(f"{iso_time(time.time_ns() // 1_000_000)}\n{text}" + ("" if sys.stdout.isatty() else "\n"))


# --------------------------------------------------------------------------------------------------------- rendering


def _lag(quorum: QuorumDescription) -> tuple[int, int]:
    """The largest lag of a voter, in records and in milliseconds, as Kafka's tool computes it (-1: not known)."""
    leader = _leader(quorum)
    slowest = min(quorum.voters, key=lambda voter: voter.log_end_offset)
    if slowest is leader:
        behind_ms = 0
    elif leader.last_caught_up_ms < 0 or slowest.last_caught_up_ms < 0:
        behind_ms = -1
    else:
        behind_ms = leader.last_caught_up_ms - slowest.last_caught_up_ms
    return leader.log_end_offset - slowest.log_end_offset, behind_ms


def _leader(quorum: QuorumDescription) -> ReplicaDescription:
    leader = next((voter for voter in quorum.voters if voter.id == quorum.leader_id), None)
    if leader is None:
        raise CommandFailed(f"leader {quorum.leader_id} is not among the voters that it names")
    return leader


def _replica(replica: ReplicaDescription) -> dict[str, Any]:
    facts: dict[str, Any] = {"id": replica.id}
    if replica.directory_id != Uuid.ZERO:
        facts["directoryId"] = str(replica.directory_id)
    if replica.listeners:
        facts["endpoints"] = [f"{name}://{endpoint}" for name, endpoint in replica.listeners]
    return facts


def _status_facts(facts: Facts) -> dict[str, Any]:
    cluster, quorum = facts
    lag, lag_ms = _lag(quorum)
    return {
        "ClusterId": cluster.cluster_id,
        "LeaderId": quorum.leader_id,
        "LeaderEpoch": quorum.leader_epoch,
        "HighWatermark": quorum.high_watermark,
        "MaxFollowerLag": lag,
        "MaxFollowerLagTimeMs": lag_ms,
        "CurrentVoters": [_replica(voter) for voter in quorum.voters],
        "CurrentObservers": [_replica(observer) for observer in quorum.observers],
    }


def status_text(facts: Facts, conditions: Sequence[Condition] | None = None) -> str:
    """The summary in the format of Kafka's tool; then the reports of the voters, if requested."""
    lines = [
        f"{name + ':':<24}{json.dumps(value) if isinstance(value, list) else value}"
        for name, value in _status_facts(facts).items()
    ]
    return "\n".join([*lines, *(why_lines(conditions, has_leader=True) if conditions is not None else ())])


def status_json(facts: Facts, conditions: Sequence[Condition] | None = None) -> str:
    """The same as one JSON object."""
    status = {_camel(name): value for name, value in _status_facts(facts).items()}
    return json.dumps(status if conditions is None else {**status, "why": why_facts(conditions)})


def _rows(quorum: QuorumDescription) -> list[dict[str, Any]]:
    leader = _leader(quorum)
    roles = [(leader, "Leader")]
    roles += [(voter, "Follower") for voter in quorum.voters if voter is not leader]
    roles += [(observer, "Observer") for observer in quorum.observers]
    return [
        {
            "NodeId": replica.id,
            "DirectoryId": str(replica.directory_id),
            "LogEndOffset": replica.log_end_offset,
            "Lag": leader.log_end_offset - replica.log_end_offset,
            "LastFetchTimestamp": replica.last_fetch_ms,
            "LastCaughtUpTimestamp": replica.last_caught_up_ms,
            "Status": role,
        }
        for replica, role in roles
    ]


def replication_text(quorum: QuorumDescription, *, now_ms: int | None = None) -> str:
    """The table as Kafka's tool prints it (`ToolsUtils.prettyPrintTable`); with `now_ms`, times as "n ms ago"."""
    rows = _rows(quorum)
    if now_ms is not None:
        for row in rows:
            for name in ("LastFetchTimestamp", "LastCaughtUpTimestamp"):
                if row[name] >= 0:
                    row[name] = f"{max(now_ms - row[name], 0)} ms ago"
    names = list(rows[0])
    table = [names, *([str(row[name]) for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(names))]
    return "\n".join("".join(f"{cell:<{width}}\t" for cell, width in zip(line, widths, strict=True)) for line in table)


def replication_json(facts: Facts) -> str:
    """The table as one JSON object."""
    rows = [{_camel(name): value for name, value in row.items()} for row in _rows(facts[1])]
    return json.dumps({"replicas": rows})


def _camel(name: str) -> str:
    return name[:1].lower() + name[1:]
