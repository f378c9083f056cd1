"""Turns (declaration, version) into straight-line Python that reads or writes it (Kafka: the generated `*Data.java`).

Beauty is traded for speed here: runs of fixed-width fields and the length byte behind them become one `struct` call,
nested structures are inlined, tagged fields cost nothing when absent. Nothing here explains a failure: whatever goes
wrong, the caller asks `primitives`, which reads the same bytes again slowly and says where.
"""

from __future__ import annotations

import itertools
import linecache
import struct
from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import Any, Final

from metadata_log.errors import EncodeError
from metadata_log.serde.fields import ArrayOf, Field, FieldType, Kind, Message, MessageType, fields_at
from metadata_log.serde.primitives import FORMATS, MAX_STRING_BYTES, tagged_part, unsigned_varint
from metadata_log.types import Uuid


class Malformed(Exception):
    """Something is wrong; `primitives` knows what."""


READ_FAILURES: Final = (Malformed, struct.error, IndexError, UnicodeDecodeError)
WRITE_FAILURES: Final = (
    Malformed,
    struct.error,
    AttributeError,
    TypeError,
    UnicodeEncodeError,
    ValueError,
    OverflowError,
)

ReadFunction = Callable[[bytes, int], tuple[MessageType, int]]
WriteFunction = Callable[[MessageType, bytes], bytes]

_SMALL_ARRAY: Final = 33
_FEW_ROWS: Final = 3
_NULL_STRUCTURE: Final = b"\xff"
_PRESENT_STRUCTURE: Final = b"\x01"
_ONE_BYTE: Final = tuple(bytes([value]) for value in range(128))


known_uuid: Final[Callable[[bytes], Uuid]] = lru_cache(maxsize=4096)(partial(bytes.__new__, Uuid))
"""The ids of topics, directories and incarnations come again and again: each is one object, in half the time."""


def long_varint(data: bytes, position: int) -> tuple[int, int]:
    """An unsigned varint of 32 bits and the position behind it."""
    value = 0
    for index in range(5):
        byte = data[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & 0xFFFFFFFF, position + index + 1
    raise Malformed


def long_length(data: bytes, position: int) -> tuple[int, int]:
    """The same for a compact length plus one: values above 2^31 are null, as Java's int wraps."""
    value, position = long_varint(data, position)
    return (value if value <= 0x80000000 else 0), position


def long_count(data: bytes, position: int) -> tuple[int, int]:
    """The same for a number of tagged fields: values from 2^31 on are negative in Java, so its loop does not run."""
    value, position = long_varint(data, position)
    return (value if value < 0x80000000 else 0), position


def long_tag(data: bytes, position: int) -> tuple[int, int, int]:
    """Tag and size of a tagged field, and the position behind them."""
    tag, position = long_varint(data, position)
    size, position = long_varint(data, position)
    return tag, size, position


def text_varint(size: int) -> bytes:
    """The compact length of a string; refuses one beyond Kafka's limit."""
    if size > MAX_STRING_BYTES:
        raise Malformed
    return unsigned_varint(size + 1)


def checked_tags(message: Message, version: int) -> bytes:
    """The tagged part of a structure that has unknown tagged fields, by the reference writer."""
    try:
        return tagged_part(message, version)
    except EncodeError as bad:
        raise Malformed from bad


class _Source:
    """Lines of Python under construction, and the constants they name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[str, object] = {
            "Malformed": Malformed,
            "long_varint": long_varint,
            "long_length": long_length,
            "long_count": long_count,
            "long_tag": long_tag,
            "text_varint": text_varint,
            "unsigned_varint": unsigned_varint,
            "one_byte": _ONE_BYTE,
            "uuid": known_uuid,
            "join": b"".join,
            "unpack_from": struct.unpack_from,
            "pack": struct.pack,
        }
        self._counter = itertools.count()

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def fresh(self, prefix: str) -> str:
        return f"{prefix}{next(self._counter)}"

    def constant(self, prefix: str, value: object) -> str:
        """A name for `value`; equal structs share it by their prefix."""
        name = self.fresh(prefix + "_")
        self.names[name] = value
        return name

    def shared(self, name: str, value: object) -> str:
        self.names[name] = value
        return name

    def literal(self, value: object) -> str:
        """An expression for a default value."""
        match value:
            case Uuid():
                return self.shared("zero_uuid", value)
            case None | bool() | int() | float() | str() | b"" | () | []:
                return repr(value)
            case _:
                return self.constant("default", value)

    def compile(self, signature: str, title: str) -> Callable[..., Any]:
        return compile_function(signature, self.lines, self.names, title)


def compile_function(signature: str, lines: list[str], names: dict[str, object], title: str) -> Callable[..., Any]:
    """A function of these lines, which see `names`; tracebacks show them under the title."""
    text = "\n".join([f"def {signature}:", *lines, ""])
    filename = f"<codec: {title}>"
    exec(compile(text, filename, "exec"), names)
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    function = names[signature.partition("(")[0]]
    assert callable(function), signature
    return function


@cache
def reader(cls: type[MessageType], version: int, flexible: bool) -> ReadFunction[MessageType]:
    """The read function: (data, position) -> (message, next position); raises one of `READ_FAILURES`."""
    made = _ReaderMaker(version, flexible)
    made.source.emit("end = len(data)")
    value = made.structure(cls)
    made.flush()
    made.source.emit(f"return {value}, p")
    return made.source.compile("read(data, p)", f"read {cls.__name__} version {version}")


class _ReaderMaker:
    """Writes the read function. A run of fixed-width values is collected in `run` until something needs one of them."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.source = _Source()
        self.version = version
        self.flexible = flexible
        self.run: list[tuple[str, str]] = []
        self.uuids: list[str] = []

    def fixed(self, layout: str, prefix: str = "v") -> str:
        name = self.source.fresh(prefix)
        self.run.append((layout, name))
        return name

    def flush(self) -> None:
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
        """Read a compact length plus one; its first byte joins the run in front of it. Two bytes take no call."""
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
        self.source.emit(f"{result} = {self.call(cls, values, extra)}")

    def call(self, cls: type[Message], values: dict[str, str], extra: str = "") -> str:
        """Call the class by position as far as values go; what is left at the end takes its default."""
        names = [name for name in cls.__struct_fields__ if name != "unknown_tagged"]
        while names and names[-1] not in values:
            names.pop()
        blank = cls()
        arguments = [values.get(name) or self.source.literal(getattr(blank, name)) for name in names]
        made = self.source.shared(f"class_{cls.__name__}", cls)
        return f"{made}({', '.join([*arguments, *([extra] if extra else [])])})"

    def tags(self, count: str, known: tuple[Field, ...], absent: tuple[Field, ...]) -> tuple[dict[str, str], str]:
        """Emit the loop over tagged fields; returns the variables of the known ones and that of the unknown."""
        emit, source = self.source.emit, self.source
        values = {field.name: source.fresh("v") for field in known}
        unknown, tag, size, stop = (source.fresh(prefix) for prefix in ("u", "k", "z", "e"))
        for field in known:
            emit(f"{values[field.name]} = {source.literal(field.default)}")
        emit(f"{unknown} = None")
        emit(f"for _ in range({count}):")
        source.depth += 1
        emit(f"{tag} = data[p]; {size} = data[p + 1]; p += 2")
        emit(f"if {tag} > 127 or {size} > 127: {tag}, {size}, p = long_tag(data, p - 2)")
        branch = "if"
        for field in known:
            emit(f"{branch} {tag} == {field.tag}:")
            source.depth += 1
            value = self.value(field)
            self.flush()
            emit(f"{values[field.name]} = {value}")
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
        may_be_null = self.version in field.nullable
        if isinstance(field.type, type) and may_be_null and field.tag is None:
            return self.nullable_structure(field.type)
        return self.typed(field.type, may_be_null, compact=self.flexible and not field.never_compact)

    def nullable_structure(self, cls: type[Message]) -> str:
        emit, source = self.source.emit, self.source
        present = self.fixed("b", "n")
        self.flush()
        result = source.fresh("v")
        emit(f"if {present} < 0: {result} = None")
        emit("else:")
        source.depth += 1
        emit(f"{result} = {self.structure(cls)}")
        source.depth -= 1
        return result

    def typed(self, kind: FieldType, may_be_null: bool, *, compact: bool) -> str:
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
        """A variable with the length plus one; not above zero means null, and one beyond the limit was refused."""
        if compact:
            return self.compact_length(None if wide else MAX_STRING_BYTES)
        name = self.fixed("i" if wide else "h", "n")
        self.flush()
        self.source.emit(f"{name} += 1")
        return name

    def blob(self, kind: Kind, may_be_null: bool, compact: bool) -> str:
        emit, source = self.source.emit, self.source
        size = self.length(compact=compact, wide=kind is not Kind.STRING)
        value, stop = source.fresh("v"), source.fresh("e")
        text = kind is Kind.STRING
        emit(f"if {size} > 1:")
        emit(f"    {stop} = p + {size} - 1")
        emit(f"    if {stop} > end: raise Malformed")
        emit(f"    {value} = data[p:{stop}]{'.decode()' if text else ''}; p = {stop}")
        emit(f"elif {size} == 1: {value} = {'' if text else b''!r}")
        emit(f"else: {f'{value} = None' if may_be_null else 'raise Malformed'}")
        return value

    def array(self, array: ArrayOf, may_be_null: bool) -> str:
        emit, source = self.source.emit, self.source
        count = self.length(compact=self.flexible, wide=True)
        value = source.fresh("v")
        emit(f"if {count} > 1:")
        source.depth += 1
        match array.element:
            case Kind.STRING | Kind.BYTES | Kind.RECORDS | ArrayOf() | type():
                self.array_by_element(array, count, value)
            case kind:
                self.array_at_once(kind, array.as_tuple, count, value)
        source.depth -= 1
        emit(f"elif {count} == 1: {value} = {'()' if array.as_tuple else '[]'}")
        emit(f"else: {f'{value} = None' if may_be_null else 'raise Malformed'}")
        return value

    def array_by_element(self, array: ArrayOf, count: str, value: str) -> None:
        """Emit the loop; `count` is one more than there are. For one element, counting costs less than `range`."""
        emit, source = self.source.emit, self.source
        emit(f"if {count} > end - p + 1: raise Malformed")
        rows = self.rows(array.element, count, value) if isinstance(array.element, type) else False
        emit(f"{value} = []")
        emit(f"while {count} > 1:")
        source.depth += 1
        emit(f"{count} -= 1")
        element = self.typed(array.element, may_be_null=False, compact=self.flexible)
        self.flush()
        emit(f"{value}.append({element})")
        source.depth -= 2 if rows else 1
        if array.as_tuple:
            emit(f"{value} = tuple({value})")

    def rows(self, cls: type[Message], count: str, value: str) -> bool:
        """Read structures of one width, none with tagged fields, at once; opens the branch for the others."""
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
        several = f"{count} > {_FEW_ROWS} and {stop} <= end"
        untagged = f" and data[p + {width - 1}:{stop}:{width}].count(0) == {count} - 1" if self.flexible else ""
        emit(f"if {several}{untagged}:")
        emit(f"    {value} = [{made} for {', '.join(columns)}, in {rows}(data[p:{stop}])]; p = {stop}")
        emit("else:")
        source.depth += 1
        return True

    def array_at_once(self, kind: Kind, as_tuple: bool, count: str, value: str) -> None:
        layout = FORMATS[kind]
        width = struct.calcsize(">" + layout)
        emit = self.source.emit
        stop = self.source.fresh("e")
        emit(f"{count} -= 1")
        small = self.source.shared(
            f"unpack_array_{kind.value}",
            tuple(struct.Struct(">" + layout * n).unpack_from for n in range(_SMALL_ARRAY)),
        )
        emit(f"{stop} = p + {count} * {width}" if width > 1 else f"{stop} = p + {count}")
        emit(f"if {stop} > end: raise Malformed")
        emit(f"if {count} < {_SMALL_ARRAY}: {value} = {small}[{count}](data, p)")
        emit(f'else: {value} = unpack_from(">" + "{layout}" * {count}, data, p)')
        if kind is Kind.UUID:
            emit(f"{value} = map(uuid, {value})")
        if kind is Kind.UUID or not as_tuple:
            emit(f"{value} = {'tuple' if as_tuple else 'list'}({value})")
        emit(f"p = {stop}")


@cache
def writer(cls: type[MessageType], version: int, flexible: bool) -> WriteFunction[MessageType]:
    """The write function: (message, head) -> head and the encoded message; raises one of `WRITE_FAILURES`."""
    made = _WriterMaker(version, flexible)
    made.source.emit("w = [head]; a = w.append")
    made.structure(cls, "m")
    made.flush()
    made.source.emit("return join(w)")
    return made.source.compile("write(m, head)", f"write {cls.__name__} version {version}")


class _WriterMaker:
    """Writes the write function. Fixed-width values wait in `run` until something of variable length follows."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.source = _Source()
        self.version = version
        self.flexible = flexible
        self.run: list[tuple[str, str]] = []
        self.append = "a"

    def run_call(self, padding: str = "") -> str:
        """The expression that packs the run, and `padding` zero bytes behind it."""
        layout = "".join(character for character, _ in self.run) + padding
        pack = self.source.shared("pack_" + layout.replace("?", "_"), struct.Struct(">" + layout).pack)
        return f"{pack}({', '.join(value for _, value in self.run)})"

    def flush(self) -> None:
        if self.run:
            self.source.emit(f"{self.append}({self.run_call()})")
            self.run.clear()

    def structure(self, cls: type[Message], value: str) -> None:
        at = fields_at(cls, self.version)
        for field in at.absent:
            if not field.ignorable:
                self.source.emit(f"if {self.differs(field, value)}: raise Malformed")
        for field in at.plain:
            self.field(field, f"{value}.{field.name}")
        if not self.flexible:
            self.source.emit(f"if {value}.unknown_tagged: raise Malformed")
        else:
            self.tags(cls, value, at.tagged)

    def differs(self, field: Field, value: str) -> str:
        """A condition: the field does not have its default (`Field.is_default`)."""
        got = f"{value}.{field.name}"
        if isinstance(field.default, list | tuple):
            return f"{got} or {got} is None"
        if field.default is None:
            return f"{got} is not None"
        return f"{got} != {self.source.literal(field.default)}"

    def tags(self, cls: type[Message], value: str, known: tuple[Field, ...]) -> None:
        """The tagged part: nearly always a zero byte, or a few known fields. Unknown ones are left to the reference."""
        emit, source = self.source.emit, self.source
        slow = source.shared(f"tags_of_{cls.__name__}", partial(checked_tags, version=self.version))
        emit(f"if {value}.unknown_tagged:")
        if self.run:
            emit(f"    {self.append}({self.run_call()})")
        emit(f"    {self.append}({slow}({value}))")
        if not known:
            emit(f"else: {self.append}({self.run_call('x') if self.run else repr(bytes(1))})")
            self.run.clear()
            return
        emit("else:")
        source.depth += 1
        self.flush()
        count, body = source.fresh("k"), source.fresh("w")
        emit(f"{count} = 0; {body} = b''")
        for field in known:
            emit(f"if {self.differs(field, value)}:")
            source.depth += 1
            emit(f"{count} += 1")
            self.tag(field, f"{value}.{field.name}", body)
            source.depth -= 1
        emit(f"{self.append}(one_byte[{count}] + {body})")
        source.depth -= 1

    def tag(self, field: Field, value: str, body: str) -> None:
        """Add one tagged field to the bytes in `body`."""
        emit, source = self.source.emit, self.source
        assert field.tag is not None, field
        start = unsigned_varint(field.tag)
        if isinstance(field.type, Kind) and field.type in FORMATS:
            layout = FORMATS[field.type]
            start += unsigned_varint(struct.calcsize(">" + layout))
            emit(f"{body} += {start!r} + {self.pack_one(layout)}({value})")
            return
        outer, parts, text, size = self.append, source.fresh("w"), source.fresh("b"), source.fresh("n")
        emit(f"{parts} = []")
        self.append = f"{parts}.append"
        self.field(field, value)
        self.flush()
        self.append = outer
        emit(f"{text} = join({parts})")
        emit(f"{size} = len({text})")
        emit(f"{body} += {start!r} + (one_byte[{size}] if {size} < 128 else unsigned_varint({size})) + {text}")

    def field(self, field: Field, value: str) -> None:
        may_be_null = self.version in field.nullable
        compact = self.flexible and not field.never_compact
        match field.type:
            case Kind.STRING | Kind.BYTES | Kind.RECORDS:
                self.blob(field.type, value, may_be_null, compact)
            case Kind():
                self.run.append((FORMATS[field.type], value))
            case ArrayOf():
                self.array(field.type, value, may_be_null)
            case cls:
                self.nested(cls, value, may_be_null and field.tag is None)

    def nested(self, cls: type[Message], value: str, may_be_null: bool) -> None:
        emit, source = self.source.emit, self.source
        name = source.fresh("s")
        self.flush()
        emit(f"{name} = {value}")
        if not may_be_null:
            self.structure(cls, name)
            return
        emit(f"if {name} is None: {self.append}({_NULL_STRUCTURE!r})")
        emit("else:")
        source.depth += 1
        emit(f"{self.append}({_PRESENT_STRUCTURE!r})")
        self.structure(cls, name)
        self.flush()
        source.depth -= 1

    def null(self, value: str, *, compact: bool, wide: bool) -> None:
        """Emit the branch for null and open the other one."""
        self.flush()
        length = bytes(1) if compact else b"\xff" * (4 if wide else 2)
        self.source.emit(f"if {value} is None: {self.append}({length!r})")
        self.source.emit("else:")
        self.source.depth += 1

    def length(self, size: str, *, compact: bool, wide: bool) -> None:
        """The length in front of something; it joins the run before it unless it is long."""
        emit = self.source.emit
        if not compact:
            self.run.append(("i" if wide else "h", size))
            self.flush()
            return
        long = f"unsigned_varint({size} + 1)" if wide else f"text_varint({size})"
        if not self.run:
            emit(f"{self.append}(one_byte[{size} + 1] if {size} < 127 else {long})")
            return
        run = self.run_call()
        self.run.append(("B", f"{size} + 1"))
        emit(f"if {size} < 127: {self.append}({self.run_call()})")
        emit(f"else: {self.append}({run} + {long})")
        self.run.clear()

    def blob(self, kind: Kind, value: str, may_be_null: bool, compact: bool) -> None:
        source = self.source
        wide = kind is not Kind.STRING
        text, size = source.fresh("b"), source.fresh("n")
        source.emit(f"{text} = {value}")
        if may_be_null:
            self.null(text, compact=compact, wide=wide)
        if kind is Kind.STRING:
            source.emit(f"{text} = {text}.encode()")
        source.emit(f"{size} = len({text})")
        self.length(size, compact=compact, wide=wide)
        source.emit(f"{self.append}({text})")
        if may_be_null:
            source.depth -= 1

    def pack_one(self, layout: str) -> str:
        return self.source.shared(f"pack_{layout.replace('?', '_')}", struct.Struct(">" + layout).pack)

    def array(self, array: ArrayOf, value: str, may_be_null: bool) -> None:
        source = self.source
        items, size = source.fresh("v"), source.fresh("n")
        source.emit(f"{items} = {value}")
        if may_be_null:
            self.null(items, compact=self.flexible, wide=True)
        source.emit(f"{size} = len({items})")
        match array.element:
            case Kind.STRING | Kind.BYTES | Kind.RECORDS | Kind.UUID | ArrayOf() | type():
                self.length(size, compact=self.flexible, wide=True)
                self.array_by_element(array, items)
            case kind:
                self.array_at_once(kind, items, size)
        if may_be_null:
            source.depth -= 1

    def array_by_element(self, array: ArrayOf, items: str) -> None:
        source = self.source
        each = source.fresh("i")
        source.emit(f"for {each} in {items}:")
        source.depth += 1
        match array.element:
            case Kind.STRING | Kind.BYTES | Kind.RECORDS:
                self.blob(array.element, each, may_be_null=False, compact=self.flexible)
            case Kind():
                source.emit(f"{self.append}({self.pack_one(FORMATS[array.element])}({each}))")
            case ArrayOf():
                self.array(array.element, each, may_be_null=False)
            case cls:
                self.structure(cls, each)
                self.flush()
        source.depth -= 1

    def array_at_once(self, kind: Kind, items: str, size: str) -> None:
        """A short array is packed together with its length and the run before it."""
        source, layout = self.source, FORMATS[kind]
        run = "".join(character for character, _ in self.run)
        values = [value for _, value in self.run]
        prefix, length = ("B", f"{size} + 1") if self.flexible else ("i", size)
        small = source.shared(
            f"pack_{run.replace('?', '_')}_array_{kind.value}",
            tuple(struct.Struct(f">{run}{prefix}{n}{layout}").pack for n in range(_SMALL_ARRAY)),
        )
        arguments = ", ".join([*values, length, f"*{items}"])
        source.emit(f"if {size} < {_SMALL_ARRAY}: {self.append}({small}[{size}]({arguments}))")
        source.emit("else:")
        source.depth += 1
        self.length(size, compact=self.flexible, wide=True)
        source.emit(f'{self.append}(pack(f">{{{size}}}{layout}", *{items}))')
        source.depth -= 1
