"""`kraft format` and `kraft random-uuid`: prepare log directories for their first start (Kafka: `StorageTool`)."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence
from random import Random, SystemRandom
from typing import Final

import click
from msgspec import Struct

from kraft.cli.config_file import with_config_file
from kraft.config import FormatConfig, UsageError, parse_host_port, split_list
from kraft.security.contexts import load_tls
from metadata_log.disk import OsDisk
from metadata_log.errors import DirectoryError
from metadata_log.log.log_dir import (
    already_formatted,
    check_formatted,
    first_voter,
    format_directory,
    strange_cluster_id,
)
from metadata_log.records.control import VotersRecord, VotersRecordVoter
from metadata_log.records.metadata import UserScramCredentialRecord
from metadata_log.records.scram import parse_credential
from metadata_log.releases import LATEST_RELEASE, parse_level, resolve_release
from metadata_log.types import Uuid, random_uuid

_VOTER: Final = re.compile(r"(\d{1,10})@(.+):([A-Za-z0-9_-]{22})")
_ANY_ADDRESS: Final = ("", "0.0.0.0", "::", "*")
_HIGHEST_ID: Final = 2**31 - 1
_LISTED: Final = "--initial-controllers"


def parse_initial_voters(text: str, listener: str) -> VotersRecord:
    """Parse `id@host:port:directory-id,…`; raises `UsageError`."""
    voters = [_parse(entry, listener) for entry in split_list(text)]
    if not voters:
        raise _bad("no voter is named")
    for what, values in (
        ("id", [voter.voter_id for voter in voters]),
        ("directory id", [voter.voter_directory_id for voter in voters]),
    ):
        if len(set(values)) != len(values):
            raise _bad(f"a voter {what} appears twice")
    return VotersRecord(voters=tuple(sorted(voters, key=lambda voter: voter.voter_id)))


def only_voter(config: FormatConfig, rng: Random) -> VotersRecord:
    """The node itself, with a new directory id; raises `UsageError` if it cannot be a voter."""
    listener = config.controller_listener
    if not config.is_controller:
        raise UsageError(
            "only a controller can be the first voter", where="--standalone", hint="Add controller to process.roles."
        )
    if listener.host in _ANY_ADDRESS or not listener.port:
        raise UsageError(
            f"other nodes could not reach the voter at {listener}",
            where="--standalone",
            hint=f"Add {listener.name}://HOST:PORT to advertised.listeners.",
        )
    return VotersRecord(
        voters=(first_voter(config.node_id, random_uuid(rng), listener.name, listener.host, listener.port),)
    )


def _parse(text: str, listener: str) -> VotersRecordVoter:
    match = _VOTER.fullmatch(text)
    if match is None:
        raise _bad(f"{text!r} is not id@host:port:directory-id")
    try:
        host, port = parse_host_port(match[2])
        directory_id = Uuid.parse(match[3])
    except ValueError as bad:
        raise _bad(str(bad)) from bad
    if int(match[1]) > _HIGHEST_ID:
        raise _bad(f"{match[1]} is no node id: those end at {_HIGHEST_ID}")
    if directory_id.is_reserved:
        raise _bad(f"{directory_id} is reserved and can be no directory's id")
    return first_voter(int(match[1]), directory_id, listener, host, port)


def _bad(what: str) -> UsageError:
    return UsageError(
        what, where=_LISTED, hint="For example 1@host1:9093:pg3mKBxfeN4_YYsakj8Duw; make ids with `kraft random-uuid`."
    )


_MAKE_ONE: Final = "Make one with `kraft random-uuid`, the same for every node."
_FLAGS: Final = "--standalone, --initial-controllers or --no-initial-controllers"


@click.command(
    "format",
    short_help="Prepare a log directory.",
    epilog='Example: kraft format server.properties --cluster-id "$(kraft random-uuid)"',
)
@with_config_file
@click.option("-t", "--cluster-id", metavar="ID", help="The id of the cluster, the same on every node; required.")
@click.option("-s", "--standalone", is_flag=True, help="This node is the first voter of a dynamic quorum.")
@click.option(
    "-I",
    "--initial-controllers",
    metavar="LIST",
    help="The first voters of a dynamic quorum: id@host:port:directory-id,… the same on every node.",
)
@click.option("-N", "--no-initial-controllers", is_flag=True, help="This node learns the voters of a dynamic quorum.")
@click.option("-r", "--release-version", metavar="V", help=f"The metadata.version to begin with [{LATEST_RELEASE}].")
@click.option("-f", "--feature", "features", multiple=True, metavar="F=N", help="The level of a feature to begin with.")
@click.option(
    "-S",
    "--add-scram",
    "credentials",
    multiple=True,
    metavar="CREDENTIAL",
    help="A user to begin with: SCRAM-SHA-256=[name=…,password=…].",
)
@click.option("-g", "--ignore-formatted", is_flag=True, help="Skip directories that are formatted already.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def format_command(
    *,
    config_path: str,
    cluster_id: str | None,
    standalone: bool,
    initial_controllers: str | None,
    no_initial_controllers: bool,
    release_version: str | None,
    features: tuple[str, ...],
    credentials: tuple[str, ...],
    ignore_formatted: bool,
    as_json: bool,
) -> None:
    """Prepare the log directories of one node, like kafka-storage; Apache Kafka opens them, too.

    CONFIG is a Kafka properties file, with the same rules as for `kraft serve`. A directory that is formatted for
    another node or cluster is an error, even with --ignore-formatted; then the command writes nothing.
    """
    if standalone + (initial_controllers is not None) + no_initial_controllers > 1:
        raise UsageError(f"only one of {_FLAGS} can be given", hint="See `kraft format --help`.")
    if cluster_id is None:
        raise UsageError("missing option '-t' / '--cluster-id'", hint=_MAKE_ONE)
    if not cluster_id.strip():
        raise UsageError("the cluster id is empty", where="--cluster-id", hint=_MAKE_ONE)
    config = FormatConfig.load(config_path)
    tls = load_tls(config.tls)  # refuse what the start of the node would refuse
    rng = _random()
    voters = None
    if standalone:
        voters = only_voter(config, rng)
    elif initial_controllers is not None:
        voters = parse_initial_voters(initial_controllers, config.controller_listener.name)
    plan = _Plan(
        node_id=config.node_id,
        cluster_id=cluster_id,
        release=resolve_release(release_version or LATEST_RELEASE),
        features=dict(_feature(text) for text in features),
        dynamic=_is_dynamic(config, voters, flagged=no_initial_controllers),
        initial_voters=voters,
        credentials=tuple(parse_credential(text, rng) for text in credentials),
    )
    strange = strange_cluster_id(cluster_id)
    for warning in (*config.warnings, *tls.warnings, *([] if strange is None else [strange])):
        click.echo(f"kraft: warning: {warning}", err=True)
    _check_directories(config.directories)
    formatted = check_formatted(OsDisk(), config.directories, node_id=config.node_id, cluster_id=cluster_id)
    if formatted and not ignore_formatted:
        raise already_formatted(formatted[0])
    results = [
        (path, _kind(plan, is_metadata=path == config.metadata_log_dir), _format(plan, path, config, ignore_formatted))
        for path in config.directories
    ]
    if as_json:
        entries = [{"path": path, "formatted": done} for path, _, done in results]
        click.echo(json.dumps({"clusterId": cluster_id, "metadataVersion": plan.release, "directories": entries}))
        return
    for path, kind, done in results:
        if done:
            click.echo(f"Formatting {kind} directory {path} with metadata.version {plan.release}.")
        else:
            click.echo(f"{path} is formatted already; it stays as it is.")


def _check_directories(directories: Sequence[str]) -> None:
    """Refuse what is no directory before one is formatted."""
    for path in directories:
        there = path
        while there and not os.path.lexists(there):
            there = os.path.dirname(there)
        if there and not os.path.isdir(there):
            raise DirectoryError("this is no directory", where=there, hint="Name directories in log.dirs.")


class _Plan(Struct, frozen=True, kw_only=True):
    """The data for the format of each directory of the node."""

    node_id: int
    cluster_id: str
    release: str
    features: dict[str, int]
    dynamic: bool
    initial_voters: VotersRecord | None
    credentials: tuple[UserScramCredentialRecord, ...]


def _is_dynamic(config: FormatConfig, voters: VotersRecord | None, *, flagged: bool) -> bool:
    """Whether the quorum is dynamic, as far as this node knows; contradictory settings raise `UsageError`."""
    if config.static_voters:
        if voters is not None or flagged:
            raise UsageError(
                f"the configuration has static voters, and {_FLAGS} begins a dynamic quorum",
                where="controller.quorum.voters",
                hint="For a dynamic quorum replace controller.quorum.voters by controller.quorum.bootstrap.servers.",
            )
        return False
    if voters is None and not flagged and config.is_controller:
        raise UsageError(
            f"controller.quorum.voters is not set on this controller: one of {_FLAGS} is needed",
            hint="The first node of a new quorum is --standalone, one that joins --no-initial-controllers.",
        )
    return voters is not None or flagged


def _kind(plan: _Plan, *, is_metadata: bool) -> str:
    """The name of a directory's type in kafka-storage (`Formatter.DirectoryType`)."""
    if not is_metadata:
        return "data"
    if plan.initial_voters is None:
        return "metadata"
    is_voter = plan.node_id in [voter.voter_id for voter in plan.initial_voters.voters]
    return "dynamic metadata voter" if is_voter else "dynamic metadata"


def _format(plan: _Plan, path: str, config: FormatConfig, ignore_formatted: bool) -> bool:
    return format_directory(
        OsDisk(),
        path,
        node_id=plan.node_id,
        cluster_id=plan.cluster_id,
        rng=_random(),
        now_ms=time.time_ns() // 1_000_000,
        release=plan.release,
        features=plan.features,
        dynamic=plan.dynamic,
        initial_voters=plan.initial_voters if path == config.metadata_log_dir else None,
        is_controller=config.is_controller and path == config.metadata_log_dir,
        credentials=plan.credentials,
        ignore_formatted=ignore_formatted,
    )


def _feature(text: str) -> tuple[str, int]:
    name, equals, level = text.partition("=")
    number = parse_level(level)
    if not (name and equals) or number is None:
        raise UsageError(f"{text!r} is not FEATURE=LEVEL", where="--feature", hint="For example transaction.version=2.")
    return name.strip(), number


@click.command("random-uuid", short_help="Make a cluster id.", epilog="Example: kraft random-uuid")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def random_uuid_command(*, as_json: bool) -> None:
    """Print a new random id in Kafka's text form, for a cluster or a directory."""
    made = str(random_uuid(_random()))
    click.echo(json.dumps({"uuid": made}) if as_json else made)


def _random() -> Random:
    return Random(SystemRandom().getrandbits(128))
