"""Compiles the function that encodes a message in one version (Kafka: `MessageDataGenerator.generateClassWriter`).

This module does not explain failures: see `compiler`.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import Final

from metadata_log.errors import EncodeError
from metadata_log.serde.fields import ArrayOf, Field, Kind, Message, fields_at
from metadata_log.serde.primitives import FORMATS, MAX_STRING_BYTES, tagged_part, unsigned_varint
from metadata_log.serde.reading import Malformed
from metadata_log.serde.source import Source

_SMALL_ARRAY: Final = 33
_NULL_STRUCTURE: Final = b"\xff"
_NULL_TAGGED_STRUCTURE: Final = b"\x00"
_PRESENT_STRUCTURE: Final = b"\x01"
_ONE_BYTE: Final = tuple(bytes([value]) for value in range(128))


def text_varint(size: int) -> bytes:
    """The compact length of a string; raises above Kafka's limit."""
    if size > MAX_STRING_BYTES:
        raise Malformed
    return unsigned_varint(size + 1)


def checked_tags(message: Message, version: int) -> bytes:
    """The tagged part of a structure with unknown tagged fields, by the reference writer."""
    try:
        return tagged_part(message, version)
    except EncodeError as bad:
        raise Malformed from bad


_NAMES: Final = {
    "Malformed": Malformed,
    "text_varint": text_varint,
    "unsigned_varint": unsigned_varint,
    "one_byte": _ONE_BYTE,
    "join": b"".join,
    "pack": struct.pack,
}


class WriterMaker:
    """Writes the write function. Fixed-width values wait in `run` until a value of variable length follows."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.source = Source(_NAMES)
        self.version = version
        self.flexible = flexible
        self.run: list[tuple[str, str]] = []
        self.append = "a"

    def run_call(self, padding: str = "") -> str:
        """The expression that packs the run and `padding` zero bytes after it."""
        layout = "".join(character for character, _ in self.run) + padding
        pack = self.source.shared("pack_" + layout.replace("?", "_"), struct.Struct(">" + layout).pack)
        return f"{pack}({', '.join(value for _, value in self.run)})"

    def flush(self) -> None:
        """Emit the code that writes the run."""
        if self.run:
            self.source.emit(f"{self.append}({self.run_call()})")
            self.run.clear()

    def structure(self, cls: type[Message], value: str) -> None:
        """Write the fields of a structure, tagged ones included."""
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
        """The condition that the field does not have its default (`Field.is_default`)."""
        got = f"{value}.{field.name}"
        if isinstance(field.default, list | tuple):
            return f"{got} or {got} is None"
        if field.default is None:
            return f"{got} is not None"
        return f"{got} != {self.source.literal(field.default)}"

    def tags(self, cls: type[Message], value: str, known: tuple[Field, ...]) -> None:
        """The tagged part: usually a zero byte, or a few known fields. The reference writes unknown ones."""
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
        """Write one field, from the expression for its value."""
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
                null = None
                if may_be_null:
                    null = _NULL_STRUCTURE if field.tag is None else _NULL_TAGGED_STRUCTURE
                self.nested(cls, value, null)

    def nested(self, cls: type[Message], value: str, null: bytes | None) -> None:
        """Write a nested structure; `null` is the byte for an absent one, if it may be absent."""
        emit, source = self.source.emit, self.source
        name = source.fresh("s")
        self.flush()
        emit(f"{name} = {value}")
        if null is None:
            self.structure(cls, name)
            return
        emit(f"if {name} is None: {self.append}({null!r})")
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
        """Write a length, which joins the run before it unless the length is long."""
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
        """Write a string or bytes."""
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
        """The name of the function that packs one value."""
        return self.source.shared(f"pack_{layout.replace('?', '_')}", struct.Struct(">" + layout).pack)

    def array(self, array: ArrayOf, value: str, may_be_null: bool) -> None:
        """Write an array."""
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
        """Write the elements after the length, in a loop."""
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
        self.element_end()
        source.depth -= 1

    def element_end(self) -> None:
        """Emit the code after each array element that a loop writes: by default nothing."""

    def array_at_once(self, kind: Kind, items: str, size: str) -> None:
        """Write a fixed-width array; a short one is packed together with its length and the run before it."""
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


class SteppedWriterMaker(WriterMaker):
    """Makes a generator function: (message, first, following) -> steps that end with the pieces.

    The first step writes `first` array elements, each other step `following` elements, at any depth. When a step ends,
    the generator joins what the step has written into one piece.
    """

    def begin(self) -> None:
        """Emit the code before the first field. The unused `yield` makes each function a generator."""
        self.source.emit("w = []; a = w.append; pieces = []; left = first")
        self.source.emit("if first < 0: yield")

    def element_end(self) -> None:
        """Count the element, and pause after enough of them."""
        emit = self.source.emit
        emit("left -= 1")
        emit("if not left: left = following; pieces.append(join(w)); w.clear(); yield")

    def end(self) -> None:
        """Emit the code after the last field."""
        self.flush()
        self.source.emit("pieces.append(join(w))")
        self.source.emit("return pieces")
