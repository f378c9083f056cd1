"""The names of metrics: Kafka's MBeans in the dialects of their exporters.

`JMX_EXPORTER` has the names of jmx_exporter's rules for KRaft, and those of Strimzi's Metrics Reporter where they
differ. `STRIMZI_JMX` has the names of Strimzi's JMX rules.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from msgspec import Struct

from kraft.metrics.windows import Quantiles


class Kind(Enum):
    """The kind of a Kafka metric, which decides its form in Prometheus."""

    GAUGE = "gauge"
    """A number that may fall."""
    TOTAL = "total"
    """A Kafka metric with a name that ends in `-total`."""
    TEXT = "text"
    """A text, which becomes a label."""
    METER = "meter"
    """The count of a Yammer meter."""
    HISTOGRAM = "histogram"
    """A Yammer histogram: count, sum and quantiles."""


class Dialect(Enum):
    """A set of Prometheus names for the same MBeans."""

    JMX_EXPORTER = "jmx-exporter"
    STRIMZI_JMX = "strimzi-jmx"


class Mbean(Struct, frozen=True):
    """A metric of Kafka: the domain, the type and the name of its MBean, or the attribute of a Kafka metric."""

    domain: str
    type: str
    name: str
    help: str
    kind: Kind = Kind.GAUGE


class Own(Struct, frozen=True):
    """A metric that Kafka lacks: its full name, and its Prometheus type (`gauge` or `counter`)."""

    name: str
    help: str
    type: str = "gauge"


class Reading(Struct, frozen=True):
    """The value of one series. `labels` are Kafka's tags or our labels, in the form of Prometheus."""

    metric: Mbean | Own
    value: float | str | Quantiles
    labels: tuple[tuple[str, str], ...] = ()


class Series(Struct, frozen=True):
    """One series of a family: the full name, the labels and the value."""

    family: str
    type: str
    help: str
    name: str
    labels: dict[str, str]
    value: float


_STRIMZI_TYPES: Final = {
    "raft-metrics": "raftmetrics",
    "raft-channel-metrics": "raftchannelmetrics",
    "broker-metadata-metrics": "brokermetadatametrics",
}
_PER_SEC: Final = "persec"


def series_of(reading: Reading, dialect: Dialect) -> list[Series]:
    """The series of a value in a dialect."""
    metric, value, labels = reading.metric, reading.value, dict(reading.labels)
    if isinstance(metric, Own):
        assert not isinstance(value, str | Quantiles), metric
        return [Series(metric.name, metric.type, metric.help, metric.name, labels, value)]
    is_strimzi = dialect is Dialect.STRIMZI_JMX
    kind = _STRIMZI_TYPES.get(metric.type, metric.type) if is_strimzi else metric.type
    name = _word(f"{metric.domain}_{kind}_{metric.name}")

    def series(family: str, form: str, number: float, more: dict[str, str] | None = None, at: str = "") -> Series:
        return Series(family, form, metric.help, at or family, labels | (more or {}), number)

    match metric.kind, value:
        case Kind.GAUGE, float() | int():
            return [series(name, "gauge", value)]
        case Kind.TOTAL, float() | int():
            total = series(name, "counter", value)
            # The library of Strimzi's reporter takes `_total` away, and calls the rest a gauge.
            return [total] if is_strimzi else [total, series(name.removesuffix("_total"), "gauge", value)]
        case Kind.METER, float() | int():
            total = series(f"{name.removesuffix(_PER_SEC)}_total", "counter", value)
            return [total] if is_strimzi else [total, series(f"{name}_total", "counter", value)]
        case Kind.TEXT, str():
            short = metric.name.rpartition("-")[2]
            full = _word(metric.name)
            if is_strimzi:
                return [series(name, "gauge", 1, {full: value})]
            return [series(f"{name}_info", "gauge", 1, {short: value, full: value})]
        case Kind.HISTOGRAM, Quantiles():
            all_series = [series(name, "summary", number, {"quantile": f"{at:g}"}) for at, number in value.values]
            # jmx_exporter's rules name the median 0.50.
            all_series += [
                series(name, "summary", number, {"quantile": "0.50"}) for at, number in value.values if at == 0.5
            ]
            all_series.append(series(name, "summary", value.count, at=f"{name}_count"))
            return all_series if is_strimzi else [*all_series, series(name, "summary", value.total, at=f"{name}_sum")]
        case unfit:
            raise AssertionError(f"{metric.name} has no value of its kind: {unfit}")


def _word(name: str) -> str:
    return name.replace(".", "_").replace("-", "_").lower()
