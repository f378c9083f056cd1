"""The keys of a file that neither Kafka nor this software knows, each with the known one that it may mean.

Kafka starts with such a file and warns, so that a key with a wrong letter leaves its setting at the default.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from kraft.config.definitions import NODE
from kraft.config.errors import ConfigError
from kraft.config.kafka_keys import LISTENER_PREFIX, PREFIXES, definition_of
from kraft.config.keys import TEXTS
from kraft.config.properties import Setting

OF_ZOOKEEPER: Final = "zookeeper."
SIMILAR: Final = 0.8
"""How similar an unknown key is to the one that it may mean."""


class UnknownKey(Struct, frozen=True):
    """A key that nobody knows, and its place."""

    key: str
    where: str
    nearest: str | None
    """The known key that it may mean."""

    @property
    def advice(self) -> str:
        """The end of a sentence that names the nearest key; empty if nothing is near."""
        return f"; did you mean {self.nearest}?" if self.nearest else ""


def unknown_keys(settings: Mapping[str, Setting]) -> Iterator[UnknownKey]:
    """The unknown keys of a file in its order.

    Keys that begin with the prefix of a listener have free names, those of plug-ins; such a key counts only if a known
    one is near.
    """
    for key, setting in settings.items():
        if key.startswith(LISTENER_PREFIX):
            if definition_of(key) is None and (nearest := _of_listener(key)) is not None:
                yield UnknownKey(key, setting.where, nearest)
        elif key not in NODE and key not in TEXTS and not key.startswith((*PREFIXES, OF_ZOOKEEPER)):
            yield UnknownKey(key, setting.where, _with_prefix(key) or near(key, {*NODE, *TEXTS}))


def _of_listener(key: str) -> str | None:
    """The key of a listener that one may mean: `listener.name.NAME.` and, for some settings, the mechanism stay."""
    from difflib import SequenceMatcher

    name, _, rest = key.removeprefix(LISTENER_PREFIX).partition(".")
    mechanism, _, last = rest.partition(".")
    found = [
        (SequenceMatcher(None, typed, nearest).ratio(), f"{LISTENER_PREFIX}{begin}.{nearest}")
        for begin, typed in ((name, rest), (f"{name}.{mechanism}", last))
        if (nearest := near(typed, NODE)) is not None
    ]
    return max(found)[1] if found else None


def _with_prefix(key: str) -> str | None:
    """The key with the prefix that its beginning may mean."""
    for prefix in PREFIXES:
        words = prefix.count(".")
        typed = key.split(".", words)
        if len(typed) > words and near(".".join(typed[:words]), [prefix.rstrip(".")]) is not None:
            return prefix + typed[words]
    return None


def near(key: str, known: Iterable[str], cutoff: float = SIMILAR) -> str | None:
    """The most similar of some keys, of those one that differs in one letter; None if none is similar enough."""
    from difflib import get_close_matches

    typed = key.lower()
    close = get_close_matches(typed, sorted(known), n=3, cutoff=cutoff)
    return next((one for one in close if _differ_in_a_letter(one, typed)), close[0] if close else None)


def _differ_in_a_letter(one: str, other: str) -> bool:
    return len(one) == len(other) and sum(map(operator.ne, one, other)) == 1


def with_near_misses(error: ConfigError, settings: Mapping[str, Setting]) -> ConfigError:
    """The error of a file, with the unknown keys in its hint that may mean one that the file does not have."""
    hint = error.hint or ""
    misses = [
        f"Did you mean {one.nearest} by {one.key} ({one.where})?"
        for one in unknown_keys(settings)
        if one.nearest is not None and one.nearest not in settings and one.key not in hint
    ]
    return ConfigError(error.what, where=error.where, hint=" ".join([*([hint] if hint else []), *misses]) or None)
