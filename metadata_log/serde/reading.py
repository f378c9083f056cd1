"""Compiles the function that decodes a message in one version (Kafka: `MessageDataGenerator.generateClassReader`).

This module does not explain failures: see `compiler`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache, partial
from itertools import chain
from typing import Final

from metadata_log.serde.fields import ArrayOf, Field, FieldType, Kind, Message, fields_at
from metadata_log.serde.primitives import FORMATS, MAX_ELEMENTS, MAX_STRING_BYTES, MAX_TAGGED_FIELDS
from metadata_log.serde.source import Source
from metadata_log.types import Uuid

_SMALL_ARRAY: Final = 33
_FEW_ROWS: Final = 3


class Malformed(Exception):
    """The bytes are malformed; `primitives` explains the error."""


class OverBudget(Exception):
    """The bytes announce more values than the caller allows."""


known_uuid: Final[Callable[[bytes], Uuid]] = lru_cache(maxsize=4096)(partial(bytes.__new__, Uuid))
"""A cache: the ids of topics, directories and incarnations repeat, and one object each takes half the time."""


def long_varint(data: bytes, position: int) -> tuple[int, int]:
    """An unsigned varint of 32 bits and the position after it."""
    value = 0
    for index in range(5):
        byte = data[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & 0xFFFFFFFF, position + index + 1
    raise Malformed


def long_length(data: bytes, position: int) -> tuple[int, int]:
    """A compact length plus one, and the position after it: values above 2^31 are null, as Java's int wraps."""
    value, position = long_varint(data, position)
    return (value if value <= 0x80000000 else 0), position


def long_count(data: bytes, position: int) -> tuple[int, int]:
    """A number of tagged fields, and the position after it."""
    value, position = long_varint(data, position)
    if value > MAX_TAGGED_FIELDS:
        raise Malformed
    return value, position


def long_tag(data: bytes, position: int) -> tuple[int, int, int]:
    """Tag and size of a tagged field, and the position after them."""
    tag, position = long_varint(data, position)
    size, position = long_varint(data, position)
    return tag, size, position


_NAMES: Final = {
    "Malformed": Malformed,
    "uuid": known_uuid,
    "long_varint": long_varint,
    "long_length": long_length,
    "long_count": long_count,
    "long_tag": long_tag,
    "unpack_from": struct.unpack_from,
    "chain": chain.from_iterable,
}


class ReaderMaker:
    """Writes the read function. A run of fixed-width values is collected in `run` until a value is needed.

    The methods from `leaf` to `call` define the results; `json_from_bytes` overrides them.
    """

    null = "None"

    def __init__(self, version: int, flexible: bool) -> None:
        self.source = Source(_NAMES)
        self.version = version
        self.flexible = flexible
        self.run: list[tuple[str, str]] = []
        self.uuids: list[str] = []

    def leaf(self, kind: Kind, taken: str) -> str:
        """The value of a string or bytes field, from the expression for its bytes."""
        return f"{taken}.decode()" if kind is Kind.STRING else taken

    def empty(self, kind: FieldType) -> str:
        """The value of a string, bytes or array without contents."""
        match kind:
            case Kind.STRING:
                return "''"
            case ArrayOf(as_tuple=as_tuple):
                return "()" if as_tuple else "[]"
            case _:
                return "b''"

    def elements(self, array: ArrayOf, value: str) -> None:
        """Make an array of the list `value`."""
        if array.as_tuple:
            self.source.emit(f"{value} = tuple({value})")

    def packed(self, array: ArrayOf, kind: Kind, count: str, stop: str, value: str) -> None:
        """Read an array of `count` elements of a fixed width, which ends at `stop`."""
        emit, layout = self.source.emit, FORMATS[kind]
        small = self.source.shared(
            f"unpack_array_{kind.value}",
            tuple(struct.Struct(">" + layout * n).unpack_from for n in range(_SMALL_ARRAY)),
        )
        emit(f"if {count} < {_SMALL_ARRAY}: {value} = {small}[{count}](data, p)")
        if kind is Kind.UUID:
            # `struct` has no repeat count for these, and keeps what it compiles: one width serves every length.
            rows = self.source.shared(f"rows_{kind.value}", struct.Struct(">" + layout).iter_unpack)
            emit(f"else: {value} = chain({rows}(data[p:{stop}]))")
            emit(f"{value} = map(uuid, {value})")
        else:
            emit(f'else: {value} = unpack_from(f">{{{count}}}{layout}", data, p)')
        if kind is Kind.UUID or not array.as_tuple:
            emit(f"{value} = {'tuple' if array.as_tuple else 'list'}({value})")

    def charge_elements(self, element: FieldType, count: str) -> None:
        """Count the elements of an array before they are read; `count` is one more than their number."""

    def charge_numbers(self, kind: Kind, count: str) -> None:
        """Count `count` elements of a fixed width."""

    def charge_tags(self, count: str) -> None:
        """Count `count` tagged fields."""

    def pause(self, count: str) -> None:
        """Let the caller of a reader in steps continue with other work; `count` changes by one with each element."""

    def several(self, count: str) -> str:
        """The condition for reading rows at once; `count` is one more than their number."""
        return f"{count} > {_FEW_ROWS}"

    def untagged(self, field: Field) -> str:
        """The value of an absent tagged field."""
        return self.source.literal(field.default)

    def tagged(self, field: Field, value: str) -> str:
        """The value of a present tagged field."""
        return value

    def call(self, cls: type[Message], values: dict[str, str], extra: str = "") -> str:
        """Call the class with positional values; omitted values at the end take their defaults."""
        names = [name for name in cls.__struct_fields__ if name != "unknown_tagged"]
        while names and names[-1] not in values:
            names.pop()
        blank = cls()
        arguments = [values.get(name) or self.source.literal(getattr(blank, name)) for name in names]
        made = self.source.shared(f"class_{cls.__name__}", cls)
        return f"{made}({', '.join([*arguments, *([extra] if extra else [])])})"

    def fixed(self, layout: str, prefix: str = "v") -> str:
        """Add a fixed-width value to the run; returns the variable that will hold the value."""
        name = self.source.fresh(prefix)
        self.run.append((layout, name))
        return name

    def flush(self) -> None:
        """Emit the code that reads the run."""
        if not self.run:
            return
        layout = "".join(character for character, _ in self.run)
        targets = ", ".join(name for _, name in self.run)
        emit = self.source.emit
        if layout == "B":
            emit(f"{targets} = data[p]; p += 1")
        else:
            codec = struct.Struct(">" + layout)
            unpack = self.source.shared("unpack_" + layout.replace("?", "_"), codec.unpack_from)
            emit(f"{targets}{',' if len(self.run) == 1 else ''} = {unpack}(data, p); p += {codec.size}")
        for name in self.uuids:
            emit(f"{name} = uuid({name})")
        self.run.clear()
        self.uuids.clear()

    def compact_length(self, limit: int | None) -> str:
        """Read a compact length plus one; its first byte joins the run before it. Two bytes need no call."""
        name = self.fixed("B", "n")
        self.flush()
        emit = self.source.emit
        emit(f"if {name} > 127:")
        emit(f"    if data[p] < 128: {name} += (data[p] << 7) - 128; p += 1")
        emit(f"    else: {name}, p = long_length(data, p - 1)")
        if limit is not None:
            emit(f"    if {name} > {limit + 1}: raise Malformed")
        return name

    def structure(self, cls: type[Message]) -> str:
        """Emit the fields of `cls`; return the name of the variable that holds the instance."""
        at = fields_at(cls, self.version)
        values = {field.name: self.value(field) for field in at.plain}
        result = self.source.fresh("s")
        if not self.flexible:
            self.flush()
            self.construct(result, cls, values)
            return result
        emit = self.source.emit
        count = self.fixed("B", "t")
        self.flush()
        emit(f"if {count}:")
        self.source.depth += 1
        emit(f"if {count} > 127: {count}, p = long_count(data, p - 1)")
        tagged_values, unknown = self.tags(count, at.tagged, at.absent)
        emit(f"if {unknown}:")
        self.source.depth += 1
        self.construct(result, cls, values | tagged_values, f"unknown_tagged=tuple({unknown})")
        self.source.depth -= 1
        emit("else:")
        self.source.depth += 1
        self.construct(result, cls, values | tagged_values)
        self.source.depth -= 2
        emit("else:")
        self.source.depth += 1
        self.construct(result, cls, values)
        self.source.depth -= 1
        return result

    def construct(self, result: str, cls: type[Message], values: dict[str, str], extra: str = "") -> None:
        """Emit the construction of a structure."""
        self.source.emit(f"{result} = {self.call(cls, values, extra)}")

    def tags(self, count: str, known: tuple[Field, ...], absent: tuple[Field, ...]) -> tuple[dict[str, str], str]:
        """Emit the loop over tagged fields; returns the variables of the known ones and that of the unknown."""
        emit, source = self.source.emit, self.source
        values = {field.name: source.fresh("v") for field in known}
        unknown, tag, size, stop = (source.fresh(prefix) for prefix in ("u", "k", "z", "e"))
        for field in known:
            emit(f"{values[field.name]} = {self.untagged(field)}")
        emit(f"{unknown} = None")
        self.charge_tags(count)
        done = source.fresh("i")
        emit(f"for {done} in range(1, {count} + 1):")
        source.depth += 1
        self.pause(done)
        emit(f"{tag} = data[p]; {size} = data[p + 1]; p += 2")
        emit(f"if {tag} > 127 or {size} > 127: {tag}, {size}, p = long_tag(data, p - 2)")
        branch = "if"
        for field in known:
            emit(f"{branch} {tag} == {field.tag}:")
            source.depth += 1
            value = self.value(field)
            self.flush()
            emit(f"{values[field.name]} = {self.tagged(field, value)}")
            source.depth -= 1
            branch = "elif"
        for field in absent:
            if field.tag is not None:
                emit(f"{branch} {tag} == {field.tag}: raise Malformed")
                branch = "elif"
        if branch == "elif":
            emit("else:")
            source.depth += 1
        emit(f"{stop} = p + {size}")
        emit(f"if {stop} > end: raise Malformed")
        emit(f"if {unknown} is None: {unknown} = []")
        emit(f"{unknown}.append(({tag}, data[p:{stop}])); p = {stop}")
        source.depth -= 2 if branch == "elif" else 1
        return values, unknown

    def value(self, field: Field) -> str:
        """Read a field; returns the variable or expression of its value."""
        may_be_null = self.version in field.nullable
        if isinstance(field.type, type) and may_be_null:
            return self.nullable_structure(field.type, tagged=field.tag is not None)
        return self.typed(field.type, may_be_null, compact=self.flexible and not field.never_compact)

    def nullable_structure(self, cls: type[Message], *, tagged: bool) -> str:
        """Read a nullable structure after the byte that marks its presence: an int8, or a varint in a tagged field."""
        emit, source = self.source.emit, self.source
        present = self.fixed("b", "n")
        self.flush()
        result = source.fresh("v")
        if tagged:
            emit(f"if {present} < 0: raise Malformed")
        emit(f"if {present} {'<=' if tagged else '<'} 0: {result} = {self.null}")
        emit("else:")
        source.depth += 1
        emit(f"{result} = {self.structure(cls)}")
        source.depth -= 1
        return result

    def typed(self, kind: FieldType, may_be_null: bool, *, compact: bool) -> str:
        """Read a value of any type."""
        match kind:
            case Kind.STRING | Kind.BYTES | Kind.RECORDS:
                return self.blob(kind, may_be_null, compact)
            case Kind():
                name = self.fixed(FORMATS[kind])
                if kind is Kind.UUID:
                    self.uuids.append(name)
                return name
            case ArrayOf():
                return self.array(kind, may_be_null)
            case _:
                return self.structure(kind)

    def length(self, *, compact: bool, wide: bool) -> str:
        """A variable with the length plus one; zero or less means null, and larger lengths were refused."""
        if compact:
            return self.compact_length(None if wide else MAX_STRING_BYTES)
        name = self.fixed("i" if wide else "h", "n")
        self.flush()
        self.source.emit(f"{name} += 1")
        return name

    def blob(self, kind: Kind, may_be_null: bool, compact: bool) -> str:
        """Read a string or bytes."""
        emit, source = self.source.emit, self.source
        size = self.length(compact=compact, wide=kind is not Kind.STRING)
        value, stop = source.fresh("v"), source.fresh("e")
        emit(f"if {size} > 1:")
        emit(f"    {stop} = p + {size} - 1")
        emit(f"    if {stop} > end: raise Malformed")
        emit(f"    {value} = {self.leaf(kind, f'data[p:{stop}]')}; p = {stop}")
        emit(f"elif {size} == 1: {value} = {self.empty(kind)}")
        emit(f"else: {f'{value} = {self.null}' if may_be_null else 'raise Malformed'}")
        return value

    def array(self, array: ArrayOf, may_be_null: bool) -> str:
        """Read an array."""
        emit, source = self.source.emit, self.source
        # A compact count is compared only where it has several bytes.
        count = self.compact_length(MAX_ELEMENTS) if self.flexible else self.length(compact=False, wide=True)
        value = source.fresh("v")
        emit(f"if {count} > 1:")
        source.depth += 1
        if not self.flexible:
            emit(f"if {count} > {MAX_ELEMENTS + 1}: raise Malformed")
        match array.element:
            case Kind.STRING | Kind.BYTES | Kind.RECORDS | ArrayOf() | type():
                self.array_by_element(array, count, value)
            case kind:
                self.array_at_once(array, kind, count, value)
        source.depth -= 1
        emit(f"elif {count} == 1: {value} = {self.empty(array)}")
        emit(f"else: {f'{value} = {self.null}' if may_be_null else 'raise Malformed'}")
        return value

    def array_by_element(self, array: ArrayOf, count: str, value: str) -> None:
        """Emit the loop; `count` is one more than the number of elements. A count is cheaper than `range` for one."""
        emit, source = self.source.emit, self.source
        emit(f"if {count} > end - p + 1: raise Malformed")
        self.charge_elements(array.element, count)
        rows = self.rows(array.element, count, value) if isinstance(array.element, type) else False
        emit(f"{value} = []")
        emit(f"while {count} > 1:")
        source.depth += 1
        emit(f"{count} -= 1")
        self.pause(count)
        element = self.typed(array.element, may_be_null=False, compact=self.flexible)
        self.flush()
        emit(f"{value}.append({element})")
        source.depth -= 2 if rows else 1
        self.elements(array, value)

    def rows(self, cls: type[Message], count: str, value: str) -> bool:
        """Read structures of one width without tagged fields at once; opens the branch for all others."""
        plain = fields_at(cls, self.version).plain
        kinds = [field.type for field in plain if isinstance(field.type, Kind) and field.type in FORMATS]
        if len(kinds) < len(plain):
            return False
        emit, source = self.source.emit, self.source
        columns = [source.fresh("v") for _ in kinds]
        layout = ">" + "".join(FORMATS[kind] for kind in kinds) + ("x" if self.flexible else "")
        width = struct.calcsize(layout)
        rows = source.shared("rows_" + layout[1:].replace("?", "_"), struct.Struct(layout).iter_unpack)
        values = {
            field.name: f"uuid({column})" if field.type is Kind.UUID else column
            for field, column in zip(plain, columns, strict=True)
        }
        stop, made = source.fresh("e"), self.call(cls, values)
        emit(f"{stop} = p + ({count} - 1) * {width}")
        several = f"{self.several(count)} and {stop} <= end"
        untagged = f" and data[p + {width - 1}:{stop}:{width}].count(0) == {count} - 1" if self.flexible else ""
        emit(f"if {several}{untagged}:")
        emit(f"    {value} = [{made} for {', '.join(columns)}, in {rows}(data[p:{stop}])]; p = {stop}")
        emit("else:")
        source.depth += 1
        return True

    def array_at_once(self, array: ArrayOf, kind: Kind, count: str, value: str) -> None:
        """Read the elements of a fixed width; `count` is one more than their number."""
        width = struct.calcsize(">" + FORMATS[kind])
        emit = self.source.emit
        stop = self.source.fresh("e")
        emit(f"{count} -= 1")
        emit(f"{stop} = p + {count} * {width}" if width > 1 else f"{stop} = p + {count}")
        emit(f"if {stop} > end: raise Malformed")
        self.charge_numbers(kind, count)
        self.packed(array, kind, count, stop, value)
        emit(f"p = {stop}")
