"""Through any change of a log between two triggers, a stream delivers each record once or reports the lost ones."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from metadata_log.spark.log_index import IndexedBatch, LogIndex, SegmentIndex
from metadata_log.spark.progress import (
    Progress,
    Resume,
    StreamOffset,
    from_json,
    limited,
    progress_at,
    resume,
    to_json,
)


def log(epochs: list[int], start: int = 0, per_batch: int = 1) -> LogIndex:
    """A log with one record for each epoch given, of which those below `start` were deleted."""
    batches = [
        IndexedBatch(base, min(base + per_batch, len(epochs)), epochs[base], epochs[base] * 1000 + base, 0)
        for base in range(start, len(epochs), per_batch)
    ]
    return LogIndex((SegmentIndex("s", start, 0, tuple(batches)),))


histories = st.lists(st.integers(0, 4), max_size=15).map(sorted)


@given(shared=histories, ours=histories, theirs=histories, deleted=st.integers(0, 12))
def test_a_truncated_and_rewritten_log_is_detected(
    shared: list[int], ours: list[int], theirs: list[int], deleted: int
) -> None:
    """Also where it is longer than before, and where retention has taken its beginning."""
    base = 10
    before = [*shared, *(base + 2 * epoch for epoch in ours)]
    after = [*shared, *(base + 2 * epoch + 1 for epoch in theirs)]
    start = min(deleted, len(after))
    read = progress_at(log(before), len(before))
    found = resume(read, log(after, start))
    if len(before) < start:
        assert found == Resume(start, lost=range(len(before), start))
    elif len(before) == start:
        assert found == Resume(start)
    else:
        assert found == Resume(max(len(shared), start), withdrawn=range(max(len(shared), start), len(before)))


@given(epochs=histories, more=histories, at=st.integers(0, 15), deleted=st.integers(0, 12))
def test_a_grown_log_resumes_at_its_last_offset(epochs: list[int], more: list[int], at: int, deleted: int) -> None:
    grown = sorted([*epochs, *(epoch + 4 for epoch in more)])
    read = progress_at(log(epochs), min(at, len(epochs)))
    start = min(deleted, read.offset)
    assert resume(read, log(grown, start)) == Resume(read.offset)
    assert resume(None, log(grown, start)) == Resume(start)


@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    limit=st.integers(1, 30),
    per_batch=st.integers(1, 6),
)
def test_triggers_with_a_limit_reach_the_end_in_whole_batches(lengths: list[int], limit: int, per_batch: int) -> None:
    logs = {f"c{number}": log([1] * length, per_batch=per_batch) for number, length in enumerate(lengths)}
    at = dict.fromkeys(logs, 0)
    for _ in range(sum(lengths) + 1):
        after = limited(at, logs, limit)
        read = sum(after[name] - at[name] for name in at)
        assert read <= max(limit, per_batch)
        for name, one in logs.items():
            assert after[name] in {0, *(batch.next_offset for batch in one.batches)}
        if after == at:
            break
        at = after
    assert at == {name: one.end_offset for name, one in logs.items()}


def test_available_now_does_not_read_beyond_its_target() -> None:
    """AvailableNow promises to end, whatever is written meanwhile."""
    logs = {"a": log([1] * 10, per_batch=2), "new": log([1] * 4)}
    starts = {"a": 0, "new": 0}
    assert limited(starts, logs, None, {"a": 6}) == {"a": 6, "new": 0}
    assert limited(starts, logs, 4, {"a": 6}) == {"a": 4, "new": 0}


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=5),
        st.builds(Progress, st.integers(0, 99), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))).map(tuple)),
    ),
    st.sampled_from(["", "abc"]),
)
def test_stream_offsets_survive_json(clusters: dict[str, Progress], problems: str) -> None:
    offset = StreamOffset(clusters, problems)
    assert from_json(json.loads(json.dumps(to_json(offset)))) == offset
