"""Requests that are small on the wire and large inside: many elements, many long names, one name of 32 KB.

`amplified` draws them for any API from the declaration of its request, so that an API which is added has them too.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from msgspec import Struct

from metadata_log.serde import Message
from metadata_log.serde.fields import ArrayOf, Field, FieldType, Kind, fields_at
from metadata_log.types import Uuid
from support.hostile.frames import framed
from transport.protocol.apis import Api, ApiKey
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.headers import encode_request

LONGEST: Final = 32_767
"""The most bytes of a string in Kafka's protocol."""
NAMES: Final = ("orders", "nope", "", "a")
"""Names for the strings that a shape leaves small: a topic that is there, and others."""
NUMBERS: Final = (0, 0, 1, 2, -1)

Path = tuple[str, ...]


class Amplified(Struct, frozen=True):
    """A drawn request: its shape in words, and its frame."""

    key: ApiKey
    shape: str
    frame: bytes


def amplified(api: Api, version: int, size: int, rng: Random) -> Iterator[Amplified]:
    """Requests of about so many bytes: each array full of the smallest elements, each string as long as it may be.

    Args:
        api: The API.
        version: A version of its request.
        size: The bytes of a frame.
        rng: Draws the values beside those that a shape makes large.
    """
    for path, field in leaves(api.request, version):
        if isinstance(field.type, ArrayOf):
            for names in ("the same", "other", "paired"):
                yield _fitted(api, version, size, rng, path, names, f"{'.'.join(path)} full, {names} names")
        elif field.type is Kind.STRING:
            yield _frame(api, version, rng, _Shape(path, longest=min(size, LONGEST)), f"{'.'.join(path)} long")
        elif field.type in (Kind.BYTES, Kind.RECORDS):
            yield _frame(api, version, rng, _Shape(path, longest=size), f"{'.'.join(path)} large")


def leaves(cls: type[Message], version: int, above: Path = ()) -> Iterator[tuple[Path, Field]]:
    """Every field that can be large, with the way to it through the structures around it."""
    for field in fields_at(cls, version).in_order:
        path, inner = (*above, field.name), field.type
        if isinstance(inner, ArrayOf) or inner in (Kind.STRING, Kind.BYTES, Kind.RECORDS):
            yield path, field
        while isinstance(inner, ArrayOf):
            inner = inner.element
        if not isinstance(inner, Kind):
            yield from leaves(inner, version, path)


class _Shape(Struct, frozen=True):
    """The large part of a message: the elements of an array, or the bytes of a string."""

    path: Path
    elements: int = 1
    longest: int = 0
    names: str = "the same"
    """Whether the elements have one name, each its own, or each that of one other."""

    @property
    def is_varied(self) -> bool:
        """Whether names and numbers differ from element to element."""
        return self.names != "the same"

    def name(self, at: int) -> int:
        """The name of the element at a position."""
        return at // 2 if self.names == "paired" else at


def _fitted(api: Api, version: int, size: int, rng: Random, path: Path, names: str, words: str) -> Amplified:
    """As many elements as fit, found from the sizes of two frames."""
    seed = rng.getrandbits(32)

    def made(elements: int) -> Amplified:
        return _frame(api, version, Random(seed), _Shape(path, elements, names=names), words)

    few, more = len(made(10).frame), len(made(110).frame)
    each = max((more - few) / 100, 1)
    return made(max(int((size - few) / each) + 10, 1))


def _frame(api: Api, version: int, rng: Random, shape: _Shape, words: str) -> Amplified:
    message = _message(api.request, version, rng, shape, ())
    content = encode_request(api.key, version, 7, "attacker", message, apis=ALL_APIS)
    return Amplified(api.key, f"{api.name} v{version}: {words}", framed(content))


def _message(cls: type[Message], version: int, rng: Random, shape: _Shape, above: Path, at: int = 0) -> Message:
    return cls(
        **{
            field.name: _value(field.type, version, rng, shape, (*above, field.name), at)
            for field in fields_at(cls, version).in_order
        }
    )


def _value(kind: FieldType, version: int, rng: Random, shape: _Shape, path: Path, at: int) -> Any:
    match kind:
        case ArrayOf():
            count = shape.elements if path == shape.path else 1
            return [_value(kind.element, version, rng, shape, path, at + one) for one in range(count)]
        case Kind.BOOL:
            return False
        case Kind.UINT16:
            return 9092
        case Kind.FLOAT64:
            return 1.0
        case Kind.STRING if path == shape.path and shape.longest:
            return "x" * shape.longest
        case Kind.STRING:
            return f"n{shape.name(at):x}" if shape.is_varied else NAMES[0] if at else rng.choice(NAMES)
        case Kind.BYTES | Kind.RECORDS:
            return bytes(shape.longest) if path == shape.path else b""
        case Kind.UUID:
            return Uuid(shape.name(at).to_bytes(16, "big")) if shape.is_varied else Uuid.ZERO
        case Kind.INT32 if shape.is_varied:
            return shape.name(at)
        case Kind():
            return rng.choice(NUMBERS)
        case _:
            return _message(kind, version, rng, shape, path, at)
