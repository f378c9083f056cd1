"""Messages that differ from the one before in a few numbers only, such as a follower's Fetch requests.

Beauty is traded for speed here. A *shape* is all bytes of a message but the fixed-width numbers that have been seen to
change. Bytes of a known shape are read with one `struct` call and one constructor call per structure: a Fetch in a
fifth of the time of `compiler`. A `Template` writes a message again with other numbers, in a tenth of the time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, Generic

from msgspec import Struct

from metadata_log.errors import DecodeError, EncodeError
from metadata_log.serde.compiler import WRITE_FAILURES, ReadFunction, WriteFunction
from metadata_log.serde.fields import Kind, Message, MessageType, layout_of, schema_of
from metadata_log.serde.primitives import FORMATS, Reader, Writer, read_struct, write_struct
from metadata_log.serde.source import compile_function
from metadata_log.types import Uuid

MAX_SHAPE_BYTES: Final = 1024
"""Longer messages carry records, and are never alike."""
FIRST_PATIENCE: Final = 8
"""The first shape is made when this many messages had none, the next after twice as many, and so on: making one costs
as much as reading hundreds of messages, and a peer must not keep us at it."""


class Span(Struct, frozen=True):
    """Where a fixed-width value stands, and what it is."""

    path: str
    kind: Kind
    start: int
    end: int


class _Surveyor(Reader):
    """Notes where the values of fixed width stand while it reads; lengths and counts are not among them."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.spans: list[Span] = []

    def fixed(self, kind: Kind) -> Any:
        start = self.position
        value = super().fixed(kind)
        self.spans.append(Span(self.path, kind, start, self.position))
        return value

    def is_null_structure(self) -> bool:
        found = super().is_null_structure()
        self.spans.pop()
        return found

    def length(self, *, compact: bool, wide: bool) -> int:
        found = len(self.spans)
        size = super().length(compact=compact, wide=wide)
        del self.spans[found:]
        return size


def survey(cls: type[MessageType], version: int, data: bytes) -> tuple[MessageType, list[Span]]:
    """A message and where its fixed-width values stand; raises `DecodeError` for anything but exactly one message."""
    reader = _Surveyor(data)
    message = read_struct(reader, cls, version, flexible=version in schema_of(cls).flexible)
    if reader.remaining:
        reader.fail("trailing bytes")
    return message, reader.spans


class _Learner(Generic[MessageType]):
    """Finds shapes in the bytes of messages that had none: what differs between two of a size may differ again."""

    def __init__(self, cls: type[MessageType], version: int) -> None:
        self._cls = cls
        self._version = version
        self._example = b""
        self._holes: frozenset[str] = frozenset()
        self._misses = 0
        self._patience = FIRST_PATIENCE

    def is_due(self) -> bool:
        """Count a message without a shape; whether it is to become the next example."""
        self._misses += 1
        if self._misses < self._patience:
            return False
        self._misses = 0
        self._patience *= 2
        return True

    def learn(self, data: bytes) -> tuple[MessageType, list[Span]] | None:
        """Take an example; a message of its own and the holes in it, unless there is nothing to compare it with."""
        if len(data) > MAX_SHAPE_BYTES:
            return None
        message, spans = survey(self._cls, self._version, data)
        paths = {span.path for span in spans}
        if len(paths) != len(spans):  # a tag that was sent twice
            return None
        known = len(data) == len(self._example) and self._holes <= paths
        if known:
            # 0.0 equals -0.0, which has other bytes: such numbers may always differ.
            self._holes |= {
                span.path
                for span in spans
                if span.kind is Kind.FLOAT64 or data[span.start : span.end] != self._example[span.start : span.end]
            }
        else:
            self._holes = frozenset()
        self._example = data
        return (message, [span for span in spans if span.path in self._holes]) if known else None


class ShapeReader(Generic[MessageType]):
    """Learns the shape of what a compiled reader reads.

    `replace` is called with a faster function whenever there is one; what has another shape it hands back to `read`.
    """

    def __init__(
        self,
        cls: type[MessageType],
        version: int,
        general: ReadFunction[MessageType],
        replace: Callable[[ReadFunction[MessageType]], None],
    ) -> None:
        self._learner = _Learner(cls, version)
        self._general = general
        self._replace = replace

    def read(self, data: bytes, position: int) -> tuple[MessageType, int]:
        """As the compiled reader reads, counting; a message in its turn becomes the example of the next shape."""
        message, end = self._general(data, position)
        if self._learner.is_due() and end == len(data):
            learned = self._learner.learn(data[position:end])
            if learned is not None:
                self._replace(matcher(learned[0], data[position:end], learned[1], self.read))
        return message, end


class ShapeWriter(Generic[MessageType]):
    """Learns the shape of what a compiled writer writes; `replace` as for `ShapeReader`."""

    def __init__(
        self,
        cls: type[MessageType],
        version: int,
        general: WriteFunction[MessageType],
        replace: Callable[[WriteFunction[MessageType]], None],
    ) -> None:
        self._learner = _Learner(cls, version)
        self._general = general
        self._replace = replace

    def write(self, message: MessageType, head: bytes) -> bytes:
        """As the compiled writer writes, counting; a message in its turn becomes the example of the next shape."""
        written = self._general(message, head)
        if self._learner.is_due():
            data = written[len(head) :]
            learned = self._learner.learn(data)
            if learned is not None:
                self._replace(rewriter(learned[0], data, learned[1], self.write))
        return written


def matcher(
    message: MessageType, data: bytes, holes: list[Span], otherwise: ReadFunction[MessageType]
) -> ReadFunction[MessageType]:
    """A read function for what has the bytes of `data` but for the holes; everything else is read by `otherwise`.

    Structures in which nothing may differ and nothing is mutable are shared: they are frozen.
    """
    layout, names, checks = ">", [], []
    scope: dict[str, object] = {"new": bytes.__new__, "Uuid": Uuid, "otherwise": otherwise}
    variables: dict[str, str] = {}
    at = 0
    for number, hole in enumerate([*sorted(holes, key=lambda span: span.start), None]):
        end = hole.start if hole else len(data)
        if end > at:
            layout += f"{end - at}s"
            names.append(f"c{number}")
            checks.append(f"c{number} == k{number}")
            scope[f"k{number}"] = data[at:end]
        if hole:
            layout += FORMATS[hole.kind]
            names.append(f"v{number}")
            variables[hole.path] = f"new(Uuid, v{number})" if hole.kind is Kind.UUID else f"v{number}"
            at = hole.end
    scope["unpack"] = struct.Struct(layout).unpack_from
    lines = [
        f"    if len(data) - position == {len(data)}:",
        f"        {', '.join(names)}, = unpack(data, position)",
        f"        if {' and '.join(checks) or 'True'}:",
        f"            return {_expression(message, '', variables, scope)}, position + {len(data)}",
        "    return otherwise(data, position)",
    ]
    title = f"shape of {type(message).__name__}, {len(data)} bytes"
    return compile_function("match(data, position)", lines, scope, title)


def _expression(value: object, path: str, variables: dict[str, str], scope: dict[str, object]) -> str:
    """Python that makes `value` anew, with the variables in their places."""
    if path in variables:
        return variables[path]
    match value:
        case Message():
            cls = type(value)
            parts = [
                _expression(getattr(value, field.name), f"{path}.{field.json_name}".lstrip("."), variables, scope)
                for field in layout_of(cls)
            ]
            if all(part.startswith("shared") for part in parts):
                return _shared(value, scope)
            scope[cls.__name__] = cls
            if value.unknown_tagged:
                parts.append(f"unknown_tagged={_shared(value.unknown_tagged, scope)}")
            return f"{cls.__name__}({', '.join(parts)})"
        case list():
            parts = [_expression(each, f"{path}[{index}]", variables, scope) for index, each in enumerate(value)]
            return f"[{', '.join(parts)}]"
        case tuple():
            parts = [_expression(each, f"{path}[{index}]", variables, scope) for index, each in enumerate(value)]
            if all(part.startswith("shared") for part in parts):
                return _shared(value, scope)
            return f"({', '.join(parts)},)"
        case _:
            return _shared(value, scope)


def _shared(value: object, scope: dict[str, object]) -> str:
    name = f"shared{len(scope)}"
    scope[name] = value
    return name


def rewriter(
    message: MessageType, data: bytes, holes: list[Span], otherwise: WriteFunction[MessageType]
) -> WriteFunction[MessageType]:
    """A write function for what equals `message` but for the holes; everything else is written by `otherwise`.

    `data` is the encoded message; nobody else may change it. All that is a FLOAT64 must be among the holes: numbers
    that are equal may differ in their bytes. What equals an example is written like it: 1.0 may pass for 1.
    """
    compared = _Compared({hole.path for hole in holes})
    if not compared.structure(message, "m", ""):
        return otherwise
    variables = [compared.variables[hole.path] for hole in holes]
    patch, scope = patcher(data, holes, variables)
    lines = [
        "    try:",
        *(f"        {line}" for line in compared.lines),
        f"        if ({''.join(f'{each}, ' for each in compared.expressions)}) == known{compared.guards}:",
        f"            return head + {patch}",
        "    except failures:",
        "        pass",
        "    return otherwise(m, head)",
    ]
    scope |= {"known": tuple(compared.constants), "otherwise": otherwise, "failures": WRITE_FAILURES}
    scope |= compared.defaults
    title = f"shape of {type(message).__name__}, {len(data)} bytes, written"
    return compile_function("write(m, head)", lines, scope, title)


class _Compared:
    """Collects what a message must have in common with an example: expressions, and what they are equal to."""

    def __init__(self, holes: set[str]) -> None:
        self.expressions: list[str] = []
        self.constants: list[object] = []
        self.lines: list[str] = []
        self.variables: dict[str, str] = {}
        self.guards = ""
        self.defaults: dict[str, object] = {}
        self._holes = holes

    def structure(self, message: Message, name: str, path: str) -> bool:
        """Compare `message` with what `name` will be; False for a hole within a tagged field, which may vanish."""
        for field in layout_of(type(message)):
            place = f"{path}.{field.json_name}".lstrip(".")
            value = getattr(message, field.name)
            if place in self._holes:
                self.variables[place] = self._assign(f"{name}.{field.name}")
                if field.tag is not None:
                    self.defaults[f"default_{self.variables[place]}"] = field.default
                    self.guards += f" and {self.variables[place]} != default_{self.variables[place]}"
            elif not any(hole.startswith((f"{place}.", f"{place}[")) for hole in self._holes):
                self.expressions.append(f"{name}.{field.name}")
                self.constants.append(value)
            elif field.tag is not None or not self._inside(value, f"{name}.{field.name}", place):
                return False
        self.expressions.append(f"{name}.unknown_tagged")
        self.constants.append(message.unknown_tagged)
        return True

    def _inside(self, value: object, expression: str, place: str) -> bool:
        """Compare a structure, or an array of structures, that has holes."""
        if isinstance(value, Message):
            return self.structure(value, self._assign(expression), place)
        if not isinstance(value, list | tuple) or not all(isinstance(each, Message) for each in value):
            return False
        names = [f"x{len(self.lines)}_{index}" for index in range(len(value))]
        self.lines.append(f"[{', '.join(names)}] = {expression}")
        parts = zip(value, names, strict=True)
        return all(self.structure(each, each_name, f"{place}[{i}]") for i, (each, each_name) in enumerate(parts))

    def _assign(self, expression: str) -> str:
        name = f"x{len(self.lines)}"
        self.lines.append(f"{name} = {expression}")
        return name


class Template:
    """One message in one version, to be written many times with other numbers in some of its fields.

    `fields` are paths in Kafka's JSON names, `topics[0].partitions[0].fetchOffset`; each must have a fixed width.
    Raises `EncodeError` if the message cannot be written or has no such field.
    """

    def __init__(self, message: Message, version: int, fields: tuple[str, ...]) -> None:
        cls = type(message)
        writer = Writer()
        write_struct(writer, message, version, flexible=version in schema_of(cls).flexible)
        data = b"".join(writer.parts)
        try:
            _, spans = survey(cls, version, data)
        except DecodeError as bad:
            raise EncodeError(f"{cls.__name__} version {version}: {bad.what}", field=bad.field) from None
        by_path = {span.path: span for span in spans}
        for path in fields:
            if path not in by_path:
                raise EncodeError(f"{cls.__name__} version {version} has no number there to replace", field=path)
        names = [f"v{number}" for number in range(len(fields))]
        patch, scope = patcher(data, [by_path[path] for path in fields], names)
        title = f"template of {len(data)} bytes"
        self.encode = compile_function(f"patch({', '.join(names)})", [f"    return {patch}"], scope, title)


def patcher(data: bytes, holes: list[Span], names: list[str]) -> tuple[str, dict[str, object]]:
    """An expression for `data` with the values of these names in the holes, and what it refers to."""
    layout, arguments, at = ">", [], 0
    scope: dict[str, object] = {}
    for number, (hole, name) in enumerate(sorted(zip(holes, names, strict=True), key=lambda each: each[0].start)):
        scope[f"k{number}"] = data[at : hole.start]
        layout += f"{hole.start - at}s{FORMATS[hole.kind]}"
        arguments += [f"k{number}", name]
        at = hole.end
    scope |= {"pack": struct.Struct(layout + f"{len(data) - at}s").pack, "tail": data[at:]}
    return f"pack({', '.join([*arguments, 'tail'])})", scope
