"""Readings as families of prometheus-client, and families as text in portions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct
from prometheus_client import Metric, generate_latest
from prometheus_client.registry import Collector

from kraft.metrics import own_names
from kraft.metrics.names import Dialect, Reading, Series, series_of

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MAX_SERIES: Final = 10_000
"""The most series of one family."""
PER_PORTION: Final = 500
"""The series that are written in one step: some milliseconds."""


def families_of(readings: Iterable[Reading], dialects: Collection[Dialect]) -> list[Metric]:
    """The families of all readings, each once, in the order of their first reading."""
    families: dict[str, Metric] = {}
    dropped = 0
    seen: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
    for reading in readings:
        for dialect in dialects:
            for one in series_of(reading, dialect):
                key = (one.name, tuple(sorted(one.labels.items())))
                if key in seen:
                    continue
                seen.add(key)
                family = families.get(one.family)
                if family is None:
                    family = families[one.family] = Metric(_base(one), one.help, one.type)
                if len(family.samples) >= MAX_SERIES:
                    dropped += 1
                    continue
                family.add_sample(one.name, one.labels, one.value)
    metric = own_names.DROPPED_SERIES
    family = Metric(metric.name, metric.help, metric.type)
    family.add_sample(metric.name, {}, dropped)
    return [*families.values(), family]


def _base(series: Series) -> str:
    """The name of a family in prometheus-client, which adds `_total` to a counter's."""
    return series.family.removesuffix("_total") if series.type == "counter" else series.family


class Gauge(Struct, frozen=True):
    """A gauge: its name, its help, and its values with their labels."""

    name: str
    help: str
    values: Sequence[tuple[dict[str, str], float]]


def text_of_gauges(gauges: Iterable[Gauge]) -> bytes:
    """The Prometheus text of some gauges."""
    families = []
    for gauge in gauges:
        families.append(Metric(gauge.name, gauge.help, "gauge"))
        for labels, value in gauge.values:
            families[-1].add_sample(gauge.name, labels, value)
    return b"".join(texts_of(families))


def texts_of(families: Iterable[Metric]) -> Iterator[bytes]:
    """The Prometheus text of families, in portions of a bounded number of series."""
    portion: list[Metric] = []
    size = 0
    for family in families:
        if len(family.samples) > PER_PORTION:
            yield from _in_parts(family)
            continue
        portion.append(family)
        size += len(family.samples)
        if size >= PER_PORTION:
            yield generate_latest(_Families(portion))
            portion, size = [], 0
    if portion:
        yield generate_latest(_Families(portion))


def _in_parts(family: Metric) -> Iterator[bytes]:
    """The text of a large family. Only the first part has the lines of the help and the type."""
    samples = family.samples
    for at in range(0, len(samples), PER_PORTION):
        part = Metric(family.name, family.documentation, family.type)
        part.samples = samples[at : at + PER_PORTION]
        text = generate_latest(_Families([part]))
        yield text if at == 0 else text.split(b"\n", 2)[2]


class _Families(Collector):
    """Families in the form in which prometheus-client takes them."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        """The families."""
        return self._families
