"""The declaration language of messages and records (Kafka: `FieldSpec`, `MessageSpec`).

A declaration is a frozen Struct in wire order. Each annotation names the wire type (`Int32`, `String`, …) and, if the
field is not "in every version, never null", the versions: `since`, `until`, `tagged`, `nullable`, `ignorable`.
"""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Annotated, Any, ClassVar, Final, TypeVar, Union

from msgspec import Struct

from metadata_log.serde.source import evaluated
from metadata_log.types import Uuid


class Kind(Enum):
    """A primitive type of Kafka's serialization; the value is its name in Kafka's schema files."""

    BOOL = "bool"
    INT8 = "int8"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT64 = "float64"
    STRING = "string"
    BYTES = "bytes"
    UUID = "uuid"
    RECORDS = "records"


Bool = Annotated[bool, Kind.BOOL]
Int8 = Annotated[int, Kind.INT8]
Int16 = Annotated[int, Kind.INT16]
UInt16 = Annotated[int, Kind.UINT16]
Int32 = Annotated[int, Kind.INT32]
Int64 = Annotated[int, Kind.INT64]
Float64 = Annotated[float, Kind.FLOAT64]
String = Annotated[str, Kind.STRING]
Bytes = Annotated[bytes, Kind.BYTES]
Records = Annotated[bytes, Kind.RECORDS]


class Versions(Struct, frozen=True):
    """An inclusive range of versions; empty when `highest < lowest`."""

    lowest: int
    highest: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.lowest <= version <= self.highest

    def __bool__(self) -> bool:
        return self.lowest <= self.highest

    def __str__(self) -> str:
        if not self:
            return "none"
        if self.highest == OPEN_END:
            return f"{self.lowest}+"
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest}-{self.highest}"

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Read Kafka's notation: `0-2`, `3+`, `7` or `none`."""
        if text == "none":
            return NO_VERSIONS
        if text.endswith("+"):
            return cls(int(text[:-1]), OPEN_END)
        lowest, _, highest = text.partition("-")
        return cls(int(lowest), int(highest or lowest))

    def intersect(self, other: Versions) -> Versions:
        """The versions in both."""
        return Versions(max(self.lowest, other.lowest), min(self.highest, other.highest))


OPEN_END: Final = 0x7FFF
NO_VERSIONS: Final = Versions(0, -1)


class Since(Struct, frozen=True):
    """Marker: the field exists from this version on."""

    version: int


class Until(Struct, frozen=True):
    """Marker: the field exists up to and including this version."""

    version: int


class Tagged(Struct, frozen=True):
    """Marker: the field is encoded as a tagged field, and omitted when it has its default."""

    tag: int


class NullableSince(Struct, frozen=True):
    """Marker: null is allowed only from this version on."""

    version: int


class Named(Struct, frozen=True):
    """Marker: the JSON name does not derive from the attribute's name."""

    json_name: str


class Flag(Enum):
    """Markers without a value."""

    IGNORABLE = "ignorable"
    NEVER_COMPACT = "never_compact"


def since(version: int) -> Since:
    """The field exists from `version` on."""
    return Since(version)


def until(version: int) -> Until:
    """The field exists up to and including `version`."""
    return Until(version)


def tagged(tag: int) -> Tagged:
    """The field is a tagged field with this tag in every version in which it exists."""
    return Tagged(tag)


def nullable(from_version: int) -> NullableSince:
    """Null is allowed from `from_version` on; without this marker `| None` allows it in every version."""
    return NullableSince(from_version)


def named(json_name: str) -> Named:
    """Kafka's own name of the field, if it is not the lower camel case of the attribute's name."""
    return Named(json_name)


ignorable: Final = Flag.IGNORABLE
"""The value may be dropped silently in versions without the field."""
never_compact: Final = Flag.NEVER_COMPACT
"""The field keeps its fixed-width length in flexible versions (the client id of a request header)."""


class Role(Enum):
    """The role of a message."""

    REQUEST = "request"
    RESPONSE = "response"
    HEADER = "header"
    RECORD = "metadata"
    COORDINATOR_KEY = "coordinator-key"
    COORDINATOR_VALUE = "coordinator-value"
    DATA = "data"


class Schema(Struct, frozen=True):
    """The facts of one message. `api_key` is the record type for a record, None for headers and data."""

    name: str
    role: Role
    api_key: int | None
    versions: Versions
    flexible: Versions


UnknownTags = tuple[tuple[int, bytes], ...]
"""Tagged fields outside of the declaration, as (tag, bytes) in order of their tags."""


class Message(Struct, frozen=True, kw_only=True, gc=False, repr_omit_defaults=True):
    """Base of every declared message, record and nested structure.

    `unknown_tagged` keeps the fields of a newer writer, so that decoding and encoding again loses nothing.
    Values are never cyclic, so the garbage collector does not track them.
    """

    __schema__: ClassVar[Schema]
    unknown_tagged: UnknownTags = ()


MessageType = TypeVar("MessageType", bound=Message)


def _declared(
    role: Role, api_key: int | None, versions: str, flexible: str
) -> Callable[[type[MessageType]], type[MessageType]]:
    def apply(cls: type[MessageType]) -> type[MessageType]:
        cls.__schema__ = Schema(cls.__name__, role, api_key, Versions.parse(versions), Versions.parse(flexible))
        return cls

    return apply


def request(*, api_key: int, versions: str, flexible: str) -> Callable[[type[MessageType]], type[MessageType]]:
    """Declare the request of an API."""
    return _declared(Role.REQUEST, api_key, versions, flexible)


def response(*, api_key: int, versions: str, flexible: str) -> Callable[[type[MessageType]], type[MessageType]]:
    """Declare the response of an API."""
    return _declared(Role.RESPONSE, api_key, versions, flexible)


def header(*, versions: str, flexible: str) -> Callable[[type[MessageType]], type[MessageType]]:
    """Declare a request or response header."""
    return _declared(Role.HEADER, None, versions, flexible)


def record(*, record_type: int, versions: str, flexible: str) -> Callable[[type[MessageType]], type[MessageType]]:
    """Declare a record of the metadata log."""
    return _declared(Role.RECORD, record_type, versions, flexible)


def record_key(*, record_type: int, versions: str, flexible: str) -> Callable[[type[MessageType]], type[MessageType]]:
    """Declare the key of a record in a coordinator's topic."""
    return _declared(Role.COORDINATOR_KEY, record_type, versions, flexible)


def record_value(*, record_type: int, versions: str, flexible: str) -> Callable[[type[MessageType]], type[MessageType]]:
    """Declare the value of a record in a coordinator's topic."""
    return _declared(Role.COORDINATOR_VALUE, record_type, versions, flexible)


def data(*, versions: str, flexible: str) -> Callable[[type[MessageType]], type[MessageType]]:
    """Declare any other structure: control records, the quorum-state file."""
    return _declared(Role.DATA, None, versions, flexible)


def schema_of(cls: type[Message]) -> Schema:
    """The facts of a top-level message; raises `TypeError` for a nested structure, which has none."""
    schema: Schema | None = getattr(cls, "__schema__", None)
    if schema is None:
        raise TypeError(f"{cls.__name__} is a nested structure; it has no versions of its own")
    return schema


class ArrayOf(Struct, frozen=True):
    """An array: a list in messages, a tuple in records (`as_tuple`)."""

    element: FieldType
    as_tuple: bool


FieldType = Union[Kind, type[Message], ArrayOf]  # noqa: UP007 - evaluated at run time with forward references


class Field(Struct, frozen=True):
    """The declaration of one field, in all versions."""

    name: str
    json_name: str
    type: FieldType
    versions: Versions
    nullable: Versions
    tag: int | None
    ignorable: bool
    never_compact: bool
    default: object

    def is_default(self, value: object) -> bool:
        """Whether `value` may be omitted. The default of an array is empty or null."""
        if isinstance(self.default, list | tuple):
            return isinstance(value, list | tuple) and not value
        return value == self.default


@cache
def layout_of(cls: type[Message]) -> tuple[Field, ...]:
    """The fields of a declaration in wire order; raises `TypeError` for an invalid declaration."""
    hints = _hints_of(cls)
    blank = cls()
    names = [name for name in cls.__struct_fields__ if name != "unknown_tagged"]
    return tuple(_read_field(f"{cls.__name__}.{name}", name, hints[name], getattr(blank, name)) for name in names)


def _hints_of(cls: type[Message]) -> dict[str, Any]:
    """The annotations of a declaration, evaluated all at once; Python's own function takes them one by one."""
    texts = cls.__annotations__
    module = sys.modules.get(cls.__module__)
    if module is not None and cls.__base__ is Message and all(type(text) is str for text in texts.values()):
        try:
            return dict(zip(texts, evaluated(texts.values(), vars(module)), strict=True))
        except NameError:
            pass  # a declaration inside a function
    return typing.get_type_hints(cls, include_extras=True)


def _read_field(place: str, name: str, hint: object, default: object) -> Field:
    field_type, may_be_null, markers = _read_hint(place, hint)
    lowest, highest, nullable_from = 0, OPEN_END, 0
    tag: int | None = None
    json_name = camel_case(name)
    for marker in markers:
        match marker:
            case Since(version):
                lowest = version
            case Until(version):
                highest = version
            case NullableSince(version):
                nullable_from = version
            case Tagged(number):
                tag = number
            case Named(text):
                json_name = text
            case Flag():
                pass
            case _:
                raise TypeError(f"{place}: {marker!r} is not a marker of this vocabulary")
    versions = Versions(lowest, highest)
    return Field(
        name=name,
        json_name=json_name,
        type=field_type,
        versions=versions,
        nullable=versions.intersect(Versions(nullable_from, OPEN_END)) if may_be_null else NO_VERSIONS,
        tag=tag,
        ignorable=Flag.IGNORABLE in markers,
        never_compact=Flag.NEVER_COMPACT in markers,
        default=default,
    )


def _read_hint(place: str, hint: object) -> tuple[FieldType, bool, list[object]]:
    """Parse an annotation: the wire type, whether None is allowed, the markers."""
    markers: list[object] = []
    may_be_null = False
    while True:
        origin = typing.get_origin(hint)
        if origin is Annotated:
            markers += typing.get_args(hint)[1:]
            hint = typing.get_args(hint)[0]
        elif origin in {Union, types.UnionType}:
            may_be_null = True
            [hint] = [each for each in typing.get_args(hint) if each is not type(None)]
        else:
            break
    kinds = [marker for marker in markers if isinstance(marker, Kind)]
    if kinds:
        return kinds[0], may_be_null, [marker for marker in markers if not isinstance(marker, Kind)]
    if origin in {list, tuple}:
        element, _, _ = _read_hint(place, typing.get_args(hint)[0])
        return ArrayOf(element, as_tuple=origin is tuple), may_be_null, markers
    if hint is Uuid:
        return Kind.UUID, may_be_null, markers
    if isinstance(hint, type) and issubclass(hint, Message):
        return hint, may_be_null, markers
    raise TypeError(f"{place}: {hint!r} is not a type of this vocabulary")


def camel_case(name: str) -> str:
    """Lower camel case of an attribute's name: `leader_id` is `leaderId`."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


class Shape(Struct, frozen=True):
    """One (class, version) for codecs: the encoded fields in wire order, and the omitted ones."""

    in_order: tuple[Field, ...]
    plain: tuple[Field, ...]
    tagged: tuple[Field, ...]
    absent: tuple[Field, ...]


@cache
def fields_at(cls: type[Message], version: int) -> Shape:
    """The fields of `cls` by their encoding in `version`; tagged ones in order of their tags."""
    layout = layout_of(cls)
    present = tuple(field for field in layout if version in field.versions)
    return Shape(
        in_order=present,
        plain=tuple(field for field in present if field.tag is None),
        tagged=tuple(sorted((field for field in present if field.tag is not None), key=_tag_of)),
        absent=tuple(field for field in layout if version not in field.versions),
    )


def _tag_of(field: Field) -> int:
    assert field.tag is not None, field
    return field.tag
