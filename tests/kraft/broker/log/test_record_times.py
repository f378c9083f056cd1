"""The quick look at the records of a batch says the same as the decoder, for sound and for damaged batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kraft.broker.log.options import LogOptions
from kraft.broker.log.outcomes import Refused
from kraft.broker.log.validation import batches_of_client, prepare
from metadata_log.compression import Compression
from metadata_log.errors import CorruptBatch
from metadata_log.records.batch import HEADER_BYTES, RecordBatch, read_batch
from metadata_log.records.batch_builder import with_checksum, write_batch
from metadata_log.records.record import Header, Record, RecordTimes, consecutive_times, records

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


def by_the_decoder(batch: RecordBatch, *, needs_keys: bool) -> RecordTimes | None:
    """What `consecutive_times` has to say."""
    try:
        found = list(records(batch))
    except CorruptBatch:
        return None
    if [each.offset - batch.base_offset for each in found] != list(range(len(found))):
        return None
    if needs_keys and any(each.key is None for each in found):
        return None
    times = [each.timestamp_delta for each in found]
    return RecordTimes(min(times), max(times))


@given(st.lists(ROW, min_size=1, max_size=6), st.booleans())
def test_times_of_a_sound_batch_are_those_of_its_records(rows: list[Row], needs_keys: bool) -> None:
    batch = batch_of(rows)
    assert consecutive_times(batch, needs_keys=needs_keys) == by_the_decoder(batch, needs_keys=needs_keys)


@given(st.lists(ROW, min_size=1, max_size=3), st.data(), st.booleans())
def test_a_damaged_batch_has_times_only_if_the_decoder_accepts_it(
    rows: list[Row], data: st.DataObject, needs_keys: bool
) -> None:
    sound = batch_of(rows).data
    at = data.draw(st.integers(HEADER_BYTES, min(len(sound), HEADER_BYTES + 80) - 1))
    damaged = sound[:at] + bytes([data.draw(st.integers(0, 255))]) + sound[at + 1 :]
    cut = data.draw(st.sampled_from((0, 0, 1, 7)))
    damaged = damaged[: len(damaged) - cut]
    damaged = damaged[:8] + (len(damaged) - 12).to_bytes(4, "big") + damaged[12:]
    batch = read_batch(with_checksum(damaged))
    assert consecutive_times(batch, needs_keys=needs_keys) == by_the_decoder(batch, needs_keys=needs_keys)


@given(
    st.lists(ROW.map(without_gap), min_size=1, max_size=4), st.integers(-20_000, 20_000), st.booleans(), st.booleans()
)
def test_a_client_batch_is_accepted_as_its_records_are(
    rows: list[Row], late_ms: int, is_compacted: bool, is_log_append_time: bool
) -> None:
    """The refusal for a time or a missing key names the records, which only the decoder knows."""
    options = LogOptions(
        is_compacted=is_compacted,
        is_log_append_time=is_log_append_time,
        timestamp_before_max_ms=10_000,
        timestamp_after_max_ms=10_000,
    )
    sent = batches_of_client(batch_of(rows).data, options)
    assert not isinstance(sent, Refused), sent
    [batch] = sent
    now_ms = NOW_MS + late_ms
    found = prepare(batch, offset=100, epoch=3, options=options, now_ms=now_ms)
    wrong = [
        index
        for index, (delta, key, _, _, _) in enumerate(rows)
        if (is_compacted and key is None) or (not is_log_append_time and abs(delta - late_ms) > 10_000)
    ]
    if wrong:
        assert isinstance(found, Refused)
        assert [each.index for each in found.records] == wrong
        return
    assert isinstance(found, RecordBatch)
    read_batch(found.data)
    assert (found.base_offset, found.epoch, found.next_offset) == (100, 3, 100 + len(rows))
    assert found.max_timestamp == (now_ms if is_log_append_time else NOW_MS + max(row[0] for row in rows))
    assert [each.value for each in records(found)] == [row[2] for row in rows]
