"""Names the field of every byte of an index or of a small file, for `kraft dump --hex`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from metadata_log.log.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from metadata_log.reading.annotate import Span
from metadata_log.reading.file_kinds import FileKind

_PIECE_BYTES: Final = 32
_LINE: Final = re.compile(rb"[^\n]*\n|[^\n]+")
_PROPERTY: Final = re.compile(rb"(?P<name>[^=:]*?)(?P<separator>\s*[=:]\s*)(?P<value>[^\r\n]*)(?P<end>\s*)", re.DOTALL)
_JSON_TOKEN: Final = re.compile(
    rb'"(?P<name>[^"]*)"(?P<colon>\s*:)|(?P<value>"[^"]*"|[^\s{}\[\],:"]+)|(?P<other>.)', re.DOTALL
)


def annotate_file(kind: FileKind, content: bytes) -> Iterator[Span]:
    """The bytes of a file without batches, in order, each byte once, as far as the file is readable."""
    match kind:
        case FileKind.OFFSET_INDEX:
            return _index(content, OFFSET_ENTRY_BYTES, (("relative offset", 4), ("position", 4)))
        case FileKind.TIME_INDEX:
            return _index(content, TIME_ENTRY_BYTES, (("timestamp", 8), ("relative offset", 4)))
        case FileKind.PRODUCER_SNAPSHOT:
            return _fixed(content, (("version", 2), ("CRC-32C of what follows", 4), ("producer count", 4)), "producers")
        case FileKind.META_PROPERTIES | FileKind.PARTITION_METADATA:
            return _properties(content)
        case FileKind.EPOCHS:
            return _epochs(content)
        case FileKind.QUORUM_STATE:
            return _json(content)
        case _:
            return unknown_bytes(content, 0, "not known")


def unknown_bytes(content: bytes, position: int, field: str) -> Iterator[Span]:
    """Bytes outside of every field, in pieces that fit a line; the first byte is at `position`."""
    for start in range(0, len(content), _PIECE_BYTES):
        yield Span(position + start, content[start : start + _PIECE_BYTES], field)


def _index(content: bytes, size: int, fields: tuple[tuple[str, int], ...]) -> Iterator[Span]:
    """Entries, up to the zeros that fill the index of an active segment."""
    used = -(-len(content.rstrip(b"\x00")) // size) * size
    whole = min(used, len(content) - len(content) % size)
    for number, start in enumerate(range(0, whole, size)):
        at = start
        for name, width in fields:
            yield Span(at, content[at : at + width], f"entry {number} {name}")
            at += width
    rest = content[whole:]
    yield from unknown_bytes(rest, whole, "unused" if not rest.strip(b"\x00") else "behind the last whole entry")


def _fixed(content: bytes, fields: tuple[tuple[str, int], ...], rest: str) -> Iterator[Span]:
    position = 0
    for name, width in fields:
        if piece := content[position : position + width]:
            yield Span(position, piece, name)
        position += width
    yield from unknown_bytes(content[position:], position, rest)


def _properties(content: bytes) -> Iterator[Span]:
    """Lines of names and values, as Java's `Properties` writes them."""
    for line in _LINE.finditer(content):
        match = _PROPERTY.fullmatch(line[0])
        if line[0].startswith((b"#", b"!")) or match is None:
            yield Span(line.start(), line[0], "comment" if line[0].startswith((b"#", b"!")) else "blank")
            continue
        name = _text(match["name"])
        fields = (("name", f"{name}: name"), ("separator", "separator"), ("value", name), ("end", "line end"))
        for group, field in fields:
            if match[group]:
                yield Span(line.start() + match.start(group), match[group], field)


def _epochs(content: bytes) -> Iterator[Span]:
    """Version, count, then a line for each epoch."""
    for number, line in enumerate(_LINE.finditer(content)):
        entry = number - 2
        names = ("version",) if number == 0 else ("entry count",) if number == 1 else ("epoch", "start offset")
        words = 0
        for piece in re.finditer(rb"\S+|\s+", line[0]):
            field = "separator"
            if not piece[0].isspace():
                name = names[words] if words < len(names) else "not known"
                field = name if entry < 0 else f"entry {entry} {name}"
                words += 1
            yield Span(line.start() + piece.start(), piece[0], field)


def _json(content: bytes) -> Iterator[Span]:
    """The names, values and punctuation of one JSON object."""
    name = "value"
    for token in _JSON_TOKEN.finditer(content):
        if token["name"] is not None:
            name = _text(token["name"])
            yield Span(token.start(), token[0], f"{name}: name")
        else:
            yield Span(token.start(), token[0], name if token["value"] is not None else "punctuation")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace").strip()
