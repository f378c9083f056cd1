"""Java properties files: their entries with the lines, and the line of an entry (Java: `Properties`).

A text without a backslash, as most are, has no escapes and no line that goes on, and is read here. The library that
knows the rest imports parsers of XML and HTTP, which would be a tenth of the start of a node.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

from metadata_log import java_text

_BLANKS: Final = " \t\f"
_ENTRY: Final = re.compile(r"([^ \t\f=:]*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPED: Final = re.compile(r"[^ -~]|[\\#!=:]")


class BadEscape(ValueError):
    """A backslash and a u without four digits."""

    def __init__(self, escape: str, line: int) -> None:
        super().__init__(f"invalid \\u escape sequence: {escape}")
        self.escape = escape
        self.line = line


class Entry(NamedTuple):
    """A key and its value; `line` is the number of the first line, from 1."""

    key: str
    value: str
    line: int


def entries(text: str) -> Iterator[Entry]:
    """The entries of a text in order; of two with one key the later counts. Raises `BadEscape`."""
    if "\\" in text:
        yield from _with_escapes(text)
        return
    for number, line in enumerate(java_text.lines(text), 1):
        rest = line.lstrip(_BLANKS)
        if rest and rest[0] not in "#!":
            match = _ENTRY.fullmatch(rest)
            assert match is not None, rest
            yield Entry(match[1], match[2], number)


def _with_escapes(text: str) -> Iterator[Entry]:
    import javaproperties

    line = 1
    try:
        for element in javaproperties.parse(io.StringIO(text, newline="")):
            if isinstance(element, javaproperties.KeyValue):
                yield Entry(element.key, element.value, line)
            line += len(element.source.replace("\r\n", "\n").replace("\r", "\n").split("\n")) - 1
    except javaproperties.InvalidUEscapeError as bad:
        raise BadEscape(bad.escape, line) from bad


def entry(key: str, value: str) -> str:
    """The line of an entry as Java writes it, without a line end."""
    if _ESCAPED.search(key + value) or " " in key or value[:1] == " ":
        import javaproperties

        return javaproperties.join_key_value(key, value)
    return f"{key}={value}"


def setting(key: str, value: str) -> str:
    """A line that is read as this entry, with fewer escapes: Java escapes each colon, which no reader needs."""
    if value.isascii() and value.isprintable() and "\\" not in value and value[:1] != " ":
        return f"{entry(key, '')}{value}"
    return entry(key, value)


def time_comment(at_ms: int) -> str:
    """The comment with a time in ms since 1970, as Java writes it: `#Thu Jan 01 00:00:00 UTC 1970`."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    # Python's own names of days and months, in no locale.
    day, month, *_ = at.ctime().split()
    return f"#{day} {month} {at:%d %H:%M:%S} UTC {at.year}"
