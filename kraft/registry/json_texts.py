"""JSON as Jackson writes it, Java's library: texts of schemas are compared byte for byte with those that it wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from math import isfinite
from typing import Any, Final

from kraft.registry.schemas import InvalidSchema

MOST_DEPTH: Final = 200
"""So deep objects and arrays are nested at most. Whoever walks a schema takes several calls for each level."""
MOST_DIGITS: Final = 1000
"""As in Jackson."""
_MOST_EXPONENT: Final = 10_000
_ESCAPED: Final = re.compile(r'["\\\x00-\x1f]')
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def json_tree(text: str, *, exact: bool = False) -> Any:
    """The JSON in a text.

    Args:
        text: The text.
        exact: Whether numbers with a fraction or an exponent are decimals, with all digits that the text has.

    Raises:
        InvalidSchema: It is no JSON, too deep, or has numbers or characters that others cannot read: NaN and
            infinities, halves of a pair of surrogates.
    """
    try:
        tree = json.loads(
            text, parse_constant=_no_constant, parse_int=_whole, parse_float=_decimal if exact else _number
        )
        _check_depth(tree)
        text.encode()
        if "\\u" in text:
            json.dumps(tree, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        raise InvalidSchema("the schema has half a pair of surrogates, which is no character") from None
    except (ValueError, RecursionError) as bad:
        raise InvalidSchema(f"the schema is no JSON: {bad}") from bad
    return tree


def json_text(tree: Any, *, sort: bool = False) -> str:
    """JSON without spaces, as Jackson writes it; with `sort` the keys of each object are in order."""
    return "".join(_pieces(tree, sort))


def _pieces(tree: Any, sort: bool) -> Iterator[str]:
    """The text of a tree, piece by piece and without recursion."""
    waiting: list[Any] = [(tree,)]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
            continue
        [value] = one
        match value:
            case dict():
                yield "{"
                waiting.append("}")
                items = sorted(value.items()) if sort else list(value.items())
                for at in range(len(items) - 1, -1, -1):
                    waiting.append((items[at][1],))
                    waiting.append(f"{',' if at else ''}{quoted(items[at][0])}:")
            case list() | tuple():
                yield "["
                waiting.append("]")
                for at in range(len(value) - 1, -1, -1):
                    waiting.append((value[at],))
                    if at:
                        waiting.append(",")
            case str():
                yield quoted(value)
            case True | False | None:
                yield {True: "true", False: "false", None: "null"}[value]
            case float():
                yield java_double(value)
            case Decimal():
                yield str(value or abs(value))
            case _:
                yield str(value)


def quoted(text: str) -> str:
    """A string of JSON."""
    return f'"{_ESCAPED.sub(_escape, text)}"'


def java_double(value: float) -> str:
    """A number as `Double.toString` of Java 19 and later writes it."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = repr(value)
        return text if "e" not in text else f"{value:f}"
    _, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, *rest = map(str, digits)
    return f"{'-' if value < 0 else ''}{first}.{''.join(rest) or '0'}E{int(exponent) + len(rest)}"


def _escape(found: re.Match[str]) -> str:
    character = found.group()
    return _ESCAPES.get(character) or f"\\u{ord(character):04X}"


def _check_depth(tree: Any) -> None:
    level = [tree]
    for _ in range(MOST_DEPTH + 1):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise ValueError(f"it is nested more than {MOST_DEPTH} deep")


def _limited(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def limited(digits: str) -> Any:
        if len(digits) > MOST_DIGITS:
            raise ValueError(f"a number has more than {MOST_DIGITS} digits")
        return read(digits)

    return limited


@_limited
def _whole(digits: str) -> int:
    return int(digits)


@_limited
def _number(digits: str) -> float:
    value = float(digits)
    if not isfinite(value):
        raise ValueError(f"{digits[:40]} is too large")
    return value


@_limited
def _decimal(digits: str) -> Decimal:
    exponent = digits.lower().partition("e")[2]
    if exponent and (len(exponent) > 6 or abs(int(exponent)) > _MOST_EXPONENT):
        raise ValueError(f"{digits[:40]} is out of range")
    return Decimal(digits)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
