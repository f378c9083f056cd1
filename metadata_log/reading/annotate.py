"""Names the field of every byte of a batch, for `kraft dump --hex`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from metadata_log.errors import DecodeError
from metadata_log.records.batch import HEADER_BYTES, RecordBatch
from metadata_log.records.frame import CONTROL_RECORDS, RECORD_TYPES
from metadata_log.serde.fields import Message
from metadata_log.serde.primitives import Reader, read_struct

_HEADER_FIELDS: Final = (
    ("base offset", 8),
    ("batch length", 4),
    ("partition leader epoch", 4),
    ("magic", 1),
    ("CRC-32C of what follows", 4),
    ("attributes", 2),
    ("last offset delta", 4),
    ("base timestamp", 8),
    ("max timestamp", 8),
    ("producer id", 8),
    ("producer epoch", 2),
    ("base sequence", 4),
    ("record count", 4),
)


class Span(Struct, frozen=True):
    """Some bytes of a batch and their field. `position` counts from the start of the batch."""

    position: int
    data: bytes
    field: str


class _Tracer(Reader):
    """A reader that records the field of the bytes it reads."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        super().__init__(data, position)
        self.spans: list[Span] = []
        self.noted = position
        """Every byte before this position is in a span. A varint that ends too early leaves bytes without a span."""
        self.label = ""
        self._suffix = ""

    def take(self, size: int, what: str) -> bytes:
        start = self.position
        data = super().take(size, what)
        self._note(start)
        return data

    def _varint(self, max_bytes: int) -> int:
        start = self.position
        value = super()._varint(max_bytes)
        self._note(start)
        return value

    def length(self, *, compact: bool, wide: bool) -> int:
        self._suffix = "length"
        size = super().length(compact=compact, wide=wide)
        self._suffix = ""
        return size

    def _note(self, start: int) -> None:
        if self.position > start:
            field = " ".join(part for part in (self.label, self.path, self._suffix) if part)
            self.spans.append(Span(start, self.data[start : self.position], field))
            self.noted = self.position

    def named(self, path: str) -> _Tracer:
        """Continue with another field."""
        self.path = path
        return self


def annotate(batch: RecordBatch) -> Iterator[Span]:
    """The bytes of a batch in order, each byte once. Compressed records, and damaged records, are one span each."""
    position = 0
    for name, size in _HEADER_FIELDS:
        yield Span(position, batch.data[position : position + size], name)
        position += size
    if batch.is_compressed:
        yield Span(HEADER_BYTES, batch.data[HEADER_BYTES:], f"records, {batch.codec}")
        return
    tracer = _Tracer(batch.data, HEADER_BYTES)
    try:
        for index in range(batch.record_count):
            tracer.label = f"record {index}"
            _record(tracer, is_control=batch.is_control)
    except DecodeError as bad:
        yield from tracer.spans
        yield Span(tracer.noted, batch.data[tracer.noted :], f"not decoded: {bad.what}")
        return
    yield from tracer.spans
    if tracer.remaining:
        yield Span(tracer.position, batch.data[tracer.position :], "behind the last record")


def value_position(batch: RecordBatch, index: int) -> int | None:
    """The position in a batch where the value of record `index` begins; None if the batch is compressed or damaged."""
    before = f"record {index} value length"
    return next((span.position + len(span.data) for span in annotate(batch) if span.field == before), None)


def _record(tracer: _Tracer, *, is_control: bool) -> None:
    tracer.named("length").varint()
    tracer.named("attributes").take(1, "attributes")
    tracer.named("timestamp delta").varlong()
    tracer.named("offset delta").varint()
    key_size = tracer.named("key length").varint()
    key_at = tracer.position
    key = tracer.named("key").take(max(key_size, 0), "a key")
    if is_control and key_size == 4:
        last = tracer.spans.pop()
        tracer.spans.append(Span(key_at, last.data[:2], f"{tracer.label} key version"))
        tracer.spans.append(Span(key_at + 2, last.data[2:], f"{tracer.label} key type"))
    value_size = max(tracer.named("value length").varint(), 0)
    if value_size > tracer.remaining:
        tracer.fail(f"the value has {value_size} bytes, and {tracer.remaining} are left")
    _value(tracer, tracer.position + value_size, key, is_control=is_control)
    for index in range(tracer.named("header count").varint()):
        tracer.named(f"header {index} key").take(max(tracer.named(f"header {index} key length").varint(), 0), "a key")
        size = tracer.named(f"header {index} value length").varint()
        tracer.named(f"header {index} value").take(max(size, 0), "a value")


def _value(tracer: _Tracer, end: int, key: bytes, *, is_control: bool) -> None:
    """The fields of a record's value, up to the first unreadable field; then the rest as one span."""
    inner = _Tracer(tracer.data[:end], tracer.position)
    inner.label = tracer.label
    try:
        kind = _control_class(inner, key) if is_control else _record_class(inner)
        if kind is not None:
            cls, version = kind
            inner.path = ""
            inner.label = f"{tracer.label} {cls.__name__}"
            read_struct(inner, cls, version, flexible=version in cls.__schema__.flexible)
    except DecodeError:
        pass
    tracer.spans += inner.spans
    tracer.position = tracer.noted = inner.noted
    if tracer.position < end:
        tracer.named("value").take(end - tracer.position, "a value")


def _record_class(inner: _Tracer) -> tuple[type[Message], int] | None:
    inner.named("frame version").unsigned_varint()
    record_type = inner.named("type").unsigned_varint()
    version = inner.named("version").unsigned_varint()
    cls = RECORD_TYPES.get(record_type)
    return None if cls is None else (cls, min(version, cls.__schema__.versions.highest))


def _control_class(inner: _Tracer, key: bytes) -> tuple[type[Message], int] | None:
    cls = CONTROL_RECORDS.get(int.from_bytes(key[2:4], "big")) if len(key) == 4 else None
    if cls is None:
        return None
    version = int.from_bytes(inner.data[inner.position : inner.position + 2], "big", signed=True)
    return cls, min(max(version, 0), cls.__schema__.versions.highest)
