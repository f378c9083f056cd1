"""Reads a metadata log as Arrow record batches: the raw view, or one record type with its own columns.

A range is decoded in steps of at most 8 MB of log or 65,536 records, and at least one batch, so memory does not grow
with the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from itertools import accumulate
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from metadata_log.arrow import bodies, bodies_numpy, frames, frames_numpy
from metadata_log.arrow.columns import MOST_MS
from metadata_log.arrow.frames import FRAME_SCHEMA
from metadata_log.arrow.hidden import without_secrets
from metadata_log.arrow.schema import PAYLOAD, RECORD_CLASSES, RECORDS, TIMESTAMP, schema_of
from metadata_log.arrow.splits import Split, plan_splits, split_runs
from metadata_log.disk import Disk, OsDisk
from metadata_log.reading.damage import Damage, DamagedFile
from metadata_log.records.batch import RecordBatch
from metadata_log.records.frame import CONTROL_RECORDS, RECORD_TYPES

STEP_BYTES: Final = 8 << 20
STEP_ROWS: Final = 1 << 16

Decoder = Literal["numpy", "python"]


class Mode(StrEnum):
    """The reaction to damage, with the names of Spark's readers. An unfinished last batch is no damage."""

    FAILFAST = "FAILFAST"
    """Raise `DamagedFile`."""
    PERMISSIVE = "PERMISSIVE"
    """Continue after the damage. A row reports file, position, reason in `damage` and, where known, the offset."""
    DROPMALFORMED = "DROPMALFORMED"
    """Continue after the damage without a report."""


class Filters(Struct, frozen=True, kw_only=True):
    """A selection of rows. Rows that report damage are always selected; batches without a selected offset are not
    decoded, only their CRC is checked.

    Args:
        from_offset: The first offset.
        until_offset: The offset after the last one.
        from_timestamp_ms: The first time in ms.
        until_timestamp_ms: The time in ms after the last one.
        types: Values of the column `type`; None for all.
    """

    from_offset: int | None = None
    until_offset: int | None = None
    """The offset after the last selected one."""
    from_timestamp_ms: int | None = None
    until_timestamp_ms: int | None = None
    """The time after the last selected one, in ms."""
    types: tuple[str, ...] | None = None
    """Values of the column `type`. Records of other types are skipped without decoding their bodies."""


NO_FILTERS: Final = Filters()


def read_records(
    path: str,
    *,
    columns: Sequence[str] | None = None,
    filters: Filters = NO_FILTERS,
    mode: Mode = Mode.FAILFAST,
    snapshots: bool = False,
    cluster: str | None = None,
    show_secrets: bool = False,
    decoder: Decoder = "numpy",
    disk: Disk | None = None,
) -> pa.RecordBatchReader:
    """Every record of a directory, segment or snapshot, with key and value as bytes.

    Args:
        path: A log directory, partition directory, segment or snapshot.
        columns: The columns and their order; None for all but `payload`, Kafka's JSON of the record.
        filters: The selected rows.
        mode: The reaction to damage.
        snapshots: Whether the snapshots of a directory are included.
        cluster: The value of the column `cluster`; None for the id in `meta.properties`.
        show_secrets: Whether secrets are shown. By default a `value` with a secret is `(redacted)`.
        decoder: The implementation: "numpy", or "python" without NumPy.
        disk: The disk; None for the disk of this machine.

    Returns:
        A reader of record batches in the schema of `schema_of`.

    Raises:
        ValueError: A column is unknown.
        OSError: A file is unreadable.
        MetadataLogError: The directory holds no metadata log.
        DamagedFile: The log is damaged and the mode is FAILFAST; raised while reading.
    """
    return _read(
        path, RECORDS, columns, filters, mode, snapshots, cluster, show_secrets=show_secrets, decoder=decoder, disk=disk
    )


def read_typed(
    path: str,
    record_type: str,
    *,
    columns: Sequence[str] | None = None,
    filters: Filters = NO_FILTERS,
    mode: Mode = Mode.FAILFAST,
    snapshots: bool = False,
    cluster: str | None = None,
    show_secrets: bool = False,
    decoder: Decoder = "numpy",
    disk: Disk | None = None,
) -> pa.RecordBatchReader:
    """The records of one type, such as `PartitionChangeRecord`, with a column for each field.

    Arguments, result and errors as for `read_records`, and `record_type` is the name of the type. A record of an
    unknown version has null in its fields, and its bytes in `undecoded`.
    """
    return _read(
        path,
        record_type,
        columns,
        filters,
        mode,
        snapshots,
        cluster,
        show_secrets=show_secrets,
        decoder=decoder,
        disk=disk,
    )


def _read(
    path: str,
    view: str,
    columns: Sequence[str] | None,
    filters: Filters,
    mode: Mode,
    snapshots: bool,
    cluster: str | None,
    *,
    show_secrets: bool,
    decoder: Decoder,
    disk: Disk | None,
) -> pa.RecordBatchReader:
    schema = _raw_schema(view, columns)
    if unknown := [name for name in filters.types or () if not is_type_name(name)]:
        raise ValueError(f"there is no record type {unknown[0]!r}; there are {', '.join(RECORD_CLASSES)}")
    splits = plan_splits(
        path,
        disk=disk,
        cluster=cluster,
        snapshots=snapshots,
        from_offset=filters.from_offset,
        until_offset=filters.until_offset,
        from_timestamp_ms=filters.from_timestamp_ms,
    )
    batches = read_splits(
        splits,
        view=view,
        columns=columns,
        filters=filters,
        mode=mode,
        show_secrets=show_secrets,
        decoder=decoder,
        disk=disk,
    )
    return pa.RecordBatchReader.from_batches(schema, batches)


def read_split(split: Split, **options: Any) -> Iterator[pa.RecordBatch]:
    """The rows of one range: see `read_splits`."""
    return read_splits([split], **options)


def read_splits(
    splits: Iterable[Split],
    *,
    view: str = RECORDS,
    columns: Sequence[str] | None = None,
    filters: Filters = NO_FILTERS,
    mode: Mode = Mode.FAILFAST,
    show_secrets: bool = False,
    decoder: Decoder = "numpy",
    disk: Disk | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of ranges, in non-empty batches with the schema of `schema_of(view, columns)`.

    The CRC of every batch is checked before any of its records is returned. Small ranges share batches of rows.

    Args:
        splits: The ranges, from `plan_splits`.
        view: `records`, or the name of a record type.
        columns: The columns and their order; None for all but `payload`.
        filters: The selected rows.
        mode: The reaction to damage.
        show_secrets: Whether secrets are shown.
        decoder: The implementation: "numpy", or "python" without NumPy.
        disk: The disk; None for the disk of this machine.

    Returns:
        An iterator of record batches.

    Raises:
        DamagedFile: The log is damaged and the mode is FAILFAST.
        ValueError: The view or a column is unknown.
        OSError: A file is unreadable.
    """
    schema = _raw_schema(view, columns)
    for step in _steps(splits, OsDisk() if disk is None else disk, filters, mode, decoder):
        wanted = _chosen(step.frame, view, filters)
        if wanted.num_rows:
            rows = _rows(wanted, step.splits, view, schema, mode, decoder, show_secrets=show_secrets)
            if rows.num_rows:
                yield rows


def _raw_schema(view: str, columns: Sequence[str] | None) -> pa.Schema:
    schema = schema_of(view, columns)
    if view != RECORDS and view not in RECORD_CLASSES:
        raise ValueError(f"{view} is a replayed view: it is read with read_view")
    return schema


_SPLIT: Final = "split"
"""The column of a step's frames with the number of their split, if they are of several."""


class _Step(Struct, frozen=True):
    """Frames, and the ranges that they are of."""

    frame: pa.RecordBatch
    splits: list[Split]


def _steps(splits: Iterable[Split], disk: Disk, filters: Filters, mode: Mode, decoder: Decoder) -> Iterator[_Step]:
    """The frames of ranges, step by step, with a frame for each damage in its position."""
    read_frames = frames_numpy.frames if decoder == "numpy" else frames.frames
    waiting: list[RecordBatch] = []
    origins: list[tuple[Split, int]] = []
    """The ranges of `waiting`, and the number of batches up to the end of each."""
    size = rows = 0
    for split in splits:
        for run in split_runs(split, disk):
            if isinstance(run, Damage):
                if waiting:
                    yield from _sliced(read_frames(waiting, split.path), _with(origins, split, len(waiting)))
                    waiting, origins, size, rows = [], [], 0, 0
                if mode is Mode.FAILFAST and not run.unfinished:
                    raise DamagedFile(run)
                if not run.unfinished:
                    yield _Step(frames.damage_frame(run), [split])
                continue
            for batch in _chosen_batches(run, filters):
                size += batch.size_bytes
                rows += batch.record_count
                if waiting and (size > STEP_BYTES or rows > STEP_ROWS):
                    yield from _sliced(read_frames(waiting, split.path), _with(origins, split, len(waiting)))
                    waiting, origins, size, rows = [], [], batch.size_bytes, batch.record_count
                waiting.append(batch)
        origins = _with(origins, split, len(waiting))
    if waiting:
        yield from _sliced(read_frames(waiting, origins[-1][0].path), origins)


def _with(origins: list[tuple[Split, int]], split: Split, batches: int) -> list[tuple[Split, int]]:
    """The ranges with one more, which has the batches after those of the others; none without any."""
    return [*origins, (split, batches)] if batches > (origins[-1][1] if origins else 0) else origins


def _chosen_batches(run: list[RecordBatch], filters: Filters) -> list[RecordBatch]:
    """The batches with an offset of the filters, of batches in order; their CRC was checked."""
    first, until = filters.from_offset, filters.until_offset
    if (first is None or run[0].next_offset > first) and (until is None or run[-1].base_offset < until):
        return run
    return [
        batch
        for batch in run
        if (first is None or batch.next_offset > first) and (until is None or batch.base_offset < until)
    ]


def _sliced(read: tuple[pa.RecordBatch, list[int]], origins: Sequence[tuple[Split, int]]) -> Iterator[_Step]:
    """A frame in pieces of at most `STEP_ROWS`: one batch can exceed them."""
    frame, counts = read
    splits = [split for split, _ in origins]
    if len(splits) > 1:
        rows = [0, *accumulate(counts)]
        ends = pa.array([rows[batches] for _, batches in origins], pa.int32())
        runs = pa.RunEndEncodedArray.from_arrays(ends, pa.array(range(len(splits)), pa.int32()))
        frame = frame.append_column(_SPLIT, pc.run_end_decode(runs))
    return (_Step(frame.slice(start, STEP_ROWS), splits) for start in range(0, frame.num_rows, STEP_ROWS))


@cache
def _type_of(name: str) -> tuple[bool, int] | None:
    """Whether a name in the column `type` is that of a control record, and its number; None for an impossible name."""
    for is_control, known in ((False, RECORD_TYPES), (True, CONTROL_RECORDS)):
        for number, cls in known.items():
            if cls.__name__ == name:
                return is_control, number
        prefix = "control record type " if is_control else "record type "
        number_text = name.removeprefix(prefix)
        if name.startswith(prefix) and number_text.isdecimal() and int(number_text) not in known:
            return is_control, int(number_text)
    return None


def is_type_name(name: str) -> bool:
    """Whether the column `type` can have this value."""
    return _type_of(name) is not None


def type_name(is_control: bool, number: int) -> str:
    """The value of the column `type` for a record with this number."""
    known = (CONTROL_RECORDS if is_control else RECORD_TYPES).get(number)
    return known.__name__ if known else f"{'control ' if is_control else ''}record type {number}"


def _chosen(frame: pa.RecordBatch, view: str, filters: Filters) -> pa.RecordBatch:
    """The rows that view and filters select, and those that report damage."""
    conditions = []
    for column, bound, condition in (
        ("offset", filters.from_offset, pc.greater_equal),
        ("offset", filters.until_offset, pc.less),
        ("timestamp", filters.from_timestamp_ms, pc.greater_equal),
        ("timestamp", filters.until_timestamp_ms, pc.less),
    ):
        if bound is not None:
            conditions.append(condition(frame[column], bound))
    types = filters.types
    if view != RECORDS:
        types = (view,) if types is None or view in types else ()
    if types is not None:
        pairs = [pair for name in types if (pair := _type_of(name)) is not None]
        conditions.append(_any_type(frame, pairs))
    if not conditions:
        return frame
    mask = conditions[0]
    for condition in conditions[1:]:
        mask = pc.and_kleene(mask, condition)
    return frame.filter(pc.or_kleene(mask, pc.is_valid(frame["damage"])))


def _any_type(frame: pa.RecordBatch, pairs: Sequence[tuple[bool, int]]) -> pa.Array:
    matches = pa.repeat(pa.scalar(False), frame.num_rows)
    for is_control, known in ((False, frame["is_control"]), (True, pc.invert(frame["is_control"]))):
        numbers = pa.array([number for control, number in pairs if control is is_control], pa.int16())
        if len(numbers):
            matches = pc.or_kleene(matches, pc.and_not_kleene(pc.is_in(frame["type_id"], numbers), known))
    return matches


def _rows(
    frame: pa.RecordBatch,
    splits: Sequence[Split],
    view: str,
    schema: pa.Schema,
    mode: Mode,
    decoder: Decoder,
    *,
    show_secrets: bool,
) -> pa.RecordBatch:
    """The columns of a view for these frames, with damage handled by mode."""
    columns = {name: frame[name] for name in FRAME_SCHEMA.names}
    if view != RECORDS:
        read_bodies = bodies_numpy.body_columns if decoder == "numpy" else bodies.body_columns
        columns |= read_bodies(frame, RECORD_CLASSES[view], schema.names)
    elif PAYLOAD in schema.names:
        columns |= bodies.payloads(frame, show_secrets=show_secrets)
    if mode is Mode.FAILFAST and columns["damage"].null_count < frame.num_rows:
        raise DamagedFile(_first_damage(frame, columns, splits))
    if not show_secrets:
        columns = without_secrets(frame, view, columns)
    for name in ("cluster", "directory", "segment"):
        if name in schema.names:
            columns[name] = _of_splits(frame, [getattr(split, name) for split in splits])
    if "type" in schema.names:
        columns["type"] = _type_names(frame)
    if "timestamp" in schema.names:
        columns["timestamp"] = _timestamps(frame["timestamp"])
    if not schema.names:  # a batch of no columns would have no rows
        rows = frame.select([])
    else:
        rows = pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
    if mode is Mode.DROPMALFORMED and columns["damage"].null_count < frame.num_rows:
        rows = rows.filter(pc.is_null(columns["damage"]))
    return rows


def _of_splits(frame: pa.RecordBatch, values: Sequence[str]) -> pa.Array:
    """For each frame the value of its split."""
    if len(values) == 1:
        return pa.repeat(pa.scalar(values[0]), frame.num_rows)
    return pc.take(pa.array(values, pa.string()), frame[_SPLIT])


def _first_damage(frame: pa.RecordBatch, found: Mapping[str, pa.Array], splits: Sequence[Split]) -> Damage:
    row = pc.index(pc.is_valid(found["damage"]), True).as_py()
    return Damage(
        where=_of_splits(frame, [split.path for split in splits])[row].as_py(),
        what=found["damage"][row].as_py(),
        expected="a record of the metadata log",
        position=found["position"][row].as_py(),
        offset=found["offset"][row].as_py(),
    )


_CONTROL: Final = 1 << 16
"""Added to the numbers of control records, which begin at 0 as those of metadata records do."""


def _type_names(frame: pa.RecordBatch) -> pa.Array:
    """The names of the types; each distinct name is made once."""
    control = pc.multiply(pc.cast(frame["is_control"], pa.int32()), _CONTROL)
    encoded = pc.add(pc.cast(frame["type_id"], pa.int32()), control).dictionary_encode()
    keys = encoded.dictionary.to_pylist()
    names = [type_name(True, key - _CONTROL) if key >= _CONTROL // 2 else type_name(False, key) for key in keys]
    return pc.take(pa.array(names, pa.string()), encoded.indices)


def _timestamps(milliseconds: pa.Array) -> pa.Array:
    """Milliseconds as timestamps; null for -1, Kafka's value for none, and for times beyond Arrow's range."""
    possible = pc.and_(pc.less(milliseconds, MOST_MS), pc.greater(milliseconds, -MOST_MS))
    known = pc.and_(pc.not_equal(milliseconds, -1), possible)
    return pc.cast(pc.multiply(pc.if_else(known, milliseconds, None), 1000), TIMESTAMP)
