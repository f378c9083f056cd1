"""The releases of Kafka, and the initial feature levels of a new cluster (`MetadataVersion`, `BootstrapMetadata`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from metadata_log.errors import DirectoryError

SUPPORTED_RELEASES: Final = ("3.9.2", "4.3.1", "4.4.0")
"""The releases of Apache Kafka that this software runs beside, oldest first. No other place lists them.

Settings and their limits are those of the newest one; tests run the jars of each (`tests/support/kafka_jars.py`).
"""
NEWEST_RELEASE: Final = SUPPORTED_RELEASES[-1]

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"

METADATA_VERSIONS: Final[dict[str, int]] = {
    "3.3-IV3": 7,
    "3.4-IV0": 8,
    "3.5-IV0": 9,
    "3.5-IV1": 10,
    "3.5-IV2": 11,
    "3.6-IV0": 12,
    "3.6-IV1": 13,
    "3.6-IV2": 14,
    "3.7-IV0": 15,
    "3.7-IV1": 16,
    "3.7-IV2": 17,
    "3.7-IV3": 18,
    "3.7-IV4": 19,
    "3.8-IV0": 20,
    "3.9-IV0": 21,
    "4.0-IV0": 22,
    "4.0-IV1": 23,
    "4.0-IV2": 24,
    "4.0-IV3": 25,
    "4.1-IV0": 26,
    "4.1-IV1": 27,
    "4.2-IV0": 28,
    "4.2-IV1": 29,
    "4.3-IV0": 30,
    "4.4-IV0": 31,
    "4.4-IV1": 32,
    "4.4-IV2": 33,
}
"""The released metadata versions and their levels, oldest first."""
METADATA_CHANGES: Final = frozenset((7, 8, 11, 13, 14, 15, 17, 23, 30, 32, 33))
"""The levels of metadata.version with new records or fields, which a downgrade would lose."""

LATEST_RELEASE: Final = "4.4-IV2"
LATEST_LEVEL: Final = METADATA_VERSIONS[LATEST_RELEASE]
OLDEST_LEVEL: Final = min(METADATA_VERSIONS.values())
_HIGHEST_LEVEL: Final = 2**15 - 1


def unknown_record_text(kind: int, version: int, level: int | None) -> str:
    """The sentence about a record of a later release; `level` is the metadata.version at that point, if known."""
    text = f"a record of type {kind} in version {version} is not known, nor what it changes"
    if level is not None and level > LATEST_LEVEL:
        text += f": metadata.version {level} brought it, and this software knows {OLDEST_LEVEL} to {LATEST_LEVEL}"
    return text


class Feature(Struct, frozen=True, kw_only=True):
    """A feature besides metadata.version: the metadata.version that enables each level by default, from level 1 on.

    `needs` is the metadata.version without which no level is possible.
    """

    defaults: tuple[int, ...]
    needs: int = 0

    @property
    def highest(self) -> int:
        """The highest level."""
        return len(self.defaults)

    def default_at(self, metadata_version: int) -> int:
        """The level of a new cluster."""
        return sum(since <= metadata_version for since in self.defaults)


FEATURES: Final[dict[str, Feature]] = {
    "eligible.leader.replicas.version": Feature(defaults=(26,), needs=23),
    "group.version": Feature(defaults=(22,)),
    "share.version": Feature(defaults=(28, 31)),
    "streams.version": Feature(defaults=(29,)),
    "transaction.version": Feature(defaults=(24, 24)),
}
"""By name, in the order of writing."""


def parse_level(text: str) -> int | None:
    """The feature level that a text names; None if it is no number of 16 bits."""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_HIGHEST_LEVEL))):
        return None
    level = int(text)
    return level if level <= _HIGHEST_LEVEL else None


def resolve_release(release: str) -> str:
    """The metadata version of `4.0-IV3`, `4.0` or `4.0.1`; raises `DirectoryError` for any other text."""
    if release in METADATA_VERSIONS:
        return release
    line = ".".join(release.split(".")[:2])
    versions = [name for name in METADATA_VERSIONS if name.partition("-")[0] == line]
    if not versions:
        raise DirectoryError(
            f"unknown metadata.version {release!r}",
            hint=f"Supported are: {', '.join(METADATA_VERSIONS)}.",
        )
    return versions[-1]


def feature_levels(
    release: str, features: Mapping[str, int] | None = None, *, dynamic: bool = False
) -> tuple[tuple[str, int], ...]:
    """The features of a new cluster, metadata.version first; without features at level 0 and without kraft.version.

    `features` overrides levels by name. `dynamic` is whether voters may change; a given kraft.version must agree with
    that. Raises `DirectoryError` for an unknown feature or an invalid level.
    """
    name = resolve_release(release)
    level = METADATA_VERSIONS[name]
    wanted = dict(features or {})
    _check_kraft_version(wanted.pop(KRAFT_VERSION, int(dynamic)), dynamic=dynamic)
    for feature, asked in wanted.items():
        _check_feature(feature, asked, name)
    levels = [(METADATA_VERSION, level)]
    for feature, facts in FEATURES.items():
        chosen = wanted.get(feature, facts.default_at(level))
        if chosen > 0:
            levels.append((feature, chosen))
    return tuple(levels)


def _check_kraft_version(asked: int, *, dynamic: bool) -> None:
    if asked not in {0, 1}:
        raise DirectoryError(f"{KRAFT_VERSION} cannot be {asked}", hint="Its levels are 0 and 1.")
    if asked and not dynamic:
        raise DirectoryError(
            "kraft.version cannot be 1 with static voters",
            hint="Leave the feature out, or format for a dynamic quorum (--standalone, --initial-controllers or "
            "--no-initial-controllers) without controller.quorum.voters.",
        )
    if dynamic and not asked:
        raise DirectoryError(
            "kraft.version cannot be 0 in a dynamic quorum",
            hint="Leave the feature out, or use static voters: controller.quorum.voters.",
        )


def _check_feature(feature: str, asked: int, release: str) -> None:
    facts = FEATURES.get(feature)
    if facts is None:
        known = ", ".join(sorted((*FEATURES, KRAFT_VERSION)))
        raise DirectoryError(f"unsupported feature: {feature}", hint=f"Supported features are: {known}.")
    if not 0 <= asked <= facts.highest:
        raise DirectoryError(f"{feature} cannot be {asked}", hint=f"Its levels are 0 to {facts.highest}.")
    if asked > 0 and METADATA_VERSIONS[release] < facts.needs:
        needed = next(name for name, level in METADATA_VERSIONS.items() if level == facts.needs)
        raise DirectoryError(
            f"{feature}={asked} needs metadata.version {needed}, not {release}",
            hint="Choose a later release version or another feature level.",
        )
