"""Suggests similar names for an unknown name, judges names of record types, and describes the end of a log."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import Final

from kraft.config import UsageError
from kraft.config.errors import CommandFailed
from metadata_log.records import CONTROL_RECORDS, RECORD_TYPES
from metadata_log.times import iso_time

_MOST_NAMES: Final = 3
_MOST_LISTED: Final = 12


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """The most similar known names, as a hint; None if there are none."""
    by_lower = {one.lower(): one for one in sorted(known)}
    close = [by_lower[one] for one in get_close_matches(name.lower(), by_lower, n=_MOST_NAMES, cutoff=0.6)]
    begin = [one for one in by_lower.values() if one.lower().startswith(name.lower())][:_MOST_NAMES]
    names = list(dict.fromkeys((*close, *begin)))[:_MOST_NAMES]
    return f"Did you mean {' or '.join(names)}?" if names else None


def unknown_topic(name: str, known: Iterable[str], *, hint: str | None = None) -> CommandFailed:
    """The failure for an unknown topic; `hint` applies if no known name is similar."""
    return CommandFailed(f"there is no topic {name}", hint=did_you_mean(name, known) or hint)


def unknown_broker(broker: int, known: Collection[int], *, verb: str = "is not") -> CommandFailed:
    """The failure for an unknown broker; `verb` is "is not" or "never was"."""
    what = f"broker {broker} {verb} registered"
    close = did_you_mean(str(broker), map(str, known))
    if len(known) <= _MOST_LISTED or close is None:
        close = registered_brokers(known)
    return CommandFailed(what, hint=close)


def registered_brokers(known: Collection[int]) -> str:
    """A sentence with the first ids."""
    if not known:
        return "No broker is registered."
    more = ", …" if len(known) > _MOST_LISTED else ""
    return f"The brokers are {', '.join(map(str, sorted(known)[:_MOST_LISTED]))}{more}."


def end_words(offset: int, timestamp_ms: int | None) -> str:
    """A text for the last record of a log."""
    if offset < 0:
        return "there is no record yet"
    time = iso_time(timestamp_ms)
    return f"the last record has offset {offset}" + ("" if time is None else f", {time}")


def type_names(asked: tuple[str, ...]) -> frozenset[str]:
    """The lower-case names of the requested record types, from names or numbers; `UsageError` for an unknown one."""
    known = [cls.__name__ for cls in (*RECORD_TYPES.values(), *CONTROL_RECORDS.values())]
    names = set()
    for each in asked:
        if each.isdecimal():
            cls = RECORD_TYPES.get(int(each))
            names.add(cls.__name__.lower() if cls else f"record type {int(each)}")
        elif any(each.lower() == name.lower() for name in known):
            names.add(each.lower())
        else:
            close = [name for name in known if each.lower() in name.lower()] or get_close_matches(each, known, n=1)
            hint = f"Did you mean {' or '.join(close)}?" if close else "Give a name such as TopicRecord, or a number."
            raise UsageError(f"there is no record type {each}", where="--type", hint=hint)
    return frozenset(names)
