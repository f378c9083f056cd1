"""`kraft quorum`: the quorum as its leader sees it (Kafka: `MetadataQuorumCommand`)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import click
import trio

from kraft.admin import AdminError, ClusterDescription, QuorumDescription, ReplicaDescription, open_admin
from kraft.cli.administration import bootstrap_option, parse_bootstrap
from kraft.cli.failure import CommandFailed
from kraft.cli.voters import add_command, remove_command, upgrade_command
from metadata_log.types import Uuid
from transport.interface import Endpoint

WATCH_SECONDS: Final = 1.0

Facts = tuple[ClusterDescription, QuorumDescription]


@click.group(
    "quorum",
    short_help="Show the quorum, and change who votes.",
    epilog="Example: kraft quorum status --bootstrap-controller 127.0.0.1:9093",
)
def quorum_command() -> None:
    """What kafka-metadata-quorum shows and does, of our controllers or Apache Kafka's."""


quorum_command.add_command(add_command)
quorum_command.add_command(remove_command)
quorum_command.add_command(upgrade_command)


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that every subcommand has."""
    for option in (
        click.option(
            "--timeout", default=10.0, show_default=True, type=click.FloatRange(min=0.1), help="Seconds to try for."
        ),
        click.option("--watch", is_flag=True, help="Repeat every second until Ctrl-C."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object; with --watch, one a line."),
        bootstrap_option,
    ):
        command = option(command)
    return command


@quorum_command.command(
    "status",
    short_help="Leader, epoch, high watermark, lag, voters.",
    epilog="Example: kraft quorum status --bootstrap-controller 127.0.0.1:9093",
)
@_options
def status_command(*, bootstrap: str, as_json: bool, watch: bool, timeout: float) -> None:
    """Print a summary of the quorum, in the words of kafka-metadata-quorum describe --status."""
    _show(bootstrap, watch, timeout, status_json if as_json else status_text)


@quorum_command.command(
    "replication",
    short_help="Every replica, with its lag.",
    epilog="Example: kraft quorum replication --bootstrap-controller 127.0.0.1:9093 --human-readable",
)
@_options
@click.option("--human-readable", is_flag=True, help="Times as milliseconds ago.")
def replication_command(*, bootstrap: str, as_json: bool, watch: bool, timeout: float, human_readable: bool) -> None:
    """Print one row per replica, in the words of kafka-metadata-quorum describe --replication."""

    def table(facts: Facts) -> str:
        return replication_text(facts[1], now_ms=time.time_ns() // 1_000_000 if human_readable else None)

    _show(bootstrap, watch, timeout, replication_json if as_json else table)


def _show(bootstrap: str, watch: bool, timeout: float, render: Callable[[Facts], str]) -> None:
    endpoints = parse_bootstrap(bootstrap)
    try:
        trio.run(_ask_and_print, endpoints, watch, int(timeout * 1000), render)
    except AdminError as failed:
        raise CommandFailed(str(failed), hint=failed.hint) from failed


async def _ask_and_print(
    endpoints: Sequence[Endpoint], watch: bool, timeout_ms: int, render: Callable[[Facts], str]
) -> None:
    async with open_admin(endpoints, client_id="kraft-quorum", timeout_ms=timeout_ms) as admin:
        while True:
            cluster = await admin.describe_cluster()
            click.echo(render((cluster, await admin.describe_quorum())))
            if not watch:
                return
            await trio.sleep(WATCH_SECONDS)


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


def status_text(facts: Facts) -> str:
    """The summary as Kafka's tool prints it."""
    return "\n".join(
        f"{name + ':':<24}{json.dumps(value) if isinstance(value, list) else value}"
        for name, value in _status_facts(facts).items()
    )


def status_json(facts: Facts) -> str:
    """The same as one JSON object."""
    return json.dumps({_camel(name): value for name, value in _status_facts(facts).items()})


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
