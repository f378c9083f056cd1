"""The record types that an option `--type` names."""

from __future__ import annotations

from difflib import get_close_matches

from kraft.config import UsageError
from metadata_log.records import CONTROL_RECORDS, RECORD_TYPES


def type_names(asked: tuple[str, ...]) -> frozenset[str]:
    """The lower-case names of the requested record types, from names or numbers; `UsageError` for an unknown one."""
    known = [cls.__name__ for cls in (*RECORD_TYPES.values(), *CONTROL_RECORDS.values())]
    found = set()
    for each in asked:
        if each.isdecimal():
            cls = RECORD_TYPES.get(int(each))
            found.add(cls.__name__.lower() if cls else f"record type {int(each)}")
        elif any(each.lower() == name.lower() for name in known):
            found.add(each.lower())
        else:
            close = [name for name in known if each.lower() in name.lower()] or get_close_matches(each, known, n=1)
            hint = f"Did you mean {' or '.join(close)}?" if close else "Give a name such as TopicRecord, or a number."
            raise UsageError(f"there is no record type {each}", where="--type", hint=hint)
    return frozenset(found)
