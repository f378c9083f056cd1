"""A node's own settings as administrators are shown them (Kafka: `ConfigHelper`, `DynamicBrokerConfig`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal

from msgspec import Struct

from kraft.config.keys import LONG_MAX, NUMBERS, TEXTS
from kraft.config.topic_synonyms import TOPIC_SYNONYMS

Type = Literal["UNKNOWN", "BOOLEAN", "STRING", "INT", "LONG", "DOUBLE", "LIST", "PASSWORD"]
_TYPES: Final[dict[str, Type]] = {
    "node.id": "INT",
    "listener.security.protocol.map": "STRING",
    "metadata.log.dir": "STRING",
    "authorizer.class.name": "STRING",
    "auto.leader.rebalance.enable": "BOOLEAN",
    "unclean.leader.election.enable": "BOOLEAN",
    "delegation.token.secret.key": "PASSWORD",
}
"""The types of texts; all others are lists."""
_DYNAMIC: Final = frozenset(("listeners", "listener.security.protocol.map"))
"""What Kafka lets be changed while a node runs."""
_OF_TOPICS: Final = {one.name: one.type for synonyms in TOPIC_SYNONYMS.values() for one in synonyms}
_DYNAMIC_OF_TOPICS: Final = frozenset(synonyms[0].name for synonyms in TOPIC_SYNONYMS.values())
_INTERNAL: Final = "internal."
_INTERNAL_TOO: Final = frozenset(("unclean.leader.election.interval.ms",))
_ONLY_IF_SET: Final = frozenset(("leader.imbalance.per.broker.percentage",))
"""What Kafka 4 has no more."""

_OF_AUTHORIZER: Final = frozenset(("super.users", "allow.everyone.if.no.acl.found"))
"""What Kafka leaves to its authorizer to know."""


class DescribedSetting(Struct, frozen=True):
    """One setting. Without a value are secrets, and settings that nobody here knows: they may be secrets."""

    name: str
    type: Type
    value: str | None
    is_set: bool
    """Whether the file says so, as against a default."""
    is_dynamic: bool = False
    is_sensitive: bool = False


def described_settings(settings: Mapping[str, str]) -> Iterator[DescribedSetting]:
    """Every setting that this software reads, and every other one of the file; `settings` are those of the file."""
    for name, text in TEXTS.items():
        if name not in _OF_AUTHORIZER:
            yield _described(settings, name, _TYPES.get(name, "LIST"), text.default or None)
    for name, number in NUMBERS.items():
        is_shown = name in settings or name not in _ONLY_IF_SET
        if is_shown and not name.startswith(_INTERNAL) and name not in _INTERNAL_TOO:
            yield _described(settings, name, "LONG" if number.maximum == LONG_MAX else "INT", str(number.default))
    for name in settings:
        if (name in TEXTS and name not in _OF_AUTHORIZER) or name in NUMBERS or name.startswith(_INTERNAL):
            continue
        if name in _OF_TOPICS:
            yield _described(settings, name, _OF_TOPICS[name], None)
        else:
            yield DescribedSetting(name, "UNKNOWN", None, is_set=True, is_sensitive=True)


def _described(settings: Mapping[str, str], name: str, kind: Type, default: str | None) -> DescribedSetting:
    is_secret = kind == "PASSWORD"
    return DescribedSetting(
        name,
        kind,
        None if is_secret else settings.get(name, default),
        is_set=name in settings,
        is_dynamic=name in _DYNAMIC or name in _DYNAMIC_OF_TOPICS,
        is_sensitive=is_secret,
    )
