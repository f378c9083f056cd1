"""The fields of many records of one type at once, with NumPy (Kafka: the generated `*Record.java`).

Each field is located in all records before the next field is. A record is marked and left to `bodies` if its bytes
contradict the declaration, or if they contain something rare: a number of four bytes, an unknown tagged field, an
unknown version. Types with arrays of texts or structures are left to `bodies` completely.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
from msgspec import Struct

from metadata_log.arrow import bodies
from metadata_log.arrow.frames import PADDING
from metadata_log.arrow.frames_numpy import Bytes, Integers, Mask, between, varints
from metadata_log.arrow.schema import UNKNOWN_TAGS, columns_of
from metadata_log.serde.fields import ArrayOf, Field, Kind, Message, fields_at, layout_of, schema_of
from metadata_log.serde.primitives import MAX_STRING_BYTES

_FRAMING_BYTES: Final = 3
_UUID_BYTES: Final = 16

_FIXED: Final[dict[Kind, np.dtype[Any]]] = {
    Kind.BOOL: np.dtype(">u1"),
    Kind.INT8: np.dtype(">i1"),
    Kind.INT16: np.dtype(">i2"),
    Kind.UINT16: np.dtype(">u2"),
    Kind.INT32: np.dtype(">i4"),
    Kind.INT64: np.dtype(">i8"),
    Kind.FLOAT64: np.dtype(">f8"),
    Kind.UUID: np.dtype("V16"),
}
_IN_ARROW: Final = {
    Kind.BOOL: np.bool_,
    Kind.INT8: np.int8,
    Kind.INT16: np.int16,
    Kind.UINT16: np.int32,
    Kind.INT32: np.int32,
    Kind.INT64: np.int64,
    Kind.FLOAT64: np.float64,
}


class _Odd(Exception):
    """Some of these records are unusual: `bodies` reads all of them."""


class _Column(Struct, frozen=True):
    """The position of a field in each record: `size` counts bytes of a text and elements of an array."""

    field: Field
    start: Integers
    size: Integers
    absent: Mask
    """Whether the field is absent and has its default."""
    null: Mask


@cache
def is_columnar(cls: type[Message]) -> bool:
    """Whether every field of a record is fixed, text, bytes, or an array of fixed values."""
    kinds = [field.type.element if isinstance(field.type, ArrayOf) else field.type for field in layout_of(cls)]
    arrays = [field.type.element in _FIXED for field in layout_of(cls) if isinstance(field.type, ArrayOf)]
    return schema_of(cls).api_key is not None and all(arrays) and all(isinstance(kind, Kind) for kind in kinds)


def body_columns(frame: pa.RecordBatch, cls: type[Message], wanted: Sequence[str]) -> dict[str, pa.Array]:
    """As `bodies.body_columns`."""
    if not is_columnar(cls) or not frame.num_rows:
        return bodies.body_columns(frame, cls, wanted)
    names = [*(name for name in columns_of(cls) if name in wanted), "damage"]
    names += [name for name in ("unknown_tagged", "undecoded") if name in wanted]
    versions = np.asarray(frame["version"].fill_null(-1))
    healthy = np.asarray(frame["damage"].is_null())
    odd = ~healthy | (versions > schema_of(cls).versions.highest)
    rows: list[Integers] = []
    parts: list[dict[str, pa.Array]] = []
    for version in np.unique(versions[~odd]).tolist():
        here = np.flatnonzero((versions == version) & ~odd)
        try:
            good, part = _read(frame["value"], here, cls, version, names)
        except _Odd:
            good, part = np.zeros(len(here), np.bool_), {}
        odd[here[~good]] = True
        if part:
            rows.append(here[good])
            parts.append(part)
    if odd.any():
        rows.append(np.flatnonzero(odd))
        parts.append(bodies.body_columns(frame.filter(pa.array(odd)), cls, wanted))
    if len(parts) == 1:
        return parts[0]
    order = pa.array(np.argsort(np.concatenate(rows)))
    return {name: pa.concat_arrays([part[name] for part in parts]).take(order) for name in names}


def _read(
    values: pa.Array, rows: Integers, cls: type[Message], version: int, names: Sequence[str]
) -> tuple[Mask, dict[str, pa.Array]]:
    """The rows that are readable here, and their columns; raises `_Odd`."""
    _, edges, content = values.buffers()
    offsets = np.frombuffer(edges, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    low, high = int(offsets[0]), int(offsets[-1])
    data = content.slice(low, high - low).to_pybytes() + PADDING
    start, end = offsets[rows] - low, offsets[rows + 1] - low
    reading = _Reading(data, end, start + _FRAMING_BYTES)
    # A type or version may have more bytes than it needs.
    reading.bad |= (reading.raw[start + 1] | reading.raw[start + 2]) > 0x7F
    at = fields_at(cls, version)
    located = {field.name: reading.locate(field, version) for field in at.plain}
    located |= reading.locate_tagged(at.tagged, version)
    reading.bad |= reading.at != end
    good = ~reading.bad
    count = int(good.sum())
    if not count:
        return good, {}
    arrays: dict[str, pa.Array] = {}
    for name, field in columns_of(cls).items():
        if name in names:
            if field.name in located:
                column = located[field.name]
                arrays[name] = _array(
                    reading,
                    _Column(field, column.start[good], column.size[good], column.absent[good], column.null[good]),
                )
            else:
                arrays[name] = pa.repeat(bodies.scalar(field), count)
    empty = {"damage": pa.string(), "unknown_tagged": UNKNOWN_TAGS, "undecoded": pa.binary()}
    return good, arrays | {name: pa.nulls(count, kind) for name, kind in empty.items() if name in names}


class _Reading:
    """Walks all records side by side: `at` is the next position in each, `bad` marks unreadable records."""

    def __init__(self, data: bytes, end: Integers, at: Integers) -> None:
        self.data = data
        self.raw: Bytes = np.frombuffer(data, np.uint8)
        self.end = end
        self.at = at
        self.bad: Mask = np.zeros(len(at), np.bool_)
        self._advance(at)

    def _advance(self, at: Integers) -> None:
        self.bad |= at > self.end
        self.at = np.minimum(at, self.end)

    def view(self, kind: Kind) -> np.ndarray[Any, Any]:
        """The data as values that begin at every byte."""
        dtype = _FIXED[kind]
        return np.ndarray((len(self.data) - dtype.itemsize + 1,), dtype, self.data, strides=(1,))

    def locate(self, field: Field, version: int) -> _Column:
        """The position of a field in all records; moves after the field."""
        at = self.at
        none = np.zeros(len(at), np.bool_)
        if isinstance(field.type, Kind) and field.type in _FIXED:
            self._advance(at + _FIXED[field.type].itemsize)
            return _Column(field, at, none.astype(np.int64), none, none)
        size, start = varints(self.raw, at)
        null = size == 0
        size = np.maximum(size - 1, 0)
        if version not in field.nullable:
            self.bad |= null
        width = 1
        if isinstance(field.type, ArrayOf):
            assert isinstance(field.type.element, Kind), field
            width = _FIXED[field.type.element].itemsize
        elif field.type is Kind.STRING:
            self.bad |= size > MAX_STRING_BYTES
        self._advance(start + size * width)
        return _Column(field, start, size, none, null)

    def locate_tagged(self, fields: Sequence[Field], version: int) -> dict[str, _Column]:
        """The positions of the tagged fields, which each record has in any order."""
        rows = len(self.at)
        count = self.raw[self.at].astype(np.int64)
        self._advance(self.at + 1)
        self.bad |= count > len(fields)
        begins = {field.name: np.full(rows, -1, np.int64) for field in fields}
        ends = np.zeros(rows, np.int64)
        stop = self.at.copy()
        spans = {field.name: ends.copy() for field in fields}
        for step in range(len(fields)):
            active = np.flatnonzero((count > step) & ~self.bad)
            if not len(active):
                break
            here = stop[active]
            tag, size = self.raw[here], self.raw[here + 1].astype(np.int64)
            known = np.zeros(len(active), np.bool_)
            following = here + 2 + size
            for field in fields:
                mine = tag == field.tag
                known |= mine
                chosen = active[mine]
                self.bad[chosen[begins[field.name][chosen] >= 0]] = True
                begins[field.name][chosen] = here[mine] + 2
                spans[field.name][chosen] = following[mine]
            self.bad[active[~known | (size > 0x7F) | (following > self.end[active])]] = True
            stop[active] = np.minimum(following, self.end[active])
        columns = {}
        for field in fields:
            columns[field.name] = self._tagged(field, version, begins[field.name], spans[field.name])
        self._advance(stop)
        return columns

    def _tagged(self, field: Field, version: int, begin: Integers, end: Integers) -> _Column:
        absent = begin < 0
        rows = np.flatnonzero(~absent & ~self.bad)
        start, size = np.zeros((2, len(begin)), np.int64)
        null = np.zeros(len(begin), np.bool_)
        if len(rows):
            part = _Reading(self.data, end[rows], begin[rows])
            column = part.locate(field, version)
            start[rows], size[rows], null[rows] = column.start, column.size, column.null
            self.bad[rows[part.bad | (part.at != end[rows])]] = True
        return _Column(field, start, size, absent, null)


def _array(reading: _Reading, column: _Column) -> pa.Array:
    """The Arrow array of a located field."""
    kind, default = column.field.type, column.field.default
    null = column.null | column.absent if default is None else column.null
    if isinstance(kind, ArrayOf):
        if default:
            raise _Odd
        return _list(reading, kind, column, null)
    assert isinstance(kind, Kind), kind
    if kind in _IN_ARROW:
        values: np.ndarray[Any, Any] = reading.view(kind)[column.start].astype(_IN_ARROW[kind])
        if column.absent.any():
            values[column.absent] = default
        return pa.array(values)
    if column.absent.any() and default is not None:
        raise _Odd
    if kind is Kind.UUID:
        return _uuids(reading.view(kind)[column.start])
    text = pa.string() if kind is Kind.STRING else pa.binary()
    # An absent value has no position: it takes the end of the one before, so that positions increase.
    start = np.maximum.accumulate(np.where(null, 0, column.start + column.size))
    start = np.where(null, start, column.start)
    cells = between(reading.data, start, np.where(null, start, column.start + column.size), text)
    if kind is Kind.STRING:
        try:
            cells.validate(full=True)
        except pa.ArrowInvalid as bad:
            raise _Odd from bad
    return _with_nulls(cells, null)


def _with_nulls(values: pa.Array, null: Mask) -> pa.Array:
    if not null.any():
        return values
    return pa.compute.if_else(pa.array(~null), values, pa.scalar(None, values.type))


def _list(reading: _Reading, kind: ArrayOf, column: _Column, null: Mask) -> pa.Array:
    assert isinstance(kind.element, Kind), kind
    width = _FIXED[kind.element].itemsize
    counts = column.size
    edges = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=edges[1:])
    places = np.repeat(column.start - edges[:-1] * width, counts) + np.arange(edges[-1]) * width
    elements = reading.view(kind.element)[places]
    items = _uuids(elements) if kind.element is Kind.UUID else pa.array(elements.astype(_IN_ARROW[kind.element]))
    mask = pa.array(null) if null.any() else None
    return pa.ListArray.from_arrays(pa.array(edges.astype(np.int32)), items, mask=mask)


_DIGITS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_PAIRS: Final = np.array([[_DIGITS[pair >> 6], _DIGITS[pair & 63]] for pair in range(4096)], np.uint8)


def _uuids(values: np.ndarray[Any, Any]) -> pa.Array:
    """Kafka's text for these ids of 16 bytes. Ids repeat, so each distinct one is formatted once."""
    data = pa.py_buffer(np.ascontiguousarray(values))
    encoded = pa.Array.from_buffers(pa.binary(_UUID_BYTES), len(values), [None, data]).dictionary_encode()
    return uuid_texts(encoded.dictionary).take(encoded.indices)


def uuid_texts(ids: pa.Array) -> pa.Array:
    """The text of each of an array of 16 bytes: unpadded URL-safe base64, two characters from every twelve bits."""
    rows = len(ids)
    raw = np.frombuffer(ids.buffers()[1], np.uint8)[ids.offset * _UUID_BYTES :][: rows * _UUID_BYTES]
    octets = np.zeros((rows, 18), np.uint16)
    octets[:, :_UUID_BYTES] = raw.reshape(rows, _UUID_BYTES)
    first, second, third = (octets[:, start::3] for start in range(3))
    pairs = np.empty((rows, 12), np.uint16)
    pairs[:, 0::2] = first << 4 | second >> 4
    pairs[:, 1::2] = (second & 15) << 8 | third
    text = np.ascontiguousarray(_PAIRS[pairs[:, :11]]).reshape(-1)
    edges = np.arange(rows + 1, dtype=np.int32) * 22
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(edges), pa.py_buffer(text)])
