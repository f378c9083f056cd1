"""Requests that are small on the wire and large inside: many elements, many long names, one name of 32 KB.

`amplified` draws them for any API from the declaration of its request, so that an API which is added has them too.
A request that names nothing that is there is refused before any work: `known` has the values that lead to the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, Final

from msgspec import Struct, structs

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
EMPTY: Final = "no"
"""The elements of this shape have nothing in them."""
PER_EMPTY_BYTE: Final = 4
"""How much more a byte of such an element costs, which has one to three: less than the name of another one."""
PATTERNS: Final = {"transactional_id_pattern": 400, "subscribed_topic_regex": 800}
"""The instructions for each character of a regular expression, which is compiled."""

Path = tuple[str, ...]
Known = Mapping[str, Any]
"""The values of fields by their names, in the first element of an array that varies and in every other one."""
NOTHING: Final[Known] = {}


class Amplified(Struct, frozen=True):
    """A drawn request: its shape in words, and its frame."""

    key: ApiKey
    shape: str
    frame: bytes

    def allowed(self, per_request: int, per_byte: int) -> int:
        """The instructions that the request may cost."""
        cost = next((cost for name, cost in PATTERNS.items() if name in self.shape), per_byte)
        if f"{EMPTY} names" in self.shape:
            cost *= PER_EMPTY_BYTE
        return per_request + cost * len(self.frame)


def amplified(
    api: Api,
    version: int,
    size: int,
    rng: Random,
    known: Known = NOTHING,
    is_taken: Callable[[Amplified], bool] = lambda _: True,
) -> Iterator[Amplified]:
    """Requests of about so many bytes: each array full of the smallest elements, each string as long as it may be.

    Args:
        api: The API.
        version: A version of its request.
        size: The bytes of a frame.
        rng: Draws the values beside those that a shape makes large.
        known: The values of fields by which a request gets to its work.
        is_taken: Whether the listener decodes a request, which has fewer elements otherwise.
    """
    for path, field in leaves(api.request, version):
        where = ".".join(path)
        if isinstance(field.type, ArrayOf):
            for names in ("the same", "other", "paired", EMPTY):
                shape, words = _Shape(path, names=names, known=known), f"{where} full, {names} names"
                yield _fitted(api, version, size, rng, shape, words, is_taken)
        elif field.type is Kind.STRING:
            yield _frame(api, version, rng, _Shape(path, longest=min(size, LONGEST), known=known), f"{where} long")
        elif field.type in (Kind.BYTES, Kind.RECORDS):
            yield _frame(api, version, rng, _Shape(path, longest=size, known=known), f"{where} large")


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
    """Whether the elements have one name, each its own, or each that of one other; or none, and nothing in them."""
    known: Known = NOTHING

    @property
    def is_varied(self) -> bool:
        """Whether names and numbers differ from element to element."""
        return self.names in ("other", "paired")

    def is_inside(self, path: Path) -> bool:
        """Whether a field is in the elements of the array."""
        return path[: len(self.path)] == self.path

    def name(self, at: int) -> int:
        """The name of the element at a position."""
        return at // 2 if self.names == "paired" else at


def _fitted(
    api: Api,
    version: int,
    size: int,
    rng: Random,
    shape: _Shape,
    words: str,
    is_taken: Callable[[Amplified], bool],
) -> Amplified:
    """As many elements as fit, found from the sizes of two frames."""
    seed = rng.getrandbits(32)

    def made(elements: int) -> Amplified:
        return _frame(api, version, Random(seed), structs.replace(shape, elements=elements), words)

    few, more = len(made(10).frame), len(made(110).frame)
    each = max((more - few) / 100, 1)
    elements = max(int((size - few) / each) + 10, 1)
    while not is_taken(one := made(elements)):
        elements //= 2
    return one


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
    is_large, is_inside = path == shape.path, shape.is_inside(path)
    is_empty = is_inside and shape.names == EMPTY
    is_named = isinstance(kind, Kind) and not (is_large and shape.longest) and path[-1] in shape.known
    if is_named and not is_empty and (at == 0 or not shape.is_varied):
        return shape.known[path[-1]]
    match kind:
        case ArrayOf():
            count = shape.elements if is_large else 0 if is_empty else 1
            return [_value(kind.element, version, rng, shape, path, at + one) for one in range(count)]
        case Kind.BOOL:
            return False
        case Kind.UINT16:
            return 9092
        case Kind.FLOAT64:
            return 1.0
        case Kind.STRING if is_large and shape.longest:
            return "x" * shape.longest
        case Kind.STRING if is_empty:
            return ""
        case Kind.STRING:
            return f"n{shape.name(at):x}" if shape.is_varied else NAMES[0] if at else rng.choice(NAMES)
        case Kind.BYTES | Kind.RECORDS:
            return bytes(shape.longest) if is_large else b""
        case Kind.UUID:
            return Uuid(shape.name(at).to_bytes(16, "big")) if shape.is_varied else Uuid.ZERO
        case Kind.INT32 if shape.is_varied:
            return shape.name(at)
        case Kind():
            return rng.choice(NUMBERS)
        case _:
            return _message(kind, version, rng, shape, path, at)
