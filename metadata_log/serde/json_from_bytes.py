"""Kafka's JSON form directly from bytes, for files with millions of records (Kafka: `*JsonConverter.java`).

The functions are compiled as the readers are, from the same code, but each field yields its text, so that no record is
built. `json_form` is the readable reference and handles all unusual values: a function here either returns the text of
`to_json(decode(…))` or raises.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from functools import cache, lru_cache
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Final

from metadata_log.serde.fields import ArrayOf, Field, FieldType, Kind, Message, fields_at, schema_of
from metadata_log.serde.json_form import value_to_json
from metadata_log.serde.primitives import FORMATS
from metadata_log.serde.reading import ReaderMaker
from metadata_log.types import Uuid

TextFromBytes = Callable[[bytes, int], str]

_REMEMBERED_BYTES: Final = 128
"""The size up to which parts are cached: replica lists, directories and tagged parts of a cluster repeat."""


@cache
def text_reader(cls: type[Message], version: int, *, ascii_only: bool = True) -> TextFromBytes:
    """The function (data, position) -> text of the message that fills `data` from there, for a version of `cls`.

    The function raises one of `compiler.READ_FAILURES` for damaged bytes, and for valid but unusual ones.
    """
    made = _TextMaker(version, version in schema_of(cls).flexible, ascii_only=ascii_only)
    at = fields_at(cls, version)
    made.source.emit("end = len(data)")
    if at.tagged and at.in_order[: len(at.plain)] == at.plain:
        value = made.structure_with_known_tail(cls)
    else:
        value = made.structure(cls)
        made.flush()
        made.source.emit("if p != end: raise Malformed")
    made.source.emit(f"return {value}")
    return made.source.compile("text(data, p)", f"JSON of the bytes of {cls.__name__} version {version}")


class _TextMaker(ReaderMaker):
    """Makes texts of the values that the base class reads: of numbers at the end, of everything else at once."""

    null = "null"

    def __init__(self, version: int, flexible: bool, *, ascii_only: bool) -> None:
        super().__init__(version, flexible)
        self._ascii_only = ascii_only
        self.source.names |= {
            "null": "null",
            "true": "true",
            "false": "false",
            "quote": encode_basestring_ascii if ascii_only else encode_basestring,
            "number": json.dumps,
            "uuid": _uuid_text,
            "binary": _bytes_text,
        }

    def structure_with_known_tail(self, cls: type[Message]) -> str:
        """A structure at the end of `data` with a tagged part that is usually cached."""
        at = fields_at(cls, self.version)
        values = {field.name: self.value(field) for field in at.plain}
        self.flush()
        made = _TextMaker(self.version, self.flexible, ascii_only=self._ascii_only)
        text = made.source.compile("tail(data)", made.tail(cls))
        plain = self.source.shared("tail", text)
        known = self.source.shared("known_tail", lru_cache(maxsize=4096)(text))
        result = self.source.fresh("s")
        self.source.emit(f"{result} = ({known} if end - p <= {_REMEMBERED_BYTES} else {plain})(data[p:])")
        shown = "".join(f', "{field.json_name}": {{{_text(field.type, values[field.name])}}}' for field in at.plain)
        return f"f'{{{{{shown[2:]}{{{result}}}}}}}'" if shown else f"'{{' + {result}[2:] + '}}'"

    def tail(self, cls: type[Message]) -> str:
        """Emit the code that reads a tagged part at the end of `data`; returns a title."""
        at, emit = fields_at(cls, self.version), self.source.emit
        emit("p = 0; end = len(data)")
        count = self.fixed("B", "t")
        self.flush()
        emit(f"if {count} > 127: {count}, p = long_count(data, p - 1)")
        values, _ = self.tags(count, at.tagged, at.absent)
        emit("if p != end: raise Malformed")
        in_order = (field for field in at.in_order if field.tag is not None)
        emit(f"return f'{''.join(f'{{{values[field.name]}}}' for field in in_order)}'")
        return f"JSON of the tagged part of {cls.__name__} version {self.version}"

    def leaf(self, kind: Kind, taken: str) -> str:
        return f"quote({taken}.decode())" if kind is Kind.STRING else f"binary({taken})"

    def empty(self, kind: FieldType) -> str:
        return "'[]'" if isinstance(kind, ArrayOf) else "'\"\"'"

    def elements(self, array: ArrayOf, value: str) -> None:
        self.source.emit(f"{value} = '[' + ', '.join({value}) + ']'")

    def packed(self, array: ArrayOf, kind: Kind, count: str, stop: str, value: str) -> None:
        text = _array_text(kind)
        plain = self.source.shared(f"array_of_{kind.value}", text)
        known = self.source.shared(f"known_array_of_{kind.value}", lru_cache(maxsize=4096)(text))
        self.source.emit(f"{value} = ({known} if {stop} - p <= {_REMEMBERED_BYTES} else {plain})(data[p:{stop}])")

    def untagged(self, field: Field) -> str:
        return "''"

    def tagged(self, field: Field, value: str) -> str:
        """The text with its name and a comma in front. A default value is never written, and raises if it is."""
        default = field.default
        if field.type in {Kind.STRING, Kind.BYTES, Kind.RECORDS, Kind.UUID} or not isinstance(field.type, Kind):
            default = json.dumps(value_to_json(field.type, default, self.version))
        self.source.emit(f"if {value} == {default!r}: raise Malformed")
        return f"""f', "{field.json_name}": {{{_text(field.type, value)}}}'"""

    def call(self, cls: type[Message], values: dict[str, str], extra: str = "") -> str:
        """The text of a structure; tagged fields include their names, or are empty."""
        shown = [field for field in fields_at(cls, self.version).in_order if field.name in values]
        text = "".join(
            f', "{field.json_name}": {{{_text(field.type, values[field.name])}}}'
            if field.tag is None
            else f"{{{values[field.name]}}}"
            for field in shown
        )
        if not shown:
            return "'{}'"
        if shown[0].tag is None:
            return f"f'{{{{{text[2:]}}}}}'"
        return f"'{{' + f'{text}'[2:] + '}}'"


def _text(kind: FieldType, value: str) -> str:
    """The expression for the text of a decoded value."""
    match kind:
        case Kind.BOOL:
            return f"true if {value} else false"
        case Kind.FLOAT64:
            return f"number({value})"
        case _:
            return value


@lru_cache(maxsize=8192)
def _uuid_text(value: bytes) -> str:
    return f'"{Uuid(value)}"'


def _bytes_text(value: bytes) -> str:
    return '"' + base64.b64encode(value).decode("ascii") + '"'


@cache
def _array_text(kind: Kind) -> Callable[[bytes], str]:
    """A function from the bytes of an array's elements to its text."""
    read = struct.Struct(">" + FORMATS[kind]).iter_unpack

    def text(data: bytes) -> str:
        return json.dumps([str(Uuid(value)) if kind is Kind.UUID else value for (value,) in read(data)])

    return text
