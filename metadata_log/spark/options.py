"""The options of the Spark source as one frozen value; the error for an unknown name or value lists the known ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from metadata_log.history import Options as HistoryOptions
from metadata_log.spark.errors import OptionError

T = TypeVar("T")
RECORDS: Final = "records"
FAILFAST: Final = "FAILFAST"
PERMISSIVE: Final = "PERMISSIVE"


class Options(Struct, frozen=True, kw_only=True):
    """The options of the Spark source `kraft`, under their Python names; `docs/howto/spark.md` shows Spark's names.

    Args:
        paths: Directories, files and globs; at least one.
        view: The view: `records`, a record type, or a history. Default: `records`.
        mode: The reaction to damage: FAILFAST (default), PERMISSIVE or DROPMALFORMED.
        payload: The form of the column `payload`, "json" or "variant"; None (default) leaves the column out.
        show_secrets: Whether secrets are shown. Default: False.
        clusters: The cluster ids to read; empty (default) for all.
        types: The record types to read; empty (default) for all.
        from_offset: The first offset to read; None (default) for the start of the log.
        to_offset: The first offset that is not read; None (default) for the end of the log.
        since: The first time to read, in ISO 8601 with its zone; None (default) for the first record.
        until: The first time that is not read, in ISO 8601 with its zone; None (default) for the last record.
        as_of_offset: The last offset of a history or state; None (default) for the end of the log.
        as_of_timestamp: The last time of a history or state, in ISO 8601 with its zone; excludes `as_of_offset`.
        push_filters: Whether Spark's filters limit the records that are read. Default: False.
        snapshots: Whether the snapshots of a directory are read too. Default: False.
        session_timeout_ms: The brokers' broker.session.timeout.ms in ms, at least 1; None (default) if unknown.
        gap_tolerance_ms: The time in ms, at least 1, in which an active controller may write nothing; None (default)
            for Kafka's interval.
        copies: Which of several copies of a log are read: "best" (default) or "all".
        split_bytes: The minimum size of a task in bytes, at least 1. Default: 8 MiB.
        max_tasks: The most tasks of a query, at least 1: small logs share a task. Default: 400.
        passes: The directory of saved passes, at which histories are cut into tasks; None (default) for one task a log.
        storage: The storage options of fsspec. Default: none.
        cluster_names: The file with the names of the clusters: TOML, CSV, JSON or Parquet; None (default) for none.
        starting_offsets: The start of a new stream: "earliest" (default), "latest", or the first offset by cluster id.
        max_offsets_per_trigger: The approximate number of offsets of a trigger, at least 1; None (default) for all.
        fail_on_data_loss: Whether a stream fails if unread records were deleted. Default: True.
        on_truncation: The reaction if records that the stream has read are truncated: "fail" (default) ends the stream,
            "mark" adds a row that reports the truncation.
    """

    paths: tuple[str, ...]
    view: str = RECORDS
    mode: str = FAILFAST
    payload: str | None = None
    show_secrets: bool = False
    clusters: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    from_offset: int | None = None
    to_offset: int | None = None
    since: str | None = None
    until: str | None = None
    as_of_offset: int | None = None
    as_of_timestamp: str | None = None
    push_filters: bool = False
    snapshots: bool = False
    session_timeout_ms: int | None = None
    gap_tolerance_ms: int | None = None
    copies: str = "best"
    split_bytes: int = 8 << 20
    max_tasks: int = 400
    passes: str | None = None
    storage: dict[str, Any] = {}
    cluster_names: str | None = None
    starting_offsets: str | dict[str, int] = "earliest"
    max_offsets_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    on_truncation: str = "fail"


def history_options(options: Options) -> HistoryOptions:
    """The options of the history engine."""
    told = HistoryOptions(session_timeout_ms=options.session_timeout_ms, show_secrets=options.show_secrets)
    tolerance = options.gap_tolerance_ms
    return told if tolerance is None else replace(told, gap_tolerance_ms=tolerance)


def _one_of(*allowed: str) -> Callable[[str], str]:
    def choose(text: str) -> str:
        chosen = next((value for value in allowed if value.lower() == text.lower()), None)
        if chosen is None:
            raise ValueError(f"one of {', '.join(allowed)} is allowed")
        return chosen

    return choose


def _boolean(text: str) -> bool:
    return _one_of("true", "false")(text) == "true"


def _count(text: str) -> int:
    if not (text.isdecimal() and text.isascii()):
        raise ValueError("a number from 0 up is expected")
    return int(text)


def _positive(text: str) -> int:
    count = _count(text)
    if count == 0:
        raise ValueError("a number from 1 up is expected")
    return count


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _json_object(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as bad:
        raise ValueError(f"a JSON object is expected: {bad}") from bad
    if not isinstance(document, dict):
        raise ValueError("a JSON object is expected")
    return document


def _starting_offsets(text: str) -> str | dict[str, int]:
    if not text.lstrip().startswith("{"):
        return _one_of("earliest", "latest")(text)
    offsets = _json_object(text)
    if not all(type(offset) is int and offset >= 0 for offset in offsets.values()):
        raise ValueError('offsets by cluster are expected, as in {"cluster id": 1234}')
    return offsets


_PARSERS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "view": ("view", str),
    "mode": ("mode", _one_of(FAILFAST, PERMISSIVE, "DROPMALFORMED")),
    "payload": ("payload", _one_of("json", "variant")),
    "showSecrets": ("show_secrets", _boolean),
    "cluster": ("clusters", _names),
    "type": ("types", _names),
    "fromOffset": ("from_offset", _count),
    "toOffset": ("to_offset", _count),
    "since": ("since", str),
    "until": ("until", str),
    "asOfOffset": ("as_of_offset", _count),
    "asOfTimestamp": ("as_of_timestamp", str),
    "sessionTimeoutMs": ("session_timeout_ms", _positive),
    "gapToleranceMs": ("gap_tolerance_ms", _positive),
    "pushFilters": ("push_filters", _boolean),
    "snapshots": ("snapshots", _boolean),
    "copies": ("copies", _one_of("best", "all")),
    "splitBytes": ("split_bytes", _positive),
    "maxTasks": ("max_tasks", _positive),
    "passes": ("passes", str),
    "storageOptions": ("storage", _json_object),
    "clusters": ("cluster_names", str),
    "startingOffsets": ("starting_offsets", _starting_offsets),
    "maxOffsetsPerTrigger": ("max_offsets_per_trigger", _positive),
    "failOnDataLoss": ("fail_on_data_loss", _boolean),
    "onTruncation": ("on_truncation", _one_of("fail", "mark")),
}
OPTION_NAMES: Final = tuple(_PARSERS)


def parse_options(options: Mapping[str, str]) -> Options:
    """Read the options of `spark.read.format("kraft")`.

    Args:
        options: The values by option name, in any case. `path` is one path, `paths` is a JSON list of paths.

    Returns:
        The options with their defaults.

    Raises:
        OptionError: A name or value is unknown, no path is given, or two options exclude each other.
    """
    by_lower = {name.lower(): name for name in _PARSERS}
    values: dict[str, Any] = {}
    paths: tuple[str, ...] = ()
    for given, text in options.items():
        key = given.lower()
        if key == "path":
            paths = (text, *paths)
        elif key == "paths":
            paths = (*paths, *json.loads(text))
        elif key in by_lower:
            field, parse = _PARSERS[by_lower[key]]
            values[field] = _parsed(by_lower[key], text, parse)
        else:
            raise OptionError(f"there is no option {given!r}{nearest(given, _PARSERS)}")
    if not paths:
        raise OptionError("no path is given: load() takes a directory, a file, a glob or a list of them")
    parsed = Options(paths=paths, **values)
    if parsed.as_of_offset is not None and parsed.as_of_timestamp is not None:
        raise OptionError("asOfOffset and asOfTimestamp exclude each other")
    return parsed


def _parsed(name: str, text: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(text)
    except ValueError as bad:
        raise OptionError(f"{name}={text!r} is not understood: {bad}") from bad


def nearest(given: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    """The end of a sentence that lists the nearest names, or all names."""
    by_lower = {name.lower(): name for name in known}
    close = [by_lower[name] for name in get_close_matches(given.lower(), by_lower, n=3, cutoff=0.6)]
    return f"; did you mean {' or '.join(close)}?" if close else f"; there are {', '.join(sorted(known))}"
