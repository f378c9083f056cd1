"""A node's own settings in the form of DescribeConfigs (Kafka: `ConfigHelper`, `DynamicBrokerConfig`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from kraft.config.definitions import NODE, OF_QUOTAS
from kraft.config.kafka_keys import DYNAMIC_FOR_ALL, KAFKA_DYNAMIC, definition_of, why_unusable

_SAME: Final = ("node.id", "broker.id")
"""Each is as set as the other one (Kafka: `AbstractKafkaConfig.populateSynonyms`)."""


class Secret(Struct, frozen=True):
    """A text that is hidden when it is printed (Kafka: `Password`)."""

    value: str

    def __repr__(self) -> str:
        return "[hidden]"


class DescribedSetting(Struct, frozen=True):
    """One setting. Secrets and unknown settings, which may be secrets, have no value.

    A sensitive setting with a value is one of a config provider: topics inherit the value, and nothing else shows it.
    """

    name: str
    type: str
    value: str | None
    is_set: bool
    """Whether the file sets the value, and not a default."""
    is_dynamic: bool = False
    is_sensitive: bool = False


def described_settings(
    settings: Mapping[str, str], *, provided: Collection[str] = frozenset()
) -> Iterator[DescribedSetting]:
    """Every public setting of Kafka, with its default where the file is silent, and every other one of the file.

    `settings` are those of the file; `provided` names those with values of config providers, which are sensitive.
    """
    settings = dict(settings)
    for one, other in (_SAME, _SAME[::-1]):
        if other in settings:
            settings.setdefault(one, settings[other])
    for name, key in NODE.items():
        if not key.is_internal:
            yield _described(settings, name, key.default, provided)
    for name in settings:
        if name not in NODE or NODE[name].is_internal:
            yield _described(settings, name, None, provided)


def of_file(settings: Iterable[DescribedSetting]) -> dict[str, str]:
    """The values that the file sets."""
    return {one.name: one.value for one in settings if one.is_set and one.value is not None}


def kafka_setting(name: str) -> DescribedSetting:
    """A setting of another node, with the facts that follow from its name."""
    return _described({}, name, None, ())


def counts_for_all(name: str, value: str) -> bool:
    """Whether brokers accept this value as a default for all brokers (`DynamicBrokerConfig.updateDefaultConfig`); a key
    that Kafka does not define may belong to a plug-in.
    """
    key = NODE.get(name)
    return key is None or (name in DYNAMIC_FOR_ALL and not why_unusable(key, value))


def _described(
    settings: Mapping[str, str], name: str, default: str | None, provided: Collection[str]
) -> DescribedSetting:
    key = definition_of(name) or OF_QUOTAS.get(name)
    kind = "UNKNOWN" if key is None else key.type
    is_sensitive = kind in ("PASSWORD", "UNKNOWN")
    return DescribedSetting(
        name,
        kind,
        None if is_sensitive else settings.get(name, default),
        is_set=name in settings,
        is_dynamic=name in KAFKA_DYNAMIC or name in OF_QUOTAS,
        is_sensitive=is_sensitive or name in provided,
    )
