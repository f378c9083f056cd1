"""One function formats times, and it takes every int64: clients write the times of records."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.cli.cluster.record_lines import moment_of as parsed
from metadata_log.arrow.columns import MOST_MS, array_of
from metadata_log.arrow.schema import TIMESTAMP
from metadata_log.report.tables import time_text
from metadata_log.report.ticks import ticks_of
from metadata_log.times import iso_time, json_time, when_text

MAX = 2**63 - 1
MIN = -(2**63)


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [
        (None, None),
        (-1, None),
        (0, "1970-01-01T00:00:00.000Z"),
        (1_795_387_491_636, "2026-11-22T22:44:51.636Z"),
        (-2, "1969-12-31T23:59:59.998Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
        (-62_135_596_800_001, "-62135596800001 ms"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "253402300800000 ms"),
        (MAX, "9223372036854775807 ms"),
        (MIN, "-9223372036854775808 ms"),
    ],
)
def test_each_time_has_a_text(timestamp_ms: int | None, text: str | None) -> None:
    assert iso_time(timestamp_ms) == text
    assert when_text(timestamp_ms) == ("no time" if text is None else text)


@given(st.integers(MIN, MAX))
def test_no_time_is_lost_in_json(timestamp_ms: int) -> None:
    text = json_time(timestamp_ms)
    assert text == timestamp_ms if isinstance(text, int) else parsed(text) == timestamp_ms


@given(st.integers(MIN, MAX), st.integers(MIN, MAX))
def test_a_time_axis_has_few_labels(one: int, other: int) -> None:
    begin, end = sorted((one, other))
    ticks = ticks_of(begin, end + 1)
    assert len(ticks) <= 7
    assert all(0 <= tick.x <= 100 for tick in ticks)
    assert time_text(one) != ""


def test_a_time_beyond_arrows_range_is_the_nearest_one() -> None:
    values = [None, 0, 1_795_387_491_636, MOST_MS, MAX, MIN]
    found = array_of(values, TIMESTAMP).cast("int64").to_pylist()
    assert found == [None, 0, 1_795_387_491_636_000, MOST_MS * 1000, MOST_MS * 1000, -MOST_MS * 1000]
    assert array_of([0], TIMESTAMP).to_pylist() == [datetime(1970, 1, 1, tzinfo=UTC)]
