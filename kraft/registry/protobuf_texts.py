"""A Protobuf file as a text, from its descriptor: one text for all the ways in which a file can be written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from google.protobuf import descriptor_pb2, text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)
from google.protobuf.descriptor_pool import Default, DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

_DESCRIPTOR: Final = "google/protobuf/descriptor.proto"
_SCALARS: Final = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in FieldDescriptorProto.Type.items()
    if name not in ("TYPE_MESSAGE", "TYPE_ENUM", "TYPE_GROUP")
}
_LABELS: Final = {
    FieldDescriptorProto.LABEL_OPTIONAL: "optional ",
    FieldDescriptorProto.LABEL_REQUIRED: "required ",
    FieldDescriptorProto.LABEL_REPEATED: "repeated ",
}
_LAST_FIELD: Final = 1 << 29
"""One after the last number of a field."""
_LAST_EXTENSION: Final = (1 << 31) - 1
_LAST_ENUM: Final = (1 << 31) - 1
_INDENT: Final = "  "
Lines = Iterator[str]
Beside = dict[str, DescriptorProto]


def printed(file: FileDescriptorProto, imports: Sequence[FileDescriptorProto]) -> str:
    """The text of a file.

    Args:
        file: What protoc made of it; a file that nobody compiled may have anything in it.
        imports: All that it imports, also through others; what is imported comes first.
    """
    return "\n".join(_Printer(file, imports).file()) + "\n"


def ordered(file: FileDescriptorProto) -> FileDescriptorProto:
    """A copy with imports in order, and with the fields of each message in the order of their numbers."""
    copy = FileDescriptorProto()
    copy.CopyFrom(file)
    public = {file.dependency[at] for at in file.public_dependency}
    weak = {file.dependency[at] for at in file.weak_dependency}
    copy.dependency[:] = sorted(file.dependency)
    copy.public_dependency[:] = [at for at, one in enumerate(copy.dependency) if one in public]
    copy.weak_dependency[:] = [at for at, one in enumerate(copy.dependency) if one in weak]
    waiting = list(copy.message_type)
    while waiting:
        message = waiting.pop()
        waiting += message.nested_type
        fields = sorted(message.field, key=lambda one: one.number)
        del message.field[:]
        message.field.extend(fields)
    return copy


class _Printer:
    def __init__(self, file: FileDescriptorProto, imports: Sequence[FileDescriptorProto]) -> None:
        self._file = file
        self._prefix = f".{file.package}" if file.package else ""
        self._has_labels = file.syntax in ("", "proto2")
        self._known: set[str] = set()
        """The names of all that has names within it, or is a type; each begins with a dot."""
        for one in (*imports, file):
            self._know(one)
        self._files = (*imports, file)
        self._pool: DescriptorPool | None = None

    def file(self) -> Lines:
        """The lines of the file."""
        file = self._file
        if file.syntax == "editions":
            edition = descriptor_pb2.Edition.Name(file.edition).removeprefix("EDITION_")
            yield f'edition = "{edition}";'
        else:
            yield f'syntax = "{file.syntax or "proto2"}";'
        if file.package:
            yield f"package {file.package};"
        public, weak = set(file.public_dependency), set(file.weak_dependency)
        imports = [
            f"import {'public ' if at in public else 'weak ' if at in weak else ''}{_quoted(one)};"
            for at, one in enumerate(file.dependency)
        ]
        imports += [f"import option {_quoted(one)};" for one in getattr(file, "option_dependency", ())]
        yield from _section(imports)
        yield from _section([f"option {one};" for one in self._options(file.options, self._prefix)])
        beside = _beside(file.message_type, file.extension, self._prefix)
        for message in file.message_type:
            if f"{self._prefix}.{message.name}" not in beside:
                yield ""
                yield from self._message(message, self._prefix)
        for enum in file.enum_type:
            yield ""
            yield from self._enum(enum, self._prefix)
        yield from _section(list(self._extensions(file.extension, beside, self._prefix)))
        for service in file.service:
            yield ""
            yield from self._service(service)

    # Messages

    def _message(self, message: DescriptorProto, scope: str) -> Lines:
        yield f"{_visibility(message)}message {message.name} {{"
        yield from self._body(message, f"{scope}.{message.name}")
        yield "}"

    def _body(self, message: DescriptorProto, scope: str) -> Lines:
        yield from _indented(f"option {one};" for one in self._options(message.options, scope))
        yield from _indented(self._reserved(message))
        beside = _beside(message.nested_type, (*message.field, *message.extension), scope)
        alternatives: dict[int, list[FieldDescriptorProto]] = {}
        for field in message.field:
            if field.HasField("oneof_index") and not field.proto3_optional:
                alternatives.setdefault(field.oneof_index, []).append(field)
            else:
                yield from _indented(self._field(field, beside, scope))
        for at, oneof in enumerate(message.oneof_decl):
            if at not in alternatives:  # made for an `optional` of proto3
                continue
            yield f"{_INDENT}oneof {oneof.name} {{"
            yield from _indented(_indented(f"option {one};" for one in self._options(oneof.options, scope)))
            for field in alternatives[at]:
                yield from _indented(_indented(self._field(field, beside, scope, has_label=False)))
            yield f"{_INDENT}}}"
        for extensions in message.extension_range:
            last = "max" if extensions.end in (_LAST_FIELD, _LAST_EXTENSION) else str(extensions.end - 1)
            numbers = str(extensions.start) if last == str(extensions.start) else f"{extensions.start} to {last}"
            yield f"{_INDENT}extensions {numbers}{_list(self._options(extensions.options, scope))};"
        for nested in message.nested_type:
            if f"{scope}.{nested.name}" not in beside:
                yield from _indented(self._message(nested, scope))
        for enum in message.enum_type:
            yield from _indented(self._enum(enum, scope))
        yield from _indented(self._extensions(message.extension, beside, scope))

    def _reserved(self, one: DescriptorProto | EnumDescriptorProto) -> Lines:
        is_enum = isinstance(one, EnumDescriptorProto)
        ranges = []
        for reserved in one.reserved_range:
            last = reserved.end if is_enum else reserved.end - 1
            is_last = last == _LAST_ENUM if is_enum else reserved.end == _LAST_FIELD
            ranges.append(str(last) if last == reserved.start else f"{reserved.start} to {'max' if is_last else last}")
        if ranges:
            yield f"reserved {', '.join(ranges)};"
        if one.reserved_name:
            names = one.reserved_name if self._file.syntax == "editions" else map(_quoted, one.reserved_name)
            yield f"reserved {', '.join(names)};"

    def _field(self, field: FieldDescriptorProto, beside: Beside, scope: str, *, has_label: bool = True) -> Lines:
        entry = beside.get(field.type_name)
        label = _LABELS[field.label]
        is_plain = field.label == FieldDescriptorProto.LABEL_OPTIONAL and not field.proto3_optional
        is_map = entry is not None and entry.options.map_entry
        if not has_label or is_map or (is_plain and not self._has_labels):
            label = ""
        options = _list(self._field_options(field, scope))
        if field.type == FieldDescriptorProto.TYPE_GROUP and entry is not None:
            yield f"{label}group {entry.name} = {field.number}{options} {{"
            yield from self._body(entry, f"{scope}.{entry.name}")
            yield "}"
            return
        if entry is not None and entry.options.map_entry:
            kinds = [
                self._type(one, f"{scope}.{entry.name}") for one in sorted(entry.field, key=lambda one: one.number)
            ]
            kind = f"map<{', '.join(kinds)}>"
        else:
            kind = self._type(field, scope)
        yield f"{label}{kind} {field.name} = {field.number}{options};"

    def _field_options(self, field: FieldDescriptorProto, scope: str) -> Lines:
        if field.HasField("default_value"):
            default = field.default_value
            if field.type == FieldDescriptorProto.TYPE_STRING:
                default = _quoted(default)
            elif field.type == FieldDescriptorProto.TYPE_BYTES:
                default = f'"{default}"'
            yield f"default = {default}"
        if field.HasField("json_name") and not field.extendee and field.json_name != _json_name(field.name):
            yield f"json_name = {_quoted(field.json_name)}"
        yield from self._options(field.options, scope)

    def _extensions(self, fields: Iterable[FieldDescriptorProto], beside: Beside, scope: str) -> Lines:
        extended = ""
        for field in fields:
            if field.extendee != extended:
                if extended:
                    yield "}"
                extended = field.extendee
                yield f"extend {self._relative(extended, scope)} {{"
            yield from _indented(self._field(field, beside, scope))
        if extended:
            yield "}"

    # Others

    def _enum(self, enum: EnumDescriptorProto, scope: str) -> Lines:
        yield f"{_visibility(enum)}enum {enum.name} {{"
        yield from _indented(f"option {one};" for one in self._options(enum.options, scope))
        yield from _indented(self._reserved(enum))
        for value in enum.value:
            yield f"{_INDENT}{value.name} = {value.number}{_list(self._options(value.options, scope))};"
        yield "}"

    def _service(self, service: ServiceDescriptorProto) -> Lines:
        scope = f"{self._prefix}.{service.name}"
        yield f"service {service.name} {{"
        yield from _indented(f"option {one};" for one in self._options(service.options, scope))
        for method in service.method:
            asked, answered = self._relative(method.input_type, scope), self._relative(method.output_type, scope)
            asked = f"stream {asked}" if method.client_streaming else asked
            answered = f"stream {answered}" if method.server_streaming else answered
            head = f"{_INDENT}rpc {method.name} ({asked}) returns ({answered})"
            if options := list(self._options(method.options, scope)):
                yield f"{head} {{"
                yield from _indented(_indented(f"option {one};" for one in options))
                yield f"{_INDENT}}}"
            else:
                yield f"{head};"
        yield "}"

    # Names

    def _know(self, file: FileDescriptorProto) -> None:
        name = ""
        for part in file.package.split(".") if file.package else ():
            name = f"{name}.{part}"
            self._known.add(name)
        self._known.update(f"{name}.{one.name}" for one in (*file.enum_type, *file.service))
        waiting = [(name, one) for one in file.message_type]
        while waiting:
            prefix, message = waiting.pop()
            inner = f"{prefix}.{message.name}"
            self._known.add(inner)
            self._known.update(f"{inner}.{one.name}" for one in message.enum_type)
            waiting += [(inner, one) for one in message.nested_type]

    def _type(self, field: FieldDescriptorProto, scope: str) -> str:
        return _SCALARS.get(field.type) or self._relative(field.type_name, scope)

    def _relative(self, full: str, scope: str) -> str:
        """The shortest name of a type that means it within a scope, as the compiler looks it up."""
        parts = full.split(".")[1:]
        for length in range(1, len(parts) + 1):
            name = ".".join(parts[-length:])
            if self._meaning(parts[-length], scope) == f".{'.'.join(parts[: len(parts) - length + 1])}":
                return name
        return full

    def _meaning(self, first: str, scope: str) -> str:
        """The meaning of the first part of a name: what is nearest."""
        while f"{scope}.{first}" not in self._known and scope:
            scope = scope.rpartition(".")[0]
        return f"{scope}.{first}"

    # Options

    def _options(self, options: Message, scope: str) -> Lines:
        """Each option as NAME = VALUE."""
        if not options.ByteSize():
            return
        if self._pool is None:
            self._pool = _pool(self._files)
        kind = self._pool.FindMessageTypeByName(options.DESCRIPTOR.full_name)
        known = GetMessageClass(kind).FromString(options.SerializeToString())
        for field, value in known.ListFields():
            if field.name == "uninterpreted_option":
                continue
            name = field.name
            if field.is_extension:
                first = field.full_name.partition(".")[0]
                name = f"({'' if self._meaning(first, scope) == f'.{first}' else '.'}{field.full_name})"
            for one in value if field.is_repeated else [value]:
                yield f"{name} = {self._value(field, one)}"

    def _value(self, field: FieldDescriptor, value: Any) -> str:
        match field.type:
            case FieldDescriptor.TYPE_MESSAGE | FieldDescriptor.TYPE_GROUP:
                text = text_format.MessageToString(value, as_one_line=True, descriptor_pool=self._pool)
                return f"{{ {text} }}" if text else "{}"
            case FieldDescriptor.TYPE_ENUM:
                known = field.enum_type.values_by_number.get(value)
                return str(value) if known is None else known.name
            case FieldDescriptor.TYPE_BOOL:
                return "true" if value else "false"
            case FieldDescriptor.TYPE_STRING:
                return _quoted(value)
            case FieldDescriptor.TYPE_BYTES:
                return _quoted_bytes(value)
        return repr(value)


def _pool(files: Sequence[FileDescriptorProto]) -> DescriptorPool:
    """Knows the options, and what extends them."""
    pool = DescriptorPool()
    if all(one.name != _DESCRIPTOR for one in files):
        pool.AddSerializedFile(descriptor_pb2.DESCRIPTOR.serialized_pb)
    try:
        for one in files:
            pool.AddSerializedFile(one.SerializeToString())
    except TypeError:  # a file defines what is in descriptor.proto
        return Default()
    return pool


def _beside(messages: Iterable[DescriptorProto], fields: Iterable[FieldDescriptorProto], scope: str) -> Beside:
    """The entries of maps, and the groups, that are written with their fields; by their full names."""
    groups = {one.type_name for one in fields if one.type == FieldDescriptorProto.TYPE_GROUP}
    named = ((f"{scope}.{one.name}", one) for one in messages)
    return {name: one for name, one in named if one.options.map_entry or name in groups}


def _visibility(one: Message) -> str:
    """`export` or `local`, which edition 2024 knows."""
    number = getattr(one, "visibility", 0)
    return {1: "local ", 2: "export "}.get(number, "")


def _section(lines: list[str]) -> Lines:
    if lines:
        yield ""
        yield from lines


def _indented(lines: Iterable[str]) -> Lines:
    return (f"{_INDENT}{one}" for one in lines)


def _list(options: Iterable[str]) -> str:
    text = ", ".join(options)
    return f" [{text}]" if text else ""


def _json_name(name: str) -> str:
    """The name of a field in JSON that is not said."""
    first, *rest = name.split("_")
    return first + "".join(one[:1].upper() + one[1:] for one in rest)


def _quoted(text: str) -> str:
    """A string; characters beyond ASCII stand as they are."""
    return f'"{text_format.text_encoding.CEscape(text, as_utf8=True)}"'


def _quoted_bytes(data: bytes) -> str:
    return f'"{text_format.text_encoding.CEscape(data, as_utf8=False)}"'
