"""`kraft features`: describes, upgrades and downgrades feature levels (Kafka: `FeatureCommand`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import click

from kraft.admin import Feature, UpgradeType, describe_features, update_features
from kraft.cli.cluster.administration import Cluster, on_a_cluster, parse_settings
from kraft.cli.text import table
from metadata_log.releases import LATEST_RELEASE, METADATA_VERSION, METADATA_VERSIONS, feature_levels, parse_level

_RELEASES: Final = {level: name for name, level in METADATA_VERSIONS.items()}


@click.group(
    "features",
    short_help="Describe, upgrade and downgrade features.",
    epilog="Example: kraft features describe --bootstrap-controller 127.0.0.1:9093",
)
def features_command() -> None:
    """Show and change metadata.version and the other feature levels of a cluster, like kafka-features."""


@features_command.command(
    "describe",
    short_help="Levels in force, and supported.",
    epilog="Example: kraft features describe --bootstrap-controller 127.0.0.1:9093",
)
@on_a_cluster
def describe_command(*, cluster: Cluster) -> None:
    """Show every feature: its level in the cluster, and the levels that the active controller supports."""
    features = cluster.ask(describe_features)
    rows = [
        (each.name, _level(each.name, each.finalized), _level(each.name, each.lowest), _level(each.name, each.highest))
        for each in features.features
    ]
    facts = {"epoch": features.epoch, "features": [_feature(each) for each in features.features]}
    cluster.say(facts, table(("FEATURE", "LEVEL", "LOWEST", "HIGHEST"), rows))


def _feature(feature: Feature) -> dict[str, Any]:
    return {
        "name": feature.name,
        "finalized": feature.finalized,
        "supported": {"min": feature.lowest, "max": feature.highest},
    }


_feature_option = click.option(
    "--feature",
    "features",
    multiple=True,
    metavar="NAME=LEVEL",
    help="A feature and its level; of metadata.version a release such as 4.3-IV0, too. May be repeated.",
)
_dry_run_option = click.option("--dry-run", is_flag=True, help="Only check the request.")


@features_command.command(
    "upgrade",
    short_help="Raise levels.",
    epilog="Example: kraft features upgrade --release-version 4.3-IV0 --dry-run --bootstrap-controller 127.0.0.1:9093",
)
@_feature_option
@click.option("--release-version", metavar="V", help="All features as a new cluster of this release would have them.")
@_dry_run_option
@on_a_cluster
def upgrade_command(features: tuple[str, ...], *, release_version: str | None, dry_run: bool, cluster: Cluster) -> None:
    """Raise feature levels, all or none. Do this after each broker and controller runs the new release."""
    if bool(features) == (release_version is not None):
        raise click.UsageError("Say which levels: --feature, or --release-version.")
    levels = parse_levels(features) if release_version is None else dict(feature_levels(release_version))
    _update(cluster, levels, UpgradeType.UPGRADE, dry_run)


@features_command.command(
    "downgrade",
    short_help="Lower levels.",
    epilog="Example: kraft features downgrade --feature share.version=0 --bootstrap-controller 127.0.0.1:9093",
)
@_feature_option
@click.option("--unsafe", is_flag=True, help="Even where metadata is lost.")
@_dry_run_option
@on_a_cluster
def downgrade_command(features: tuple[str, ...], *, unsafe: bool, dry_run: bool, cluster: Cluster) -> None:
    """Lower feature levels, all or none; level 0 switches a feature off."""
    if not features:
        raise click.UsageError("Say which levels: --feature.")
    kind = UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE
    _update(cluster, parse_levels(features), kind, dry_run)


def _update(cluster: Cluster, levels: dict[str, int], kind: UpgradeType, dry_run: bool) -> None:
    cluster.ask(lambda admin: update_features(admin, levels, kind, validate_only=dry_run))
    verb = "would set" if dry_run else "set"
    lines = [f"{verb} {name} to {_level(name, level)}" for name, level in levels.items()]
    cluster.say({"levels": levels, "changed": not dry_run}, lines)


def parse_levels(words: Iterable[str]) -> dict[str, int]:
    """Read `name=level` words; raises a usage error."""
    return {name: _number(name, text) for name, text in parse_settings(tuple(words), "--feature").items()}


def _number(name: str, text: str) -> int:
    if name == METADATA_VERSION and text in METADATA_VERSIONS:
        return METADATA_VERSIONS[text]
    if (level := parse_level(text)) is not None:
        return level
    example = f"neither a level nor a release such as {LATEST_RELEASE}" if name == METADATA_VERSION else "no level"
    raise click.BadParameter(f"{text!r} is {example}", param_hint="--feature")


def _level(name: str, level: int) -> str:
    """A level for display; the release for metadata.version."""
    return _RELEASES.get(level, str(level)) if name == METADATA_VERSION else str(level)
