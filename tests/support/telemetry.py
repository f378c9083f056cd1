"""Metrics as clients push them, in OpenTelemetry's format."""

from __future__ import annotations

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource


def _attributes(labels: dict[str, str]) -> list[KeyValue]:
    return [KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in labels.items()]


def a_gauge(name: str, value: float, **labels: str) -> Metric:
    """A metric of one number."""
    return Metric(
        name=name, gauge=Gauge(data_points=[NumberDataPoint(as_double=value, attributes=_attributes(labels))])
    )


def a_sum(name: str, value: int, temporality: int, **labels: str) -> Metric:
    """A counter."""
    point = NumberDataPoint(as_int=value, attributes=_attributes(labels))
    kind = Sum(data_points=[point], is_monotonic=True)
    kind.aggregation_temporality = temporality  # type: ignore[assignment]
    return Metric(name=name, sum=kind)


def payload(*metrics: Metric, **labels: str) -> MetricsData:
    """What one client pushes at once; the labels are those of all its metrics."""
    scope = ScopeMetrics(metrics=metrics)
    return MetricsData(
        resource_metrics=[ResourceMetrics(resource=Resource(attributes=_attributes(labels)), scope_metrics=[scope])]
    )
