"""The walk over the records of a batch says the same as the decoder, for sound and for damaged batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kraft.partitions.log.options import LogOptions
from kraft.partitions.log.outcomes import RefusedAppend
from kraft.partitions.log.validation import batches_of_client, prepare_all
from metadata_log.compression import Compression
from metadata_log.errors import CorruptBatch
from metadata_log.records.batch import HEADER_BYTES, RecordBatch, read_batch
from metadata_log.records.batch_builder import with_checksum, write_batch
from metadata_log.records.record import Header, Record, records, unpacking
from metadata_log.records.walk import NO_TIME, Walked, Wanted, frames, key_of, walking
from metadata_log.serde.codec import finished

NOW_MS = 1_700_000_000_000
SIZES = st.sampled_from((0, 1, 5, 62, 63, 64, 200, 8192))
NULLABLE = st.none() | SIZES.map(lambda size: b"v" * size)
HEADERS = st.lists(st.tuples(st.text(max_size=4), NULLABLE), max_size=2)
ROW = st.tuples(st.integers(-70, 20_000), NULLABLE, NULLABLE, HEADERS, st.sampled_from((0, 0, 0, 0, 0, 1)))


Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]], int]
"""The time of a record, its key, value and headers, and the gap before it."""


def without_gap(row: Row) -> Row:
    return row[0], row[1], row[2], row[3], 0


def batch_of(rows: list[Row]) -> RecordBatch:
    """A batch of a client; the last number of a row is a gap in the offsets before the record."""
    contents: list[Record] = []
    offset = 0
    for delta, key, value, headers, gap in rows:
        offset += gap if contents else 0
        made = tuple(Header(name, each) for name, each in headers)
        contents.append(Record(offset, NOW_MS + delta, delta, key, value, made))
        offset += 1
    return read_batch(write_batch(contents, epoch=-1, compression=Compression.NONE))


def walked(batch: RecordBatch, wanted: Wanted) -> Walked | None:
    """The findings of the walk; None for damage."""
    try:
        return finished(walking(batch, finished(unpacking(batch)), wanted))
    except CorruptBatch:
        return None


def by_the_decoder(batch: RecordBatch, wanted: Wanted) -> Walked | None:
    """The findings that the walk must have."""
    try:
        found = list(records(batch))
    except CorruptBatch:
        return None
    refused: list[tuple[int, int | None]] = []
    for index, each in enumerate(found):
        if wanted.has_keys and each.key is None:
            refused.append((index, None))
        elif each.timestamp != NO_TIME and each.timestamp - wanted.now_ms > wanted.after_max_ms:
            refused.append((index, each.timestamp))
    in_order = [each.offset - batch.base_offset for each in found] == list(range(len(found)))
    return Walked(max(NO_TIME, *(each.timestamp for each in found)), in_order, tuple(refused))


@given(st.lists(ROW, min_size=1, max_size=6), st.booleans(), st.integers(-70, 20_000))
def test_a_walk_finds_what_the_records_say(rows: list[Row], has_keys: bool, latest: int) -> None:
    batch = batch_of(rows)
    wanted = Wanted(has_keys=has_keys, now_ms=NOW_MS, after_max_ms=latest)
    assert walked(batch, wanted) == by_the_decoder(batch, wanted)


@given(st.lists(ROW, min_size=1, max_size=3), st.data(), st.booleans())
def test_a_walk_finds_damage_where_the_decoder_does(rows: list[Row], data: st.DataObject, has_keys: bool) -> None:
    sound = batch_of(rows).data
    at = data.draw(st.integers(HEADER_BYTES, min(len(sound), HEADER_BYTES + 80) - 1))
    damaged = sound[:at] + bytes([data.draw(st.integers(0, 255))]) + sound[at + 1 :]
    cut = data.draw(st.sampled_from((0, 0, 1, 7)))
    damaged = damaged[: len(damaged) - cut]
    damaged = damaged[:8] + (len(damaged) - 12).to_bytes(4, "big") + damaged[12:]
    batch = read_batch(with_checksum(damaged))
    wanted = Wanted(has_keys=has_keys)
    assert walked(batch, wanted) == by_the_decoder(batch, wanted)


@given(st.lists(ROW, min_size=1, max_size=6))
def test_frames_are_where_the_records_are(rows: list[Row]) -> None:
    batch = batch_of(rows)
    data = finished(unpacking(batch))
    found = [each for each in frames(batch, data) if each is not None]
    expected = [(one.offset, one.timestamp, one.key, one.value is not None) for one in records(batch)]
    assert [(each.offset, each.timestamp, *key_of(data, each)) for each in found] == expected


@given(
    st.lists(ROW.map(without_gap), min_size=1, max_size=4), st.integers(-20_000, 20_000), st.booleans(), st.booleans()
)
def test_a_client_batch_is_accepted_as_its_records_are(
    rows: list[Row], late_ms: int, is_compacted: bool, is_log_append_time: bool
) -> None:
    """The refusal for a time or a missing key names the records."""
    options = LogOptions(
        is_compacted=is_compacted,
        is_log_append_time=is_log_append_time,
        timestamp_before_max_ms=10_000,
        timestamp_after_max_ms=10_000,
    )
    now_ms = NOW_MS + late_ms
    data = batch_of(rows).data
    assert not isinstance(batches_of_client(data, options), RefusedAppend)
    found = prepare_all(data, offset=100, epoch=3, options=options, now_ms=now_ms, is_client=True)
    wrong = [
        index
        for index, (delta, key, _, _, _) in enumerate(rows)
        if (is_compacted and key is None) or (not is_log_append_time and abs(delta - late_ms) > 10_000)
    ]
    if wrong:
        assert isinstance(found, RefusedAppend)
        assert [each.index for each in found.records] == wrong
        return
    assert isinstance(found, list)
    [made] = found
    read_batch(made.data)
    assert (made.base_offset, made.epoch, made.next_offset) == (100, 3, 100 + len(rows))
    assert made.max_timestamp == (now_ms if is_log_append_time else NOW_MS + max(row[0] for row in rows))
    assert [each.value for each in records(made)] == [row[2] for row in rows]
