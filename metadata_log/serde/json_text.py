"""Kafka's JSON form of messages as text, for files with millions of records (Kafka: `*JsonConverter.java`).

The functions are compiled by class and version, as the codecs are: a record takes about 1 µs, where
`json.dumps(to_json(…))` takes 8. `json_form` is the readable reference; both agree on every message.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import cache, lru_cache
from json.encoder import encode_basestring_ascii
from typing import Final

from metadata_log.serde.fields import ArrayOf, Field, FieldType, Kind, Message, fields_at, schema_of
from metadata_log.serde.json_form import to_json
from metadata_log.serde.source import compile_function

TextFunction = Callable[[Message], str]

_INTEGERS: Final = {Kind.INT8, Kind.INT16, Kind.UINT16, Kind.INT32, Kind.INT64}


class Unwritable(ValueError):
    """The version cannot carry a value; `to_json` explains the error."""


WRITE_FAILURES: Final = (Unwritable, TypeError, AttributeError)
"""The errors of a compiled function where `to_json` would raise `EncodeError`."""


def json_text(message: Message, version: int) -> str:
    """The text of `json.dumps(to_json(message, version))`; raises as `to_json` does."""
    cls = type(message)
    if version in schema_of(cls).versions:
        try:
            return text_function(cls, version)(message)
        except WRITE_FAILURES:
            pass
    return json.dumps(to_json(message, version))


@cache
def text_function(cls: type[Message], version: int) -> TextFunction:
    """The function behind `json_text` for a version of the class; raises one of `WRITE_FAILURES`."""
    at = fields_at(cls, version)
    maker = _Maker(version)
    for field in at.absent:
        if not field.ignorable:
            maker.emit(f"v = m.{field.name}")
            maker.emit(f"if {maker.differs('v', field)}: raise Unwritable")
    maker.emit("t = ''")
    for field in at.in_order:
        maker.field(field)
    maker.emit("return '{' + t[2:] + '}'")
    made: TextFunction = compile_function(
        "text(m)", maker.lines, maker.names, f"JSON of {cls.__name__} version {version}"
    )
    return made


class _Maker:
    """Writes the function: each field appends a comma, its name and its value to the text `t`."""

    def __init__(self, version: int) -> None:
        self.lines: list[str] = []
        self.names: dict[str, object] = {
            "Unwritable": Unwritable,
            "null": "null",
            "true": "true",
            "false": "false",
            "listed": _list_text,
            "quote": encode_basestring_ascii,
            "number": json.dumps,
            "uuid": _uuid_text,
            "binary": _bytes_text,
            "integers": _integers_text,
        }
        self._version = version

    def emit(self, line: str) -> None:
        self.lines.append("    " + line)

    def constant(self, value: object) -> str:
        name = f"constant_{len(self.names)}"
        self.names[name] = value
        return name

    def differs(self, name: str, field: Field) -> str:
        """The condition that a value is not the field's default; see `Field.is_default`."""
        match field.default:
            case None:
                return f"{name} is not None"
            case list() | tuple():
                return f"{name} or {name} is None"
            case bool() | int() | str() as default:
                return f"{name} != {default!r}"
            case default:
                return f"{name} != {self.constant(default)}"

    def field(self, field: Field) -> None:
        value = self.value(field.type, "v")
        if self._version in field.nullable:
            value = f"null if v is None else {value}"
        self.emit(f"v = m.{field.name}")
        guard = "" if field.tag is None else f"if {self.differs('v', field)}: "
        self.emit(f"""{guard}t += f', "{field.json_name}": {{{value}}}'""")

    def value(self, kind: FieldType, name: str) -> str:
        """The expression for the text of a value that is not null."""
        match kind:
            case Kind.BOOL:
                return f"true if {name} else false"
            case Kind.STRING:
                return f"quote({name})"
            case Kind.UUID:
                return f"uuid({name})"
            case Kind.BYTES | Kind.RECORDS:
                return f"binary({name})"
            case Kind.FLOAT64:
                return f"number({name})"
            case Kind():
                return name
            case ArrayOf(element=element) if element in _INTEGERS:
                return f"integers({name})"
            case ArrayOf(element=element):
                inner = name + "e"
                return f"listed([({self.value(element, inner)}) for {inner} in {name}])"
            case _:
                return f"{self.constant(text_function(kind, self._version))}({name})"


@lru_cache(maxsize=8192)
def _uuid_text(value: bytes) -> str:
    return '"' + base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii") + '"'


def _bytes_text(value: bytes) -> str:
    return '"' + base64.b64encode(value).decode("ascii") + '"'


def _list_text(elements: list[str]) -> str:
    return "[" + ", ".join(elements) + "]"


def _integers_text(value: tuple[int, ...] | list[int]) -> str:
    return _known_integers(value) if type(value) is tuple else str(list(value))


@lru_cache(maxsize=8192)
def _known_integers(value: tuple[int, ...]) -> str:
    """Replica lists of a cluster are few and repeat."""
    return str(list(value))
