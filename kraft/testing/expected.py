"""A test's expectations of records, and the text of a difference from what was written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import ndiff

from kraft.client import ConsumedRecord

Value = str | bytes | None
Given = Value | tuple[Value, Value]
"""A value, or a key with a value; a text stands for its UTF-8."""
Pair = tuple[bytes | None, bytes | None]


def several(values: Iterable[Given]) -> Iterable[Given]:
    """The values themselves; raises `TypeError` for a single text, whose characters would be values."""
    if isinstance(values, str | bytes):
        raise TypeError(f"values is a list of values or of pairs, and not a single value: [{values!r}]?")
    return values


def pair_of(given: Given) -> Pair:
    """The key and the value."""
    pair = given if isinstance(given, tuple) else (None, given)
    if len(pair) != 2 or not all(one is None or isinstance(one, str | bytes) for one in pair):
        raise TypeError(f"a record is a value, or a pair of key and value, of text, bytes or None, and not {given!r}")
    key, value = pair
    return _bytes(key), _bytes(value)


def _bytes(value: Value) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def difference(expected: Sequence[Given], found: Iterable[ConsumedRecord], *, in_order: bool) -> str:
    """The lines of a difference; empty for none. Keys count only where one is expected."""
    has_keys = any(isinstance(one, tuple) for one in expected)
    before = [_text(pair_of(one)) for one in expected]
    after = [_text((one.key if has_keys else None, one.value)) for one in found]
    if not in_order:
        before, after = sorted(before), sorted(after)
    if before == after:
        return ""
    return "\n".join(line.rstrip() for line in ndiff(before, after) if not line.startswith("?"))


def listed(found: Iterable[ConsumedRecord]) -> str:
    """Records with their places, one a line."""
    return "\n".join(f"  {one.partition}@{one.offset} {_text((one.key, one.value))}" for one in found)


def _text(pair: Pair) -> str:
    key, value = pair
    return repr(value) if key is None else f"{key!r}: {value!r}"


Lags = Mapping[int, tuple[int | None, int]]
"""By partition, what a group has committed, None for nothing, and the end of the partition."""


def behind(topic: str, lags: Lags) -> str:
    """Describe what a group has left to read, one line for each partition; empty for nothing."""
    if all(committed == end for committed, end in lags.values()):
        return ""
    return "\n".join(
        f"  {topic}-{number}: committed {'nothing' if committed is None else committed} of {end}"
        f"{'' if committed == end else f', {end - (committed or 0)} behind'}"
        for number, (committed, end) in lags.items()
    )
