"""Protobuf schemas, as text or as a descriptor in Base64: protoc reads texts, and descriptors are compared here.

The rules are those of the common registry: what keeps old bytes readable. Fields go by their numbers.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError
from msgspec import Struct, structs

from kraft.registry import protoc
from kraft.registry.protobuf_maps import Path, put_back, taken_out
from kraft.registry.protobuf_texts import ordered, printed
from kraft.registry.schemas import Difference, Imported, InvalidSchema, Source

SERIALIZED: Final = "serialized"
_KINDS: Final = {
    # Numbers of one kind can be read as each other.
    **dict.fromkeys(
        (
            *(FieldDescriptorProto.TYPE_INT32, FieldDescriptorProto.TYPE_INT64, FieldDescriptorProto.TYPE_UINT32),
            *(FieldDescriptorProto.TYPE_UINT64, FieldDescriptorProto.TYPE_BOOL, FieldDescriptorProto.TYPE_ENUM),
        ),
        "number",
    ),
    **dict.fromkeys((FieldDescriptorProto.TYPE_SINT32, FieldDescriptorProto.TYPE_SINT64), "signed number"),
    **dict.fromkeys((FieldDescriptorProto.TYPE_FIXED32, FieldDescriptorProto.TYPE_SFIXED32), "fixed32"),
    **dict.fromkeys((FieldDescriptorProto.TYPE_FIXED64, FieldDescriptorProto.TYPE_SFIXED64), "fixed64"),
    **dict.fromkeys((FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_BYTES), "string or bytes"),
    FieldDescriptorProto.TYPE_FLOAT: "float",
    FieldDescriptorProto.TYPE_DOUBLE: "double",
    FieldDescriptorProto.TYPE_MESSAGE: "message",
    FieldDescriptorProto.TYPE_GROUP: "group",
}
_TEXT: Final = "string or bytes"


def canonical(source: Source, normalize: bool) -> str:
    """The text of its descriptor, so that white space, comments and short names are all the same.

    Normalized, imports are in order, and fields in the order of their numbers.
    """
    text = _printed(source, normalize)
    if _descriptor(source.text) is not None and _printed(structs.replace(source, text=text), normalize) != text:
        raise InvalidSchema("the descriptor is none of a file that can be written")
    return text


def _printed(source: Source, normalize: bool) -> str:
    *imports, main = _compiled(source)
    return printed(ordered(main) if normalize else main, imports)


def comparable(source: Source, normalize: bool) -> str:
    """The form that equal schemas have in common."""
    return _printed(source, normalize)


def rendered(source: Source, form: str) -> str:
    """`serialized`: the descriptor in Base64. Any other form, which a later registry may know, is the text."""
    return _base64(_compiled(source)[-1]) if form == SERIALIZED else source.text


def differences(reader: Source, writer: Source) -> Iterator[Difference]:
    """Why the reader cannot read what the writer writes."""
    return _Comparison(_Types.of(writer), _Types.of(reader)).run()


# Reading


def _descriptor(text: str) -> FileDescriptorProto | None:
    """The descriptor in a text of Base64; None for any other text."""
    try:
        data = b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
    try:
        descriptor = FileDescriptorProto.FromString(data)
    except DecodeError:
        return None
    if not all(map(_is_sound, (message for _, message in _messages(descriptor)))):
        return None
    descriptor.name = protoc.MAIN
    descriptor.ClearField("source_code_info")
    return descriptor


def _is_sound(message: DescriptorProto) -> bool:
    """Whether the fields of a message are declared whole; a stranger may have sent anything."""
    return all(
        one.HasField("type")
        and one.type in _KINDS
        and (not one.HasField("oneof_index") or 0 <= one.oneof_index < len(message.oneof_decl))
        for one in message.field
    )


def _base64(descriptor: FileDescriptorProto) -> str:
    return b64encode(descriptor.SerializeToString(deterministic=True)).decode()


def _compiled(source: Source) -> list[FileDescriptorProto]:
    """All that a file imports, what is imported first, and last the file."""
    texts, known = [], FileDescriptorSet()
    maps: dict[str, frozenset[Path]] = {}
    for one in source.imports:
        if not protoc.is_path(one.name) or one.name == protoc.MAIN:
            raise InvalidSchema(f"{one.name!r} is no path of an import")
    for one in (*source.imports, Imported(protoc.MAIN, source.text)):
        descriptor = _descriptor(one.text)
        if descriptor is None:
            text, maps[one.name] = taken_out(one.text)
            texts.append((one.name, text))
        else:
            descriptor.name = one.name
            known.file.append(descriptor)
    try:
        out = protoc.compiled(tuple(texts), known.SerializeToString(deterministic=True))
    except (protoc.CompileError, OSError, ValueError) as bad:
        raise InvalidSchema(f"the schema is no Protobuf: {bad}") from bad
    files = list(FileDescriptorSet.FromString(out).file)
    for file in files:
        if not put_back(file, maps.get(file.name, ())):
            raise InvalidSchema("the schema is no Protobuf: map_entry is set where there is no map")
    return files


class _Types(Struct, frozen=True):
    """The messages of a file, and those that it imports, by their full names."""

    package: str
    own: dict[str, DescriptorProto]
    every: dict[str, DescriptorProto]
    locals: dict[str, str]
    """Of each message the name without the package of its file."""

    @classmethod
    def of(cls, source: Source) -> _Types:
        files = _compiled(source)
        every: dict[str, DescriptorProto] = {}
        names: dict[str, str] = {}
        for one in files:
            own = dict(_messages(one))
            every |= own
            prefix = f".{one.package}." if one.package else "."
            names |= {name: name.removeprefix(prefix) for name in own}
        return cls(files[-1].package, own, every, names)

    def local(self, name: str) -> str:
        """The name of a message without the package of its file."""
        return self.locals.get(name, name)


def _messages(file: FileDescriptorProto) -> Iterator[tuple[str, DescriptorProto]]:
    prefix = f".{file.package}" if file.package else ""
    waiting = [(f"{prefix}.{one.name}", one) for one in reversed(file.message_type)]
    while waiting:
        name, message = waiting.pop()
        yield name, message
        waiting += [(f"{name}.{one.name}", one) for one in reversed(message.nested_type)]


# Comparing


class _Comparison:
    """Of a schema that writes with one that reads."""

    def __init__(self, writer: _Types, reader: _Types) -> None:
        self._writer = writer
        self._reader = reader
        self._seen: set[tuple[str, str]] = set()

    def run(self) -> Iterator[Difference]:
        """Every difference that matters."""
        if self._writer.package != self._reader.package:
            yield Difference("PACKAGE_CHANGED", f"{self._writer.package} became {self._reader.package}", "#/")
        readers = {self._reader.local(name): name for name in self._reader.own}
        for name, message in self._writer.own.items():
            local = self._writer.local(name)
            if local in readers:
                yield from self._compare(name, readers[local])
            elif not message.options.map_entry:
                yield Difference("MESSAGE_REMOVED", f"message {local} is gone", f"#/{local}")

    def _compare(self, writer_name: str, reader_name: str) -> Iterator[Difference]:
        waiting = [(writer_name, reader_name)]
        while waiting:
            pair = waiting.pop()
            if pair in self._seen:
                continue
            self._seen.add(pair)
            writer, reader = self._writer.every.get(pair[0]), self._reader.every.get(pair[1])
            if writer is None or reader is None:
                continue
            where = f"#/{self._writer.local(pair[0])}"
            yield from self._oneofs(writer, reader, where)
            old, new = {one.number: one for one in writer.field}, {one.number: one for one in reader.field}
            lost = _lost_oneofs(writer, new)
            for number in sorted(old.keys() | new.keys()):
                place = f"{where}/{number}"
                if number not in new:
                    field = old[number]
                    if field.label == FieldDescriptorProto.LABEL_REQUIRED:
                        yield Difference("REQUIRED_FIELD_REMOVED", f"field {field.name} is gone", place)
                    elif _oneof(field) not in (None, *lost):
                        yield Difference("ONEOF_FIELD_REMOVED", f"field {field.name} of a oneof is gone", place)
                elif number not in old:
                    if new[number].label == FieldDescriptorProto.LABEL_REQUIRED:
                        yield Difference("REQUIRED_FIELD_ADDED", f"field {new[number].name} is required", place)
                else:
                    problems = list(self._fields(old[number], new[number], place))
                    yield from problems
                    if not problems and _kind(new[number]) == "message":
                        waiting.append((old[number].type_name, new[number].type_name))

    def _fields(self, old: FieldDescriptorProto, new: FieldDescriptorProto, where: str) -> Iterator[Difference]:
        required = FieldDescriptorProto.LABEL_REQUIRED
        if new.label == required and old.label != required:
            yield Difference("REQUIRED_FIELD_ADDED", f"field {new.name} became required", where)
        before, after = _kind(old), _kind(new)
        if before != after:
            kind = "FIELD_KIND_CHANGED" if "message" in (before, after) else "FIELD_SCALAR_KIND_CHANGED"
            yield Difference(kind, f"field {new.name} became {after} from {before}", where)
            return
        repeated = FieldDescriptorProto.LABEL_REPEATED
        if before == "message":
            is_map, was_map = self._is_map(self._reader, new), self._is_map(self._writer, old)
            if is_map != was_map:
                yield Difference("FIELD_KIND_CHANGED", f"field {new.name} became a map, or is no longer one", where)
            elif not is_map and self._writer.local(old.type_name) != self._reader.local(new.type_name):
                what = f"field {new.name} became {new.type_name} from {old.type_name}"
                yield Difference("FIELD_NAMED_TYPE_CHANGED", what, where)
        elif before != _TEXT and (old.label == repeated) != (new.label == repeated):
            yield Difference("FIELD_NUMERIC_LABEL_CHANGED", f"field {new.name} is repeated in one alone", where)

    def _is_map(self, types: _Types, field: FieldDescriptorProto) -> bool:
        message = types.every.get(field.type_name)
        return message is not None and message.options.map_entry

    def _oneofs(self, writer: DescriptorProto, reader: DescriptorProto, where: str) -> Iterator[Difference]:
        """Fields that were independent must not exclude each other."""
        groups = {one.number: (_oneof(one), one.number if _oneof(one) is None else 0) for one in writer.field}
        together: dict[int, list[int]] = {}
        for field in reader.field:
            if (at := _oneof(field)) is not None and field.number in groups:
                together.setdefault(at, []).append(field.number)
        for at, numbers in together.items():
            if len({groups[one] for one in numbers}) > 1:
                independent = [one for one in numbers if groups[one][0] is None]
                kind = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if len(independent) > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
                what = f"fields {numbers} exclude each other in {reader.oneof_decl[at].name}"
                yield Difference(kind, what, where)


def _kind(field: FieldDescriptorProto) -> str:
    return _KINDS[field.type]


def _oneof(field: FieldDescriptorProto) -> int | None:
    """The oneof of a field; None for a field outside, or with `optional` of proto3."""
    return field.oneof_index if field.HasField("oneof_index") and not field.proto3_optional else None


def _lost_oneofs(writer: DescriptorProto, new: dict[int, FieldDescriptorProto]) -> list[int]:
    """The oneofs of which no field is left."""
    kept = {_oneof(one) for one in writer.field if one.number in new}
    return [at for at in range(len(writer.oneof_decl)) if at not in kept]
