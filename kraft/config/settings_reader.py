"""`SettingsReader`: single settings of a properties file, and the errors that name their file, line and key."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from msgspec import Struct

from kraft.config.addresses import split_list
from kraft.config.definitions import NODE, OF_QUOTAS, BadValue, Value, checked, elements
from kraft.config.described import DescribedSetting, Secret, described_settings
from kraft.config.errors import ConfigError
from kraft.config.kafka_keys import WITHOUT_EFFECT, definition_of
from kraft.config.keys import (
    INT_MAX,
    NUMBERS,
    SEGMENT_BYTES,
    SEGMENT_BYTES_OVERRIDE,
    SMALLEST_SEGMENT_BYTES,
    TEXTS,
    Number,
)
from kraft.config.properties import Setting, apply_overrides, parse_properties, trim
from kraft.config.providers import resolve_references
from kraft.config.unknown_keys import OF_ZOOKEEPER, near, unknown_keys

T = TypeVar("T")

DYNAMIC: Final = "dynamic configuration"
"""The place of a setting in the metadata log (`kafka-configs --entity-type brokers`)."""
_SECRETS: Final = tuple(name for name, one in NODE.items() if one.type == "PASSWORD")
_WHOLE_NUMBER: Final = re.compile(r"[+-]?0*[0-9]{1,19}")


class SettingsReader(Struct, frozen=True):
    """Reads single settings of a configuration, and makes their errors."""

    settings: Mapping[str, Setting]
    """The settings of the file and of the overrides, by key."""
    source: str
    """The name of the file in errors."""

    def __repr__(self) -> str:
        """The name of the file alone: settings may be secrets."""
        return f"SettingsReader({self.source})"

    @classmethod
    def of(cls, text: str | bytes, source: str, overrides: Iterable[str] = ()) -> SettingsReader:
        """A reader of a properties file with overrides and with the values of config providers."""
        return cls(resolve_references(apply_overrides(parse_properties(text, source=source), overrides)), source)

    def with_values(self, values: Mapping[str, str]) -> SettingsReader:
        """A reader of the same settings, but for those of the node's dynamic configuration, by key."""
        altered = {key: Setting(trim(value), DYNAMIC) for key, value in values.items()}
        return SettingsReader({**self.settings, **altered}, self.source)

    def text(self, key: str) -> str:
        """The text of a setting, or its default."""
        setting = self.settings.get(key)
        return TEXTS[key].default if setting is None else setting.value

    def bad(self, key: str, why: str, *, hint: str | None = None) -> ConfigError:
        """The error for an invalid value. The text hides the values of config providers."""
        setting = self.settings.get(key)
        if setting is not None and setting.reference:
            why = "the referenced value is invalid, and is a secret"
            hint = _allowed(key) or "Check the value at the config provider."
        what = key if setting is None or is_secret(key) else f"{key}={setting.shown}"
        where = self.source if setting is None else setting.where
        hint = None if hint is None else self._hidden(hint)
        return ConfigError(f"{what}: {self._hidden(why)}", where=where, hint=hint)

    def _hidden(self, text: str) -> str:
        """A message with references in place of the values of config providers."""
        for setting in self.settings.values():
            if setting.reference:
                pieces = {setting.value, *map(trim, re.split(r"[,;]", setting.value))} - {""}
                # A replacement text, unlike a function, would have its backslashes interpreted.
                shown = setting.shown.replace("\\", r"\\")
                for piece in sorted(pieces, key=len, reverse=True):
                    text = re.sub(rf"(?<![\w.-]){re.escape(piece)}(?![\w.-])", shown, text, flags=re.IGNORECASE)
        return text

    def missing(self, key: str, hint: str) -> ConfigError:
        """The error for a required setting that is not in the file."""
        return self.not_set(key, f"{key} is not set", hint)

    def not_set(self, key: str, what: str, hint: str) -> ConfigError:
        """The error for a setting that a node needs; it names an unknown key that may mean this one."""
        unknown = {one.key.lower(): one for one in unknown_keys(self.settings)}
        nearest = near(key, unknown)
        if nearest is None:
            return ConfigError(what, where=self.source, hint=hint)
        typed = unknown[nearest]
        return ConfigError(what, where=typed.where, hint=f"Did you mean {key} by {typed.key}?")

    def flag(self, key: str) -> bool:
        """A setting that is true or false; raises `ConfigError`."""
        return self.as_flag(key, self.text(key))

    def as_flag(self, key: str, value: str) -> bool:
        """This value of a setting as true or false; raises `ConfigError`."""
        word = value.lower()
        if word not in {"true", "false"}:
            raise self.bad(key, "the value is neither true nor false")
        return word == "true"

    def value(self, key: str) -> Value:
        """A setting of the file as Kafka parses it; raises `ConfigError` for a value that is not allowed."""
        if key in NUMBERS:
            return self.whole(key)
        definition = definition_of(key) or OF_QUOTAS[key]
        try:
            return checked(definition, self.settings[key].value)
        except BadValue:
            gap = ""
            if definition.type == "LIST" and "" in elements(self.settings[key].value):
                gap = "an entry is empty; "
            raise self.bad(key, f"{gap}allowed is {definition.allowed}") from None

    def given(self, keys: Mapping[str, str]) -> dict[str, Any]:
        """The settings of the file among the keys of some fields, by field; raises `ConfigError` as `value` does."""
        return {field: self.value(key) for field, key in keys.items() if key in self.settings}

    def secret(self, key: str) -> Secret | None:
        """A setting that is never shown."""
        text = self.text(key)
        return Secret(text) if text else None

    def whole(self, key: str) -> int:
        """One of the numbers that this software bounds, or its default; raises `ConfigError`."""
        return self.number(key, NUMBERS[key])

    def check_numbers(self) -> None:
        """Raise `ConfigError` for the first number that is not within the bounds of this software."""
        for key in NUMBERS:
            self.whole(key)
        self.segment_bytes()

    def segment_bytes(self) -> int:
        """The size of a segment of the metadata log; raises `ConfigError`."""
        if SEGMENT_BYTES_OVERRIDE in self.settings:
            return self.whole_number(SEGMENT_BYTES_OVERRIDE, SMALLEST_SEGMENT_BYTES, INT_MAX)
        return self.whole(SEGMENT_BYTES)

    def number(self, key: str, number: Number) -> int:
        """A number within its bounds, or its default; raises `ConfigError`."""
        return self.whole_number(key, number.minimum, number.maximum) if key in self.settings else number.default

    def whole_number(self, key: str, minimum: int, maximum: int) -> int:
        """A setting of the file as a whole number within these bounds; raises `ConfigError`."""
        text = self.settings[key].value
        value = int(text) if _WHOLE_NUMBER.fullmatch(text) else None
        if value is None or not minimum <= value <= maximum:
            raise self.bad(key, f"allowed is a whole number from {minimum} to {maximum}")
        return value

    def entries(self, key: str, parse: Callable[[str], T]) -> tuple[T, ...]:
        """The parsed entries of a list; raises `ConfigError` where `parse` raises `ValueError`."""
        try:
            return tuple(parse(entry) for entry in split_list(self.text(key)))
        except ValueError as bad:
            raise self.bad(key, str(bad), hint=f"Allowed: {TEXTS[key].allowed}.") from None

    def described(self) -> tuple[DescribedSetting, ...]:
        """Every setting in the form of DescribeConfigs."""
        values = {key: setting.value for key, setting in self.settings.items()}
        provided = {key for key, setting in self.settings.items() if setting.reference}
        return tuple(described_settings(values, provided=provided))

    def warnings(self) -> Iterable[str]:
        """A warning for each setting that neither Kafka nor this software knows, and one for all without effect."""
        for unknown in unknown_keys(self.settings):
            yield f"unknown setting {unknown.key}{unknown.advice} ({unknown.where})"
        former = [key for key in self.settings if key.startswith(OF_ZOOKEEPER)]
        if former:
            yield f"of ZooKeeper mode, which Kafka 4 does not have: {', '.join(sorted(former))} ({self.source})"
        idle = [key for key in self.settings if (one := definition_of(key)) and one.name in WITHOUT_EFFECT]
        if idle:
            yield f"without effect in this software: {', '.join(sorted(idle))} ({self.source})"


def is_secret(key: str) -> bool:
    """Whether the value of a setting is a secret, also where the key has the prefix of a listener."""
    return any(key == secret or key.endswith(f".{secret}") for secret in _SECRETS)


def _allowed(key: str) -> str | None:
    """The allowed values of a setting, as a hint; None for a setting that this software does not read."""
    known = TEXTS.get(key) or NUMBERS.get(key)
    return None if known is None else f"Allowed: {known.allowed}."


def seconds_in_ms(key: str) -> Callable[[SettingsReader], int]:
    """Reads a setting in whole seconds, as milliseconds; one second without a setting."""

    def read(reader: SettingsReader) -> int:
        seconds: Any = reader.value(key) if key in reader.settings else 1
        return int(seconds) * 1000

    return read
