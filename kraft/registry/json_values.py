"""Whether a value is one of a JSON schema: by `jsonschema`, with RE2 for patterns, and with nothing fetched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

from kraft.registry.json_documents import Document

MOST_PATTERN_BYTES: Final = 1 << 20
"""The memory of one pattern."""
MOST_FOLLOWED: Final = 1000
"""So many references are followed for one value."""


class Unknown(Exception):
    """Whether a value is one of a schema is not known here."""


class Values:
    """The values of the schemas of one document."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._followed = 0
        self._enums: dict[int, frozenset[str]] = {}
        words = {
            "$ref": self._reference,
            "enum": self._enumerated,
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": _additional_properties,
            **dict.fromkeys(
                ("$dynamicRef", "$recursiveRef", "format", "unevaluatedProperties", "unevaluatedItems"), _unknown
            ),
        }
        known = {word: words[word] for word in words if word in document.kind.VALIDATORS}
        self._validator = extend(document.kind, known)(document.tree)

    def takes(self, schema: Any, value: Any) -> bool:
        """Whether a value is one of a schema of the document; raises `Unknown`."""
        try:
            return bool(self._validator.evolve(schema=schema).is_valid(value))
        except (Unknown, KeyboardInterrupt, SystemExit, MemoryError):
            raise
        except BaseException as failed:  # at the end of the stack, the Rust below jsonschema panics, with its own class
            raise Unknown("it is nested too deep") from failed
        finally:
            self._followed = 0

    def _reference(self, validator: Any, text: str, value: Any, schema: Any) -> Iterator[Any]:
        target = self._document.target(schema)
        if target is None:
            raise Unknown(f"{text[:100]} leads to nothing known")
        self._followed += 1
        if self._followed > MOST_FOLLOWED:
            raise Unknown("too many references are followed")
        yield from validator.descend(value, target)

    def _enumerated(self, validator: Any, values: Any, value: Any, schema: Any) -> Iterator[Any]:
        if id(values) not in self._enums:
            self._enums[id(values)] = frozenset(map(_key, values))
        if _key(value) not in self._enums[id(values)]:
            yield ValidationError("another value")


def _key(value: Any) -> str:
    """Equal for equal values: 1.0 is 1, and true is not."""
    return json.dumps(_whole(value), sort_keys=True)


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_whole(one) for one in value]
    return {name: _whole(one) for name, one in value.items()} if isinstance(value, dict) else value


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> Any:
    try:
        import re2
    except ImportError:  # Python 3.15 has no wheel yet
        return None
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MOST_PATTERN_BYTES
    try:
        return re2.compile(pattern, options=options)
    except (re2.error, UnicodeError):
        return None


def matches(pattern: str, text: str) -> bool | None:
    """Whether a pattern is found in a text; None if RE2 does not know the pattern."""
    known = _compiled(pattern)
    return None if known is None else known.search(text) is not None


def _surely(pattern: str, text: str) -> bool:
    if (found := matches(pattern, text)) is None:
        raise Unknown(f"the pattern {pattern[:100]!r} is not known to RE2")
    return found


def _unknown(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[Any]:
    yield from ()
    if not isinstance(value, int | float | bool | None):
        raise Unknown("that depends on words that are not looked at here")


def _pattern(validator: Any, pattern: str, value: Any, schema: Any) -> Iterator[Any]:
    if isinstance(value, str) and not _surely(pattern, value):
        yield ValidationError("another pattern")


def _pattern_properties(validator: Any, patterns: Any, value: Any, schema: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for pattern, one in patterns.items():
            for name, inner in value.items():
                if _surely(pattern, name):
                    yield from validator.descend(inner, one)


def _additional_properties(validator: Any, one: Any, value: Any, schema: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for name, inner in value.items():
            known = name in schema.get("properties", {})
            if not known and not any(_surely(pattern, name) for pattern in schema.get("patternProperties", {})):
                yield from validator.descend(inner, one)
