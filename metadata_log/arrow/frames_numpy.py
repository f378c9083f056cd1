"""The frames of many records at once: one pass finds their positions, NumPy reads the rest (Kafka: `DefaultRecord`).

A batch that is not plain is left to `frames`.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from metadata_log.arrow.frames import PADDING, join_frames, plain_frame, slices
from metadata_log.records.batch import CONTROL, HEADER_BYTES, RecordBatch
from metadata_log.records.frame import FRAME_VERSION

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]
Shorts = npt.NDArray[np.int16]
Mask = npt.NDArray[np.bool_]

BINARY: Final = pa.binary()
_NULL: Final = 1


def frames(batches: Sequence[RecordBatch], where: str) -> tuple[pa.RecordBatch, list[int]]:
    """The frames of some batches and the number of each; equal to those of `frames.frames`."""
    return join_frames(batches, where, _read_plain, attributes=(0, CONTROL))


def _read_plain(batches: Sequence[RecordBatch], data: bytes) -> tuple[pa.RecordBatch | None, Collection[int]]:
    counts = np.array([batch.record_count for batch in batches], np.int64)
    ends = np.cumsum([batch.size_bytes for batch in batches])
    starts, others = _record_starts(data, counts, ends)
    return (None, others) if others else _read(batches, data, starts, counts, ends)


_TOGETHER: Final = 48
"""From this number of batches on a step over all of them costs less than one record of each."""
_BEYOND: Final = -1
"""The position after a batch that has fewer records than its header says."""


def _record_starts(data: bytes, counts: Integers, ends: Integers) -> tuple[Integers, set[int]]:
    """The positions of records in the joined data of batches, and the batches that they do not fill exactly.

    The next records of many batches are found together. The rest of the last few is found record by record.
    """
    raw = np.frombuffer(data, np.uint8)
    begins = np.concatenate([[0], np.cumsum(counts)[:-1]])
    starts = np.empty(int(counts.sum()), np.int64)
    at = np.concatenate([[0], ends[:-1]]) + HEADER_BYTES
    open_, step = np.arange(len(counts)), 0
    while len(open_) >= _TOGETHER:
        here = at[open_]
        starts[begins[open_] + step] = here
        size, behind = varints(raw, here)
        behind += size >> 1
        step += 1
        at[open_] = behind
        open_ = open_[counts[open_] > step]
        within = at[open_] < ends[open_]
        if not within.all():
            at[open_[~within]] = _BEYOND
            open_ = open_[within]
    for index in open_.tolist():
        first, last = int(begins[index]) + step, int(begins[index] + counts[index])
        one = _rest(data, int(at[index]), int(ends[index]), last - first)
        starts[first : first + len(one) - 1] = one[:-1]
        at[index] = one[-1]
    return starts, set(np.flatnonzero(at != ends).tolist())


def _rest(data: bytes, at: int, end: int, count: int) -> array[int]:
    """The positions of the next records of a batch, and the position after them."""
    starts = array("q")
    note = starts.append
    for _ in range(count):
        note(at)
        size = data[at]
        if size < 0x80:
            at += 1 + (size >> 1)
        else:
            high = data[at + 1]
            if high < 0x80:
                at += 2 + ((high << 7 | size & 0x7F) >> 1)
            else:
                at += 3 + ((data[at + 2] << 14 | (high & 0x7F) << 7 | size & 0x7F) >> 1)
        if at > end:
            break
    note(at)
    return starts


def _read(
    batches: Sequence[RecordBatch], data: bytes, start: Integers, counts: Integers, ends: Integers
) -> tuple[pa.RecordBatch | None, Collection[int]]:
    """The frames of the batches; or None, and the batches that are not plain."""
    raw = np.frombuffer(data, np.uint8)
    index = np.arange(len(start)) - np.repeat(np.cumsum(counts) - counts, counts)
    size, at = varints(raw, start)
    end = at + (size >> 1)
    delta, behind = varints(raw, at + 2)
    length, value = varints(raw, behind + 1)
    value_end = value + (length >> 1)
    kind, version = raw[value + 1], raw[value + 2]
    usual = (raw[behind] == _NULL) & (length > 4) & (raw[value] == FRAME_VERSION) & ((kind | version) < 0x80)
    kind, version = kind.astype(np.int16), version.astype(np.int16)
    is_control = np.repeat(np.array([batch.is_control for batch in batches]), counts)
    rows = np.flatnonzero(is_control)
    control = _control_records(data, behind[rows]) if len(rows) else None
    if control is not None:
        length[rows], value[rows], value_end[rows] = control.length, control.value, control.value_end
        kind[rows], version[rows], usual[rows] = control.kind, control.version, control.usual
    plain = (
        usual
        & (raw[at] == 0)
        & (raw[at + 1] == 0)
        & (delta == index << 1)
        & (value_end + 1 == end)
        & (raw[end - 1] == 0)
        & ((size | length) & 1 == 0)
    )
    if not plain.all():
        return None, set(np.searchsorted(ends, start[~plain], "right").tolist())

    def of_batches(values: list[int]) -> Integers:
        return np.repeat(np.array(values, np.int64), counts)

    columns = [
        start + of_batches([batch.position + batch.size_bytes for batch in batches]) - np.repeat(ends, counts),
        index + of_batches([batch.base_offset for batch in batches]),
        of_batches([batch.epoch for batch in batches]).astype(np.int32),
        of_batches([batch.base_timestamp for batch in batches]),
        kind,
        version,
    ]
    places = [pa.array(column) for column in columns]
    controls = None if control is None else (pa.array(is_control), between(data, control.key, control.key_end))
    return plain_frame(places, between(data, value, value_end), controls), ()


class _Controls(Struct, frozen=True):
    """Control records: where their keys and values are, their types and versions, and which are usual."""

    key: Integers
    key_end: Integers
    length: Integers
    value: Integers
    value_end: Integers
    kind: Shorts
    version: Shorts
    usual: Mask


def _control_records(data: bytes, at: Integers) -> _Controls:
    """The fields of the control records whose key lengths are at these positions."""
    raw = np.frombuffer(data, np.uint8)
    key_length, key = varints(raw, at)
    # A read before the bounds check of the caller stays in the data.
    key_end = np.minimum(key + (key_length >> 1), len(data) - len(PADDING))
    length, value = varints(raw, key_end)
    return _Controls(
        key,
        key_end,
        length,
        value,
        value + (length >> 1),
        _short(raw, key + 2),
        _short(raw, value),
        (key_length & 1 == 0) & (key_length >= _LEAST_KEY) & (raw[key] < 0x80) & (length >= _LEAST_VALUE),
    )


_LEAST_KEY: Final = 8
"""The encoded length of a key with its version and the type."""
_LEAST_VALUE: Final = 4
"""The encoded length of a value with its version."""


def _short(raw: Bytes, at: Integers) -> Shorts:
    """The numbers of two bytes at these positions."""
    return raw[at].astype(np.int16) << 8 | raw[at + 1]


def varints(raw: Bytes, at: Integers) -> tuple[Integers, Integers]:
    """The unsigned variable-length numbers of up to three bytes at these positions, and the positions after them.

    A longer number is never valid here: the result is then a number beyond any valid one.
    """
    first = raw[at]
    number = first.astype(np.int64)
    behind = at + 1
    longer = np.flatnonzero(first > 0x7F)
    if len(longer):
        second = raw[behind[longer]].astype(np.int64)
        number[longer] += (second << 7) - 0x80
        behind[longer] += 1
        longest = longer[second > 0x7F]
        if len(longest):
            third = raw[behind[longest]].astype(np.int64)
            number[longest] += (third << 14) - 0x4000
            number[longest[third > 0x7F]] = TOO_LARGE
            behind[longest] += 1
    return number, behind


TOO_LARGE: Final = 1 << 40


def between(data: bytes, start: Integers, end: Integers, kind: pa.DataType = BINARY) -> pa.Array:
    """The bytes or texts between these non-decreasing positions of `data`."""
    edges = np.empty(2 * len(start), np.int32)
    edges[0::2], edges[1::2] = start, end
    return slices(data, edges.data, kind)
