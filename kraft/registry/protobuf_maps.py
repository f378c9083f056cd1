"""Maps that are written as what they are made of: `repeated MarksEntry` and a message with `option map_entry = true`.

Java's serializer writes maps so, and protoc refuses the option, which it alone may set. Here the option is taken out of
the text, and set in the descriptor that protoc makes of the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

Path = tuple[str, ...]
"""The names of a message and of those around it, the outermost first."""
_PARTS: Final = re.compile(
    r"""
      "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*'   # what is in a text means nothing
    | //[^\n]* | /\*.*?\*/
    | \bmessage\s+(?P<name>\w+)\s*\{
    | (?P<option>\boption\s+map_entry\s*=\s*true\s*;)
    | [{}]
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_NO_KEYS: Final = frozenset(
    (
        *(FieldDescriptorProto.TYPE_FLOAT, FieldDescriptorProto.TYPE_DOUBLE, FieldDescriptorProto.TYPE_BYTES),
        *(FieldDescriptorProto.TYPE_MESSAGE, FieldDescriptorProto.TYPE_GROUP, FieldDescriptorProto.TYPE_ENUM),
    )
)


def taken_out(text: str) -> tuple[str, frozenset[Path]]:
    """A text without the option, and the messages that had it."""
    if "map_entry" not in text:
        return text, frozenset()
    around: list[str] = []
    found: list[Path] = []
    kept: list[str] = []
    start = 0
    for part in _PARTS.finditer(text):
        if part["option"]:
            found.append(tuple(around))
            kept.append(text[start : part.start()])
            start = part.end()
        elif part["name"] or part[0] == "{":
            around.append(part["name"] or "")
        elif part[0] == "}" and around:
            around.pop()
    return "".join([*kept, text[start:]]), frozenset(found)


def put_back(file: FileDescriptorProto, paths: Iterable[Path]) -> bool:
    """Set the option of messages; returns whether each is what protoc makes of a map."""
    for path in sorted(paths):
        parent = _message(file, path[:-1])
        entry = _message(file, path)
        if parent is None or entry is None or not _is_map(parent, entry, path):
            return False
        entry.options.map_entry = True
    return True


def _message(file: FileDescriptorProto, path: Path) -> DescriptorProto | None:
    messages: Iterable[DescriptorProto] = file.message_type
    found = None
    for name in path:
        found = next((one for one in messages if one.name == name), None)
        messages = () if found is None else found.nested_type
    return found


def _is_map(parent: DescriptorProto, entry: DescriptorProto, path: Path) -> bool:
    fields = [one for one in parent.field if f".{one.type_name}".endswith(f".{'.'.join(path)}")]
    pair = [(one.name, one.number, one.label) for one in entry.field]
    optional = FieldDescriptorProto.LABEL_OPTIONAL
    return (
        [(_entry_name(one.name), one.label) for one in fields] == [(entry.name, FieldDescriptorProto.LABEL_REPEATED)]
        and pair == [("key", 1, optional), ("value", 2, optional)]
        and entry.field[0].type not in _NO_KEYS
        and not (entry.nested_type or entry.enum_type or entry.oneof_decl or entry.extension)
    )


def _entry_name(field: str) -> str:
    """The name that protoc gives the entries of a map."""
    return "".join(part[:1].upper() + part[1:] for part in field.split("_")) + "Entry"
