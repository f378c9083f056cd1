"""Requests that every declaration allows and no client sends: limits, nulls, repeated elements, thousands of tags.

`Absurd` draws them for any API from the declaration of its request, so that an API which is added has them too.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from msgspec import structs

from metadata_log.records.batch_builder import build_batch
from metadata_log.serde import Message, schema_of
from metadata_log.serde.fields import ArrayOf, FieldType, Kind, fields_at
from metadata_log.types import Uuid
from support.hostile.frames import INT_BITS, framed
from transport.protocol.apis import Api
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.headers import encode_request

MANY: Final = 300
"""The elements of an array that repeats."""
TAGS: Final = 3_000
NAMES: Final = (
    *("", "a", "x" * 249, "x" * 300, "é" * 90, "\x00", "\x1b[2J\n", "..", "__cluster_metadata", "__consumer_offsets"),
    *("__transaction_state", "range", "uniform", "consumer", "0", "101", "retention.ms", "PLAINTEXT", "*"),
)
NULLS: Final = 0.25


class Absurd:
    """Draws requests; `names` and `ids` are those of things that are there."""

    def __init__(self, rng: Random, names: tuple[str, ...], ids: tuple[Uuid, ...]) -> None:
        self._rng = rng
        self._names = names
        self._ids = (*ids, Uuid.ZERO, Uuid.METADATA_TOPIC)
        self._many = 0
        """How many arrays of the message may still repeat."""

    def frame(self, api: Api, version: int) -> bytes:
        """A request with its length."""
        self._many = 1
        message = self._message(api.request, version)
        if version in schema_of(api.request).flexible and self._rng.random() < 0.1:
            first = self._rng.choice((100, 1 << 31))
            tags = tuple((first + tag, b"") for tag in range(TAGS))
            message = structs.replace(message, unknown_tagged=tags)
        content = encode_request(api.key, version, 7, self._text(), message, apis=ALL_APIS)
        return framed(content)

    def _message(self, cls: type[Message], version: int) -> Message:
        values: dict[str, Any] = {}
        for field in fields_at(cls, version).in_order:
            is_null = version in field.nullable and self._rng.random() < NULLS
            values[field.name] = None if is_null else self._value(field.type, version)
        return cls(**values)

    def _text(self) -> str:
        return self._rng.choice(self._names if self._rng.random() < 0.6 else NAMES)

    def _value(self, kind: FieldType, version: int) -> Any:
        rng = self._rng
        match kind:
            case ArrayOf():
                made = self._elements(kind.element, version)
                return tuple(made) if kind.as_tuple else made
            case Kind.BOOL:
                return rng.random() < 0.5
            case Kind.UINT16:
                return rng.choice((0, 1, 9092, 65535))
            case Kind.FLOAT64:
                return rng.choice((0.0, -0.0, -1.0, 1e308, float("inf"), float("nan"), 5e-324))
            case Kind.STRING:
                return self._text()
            case Kind.BYTES | Kind.RECORDS:
                return rng.choice((b"", b"\x00", rng.randbytes(61), build_batch(0, -1, 1, [b"v"]), bytes(3_000)))
            case Kind.UUID:
                return rng.choice(self._ids)
            case Kind():
                top = 1 << (INT_BITS[kind] - 1)
                return rng.choice((-top, -2, -1, 0, 0, 0, 1, 2, top - 2, top - 1, rng.randrange(-top, top)))
            case _:
                return self._message(kind, version)

    def _elements(self, kind: FieldType, version: int) -> list[Any]:
        count = self._rng.choice((0, 1, 1, 1, 2, 3))
        if not count or not self._many or self._rng.random() < 0.7:
            return [self._value(kind, version) for _ in range(count)]
        self._many -= 1
        if self._rng.random() < 0.5:
            return [self._value(kind, version)] * MANY
        return [self._value(kind, version) for _ in range(MANY)]
