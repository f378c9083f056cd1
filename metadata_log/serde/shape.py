"""Fast codecs for repeated messages, which differ only in a few numbers and in their records: a follower's Fetch
requests and the answers to them.

The code favours speed over readability. A *shape* is all bytes of a message except the fixed-width numbers that have
changed before, and except the records, if there is one field of them. Bytes of a known shape are decoded with one
`struct` call and one constructor call per structure: a Fetch takes a fifth of the time of `compiler`. A `Template`
encodes a message again with other numbers, in a tenth of the time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic

from msgspec import Struct
from msgspec.structs import replace

from metadata_log.errors import DecodeError, EncodeError, LimitExceeded
from metadata_log.serde.compiler import WRITE_FAILURES, ReadFunction, WriteFunction
from metadata_log.serde.fields import Kind, Message, MessageType, layout_of, schema_of
from metadata_log.serde.primitives import FORMATS, Reader, Writer, read_struct, unsigned_varint, write_struct
from metadata_log.serde.source import compile_function
from metadata_log.types import Uuid

MAX_SHAPE_BYTES: Final = 1024
"""The size limit of messages with a shape, without their records."""
MAX_SHAPE_VALUES: Final = 2 * MAX_SHAPE_BYTES
"""The limit of values of messages with a shape: a survey takes microseconds for each, so that a peer must not extend
it."""
_LITERALS: Final = frozenset({type(None), bool, int, str, bytes})
FIRST_PATIENCE: Final = 8
"""The first shape is made after this many messages without one, the next after twice as many, and so on. Making a shape
costs as much as reading hundreds of messages, so that this bounds the cost that a peer can cause."""


class Span(Struct, frozen=True):
    """The position of a fixed-width value, and its field."""

    path: str
    kind: Kind
    start: int
    end: int


class _Surveyor(Reader):
    """Records the positions of fixed-width values during reading; lengths and counts do not count."""

    def __init__(self, data: bytes, budget: int | None) -> None:
        super().__init__(data, budget=budget)
        self.spans: list[Span] = []
        self.records: list[Span] = []
        """The position of records with their length, if the length is a varint."""

    def fixed(self, kind: Kind) -> Any:
        start = self.position
        value = super().fixed(kind)
        self.spans.append(Span(self.path, kind, start, self.position))
        return value

    def is_null_structure(self, *, tagged: bool) -> bool:
        is_null = super().is_null_structure(tagged=tagged)
        if not tagged:
            self.spans.pop()
        return is_null

    def length(self, *, compact: bool, wide: bool) -> int:
        count = len(self.spans)
        size = super().length(compact=compact, wide=wide)
        del self.spans[count:]
        return size

    def blob(self, kind: Kind, *, compact: bool) -> bytes | None:
        start = self.position
        value = super().blob(kind, compact=compact)
        if kind is Kind.RECORDS and compact and value is not None:
            self.records.append(Span(self.path, kind, start, self.position))
        return value


def survey(
    cls: type[MessageType], version: int, data: bytes, budget: int | None = None
) -> tuple[MessageType, list[Span], Span | None]:
    """A message, the positions of its fixed-width values, and that of its records, if there is one field of them.

    Raises `DecodeError` for anything but exactly one message, and `LimitExceeded` for more than `budget` values.
    """
    reader = _Surveyor(data, budget)
    message = read_struct(reader, cls, version, flexible=version in schema_of(cls).flexible)
    if reader.remaining:
        reader.fail("trailing bytes")
    return message, reader.spans, reader.records[0] if len(reader.records) == 1 else None


class Example(Struct, Generic[MessageType], frozen=True):
    """An example message of a shape."""

    message: MessageType
    before: bytes
    """All bytes, or those before the records and their length."""
    holes: list[Span]
    """The variable numbers, as positions in `before`."""
    records: str | None = None
    """The path of the records, which are variable."""
    behind: bytes = b""
    """The bytes after the records."""

    @property
    def title(self) -> str:
        """The name of the generated code in tracebacks."""
        size = f"{len(self.before) + len(self.behind)} bytes"
        return f"shape of {type(self.message).__name__}, {size if self.records is None else f'{size} and records'}"


class _Learner(Generic[MessageType]):
    """Finds shapes in the bytes of messages without one: a difference between two of one size may repeat."""

    def __init__(self, cls: type[MessageType], version: int) -> None:
        self._cls = cls
        self._version = version
        self._parts: tuple[bytes, str | None, bytes] = b"", None, b""
        self._holes: frozenset[str] = frozenset()
        self._misses = 0
        self._patience = FIRST_PATIENCE

    def is_due(self) -> bool:
        """Count a message without a shape; returns whether the message becomes the next example."""
        self._misses += 1
        if self._misses < self._patience:
            return False
        self._misses = 0
        self._patience *= 2
        return True

    def learn(self, data: bytes) -> Example[MessageType] | None:
        """Take a message as the next example; returns None without an earlier message of its form to compare with."""
        try:
            message, spans, records = survey(self._cls, self._version, data, MAX_SHAPE_VALUES)
        except LimitExceeded:
            return None
        before, behind = (data, b"") if records is None else (data[: records.start], data[records.end :])
        if len(before) + len(behind) > MAX_SHAPE_BYTES:
            return None
        in_front = [span for span in spans if span.end <= len(before)]
        paths = {span.path for span in in_front}
        if len(paths) != len(in_front):  # a repeated tag
            return None
        path = None if records is None else records.path
        (former, *rest), self._parts = self._parts, (before, path, behind)
        known = len(before) == len(former) and [path, behind] == rest and self._holes <= paths
        if not known:
            self._holes = frozenset()
            return None
        # 0.0 equals -0.0, which has other bytes: such numbers are always variable.
        self._holes |= {
            span.path
            for span in in_front
            if span.kind is Kind.FLOAT64 or before[span.start : span.end] != former[span.start : span.end]
        }
        holes = [span for span in in_front if span.path in self._holes]
        return Example(message, before, holes, path, behind)


class ShapeReader(Generic[MessageType]):
    """Learns the shapes of the messages of a compiled reader.

    `replace` is called with each faster function, which passes messages of other shapes on to `read`.
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

    def read(self, data: bytes, position: int) -> MessageType:
        """Decode with the compiled reader and count; after enough messages, one becomes the example of a shape."""
        message = self._general(data, position)
        if self._learner.is_due():
            example = self._learner.learn(data[position:])
            if example is not None:
                self._replace(matcher(example, self.read))
        return message


class ShapeWriter(Generic[MessageType]):
    """Learns the shapes of the messages of a compiled writer; `replace` as for `ShapeReader`."""

    def __init__(
        self,
        cls: type[MessageType],
        version: int,
        general: WriteFunction[MessageType],
        replace: Callable[[WriteFunction[MessageType]], None],
    ) -> None:
        self._version = version
        self._learner = _Learner(cls, version)
        self._general = general
        self._replace = replace

    def write(self, message: MessageType, head: bytes) -> bytes:
        """Encode with the compiled writer and count; after enough messages, one becomes the example of a shape."""
        written = self._general(message, head)
        if self._learner.is_due():
            example = self._learner.learn(written[len(head) :])
            if example is not None:
                self._replace(rewriter(replace(example, message=message), self._version, self.write))
        return written


def matcher(example: Example[MessageType], otherwise: ReadFunction[MessageType]) -> ReadFunction[MessageType]:
    """A read function for messages with the bytes of an example except for its variable parts; others use `otherwise`.

    Immutable structures without variable parts are shared between messages.
    """
    before, behind = example.before, example.behind
    layout, names, checks = ">", [], []
    variables: dict[str, str] = {}
    at = 0
    for number, hole in enumerate([*sorted(example.holes, key=lambda span: span.start), None]):
        end = hole.start if hole else len(before)
        if end > at:
            layout += f"{end - at}s"
            names.append(f"c{number}")
            checks.append(f"c{number} == {before[at:end]!r}")
        if hole:
            layout += FORMATS[hole.kind]
            names.append(f"v{number}")
            variables[hole.path] = f"new(Uuid, v{number})" if hole.kind is Kind.UUID else f"v{number}"
            at = hole.end
    unpack = struct.Struct(layout).unpack_from
    scope: dict[str, object] = {"unpack": unpack, "new": bytes.__new__, "Uuid": Uuid, "otherwise": otherwise}
    finding: list[str] = []
    if example.records is not None:
        variables[example.records] = "data[begin:end]"
        finding = _finding_records(len(before), behind)
    made, _ = _expression(example.message, "", variables, scope)
    lines = [
        f"    if len(data) - position {'>' if finding else '=='} {len(before) + len(behind)}:",
        f"        {', '.join(names)}, = unpack(data, position)",
        f"        if {' and '.join(checks) or 'True'}:",
        *finding,
        f"            {'    ' if finding else ''}return {made}",
        "    return otherwise(data, position)",
    ]
    return compile_function("match(data, position)", lines, scope, example.title)


def _finding_records(before: int, behind: bytes) -> list[str]:
    """The code that finds the records after their length, which has one or two bytes."""
    return [
        f"            begin = position + {before + 1}",
        "            size = data[begin - 1]",
        "            if size > 127 and begin < len(data):",
        "                size += (data[begin] << 7) - 128",
        "                begin += 1",
        "            end = begin + size - 1",
        f"            if 0 < size < {1 << 14} and len(data) - end == {len(behind)} and data[end:] == {behind!r}:",
    ]


def _expression(value: object, path: str, variables: dict[str, str], scope: dict[str, object]) -> tuple[str, bool]:
    """An expression for `value` with the variables in place, and whether messages may share its result."""
    if path in variables:
        return variables[path], False
    if type(value) in _LITERALS:
        return repr(value), True
    parts = [_expression(each, place, variables, scope) for each, place in _inside(value, path)]
    if not isinstance(value, list) and all(shared for _, shared in parts):
        name = f"shared{len(scope)}"
        scope[name] = value
        return name, True
    made = ", ".join(text for text, _ in parts)
    match value:
        case Message():
            cls = type(value)
            scope[cls.__name__] = cls
            tags = f", unknown_tagged={value.unknown_tagged!r}" if value.unknown_tagged else ""
            return f"{cls.__name__}({made}{tags})", False
        case list():
            return f"[{made}]", False
        case _:
            return f"({made},)", False


def _inside(value: object, path: str) -> Iterator[tuple[object, str]]:
    """The parts of a structure or an array, and their paths."""
    match value:
        case Message():
            for field in layout_of(type(value)):
                yield getattr(value, field.name), f"{path}.{field.json_name}".lstrip(".")
        case list() | tuple():
            for index, each in enumerate(value):
                yield each, f"{path}[{index}]"


def rewriter(
    example: Example[MessageType], version: int, otherwise: WriteFunction[MessageType]
) -> WriteFunction[MessageType]:
    """A write function for messages that equal an example except for its variable parts; others use `otherwise`.

    Every FLOAT64 must be variable: equal numbers may differ in their bytes. A message that equals an example is encoded
    as the example, so that 1.0 may be encoded as 1.
    """
    paths = {hole.path for hole in example.holes}
    compared = _Compared(version, paths if example.records is None else {*paths, example.records})
    if not compared.structure(example.message, "m", ""):
        return otherwise
    patch, scope = patcher(example.before, example.holes, [compared.variables[hole.path] for hole in example.holes])
    written = f"head + {patch}"
    if example.records is not None:
        records = compared.variables[example.records]
        compared.guards += f" and type({records}) is bytes"
        written += f" + length(len({records}) + 1) + {records} + {example.behind!r}"
        scope["length"] = unsigned_varint
    lines = [
        "    try:",
        *(f"        {line}" for line in compared.lines),
        f"        if ({''.join(f'{each}, ' for each in compared.expressions)}) == known{compared.guards}:",
        f"            return {written}",
        "    except failures:",
        "        pass",
        "    return otherwise(m, head)",
    ]
    scope |= {"known": tuple(compared.constants), "otherwise": otherwise, "failures": WRITE_FAILURES}
    scope |= compared.defaults
    return compile_function("write(m, head)", lines, scope, f"{example.title}, written")


class _Compared:
    """Collects the comparisons of a message with an example: expressions, and their expected values.

    The constants are the example's own strings and numbers: a writer mostly reuses the same objects, which compare
    fast. Mutable objects are not kept.
    """

    def __init__(self, version: int, holes: set[str]) -> None:
        self.expressions: list[str] = []
        self.constants: list[object] = []
        self.lines: list[str] = []
        self.variables: dict[str, str] = {}
        self.guards = ""
        self.defaults: dict[str, object] = {}
        self._version = version
        self._holes = holes

    def structure(self, message: Message, name: str, path: str) -> bool:
        """Write the comparisons of the variable `name` with `message`, which stands at `path` in the example.

        Returns False if there is no such comparison: a tagged field has a variable part, and may be absent.
        """
        for field in layout_of(type(message)):
            if self._version not in field.versions and field.ignorable:
                continue
            place = f"{path}.{field.json_name}".lstrip(".")
            if field.tag is not None and any(hole.startswith((f"{place}.", f"{place}[")) for hole in self._holes):
                return False
            if not self._value(getattr(message, field.name), f"{name}.{field.name}", place):
                return False
            if field.tag is not None and place in self._holes:
                self.defaults[f"default_{self.variables[place]}"] = field.default
                self.guards += f" and {self.variables[place]} != default_{self.variables[place]}"
        return self._value(message.unknown_tagged, f"{name}.unknown_tagged", "")

    def _value(self, value: object, expression: str, place: str) -> bool:
        """Write the comparisons of `expression` with `value`; returns False if the value is mutable."""
        if place in self._holes:
            self.variables[place] = self._named(expression)
            return True
        match value:
            case Message():
                return self.structure(value, self._named(expression), place)
            case list() | tuple():
                names = [f"x{len(self.lines)}_{index}" for index in range(len(value))]
                self.lines.append(f"[{', '.join(names)}] = {expression}")
                parts = enumerate(zip(value, names, strict=True))
                return all(self._value(each, each_name, f"{place}[{index}]") for index, (each, each_name) in parts)
            case None | int() | float() | str() | bytes():
                self.expressions.append(expression)
                self.constants.append(value)
                return True
            case _:
                return False

    def _named(self, expression: str) -> str:
        if expression.isidentifier():
            return expression
        name = f"x{len(self.lines)}"
        self.lines.append(f"{name} = {expression}")
        return name


class Template:
    """One message in one version, for repeated encoding with other numbers in some of its fields.

    `fields` are paths in Kafka's JSON names, `topics[0].partitions[0].fetchOffset`; each must have a fixed width.
    Raises `EncodeError` if the message cannot be encoded or lacks such a field.
    """

    def __init__(self, message: Message, version: int, fields: tuple[str, ...]) -> None:
        cls = type(message)
        writer = Writer()
        write_struct(writer, message, version, flexible=version in schema_of(cls).flexible)
        data = b"".join(writer.parts)
        try:
            _, spans, _ = survey(cls, version, data)
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
    """An expression for `data` with the values of these names in the variable positions, and its names."""
    layout, arguments, at = ">", "", 0
    for hole, name in sorted(zip(holes, names, strict=True), key=lambda each: each[0].start):
        layout += f"{hole.start - at}s{FORMATS[hole.kind]}"
        arguments += f"{data[at : hole.start]!r}, {name}, "
        at = hole.end
    return f"pack({arguments}{data[at:]!r})", {"pack": struct.Struct(layout + f"{len(data) - at}s").pack}
