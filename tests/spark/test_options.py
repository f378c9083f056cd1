"""The options of a query are understood or refused with a sentence, before anything is read."""

from __future__ import annotations

from datetime import UTC, datetime
from traceback import format_exception

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from metadata_log.arrow import Filters
from metadata_log.reading.timeline import At
from metadata_log.spark.errors import OptionError
from metadata_log.spark.filters import Wanted, as_of, is_exact, narrowed, wanted_by
from metadata_log.spark.options import parse_options


def test_paths_and_options_in_any_case() -> None:
    """Spark writes the names of options in lower case on their way."""
    options = parse_options({"path": "/a", "VIEW": "records", "asofoffset": "12", "MaxOffsetsPerTrigger": "5"})
    assert (options.paths, options.as_of_offset, options.max_offsets_per_trigger) == (("/a",), 12, 5)
    assert parse_options({"paths": '["/a", "/b"]'}).paths == ("/a", "/b")
    assert parse_options({"path": "/a", "mode": "permissive"}).mode == "PERMISSIVE"
    assert parse_options({"path": "/a", "startingOffsets": '{"x": 3}'}).starting_offsets == {"x": 3}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "no path is given"),
        ({"path": "/a", "asOfOfset": "1"}, "there is no option 'asOfOfset'; did you mean asOfOffset"),
        ({"path": "/a", "mode": "LOOSE"}, "mode='LOOSE' is not understood: one of FAILFAST, PERMISSIVE, DROPMALFORMED"),
        ({"path": "/a", "asOfOffset": "-1"}, "a number from 0 up is expected"),
        ({"path": "/a", "splitBytes": "0"}, "a number from 1 up is expected"),
        ({"path": "/a", "storageOptions": "[1]"}, "a JSON object is expected"),
        ({"path": "/a", "startingOffsets": '{"x": "3"}'}, "offsets by cluster are expected"),
        ({"path": "/a", "asOfOffset": "1", "asOfTimestamp": "2026-01-01T00:00:00Z"}, "exclude each other"),
    ],
)
def test_unknown_options_and_values_are_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parse_options(options)


def test_points_in_time_are_parsed_from_options() -> None:
    def at(**options: str) -> At | None:
        return as_of(parse_options({"path": "/a", **options}))

    assert at() is None
    assert at(asOfOffset="7") == At(offset=7)
    assert at(asOfTimestamp="1970-01-01T00:00:01.5Z") == At(timestamp_ms=1500)
    with pytest.raises(OptionError, match="a time is expected"):
        at(asOfTimestamp="77")
    with pytest.raises(OptionError, match="does not say in which time zone"):
        at(asOfTimestamp="1970-01-01T00:00:01")


def test_bounds_from_options() -> None:
    """`asOf…` includes its moment, `toOffset` and `until` do not."""
    options = {"path": "/a", "fromOffset": "3", "toOffset": "30", "asOfOffset": "9", "since": "1970-01-01T00:00:01Z"}
    wanted = wanted_by(parse_options({**options, "cluster": "x, y", "type": "TopicRecord"}))
    assert wanted.clusters == ("x", "y")
    assert wanted.rows == Filters(from_offset=3, until_offset=10, from_timestamp_ms=1000, types=("TopicRecord",))


ONE_SECOND = datetime(1970, 1, 1, 0, 0, 1, 500, tzinfo=UTC)


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ([EqualTo(("cluster",), "x")], Wanted(("x",))),
        ([In(("cluster",), ("x", "y")), EqualNullSafe(("cluster",), "y")], Wanted(("y",))),
        ([EqualTo(("cluster",), "x"), EqualTo(("cluster",), "y")], Wanted(())),
        ([In(("type",), ("TopicRecord", "NoOpRecord"))], Wanted(None, Filters(types=("TopicRecord", "NoOpRecord")))),
        ([GreaterThan(("offset",), 4), LessThan(("offset",), 9)], Wanted(None, Filters(from_offset=5, until_offset=9))),
        (
            [GreaterThanOrEqual(("offset",), 4), LessThanOrEqual(("offset",), 9), GreaterThan(("offset",), 1)],
            Wanted(None, Filters(from_offset=4, until_offset=10)),
        ),
        ([EqualTo(("offset",), 4)], Wanted(None, Filters(from_offset=4, until_offset=5))),
        (
            [GreaterThan(("timestamp",), ONE_SECOND), LessThanOrEqual(("timestamp",), ONE_SECOND)],
            Wanted(None, Filters(from_timestamp_ms=1000, until_timestamp_ms=1001)),
        ),
        ([Not(EqualTo(("offset",), 4)), IsNotNull(("cluster",)), EqualTo(("epoch",), 4)], Wanted()),
        ([EqualTo(("payload", "offset"), 4)], Wanted()),
    ],
)
def test_filters_narrow_the_wanted_rows(filters: list[Filter], wanted: Wanted) -> None:
    assert narrowed(Wanted(), filters) == wanted


def test_only_cluster_equality_filters_are_exact() -> None:
    assert is_exact(EqualTo(("cluster",), "x"))
    assert not is_exact(EqualTo(("offset",), 4))
    assert not is_exact(In(("cluster",), ("x",)))


def test_what_shows_an_error_shows_its_hint_once() -> None:
    """Spark shows the text and the notes."""
    shown = "".join(format_exception(OptionError("what is wrong", hint="do this")))
    assert shown.count("do this") == 1
