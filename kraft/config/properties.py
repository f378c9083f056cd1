"""Reads a Java properties file and keeps the place of every value (Kafka: `Utils.loadProps`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from kraft.config.errors import ConfigError
from metadata_log.java_properties import BadEscape, entries

OVERRIDE = "--override"
_BLANKS = "".join(map(chr, range(ord(" ") + 1)))


def trim(text: str) -> str:
    """The text without leading and trailing blanks and control characters; as in Java, no-break spaces stay."""
    return text.strip(_BLANKS)


class Setting(Struct, frozen=True):
    """One value, trimmed as in Kafka, and its place: `file:line`, or the option that set it."""

    value: str
    where: str
    reference: str = ""
    """The text of the file, if a config provider supplied the value, which is then a secret."""

    @property
    def shown(self) -> str:
        """The value for messages."""
        return self.reference or self.value


def parse_properties(text: str | bytes, *, source: str) -> dict[str, Setting]:
    """The settings in the text of a properties file; as in Java, a later one of the same key wins."""
    if isinstance(text, bytes):
        text = text.decode("latin-1")
    try:
        return {key: Setting(trim(value), f"{source}:{line}") for key, value, line in entries(text)}
    except BadEscape as bad:
        raise ConfigError(
            f"{bad.escape} is not a \\u escape",
            where=f"{source}:{bad.line}",
            hint="Write a backslash as two of them, as in every Java properties file.",
        ) from bad


def read_properties(path: str) -> bytes:
    """The text of a properties file; raises `ConfigError` for an unreadable file."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as failed:
        raise ConfigError(
            f"cannot read the configuration: {failed.strerror or failed}",
            where=path,
            hint="Name a Kafka properties file (server.properties).",
        ) from failed


def apply_overrides(settings: Mapping[str, Setting], overrides: Iterable[str]) -> dict[str, Setting]:
    """The settings with some values replaced by `key=value` texts; raises `ConfigError` for any other text."""
    result = dict(settings)
    for text in overrides:
        key, equals, value = text.partition("=")
        if not (equals and trim(key)):
            raise ConfigError(f"{text!r} is not key=value", where=OVERRIDE, hint="Write --override key=value.")
        result[trim(key)] = Setting(trim(value), OVERRIDE)
    return result
