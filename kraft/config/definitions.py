"""Kafka's definitions of settings, and what they allow (Kafka: `ConfigDef`).

One table, from Kafka's jars, says for the settings of nodes, topics, groups, client metrics and quotas which type,
default and limits they have. A start, a dynamic change and the creation of a topic judge values by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, cast

from msgspec import Struct

from kraft.config.kafka_table import SETTINGS
from kraft.config.properties import trim

Type = Literal["BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD"]
Mode = Literal["read-only", "cluster-wide", "per-broker"]
Value = bool | int | float | str | tuple[str, ...]

_BITS: Final = {"SHORT": 16, "INT": 32, "LONG": 64}
_WHOLE: Final = re.compile(r"([+-]?)(?=[0-9])0*+([0-9]{0,19})")
"""Leading zeros do not count. The other digits are at most as many as a LONG has: Python refuses to parse thousands of
digits, even zeros.
"""
_DECIMAL: Final = r"[+-]?(?:[0-9]++\.?+[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?+[dDfF]?+"
"""The repetitions are possessive: with backtracking, a value of 32,767 digits and a letter would take seconds."""
_THROTTLED: Final = r"[0-9]+:[0-9]+"
_DURATION: Final = r"by_duration:P(?=.)([0-9]+D)?(T(?=.)([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]+)?S)?)?"
_DISTINCT: Final = "list"
"""Begins the limits of lists in which a repeated entry counts once."""
_GZIP_LEVELS: Final = "other [1,...,9] or -1"
_NOT_EMPTY: Final = "other non-empty string"
_REPLICAS: Final = "other [partitionId]:[brokerId],[partitionId]:[brokerId],..."
CORDONED: Final = "cordoned.log.dirs"
_RESETS: Final = "other [latest, earliest, by_duration:PnDTnHnMn.nS]"


class BadValue(ValueError):
    """A value that a setting does not have. The text is Kafka's."""


class Definition(Struct, frozen=True, kw_only=True):
    """One setting. `least` and `most` bound a number; `words` are the only words of a text or of a list."""

    name: str
    type: Type
    importance: str
    mode: Mode
    """How the setting of a node changes at run time."""
    is_internal: bool
    default: str | None
    """None for no value."""
    limits: str
    """The words of the table on a validator that no other field describes."""
    least: int | float | None = None
    most: int | float | None = None
    words: tuple[str, ...] = ()
    is_any_case: bool = False
    may_be_empty: bool = True
    """Whether a list may have no entries; entries are never empty."""

    @property
    def allowed(self) -> str:
        """The values that are allowed, as a text."""
        match self.type:
            case "BOOLEAN":
                return "true or false"
            case "SHORT" | "INT" | "LONG":
                size = 1 << (_BITS[self.type] - 1)
                if self.limits == _GZIP_LEVELS:
                    return "-1, or a whole number from 1 to 9"
                least = -size if self.least is None else self.least
                return f"a whole number from {least} to {size - 1 if self.most is None else self.most}"
            case "DOUBLE":
                bounds = (("from", self.least), ("to", self.most))
                return " ".join(("a number", *(f"{word} {bound}" for word, bound in bounds if bound is not None)))
            case "LIST":
                entries = " and ".join(self.words) if self.words else "entries"
                return f"{entries}, separated by commas{'' if self.may_be_empty else ', at least one'}"
            case _:
                return " or ".join(self.words) if self.words else "a text"


def whole_number(text: str, bits: int = 64) -> int | None:
    """The number in a text, as Java parses it; None if the text is not a number or exceeds so many bits."""
    match = _WHOLE.fullmatch(text)
    if match is None:
        return None
    number = int(match[1] + (match[2] or "0"))
    return number if -(1 << (bits - 1)) <= number < 1 << (bits - 1) else None


def decimal_number(text: str) -> float | None:
    """The number in a text, as Java parses it; None if the text is not a number."""
    return float(text.rstrip("dDfF")) if re.fullmatch(_DECIMAL, text) else None


def elements(text: str) -> tuple[str, ...]:
    """The entries of a list, without blanks around them; empty entries stay (Kafka: type LIST)."""
    return tuple(map(trim, text.split(","))) if trim(text) else ()


def checked(key: Definition, text: str) -> Value:
    """The value in a text; raises `BadValue` for one that Kafka refuses. Classes are not looked for."""
    word = trim(text)
    match key.type:
        case "BOOLEAN":
            if word.lower() not in ("true", "false"):
                raise _bad(key, text, "Expected value to be either true or false")
            return word.lower() == "true"
        case "SHORT" | "INT" | "LONG":
            whole = whole_number(word, _BITS[key.type])
            if whole is None:
                raise _bad(key, text, f"Not a number of type {key.type}")
            return _in_range(key, whole)
        case "DOUBLE":
            decimal = decimal_number(word)
            if decimal is None:
                raise _bad(key, text, "Not a number of type DOUBLE")
            return _in_range(key, decimal)
        case "LIST":
            return _list(key, elements(text))
        case "PASSWORD":
            return text
        case _:
            return _text(key, word)


def _bad(key: Definition, value: object, why: str) -> BadValue:
    return BadValue(f"Invalid value {value} for configuration {key.name}: {why}")


def _in_range(key: Definition, number: float) -> int | float:
    if key.least is not None and number < key.least:
        raise _bad(key, number, f"Value must be at least {key.least}")
    if key.most is not None and number > key.most:
        raise _bad(key, number, f"Value must be no more than {key.most}")
    if key.limits == _GZIP_LEVELS and not (number == -1 or 1 <= number <= 9):
        raise _bad(key, number, "Value must be between 1 and 9 or equal to -1")
    return number


def _text(key: Definition, word: str) -> str:
    if key.words and word not in key.words and not (key.is_any_case and word.upper() in key.words):
        raise _bad(key, word, f"String must be one of: {', '.join(key.words)}")
    if key.limits == _NOT_EMPTY and not word:
        raise _bad(key, word, "String must be non-empty")
    if key.limits == _RESETS and word not in ("earliest", "latest") and not re.fullmatch(_DURATION, word):
        why = f"Invalid value `{word}` for configuration {key.name}. The value must be either 'earliest', 'latest' or"
        raise _bad(key, word, f"{why} of the format 'by_duration:<PnDTnHnMn.nS>'.")
    return word


def _list(key: Definition, entries: tuple[str, ...]) -> tuple[str, ...]:
    if key.limits.startswith(_DISTINCT):
        entries = tuple(dict.fromkeys(entries))
    if not entries and not key.may_be_empty:
        valid = f"[{', '.join(key.words)}]" if key.words else "any non-empty value"
        raise BadValue(f"Configuration '{key.name}' must not be empty. Valid values include: {valid}")
    if key.limits == _REPLICAS:
        if "".join(entries) != "*" and not all(re.fullmatch(_THROTTLED, entry) for entry in entries if entry):
            why = f"{key.name} must be the literal '*' or a list of replicas in the following format: "
            raise _bad(key, f"[{', '.join(entries)}]", why + "[partitionId]:[brokerId],[partitionId]:[brokerId],...")
        return entries
    for entry in entries:
        if not entry:
            raise BadValue(f"Configuration '{key.name}' values must not be empty.")
        if key.words and entry not in key.words:
            raise _bad(key, entry, f"String must be one of: {', '.join(key.words)}")
    return entries


def _definitions(kind: str) -> Iterator[Definition]:
    for line in SETTINGS.splitlines():
        of, name, type_, importance, mode, access, default, limits = line.split("|")
        if of != kind:
            continue
        word, _, rest = limits.partition(" ")
        first, _, others = rest.partition(" ")
        bounds = (first, others) if word == "range" else ("null", "null")
        words = {"words": rest, "words-of-any-case": rest, "list": others.partition(" ")[2]}.get(word, "")
        yield Definition(
            name=name,
            type=cast("Type", type_),
            importance=importance,
            mode=cast("Mode", mode),
            is_internal=access == "internal",
            default=default[1:] if default.startswith("=") else None,
            limits=limits,
            least=_bound(bounds[0]),
            most=_bound(bounds[1]),
            words=tuple(words.split(",")) if words else (),
            is_any_case=word == "words-of-any-case",
            may_be_empty=word != "list" or first == "true",
        )


def _bound(text: str) -> int | float | None:
    return None if text == "null" else int(text) if whole_number(text, 64) is not None else float(text)


def _by_name(kind: str) -> dict[str, Definition]:
    return {one.name: one for one in _definitions(kind)}


NODE: Final = _by_name("broker")
"""The settings of brokers and controllers, internal ones included."""
TOPIC: Final = _by_name("topic")
GROUP: Final = _by_name("group")
CLIENT_METRICS: Final = _by_name("client-metrics")
OF_QUOTAS: Final = _by_name("broker-quota")
"""The settings of brokers for the throttling of replication, which only the metadata log has."""
