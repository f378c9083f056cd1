"""`kraft format` and `kraft random-uuid`: a log directory before its first start (Kafka: `StorageTool`)."""

from __future__ import annotations

import json
import time
from random import Random, SystemRandom

import click

from kraft.config import Config, UsageError
from metadata_log.disk import OsDisk
from metadata_log.log_dir import format_directory, random_uuid
from metadata_log.releases import LATEST_RELEASE, resolve_release

_DYNAMIC_HINT = "Static voters need no such option: the configuration has controller.quorum.voters."


@click.command(
    "format",
    short_help="Prepare a log directory.",
    epilog='Example: kraft format -c server.properties --cluster-id "$(kraft random-uuid)"',
)
@click.option("-c", "--config", "config_path", required=True, metavar="CONFIG", help="A Kafka properties file.")
@click.option("-t", "--cluster-id", required=True, metavar="ID", help="The id of the cluster, the same on every node.")
@click.option("-s", "--standalone", is_flag=True, help="Not yet: start a dynamic quorum of one voter.")
@click.option("-I", "--initial-controllers", metavar="LIST", help="Not yet: the first voters of a dynamic quorum.")
@click.option("-N", "--no-initial-controllers", is_flag=True, help="Not yet: a node to be added to a dynamic quorum.")
@click.option("-r", "--release-version", metavar="V", help=f"The metadata.version to begin with [{LATEST_RELEASE}].")
@click.option("-f", "--feature", "features", multiple=True, metavar="F=N", help="The level of a feature to begin with.")
@click.option(
    "-g", "--ignore-formatted", is_flag=True, help="Leave directories as they are that are formatted already."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def format_command(
    *,
    config_path: str,
    cluster_id: str,
    standalone: bool,
    initial_controllers: str | None,
    no_initial_controllers: bool,
    release_version: str | None,
    features: tuple[str, ...],
    ignore_formatted: bool,
    as_json: bool,
) -> None:
    """Prepare the log directories of one node, as kafka-storage does; Apache Kafka opens them, too."""
    if standalone or initial_controllers is not None or no_initial_controllers:
        raise UsageError(
            "dynamic quorums (--standalone, --initial-controllers, --no-initial-controllers) come later",
            hint=_DYNAMIC_HINT,
        )
    if not cluster_id.strip():
        raise UsageError("the cluster id is empty", where="--cluster-id", hint="Make one with `kraft random-uuid`.")
    config = Config.load(config_path)
    for warning in config.warnings:
        click.echo(f"kraft: warning: {warning}", err=True)
    release = resolve_release(release_version or LATEST_RELEASE)
    levels = dict(_feature(text) for text in features)
    results = [
        (path, _format(config, path, cluster_id, release, levels, ignore_formatted)) for path in config.directories
    ]
    if as_json:
        entries = [{"path": path, "formatted": done} for path, done in results]
        click.echo(json.dumps({"clusterId": cluster_id, "metadataVersion": release, "directories": entries}))
        return
    for path, done in results:
        if done:
            click.echo(f"Formatting metadata directory {path} with metadata.version {release}.")
        else:
            click.echo(f"{path} is formatted already; it stays as it is.")


def _format(
    config: Config, path: str, cluster_id: str, release: str, features: dict[str, int], ignore_formatted: bool
) -> bool:
    return format_directory(
        OsDisk(),
        path,
        node_id=config.node_id,
        cluster_id=cluster_id,
        rng=_random(),
        now_ms=time.time_ns() // 1_000_000,
        release=release,
        features=features,
        ignore_formatted=ignore_formatted,
    )


def _feature(text: str) -> tuple[str, int]:
    name, equals, level = text.partition("=")
    if not (name and equals and level.isascii() and level.isdigit()):
        raise UsageError(f"{text!r} is not FEATURE=LEVEL", where="--feature", hint="For example transaction.version=2.")
    return name.strip(), int(level)


@click.command("random-uuid", short_help="Make a cluster id.", epilog="Example: kraft random-uuid")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def random_uuid_command(*, as_json: bool) -> None:
    """Print a new random id in Kafka's text form, for a cluster or a directory."""
    found = str(random_uuid(_random()))
    click.echo(json.dumps({"uuid": found}) if as_json else found)


def _random() -> Random:
    return Random(SystemRandom().getrandbits(128))
