"""Records as lines: plain lines, JSON lines, and lines in a format of the user's own."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any, Final

from kraft.client import ConsumedRecord, Header
from kraft.client.state.batches import NewRecord
from metadata_log.reading.timeline import parse_at
from metadata_log.times import iso_time, json_time

BASE64: Final = "base64"
_FIELDS: Final = ("key", "value", "headers", "partition", "timestamp")
_FROM_CONSUME: Final = ("topic", "offset", "timestampType", "leaderEpoch", "deliveryCount")
"""Fields that `kraft consume --json` prints and that a record to write does not need."""
_PLACEHOLDER: Final = re.compile(r"\{([a-zA-Z]*)\}")
_ESCAPES: Final = {r"\n": "\n", r"\t": "\t", r"\\": "\\"}
_ESCAPE: Final = re.compile(r"\\[nt\\]")


class BadLine(ValueError):
    """A line is no record."""


# ----------------------------------------------------------------------------------------------------- lines to records


def record_of_line(
    line: bytes, *, separator: bytes | None, key: bytes | None, headers: tuple[Header, ...], partition: int | None
) -> NewRecord:
    """The record of a plain line without its end; `BadLine` without the separator between key and value. A separator of
    None: the line is the value. The key, the headers and the partition are those of each record.
    """
    if separator is not None:
        key, found, line = line.partition(separator)
        if not found:
            raise BadLine(f"the line has no {separator.decode('utf-8', 'replace')!r} between key and value")
    return NewRecord(value=line, key=key, headers=headers, partition=partition)


def record_of_json(line: bytes, *, key: bytes | None, headers: tuple[Header, ...], partition: int | None) -> NewRecord:
    """The record of a JSON line; `key`, `headers` and `partition` hold where the line has none. `BadLine` for any other
    line.
    """
    try:
        record = json.loads(line)
    except ValueError as bad:
        raise BadLine(f"the line is not JSON: {bad}") from None
    if not isinstance(record, dict):
        raise BadLine(f"the line is no JSON object with {', '.join(_FIELDS)}")
    unknown = record.keys() - {*_FIELDS, *_FROM_CONSUME}
    if unknown:
        raise BadLine(f"a record has no {min(unknown)}; it has {', '.join(_FIELDS)}")
    number = record.get("partition")
    if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 0):
        raise BadLine(f"partition is no number from 0: {json.dumps(number)}")
    return NewRecord(
        value=_bytes_of(record.get("value"), "value"),
        key=_bytes_of(record["key"], "key") if "key" in record else key,
        headers=_headers_of(record["headers"]) if "headers" in record else headers,
        partition=partition if partition is not None else number,
        timestamp_ms=_time_of(record.get("timestamp")),
    )


def _bytes_of(found: Any, field: str) -> bytes | None:
    if found is None:
        return None
    if isinstance(found, str):
        return found.encode()
    if isinstance(found, dict) and found.keys() == {BASE64} and isinstance(found[BASE64], str):
        try:
            return base64.b64decode(found[BASE64], validate=True)
        except ValueError as bad:
            raise BadLine(f"{field} is not base64: {bad}") from None
    raise BadLine(f'{field} is neither a text, nor {{"base64": …}}, nor null: {json.dumps(found)[:80]}')


def _headers_of(found: Any) -> tuple[Header, ...]:
    if isinstance(found, dict):
        return tuple(Header(name, _bytes_of(value, f"header {name}")) for name, value in found.items())
    if isinstance(found, list) and all(isinstance(one, dict) and isinstance(one.get("key"), str) for one in found):
        return tuple(Header(one["key"], _bytes_of(one.get("value"), f"header {one['key']}")) for one in found)
    raise BadLine('headers are neither {"name": "value"} nor [{"key": "name", "value": "value"}]')


def _time_of(found: Any) -> int | None:
    if found is None:
        return None
    if isinstance(found, int) and not isinstance(found, bool):
        return found
    try:
        return moment_of(str(found))
    except ValueError as bad:
        raise BadLine(f"timestamp is neither a time nor a number of milliseconds: {bad}") from None


def moment_of(text: str) -> int:
    """A time such as 2026-11-21T08:17:00Z in ms since 1970; raises `ValueError`."""
    moment = parse_at(text)
    if moment.timestamp_ms is None:
        raise ValueError(f"{text!r} is no time such as 2026-11-21T08:17:00Z")
    return moment.timestamp_ms


def header_of(text: str) -> Header:
    """Parse `NAME=VALUE`; raises `ValueError`."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError(f"{text!r} is no NAME=VALUE")
    return Header(name, value.encode())


# ----------------------------------------------------------------------------------------------------- records to lines


def json_line(topic: str, record: ConsumedRecord) -> bytes:
    """A record as one JSON object, which `kraft produce --json` reads."""
    facts = {
        "topic": topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": json_time(record.timestamp_ms),
        "timestampType": "LogAppendTime" if record.is_append_time else "CreateTime",
        "leaderEpoch": record.leader_epoch,
        "key": _json_of(record.key),
        "value": _json_of(record.value),
        "headers": [{"key": one.key, "value": _json_of(one.value)} for one in record.headers],
    }
    if record.delivery_count is not None:
        facts["deliveryCount"] = record.delivery_count
    return json.dumps(facts, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _json_of(data: bytes | None) -> str | dict[str, str] | None:
    """Text where the bytes are UTF-8, else base64, so that no byte is lost."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {BASE64: base64.b64encode(data).decode()}


def _headers_text(record: ConsumedRecord) -> bytes:
    return b",".join(one.key.encode() + b"=" + (b"null" if one.value is None else one.value) for one in record.headers)


_PLACES: Final[dict[str, Callable[[str, ConsumedRecord], bytes]]] = {
    "topic": lambda topic, _: topic.encode(),
    "partition": lambda _, record: b"%d" % record.partition,
    "offset": lambda _, record: b"%d" % record.offset,
    "timestamp": lambda _, record: (iso_time(record.timestamp_ms) or "-").encode(),
    "key": lambda _, record: b"null" if record.key is None else record.key,
    "value": lambda _, record: b"null" if record.value is None else record.value,
    "headers": lambda _, record: _headers_text(record),
}
PLACES: Final = ", ".join(f"{{{name}}}" for name in _PLACES)


def formatter(template: str) -> Callable[[str, ConsumedRecord], bytes]:
    """A function that prints a record by a template, such as `{offset}: {key} {value}`; raises `ValueError`."""
    parts: list[bytes | Callable[[str, ConsumedRecord], bytes]] = []
    at = 0
    for match in _PLACEHOLDER.finditer(template):
        place = _PLACES.get(match[1])
        if place is None:
            raise ValueError(f"there is no {match[0]}; a record has {PLACES}")
        parts += [_unescaped(template[at : match.start()]), place]
        at = match.end()
    parts.append(_unescaped(template[at:]))
    return lambda topic, record: b"".join(part if isinstance(part, bytes) else part(topic, record) for part in parts)


def _unescaped(text: str) -> bytes:
    return _ESCAPE.sub(lambda match: _ESCAPES[match[0]], text).encode()
