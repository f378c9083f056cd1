"""`kraft doctor`: diagnoses a quorum from its files, from bundles of several hosts, and live."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

import click
from msgspec.structs import replace

from kraft.cli.cluster.administration import (
    client_security,
    command_config_option,
    find_controllers,
    servers_option,
    told_by,
)
from kraft.cli.doctor.output import (
    Planned,
    Report,
    explanation_json,
    explanation_lines,
    ids,
    report_json,
    report_lines,
)
from kraft.cli.near import did_you_mean
from kraft.cli.progress import LongJob, progress_option
from kraft.cli.text import count, echo, echo_lines
from kraft.config import UsageError
from kraft.config.errors import CommandFailed
from kraft.operate.doctor.before import NEEDS_NODE, OPERATIONS, preflight
from kraft.operate.doctor.bundle import is_bundle, write_bundle
from kraft.operate.doctor.diagnose import diagnose, exit_code
from kraft.operate.doctor.facts.catalog import CATALOG
from kraft.operate.doctor.facts.finding import Finding
from kraft.operate.doctor.facts.log_facts import ImageFacts
from kraft.operate.doctor.facts.node import LiveFacts
from kraft.operate.doctor.gather import GatheredFacts, gather
from kraft.operate.doctor.read_ends import with_replica_ends
from kraft.operate.doctor.read_live import read_live
from kraft.operate.doctor.sarif import sarif
from kraft.operate.doctor.unclean_election import OPERATION as UNCLEAN_ELECTION
from kraft.operate.interrupts import run_tasks
from metadata_log.disk import OsDisk
from metadata_log.releases import resolve_release
from metadata_log.software import SOFTWARE_VERSION

NOTHING_READ: Final = 3
_EXAMINE: Final = "examine"
_NODE: Final = re.compile(r"\d{1,10}")


class _ExamineByDefault(click.Group):
    """`kraft doctor DIR` means `kraft doctor examine DIR`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in self.get_help_option_names(ctx):
            args = [_EXAMINE, *args]
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or super().get_command(ctx, _EXAMINE)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        examine = self.commands[_EXAMINE]
        shown = (param.get_help_record(ctx) for param in examine.params)
        with formatter.section(f"Options of {_EXAMINE}, which needs no name"):
            formatter.write_dl([one for one in shown if one is not None])
        super().format_options(ctx, formatter)


class _WithNode(click.Command):
    """`--before restart 2` means `--before restart --node 2`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for place, word in enumerate(args[:-2]):
            if word == "--before" and _NODE.fullmatch(args[place + 2]) and not os.path.exists(args[place + 2]):
                args = [*args[: place + 2], "--node", *args[place + 2 :]]
                break
        else:
            for place, word in enumerate(args[:-1]):
                if word.startswith("--before=") and _NODE.fullmatch(args[place + 1]):
                    args = [*args[: place + 1], "--node", *args[place + 1 :]]
                    break
        return super().parse_args(ctx, args)


@click.group(
    "doctor",
    cls=_ExamineByDefault,
    short_help="Find what is wrong with a quorum.",
    epilog="Example: kraft doctor --offline /backup/c1 /backup/c2 /backup/c3",
)
def doctor_command() -> None:
    """Find what is wrong with a quorum, from its files, from bundles, or live. `kraft doctor DIR` is short for
    `kraft doctor examine DIR`.
    """


_configs_option: Final = click.option(
    "-c",
    "--config",
    "configs",
    multiple=True,
    type=click.Path(),
    metavar="FILE",
    help="A properties file; its log.dirs are read, too. May be repeated.",
)


@doctor_command.command(
    _EXAMINE,
    cls=_WithNode,
    short_help="Check directories, configurations, bundles, a live quorum.",
    epilog="Example: kraft doctor examine -c /etc/kafka/server.properties --before restart 2",
)
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[DIR|FILE|TAR]…")
@_configs_option
@click.option(
    "--bootstrap-controller",
    "bootstrap",
    envvar="KRAFT_BOOTSTRAP_CONTROLLER",
    show_envvar=True,
    metavar="H:P[,H:P]",
    help="Ask the live quorum of these controllers, too.",
)
@servers_option
@command_config_option
@click.option("--offline", is_flag=True, help="Ask no network: no controller, no resolution of host names.")
@click.option(
    "--before",
    "operation",
    type=click.Choice(OPERATIONS),
    metavar="STEP [ID]",
    help=f"Tell whether this step would break the quorum: {', '.join(OPERATIONS)}; the id of its node may follow.",
)
@click.option("--release-version", "release", metavar="V", help="The release of --before upgrade and downgrade.")
@click.option("--node", "node_id", type=click.IntRange(min=0), metavar="ID", help="The node of --before.")
@click.option(
    "--watch-for",
    "watch_seconds",
    default=0.0,
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Watch the epoch of a live quorum for that long.",
)
@click.option(
    "--timeout",
    default=10.0,
    show_default=True,
    type=click.FloatRange(min=0.1),
    help="Seconds that a request to the controllers may take, with its retries.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--sarif", "as_sarif", is_flag=True, help="Print the findings in SARIF 2.1.0.")
@progress_option
@click.pass_context
def examine_command(
    context: click.Context,
    paths: tuple[str, ...],
    *,
    configs: tuple[str, ...],
    bootstrap: str | None,
    servers: str | None,
    command_config: str | None,
    offline: bool,
    operation: str | None,
    release: str | None,
    node_id: int | None,
    watch_seconds: float,
    timeout: float,
    as_json: bool,
    as_sarif: bool,
) -> None:
    """Check everything that is given: log directories, properties files, bundles of `kraft doctor collect`, a live
    quorum. More nodes allow more checks.

    Nothing is written and nothing is locked: directories may belong to running nodes. Exit codes: 0 nothing worse than
    a warning, 1 an error, 2 a fatal finding, 3 nothing could be read.
    """
    if offline and bootstrap and context.get_parameter_source("bootstrap") is click.core.ParameterSource.ENVIRONMENT:
        bootstrap = None
    asked = bootstrap or servers
    _check_usage(paths, configs, asked, offline=offline, operation=operation, release=release, node_id=node_id)
    directories, files, bundles = _sorted(paths)
    live = None
    if asked:
        live = _ask(bootstrap, servers, command_config, timeout, watch_seconds)
    with LongJob("Reading", None, unit="batches") as job:
        gathered = gather((*configs, *files), directories, bundles, live=live, offline=offline, advance=job.advance)
    if not gathered.facts.nodes and live is None:
        raise _nothing_read(gathered)
    for one in gathered.unreadable:
        echo(f"kraft: warning: {one.path} cannot be read: {one.why}", err=True)
    if operation == UNCLEAN_ELECTION:
        gathered = replace(gathered, facts=with_replica_ends(OsDisk(), gathered.facts))
    report = _report(gathered, operation, node_id, release)
    _say(report, as_json=as_json, as_sarif=as_sarif)
    code = exit_code(report.findings)
    context.exit(max(code, 1) if gathered.unreadable else code)


def _check_usage(
    paths: Sequence[str],
    configs: Sequence[str],
    bootstrap: str | None,
    *,
    offline: bool,
    operation: str | None,
    release: str | None,
    node_id: int | None,
) -> None:
    if not (paths or configs or bootstrap):
        raise UsageError(
            "nothing is given to read",
            hint="Name log directories, -c FILE, or --bootstrap-controller H:P.",
        )
    if offline and bootstrap:
        raise UsageError("--offline and --bootstrap-controller contradict each other", hint="Leave one of them out.")
    if operation in NEEDS_NODE and node_id is None:
        raise UsageError(f"--before {operation} needs a node", hint=f"For example --before {operation} 2.")
    if operation == "downgrade" and release is None:
        raise UsageError("--before downgrade needs a release", hint="For example --release-version 4.1.")
    if release is not None:
        if operation not in {"upgrade", "downgrade"}:
            raise UsageError("--release-version is the release of --before upgrade or downgrade")
        resolve_release(release)
    if node_id is not None and operation is None:
        raise UsageError("--node is the node of --before", hint="For example --before restart --node 2.")


def _sorted(paths: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Directories, properties files and bundles among the arguments; a path that does not exist is a directory."""
    directories, files, bundles = [], [], []
    for path in paths:
        if not os.path.isfile(path):
            directories.append(path)
        elif is_bundle(path):
            bundles.append(path)
        else:
            files.append(path)
    return directories, files, bundles


def _ask(
    bootstrap: str | None, servers: str | None, command_config: str | None, timeout: float, watch_seconds: float
) -> tuple[LiveFacts, ImageFacts | None]:
    security = client_security(command_config)
    work = partial(
        read_live,
        find_controllers(bootstrap, servers, security, int(timeout * 1000)),
        transport=security.transport(),
        timeout_ms=int(timeout * 1000),
        clock_ms=lambda: time.time_ns() // 1_000_000,
        watch_seconds=watch_seconds,
    )
    with told_by(security):
        return run_tasks(work)


def _nothing_read(found: GatheredFacts) -> CommandFailed:
    told = "; ".join(f"{one.path}: {one.why}" for one in found.unreadable)
    return CommandFailed(
        f"nothing could be read: {told}",
        hint="Name log directories as in log.dirs, properties files with -c, or bundles of `kraft doctor collect`, "
        "as a user that may read them.",
        exit_code=NOTHING_READ,
    )


def _report(found: GatheredFacts, operation: str | None, node_id: int | None, release: str | None) -> Report:
    diagnosis = diagnose(found.facts)
    planned = None
    if operation is not None:
        reasons: list[Finding] = preflight(found.facts, operation, node_id, diagnosis.findings, release)
        planned = Planned(operation=operation, node_id=node_id, reasons=tuple(reasons))
    return Report(facts=found.facts, diagnosis=diagnosis, unreadable=found.unreadable, planned=planned)


def _say(report: Report, *, as_json: bool, as_sarif: bool) -> None:
    if as_sarif:
        echo(json.dumps(sarif(report.findings, SOFTWARE_VERSION), ensure_ascii=False))
    elif as_json:
        echo(json.dumps(report_json(report), ensure_ascii=False))
    else:
        for line in report_lines(report):
            click.echo(line)


@doctor_command.command(
    "explain",
    short_help="Describe a check; without ID list them all.",
    epilog="Example: kraft doctor explain empty-voter",
)
@click.argument("check", required=False, metavar="[ID]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def explain_command(check: str | None, *, as_json: bool) -> None:
    """Print what a check looks for, what follows, what to do, and its source."""
    if check is not None and check not in CATALOG:
        hint = did_you_mean(check, ids()) or "See kraft doctor explain."
        raise CommandFailed(f"there is no check {check}", hint=hint)
    chosen = [CATALOG[check]] if check is not None else list(CATALOG.values())
    if as_json:
        facts = [explanation_json(one) for one in chosen]
        echo(json.dumps(facts[0] if check is not None else {"checks": facts}, ensure_ascii=False))
    elif check is not None:
        echo_lines(explanation_lines(chosen[0]))
    else:
        width = max(map(len, CATALOG))
        echo_lines(f"{one.id:<{width}}  {one.title}" for one in chosen)


@doctor_command.command(
    "collect",
    short_help="Write what the checks need from this host into a bundle.",
    epilog="Example: kraft doctor collect -c /etc/kafka/server.properties --into host1.tar.gz",
)
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[DIR|FILE]…")
@_configs_option
@click.option("--into", required=True, type=click.Path(dir_okay=False), metavar="TAR", help="The bundle to write.")
@click.option(
    "--records",
    "with_records",
    is_flag=True,
    help="With the metadata at the end of the log: topics, partitions, settings. Without, their checks are skipped.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@progress_option
@click.pass_context
def collect_command(
    context: click.Context,
    paths: tuple[str, ...],
    *,
    configs: tuple[str, ...],
    into: str,
    with_records: bool,
    as_json: bool,
) -> None:
    """Write a bundle for `kraft doctor TAR` on another host: identities, the shape of the logs, settings, free space.

    A bundle has no passwords, keys, credentials or tokens, and no records of the metadata log unless --records is
    given.
    """
    if not (paths or configs):
        raise UsageError("nothing is given to collect", hint="Name log directories, or -c FILE.")
    directories, files, _ = _sorted(paths)
    with LongJob("Collecting", None, unit="batches") as job:
        gathered = gather((*configs, *files), directories, advance=job.advance, with_image=False)
        if not gathered.facts.nodes:
            raise _nothing_read(gathered)
        manifest = write_bundle(
            into,
            gathered.facts.nodes,
            host=socket.gethostname(),
            now_ms=time.time_ns() // 1_000_000,
            with_records=with_records,
            advance=job.advance,
        )
    for one in gathered.unreadable:
        echo(f"kraft: warning: {one.path} cannot be read: {one.why}", err=True)
    if as_json:
        names = [node.name for node in manifest.nodes]
        echo(json.dumps({"bundle": into, "bytes": os.path.getsize(into), "nodes": names, "records": with_records}))
    else:
        what = "with the metadata, without secrets" if with_records else "without the metadata (--records adds it)"
        echo(f"{into}: {count(len(manifest.nodes), 'node')}, {what}. Read the bundle with: kraft doctor {into}")
    context.exit(1 if gathered.unreadable else 0)
