"""The payload of a push: OpenTelemetry's `MetricsData`, in portions (Kafka: a `ClientTelemetryReceiver`; OTLP).

The library decodes one metric at a time. A message of a megabyte may hold half a million empty messages, which would
all be objects at once, and in one turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from google.protobuf.message import DecodeError
from msgspec import Struct
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA, Metric, NumberDataPoint
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from kraft.handling.steps import Handling, long_step
from kraft.limits import (
    TELEMETRY_BYTES_PER_STEP,
    TELEMETRY_FIELDS,
    TELEMETRY_LABEL_CHARACTERS,
    TELEMETRY_LABELS,
    TELEMETRY_METRIC_BYTES,
    TELEMETRY_POINTS_PER_STEP,
    TELEMETRY_SERIES_OF_CLIENT,
)

_RESOURCE_METRICS: Final = 1
_RESOURCE: Final = 1
_SCOPE_METRICS: Final = 2
_METRICS: Final = 2
_LENGTH_DELIMITED: Final = 2
_FIXED: Final = {1: 8, 5: 4}
_VARINT_BYTES: Final = 10
_CONTROLS: Final = dict.fromkeys((*range(32), 127), "?")
_UNFIT: Final = re.compile(r"[^a-zA-Z0-9_]")
Labels = tuple[tuple[str, str], ...]


class BadPayload(ValueError):
    """The bytes are no `MetricsData`."""


class TooManyMetrics(ValueError):
    """There are more metrics, or parts of them, than a broker takes."""


class Point(Struct, frozen=True, gc=False):
    """One number."""

    name: str
    labels: Labels
    value: float
    is_counter: bool
    """Whether it only rises: a monotonic sum."""
    is_delta: bool
    """Whether it is the growth since the last push."""


class Points(Struct):
    """The numbers of a push, and how many were left out: what is no number, and what is beyond the bounds."""

    found: list[Point] = []
    left_out: int = 0


def points_of(data: bytes) -> Handling[Points]:
    """The numbers in a `MetricsData`, in steps of less than a millisecond.

    Raises:
        BadPayload: The bytes are no `MetricsData`.
        TooManyMetrics: It has too many parts.
    """
    points = Points()
    fields = _Fields()
    whole = memoryview(data)
    for _, resource_metrics in fields.of(whole, (_RESOURCE_METRICS,)):
        yield from fields.pause()
        common: dict[str, str] = {}
        scopes = []
        for number, part in fields.of(resource_metrics, (_RESOURCE, _SCOPE_METRICS)):
            yield from fields.pause()
            if number == _RESOURCE:
                common |= _resource_labels(part, points)
            else:
                scopes.append(part)
        for scope in scopes:
            for _, metric in fields.of(scope, (_METRICS,)):
                yield from fields.pause()
                yield from long_step(len(metric) // TELEMETRY_BYTES_PER_STEP)
                yield from _add(metric, common, points)
    return points


class _Fields:
    """Walks over the fields of messages, without decoding what is in them, and counts them."""

    def __init__(self) -> None:
        self._seen = 0
        self._told = 0

    def of(self, message: memoryview, wanted: tuple[int, ...]) -> Iterator[tuple[int, memoryview]]:
        """The fields with these numbers that are messages, in their order."""
        position, end = 0, len(message)
        while position < end:
            self._seen += 1
            if self._seen > TELEMETRY_FIELDS:
                raise TooManyMetrics(f"there are more than {TELEMETRY_FIELDS} metrics")
            key, position = _varint(message, position)
            kind = key & 7
            if kind == _LENGTH_DELIMITED:
                size, begin = _varint(message, position)
                position = begin + size
                if position <= end and key >> 3 in wanted:
                    yield key >> 3, message[begin:position]
            elif kind == 0:
                _, position = _varint(message, position)
            elif kind in _FIXED:
                position += _FIXED[kind]
            else:
                raise BadPayload(f"a field has the kind {kind}")
            if key >> 3 == 0 or position > end:
                raise BadPayload("a field is cut short, or has no number")

    def pause(self) -> Handling[None]:
        """A step is over if many fields were seen since the last one."""
        if self._seen - self._told >= TELEMETRY_POINTS_PER_STEP:
            self._told = self._seen
            yield None


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for at, byte in enumerate(message[position : position + _VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            return value, position + at + 1
    raise BadPayload("a number is cut short")


def _resource_labels(part: memoryview, points: Points) -> dict[str, str]:
    """The labels that are the same for all metrics of a client, such as its group."""
    if len(part) > TELEMETRY_METRIC_BYTES:
        points.left_out += 1
        return {}
    attributes = _decoded(Resource, part).attributes
    return _labels(attributes) if len(attributes) <= TELEMETRY_LABELS else {}


def _decoded(kind: Any, part: memoryview) -> Any:
    try:
        return kind.FromString(bytes(part))
    except DecodeError as bad:
        raise BadPayload(str(bad)) from bad


def _add(part: memoryview, common: dict[str, str], points: Points) -> Handling[None]:
    if len(part) > TELEMETRY_METRIC_BYTES:
        points.left_out += 1
        return
    metric = _decoded(Metric, part)
    is_sum = metric.HasField("sum")
    if not (is_sum or metric.HasField("gauge")) or not 0 < len(metric.name) <= TELEMETRY_LABEL_CHARACTERS:
        points.left_out += 1
        return
    name = shown(metric.name)
    kind = metric.sum if is_sum else metric.gauge
    is_counter = is_sum and kind.is_monotonic
    is_delta = is_sum and kind.aggregation_temporality == AGGREGATION_TEMPORALITY_DELTA
    if len(points.found) + len(kind.data_points) > TELEMETRY_SERIES_OF_CLIENT:
        points.left_out += len(kind.data_points)
        return
    for number, point in enumerate(kind.data_points, 1):
        value = _number(point)
        if value is None or len(point.attributes) + len(common) > TELEMETRY_LABELS:
            points.left_out += 1
        else:
            labels = tuple(sorted((common | _labels(point.attributes)).items()))
            points.found.append(Point(name, labels, value, is_counter, is_delta))
        if number % TELEMETRY_POINTS_PER_STEP == 0:
            yield None


def _number(point: NumberDataPoint) -> float | None:
    match point.WhichOneof("value"):
        case "as_double":
            return float(point.as_double)
        case "as_int":
            return float(point.as_int)
        case _:
            return None


def _labels(attributes: Iterator[KeyValue]) -> dict[str, str]:
    """The labels of some attributes; one whose value is neither a text nor a number has none."""
    found = {}
    for one in attributes:
        text = _text(one.value)
        name = prometheus_word(one.key)
        if text is not None and 0 < len(one.key) <= TELEMETRY_LABEL_CHARACTERS:
            found[name] = shown(text)
    return found


def _text(value: AnyValue) -> str | None:
    match value.WhichOneof("value"):
        case "string_value":
            return str(value.string_value)
        case "bool_value":
            return str(value.bool_value).lower()
        case "int_value":
            return str(value.int_value)
        case "double_value":
            return str(value.double_value)
        case _:
            return None


def shown(text: str) -> str:
    """A text of a client as a metric shows it: not too long, without control characters and halves of surrogates."""
    return text[:TELEMETRY_LABEL_CHARACTERS].translate(_CONTROLS).encode(errors="replace").decode()


def prometheus_word(name: str) -> str:
    """A name with Prometheus' characters alone. It begins with no digit, and not with two underscores."""
    word = _UNFIT.sub("_", name)
    return f"_{word}" if word[:1].isdigit() else word if not word.startswith("__") else word.lstrip("_") or "_"
