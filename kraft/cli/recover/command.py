"""`kraft recover plan`, `apply` and `verify`: a quorum that has lost its majority comes back from a surviving copy."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from random import Random, SystemRandom

import click
from msgspec.structs import replace

from kraft.admin import AdminClient
from kraft.cli.cluster.administration import Cluster, client_security, command_config_option, parse_bootstrap
from kraft.cli.progress import LongJob, progress_option
from kraft.cli.recover.isolated import check_started, start_recovered, start_recovered_on_kafka, unblock_ghost_command
from kraft.cli.recover.plan_text import (
    check_unchanged,
    live_lines,
    plan_lines,
    read_plan_file,
    recovery_lines,
    verify_lines,
)
from kraft.cli.text import echo, echo_lines
from kraft.config import Config, UsageError, parse_host_port, split_list
from kraft.config.errors import CommandFailed
from kraft.operate.recover.description import read_description
from kraft.operate.recover.inventory import read_inventory
from kraft.operate.recover.live.verify import LiveQuorum, check_live, read_live_quorum, read_strays
from kraft.operate.recover.plan import Plan, PlanOptions, make_plan
from kraft.operate.recover.plan_json import plan_json
from kraft.operate.recover.recovery import Address, Choices, make_recovery, recovery_json
from kraft.operate.recover.verify import check_recovered, read_recovered
from kraft.operate.recover.writing import check_new, write_recovery
from metadata_log.disk import OsDisk

SEVERAL = ("--brokers",)
"""Options that take every word up to the next option."""


class _SeveralValues(click.Command):
    """A command with `--brokers DIR DIR …`: each word up to the next option is a value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, repeat_option(args, SEVERAL))


def repeat_option(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """`--brokers A B --json` as `--brokers A --brokers B --json`."""
    spread: list[str] = []
    current: str | None = None
    is_first = False
    for word in words:
        if word.startswith("-") and word != "-":
            name, equals, _ = word.partition("=")
            current, is_first = (name, not equals) if name in options else (None, False)
            spread.append(word)
        elif current is not None and not is_first:
            spread += [current, word]
        else:
            spread.append(word)
            is_first = False
    return spread


@click.group(
    "recover",
    short_help="Repair a quorum that lost its majority.",
    epilog="Example: kraft recover plan /var/lib/kafka/c1 --brokers /var/lib/kafka/b1 /var/lib/kafka/b2",
)
def recover_command() -> None:
    """Recover a quorum that has lost the disks of its majority.

    A controller's or a broker's copy of the metadata log becomes the log of the new quorum.
    `plan` reads the surviving directories and tells which copy is best and what would be lost. `apply` writes a new
    directory beside the old ones and never changes those. `verify` checks the new directory, and starts a node on a
    copy of it in isolation. All three know static and dynamic quorums of Apache Kafka 3.9 to 4.4. `unblock-ghost` frees
    an upgrade of a running quorum from the registration of a controller that is gone.
    """


recover_command.add_command(unblock_ghost_command)


def node_ids(text: str | None, option: str) -> tuple[int, ...]:
    """A comma-separated list of node ids; raises `UsageError`."""
    ids = []
    for entry in split_list(text or ""):
        if not (entry.isascii() and entry.isdigit() and len(entry) <= 10):
            raise UsageError(f"{entry!r} is no node id", where=option, hint="For example 101,102.")
        ids.append(int(entry))
    return tuple(ids)


@recover_command.command(
    "plan",
    cls=_SeveralValues,
    short_help="Tell which copy is best and what would be lost.",
    epilog="Example: kraft recover plan --json /backup/c1 --brokers /backup/b1 /backup/b2 > plan.json",
)
@click.argument("controllers", nargs=-1, metavar="[DIR…]")
@click.option("--brokers", multiple=True, metavar="DIR…", help="Log directories of brokers: all up to the next option.")
@click.option(
    "--observers",
    type=click.Choice(["yes", "no"]),
    default="yes",
    show_default=True,
    help="Whether a broker's copy of the metadata log may become the seed.",
)
@click.option(
    "-c", "--config", "config_path", metavar="FILE", help="A controller's properties: static voters are only there."
)
@click.option("--brokers-gone", metavar="ID,…", help="Brokers that will not come back.")
@click.option(
    "--truncate-to", type=int, metavar="OFFSET", help="Cut the best copy's log here, at the start of a batch."
)
@click.option("--live", is_flag=True, help="Read the directories of running nodes, too; the ends of their logs move.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as one JSON object, which `apply` reads.")
@progress_option
def plan_command(
    controllers: tuple[str, ...],
    *,
    brokers: tuple[str, ...],
    observers: str,
    config_path: str | None,
    brokers_gone: str | None,
    truncate_to: int | None,
    live: bool,
    as_json: bool,
) -> None:
    """Read the surviving log directories, and plan the recovery. Nothing is written.

    DIR is a log directory of a controller, as in log.dirs. Copies rank by the last epoch in the log, then by its end:
    the longest log can be the wrong one. A broker's copy of the metadata log is as good as a controller's, and the
    brokers' partitions show what the best copy does not know: give every directory there is. Nodes must be stopped.
    The exit code is 0 for a plan, also if no recovery is needed.
    """
    if not controllers and not brokers:
        raise click.UsageError("Give the surviving directories: DIR… for controllers, --brokers DIR… for brokers.")
    voter_ids = None
    if config_path is not None:
        voter_ids = tuple(sorted(voter.id for voter in Config.load(config_path).voters)) or None
    options = PlanOptions(
        observers=observers == "yes",
        voter_ids=voter_ids,
        gone=node_ids(brokers_gone, "--brokers-gone"),
        truncate_to=truncate_to,
    )
    plan = compute_plan(controllers, brokers, options, live=live)
    if as_json:
        echo(json.dumps(plan_json(plan), ensure_ascii=False))
    else:
        echo_lines(plan_lines(plan))


def compute_plan(
    controllers: Sequence[str], brokers: Sequence[str], options: PlanOptions, *, live: bool = False
) -> Plan:
    """Read the directories and make the plan, with a bar for long jobs."""
    disk = OsDisk()
    with LongJob("Reading", len(controllers) + len(brokers), unit="directories") as job:
        given = [[os.path.abspath(path) for path in paths] for paths in (controllers, brokers)]
        inventory = read_inventory(disk, *given, live=live, advance=job.advance)
    return make_plan(disk, inventory, options)


# ---------------------------------------------------------------------------------------------------------------- apply


@recover_command.command(
    "apply",
    short_help="Write the recovered directories.",
    epilog="Example: kraft recover apply plan.json --into /data/recovered --voters 1=c1.example:9093 --execute",
)
@click.argument("plan_file", metavar="PLAN.json")
@click.option(
    "--into", "target", required=True, metavar="NEWDIR", help="A new directory; it gets one node-ID per voter."
)
@click.option(
    "--voters",
    metavar="ID=HOST:PORT,…",
    help="The voters after the recovery. Left out: the node of the seed alone.",
)
@click.option(
    "--endpoint",
    "endpoints",
    multiple=True,
    metavar="ID=HOST:PORT",
    help="The new address of a voter, where all voters survive and only their addresses have changed. May be repeated.",
)
@click.option("--listener", metavar="NAME", help="The name of the controllers' listener, if not the one in the log.")
@click.option("--kraft-version", type=click.IntRange(0, 1), help="1 makes a static quorum dynamic.")
@click.option(
    "--rescue-topics", metavar="all|TOPIC,…", help="Topics that only brokers know, to put back into the image."
)
@click.option("--brokers-gone", metavar="ID,…", help="Brokers that will not come back, if not as in the plan.")
@click.option("--truncate-to", type=int, metavar="OFFSET", help="Cut the seed's log here, if not as in the plan.")
@click.option("--from-image", is_flag=True, help="Write a snapshot of the image, and not the log.")
@click.option("--force", is_flag=True, help="Go on although a majority survives: two quorums can come to be.")
@click.option("--execute", is_flag=True, help="Write. Without this option the command only shows what it would write.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@progress_option
def apply_command(
    plan_file: str,
    *,
    target: str,
    voters: str | None,
    endpoints: tuple[str, ...],
    listener: str | None,
    kraft_version: int | None,
    rescue_topics: str | None,
    brokers_gone: str | None,
    truncate_to: int | None,
    from_image: bool,
    force: bool,
    execute: bool,
    as_json: bool,
) -> None:
    """Write new log directories beside the old ones, from a plan of `kraft recover plan --json`.

    The directories of the plan are read again, and must not have changed. They are never written to. Each new directory
    holds the seed's log byte for byte, a new voter set and the records that repair the image, all of an epoch above
    every known one. Start no other copy of an old controller directory beside the result.
    """
    planned = read_plan_file(plan_file)
    gone = planned.options.gone if brokers_gone is None else node_ids(brokers_gone, "--brokers-gone")
    cut = planned.options.truncate_to if truncate_to is None else truncate_to
    options = replace(planned.options, gone=gone, truncate_to=cut)
    choices = Choices(
        voters=addresses(split_list(voters or ""), "--voters"),
        endpoints=addresses(endpoints, "--endpoint"),
        kraft_version=kraft_version,
        listener=listener,
        rescue=split_list(rescue_topics or ""),
        from_image=from_image,
    )
    if choices.voters and choices.endpoints:
        raise UsageError("only one of --voters and --endpoint can be given", hint="See `kraft recover apply --help`.")
    target = os.path.abspath(target)
    check_new(OsDisk(), target)
    plan = compute_plan(planned.controllers, planned.brokers, options)
    check_unchanged(planned, plan, plan_file)
    if not force and not choices.endpoints and plan.is_quorum_possible is not False:
        raise _not_lost(plan)
    recovery = make_recovery(
        plan, choices, rng=Random(SystemRandom().getrandbits(64)), now_ms=time.time_ns() // 1_000_000
    )
    if execute:
        write_recovery(OsDisk(), target, recovery)
    if as_json:
        echo(json.dumps({"into": target, "written": execute, **recovery_json(recovery)}, ensure_ascii=False))
    else:
        echo_lines(recovery_lines(recovery, target, is_written=execute))


def addresses(entries: Sequence[str], option: str) -> tuple[Address, ...]:
    """`ID=HOST:PORT` entries; raises `UsageError`."""
    parsed = []
    for entry in entries:
        node_id, equals, address = entry.partition("=")
        try:
            if not (equals and node_id.isascii() and node_id.isdigit() and len(node_id) <= 10):
                raise ValueError(f"{entry!r} is not ID=HOST:PORT")
            parsed.append(Address(int(node_id), *parse_host_port(address)))
        except ValueError as bad:
            raise UsageError(str(bad), where=option, hint="For example 1=c1.example:9093.") from bad
    return tuple(parsed)


def _not_lost(plan: Plan) -> CommandFailed:
    if plan.is_quorum_possible:
        return CommandFailed(
            "a majority of the voters survives, so there is nothing to recover",
            hint="Start the surviving controllers: `kraft recover plan` lists the steps. --force goes on nevertheless, "
            "and then two quorums of one cluster can come to be.",
        )
    return CommandFailed(
        "the voters are unknown, so a majority of them may survive",
        hint="Make the plan with -c and a controller's properties, or go on with --force.",
    )


# --------------------------------------------------------------------------------------------------------------- verify


@recover_command.command(
    "verify",
    cls=_SeveralValues,
    short_help="Check recovered directories, and start a copy in isolation.",
    epilog="Example: kraft recover verify /var/lib/kafka/recovered --brokers /var/lib/kafka/b1",
)
@click.argument("target", metavar="NEWDIR")
@click.option("--brokers", multiple=True, metavar="DIR…", help="Log directories of brokers: all up to the next option.")
@click.option("--offline", is_flag=True, help="Start no node.")
@click.option(
    "--bootstrap-controller",
    "bootstrap",
    metavar="H:P[,H:P]",
    help="Check the recovered quorum that runs at these addresses, and not its directories.",
)
@command_config_option
@click.option(
    "--kafka",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    help="An installation of Apache Kafka: its controller is started on a copy, too, if the result has one voter.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    metavar="N",
    help="How long the started nodes may take for an election.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@progress_option
@click.pass_context
def verify_command(
    context: click.Context,
    target: str,
    *,
    brokers: tuple[str, ...],
    offline: bool,
    bootstrap: str | None,
    command_config: str | None,
    kafka: str | None,
    seconds: float,
    as_json: bool,
) -> None:
    """Check the directories that `kraft recover apply --execute` has written. The directories stay unchanged.

    The log is replayed, and epochs, voters, quorum-state and the brokers' files are compared with the plan. Then every
    voter of the result is started on a temporary copy, on a network within this process, and must elect a leader that
    commits. With --kafka, Apache Kafka's own controller must lead on another copy. The exit code is 1 if a check fails.

    After the start, --bootstrap-controller asks the running quorum: whether the leader has an epoch above that of the
    recovery and commits, whether voters and brokers are back, and which partitions have no leader. Of NEWDIR only
    recovery.json is read then, and of the brokers the names of their directories, so that all may run.
    """
    if bootstrap is not None:
        if offline or kafka is not None:
            raise UsageError("--bootstrap-controller asks a running quorum, and --offline and --kafka do not")
        context.exit(_verify_live(target, brokers, bootstrap, command_config, seconds, as_json=as_json))
    disk = OsDisk()
    started = None
    with LongJob("Checking", None):
        recovered = read_recovered(disk, os.path.abspath(target))
        checks = check_recovered(disk, recovered, [os.path.abspath(path) for path in brokers])
        if not offline and all(check.is_passed for check in checks):
            started = start_recovered(recovered, seconds)
            checks += check_started(recovered, started)
            if kafka is not None and all(check.is_passed for check in checks):
                led = start_recovered_on_kafka(recovered, os.path.abspath(kafka), seconds)
                checks += check_started(recovered, led, "start of Kafka")
    passed = all(check.is_passed for check in checks)
    if as_json:
        facts = [{"check": one.name, "subject": one.subject, "problem": one.problem} for one in checks]
        echo(json.dumps({"passed": passed, "checks": facts, "started": started is not None}, ensure_ascii=False))
    else:
        echo_lines(verify_lines(checks, started, offline=offline, brokers=bool(brokers)))
    context.exit(0 if passed else 1)


def _verify_live(
    target: str, brokers: Sequence[str], bootstrap: str, command_config: str | None, seconds: float, *, as_json: bool
) -> int:
    """Check a recovered quorum that runs; returns the exit code."""
    disk = OsDisk()
    facts = read_description(disk, os.path.abspath(target))
    strays = read_strays(disk, [os.path.abspath(path) for path in brokers]) if brokers else None
    security = client_security(command_config)
    cluster = Cluster(parse_bootstrap(bootstrap, security), int(seconds * 1000), as_json, security)

    async def look(admin: AdminClient) -> LiveQuorum:
        return await read_live_quorum(admin, seconds=seconds)

    live = cluster.ask(look)
    checks = check_live(facts, live, strays)
    passed = all(check.is_passed for check in checks)
    told = [{"check": one.name, "subject": one.subject, "problem": one.problem} for one in checks]
    quorum = {"leaderId": live.quorum.leader_id, "leaderEpoch": live.quorum.leader_epoch}
    cluster.say({"passed": passed, "checks": told, "quorum": quorum}, live_lines(checks, brokers=bool(brokers)))
    return 0 if passed else 1
