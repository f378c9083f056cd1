"""The metrics that clients push (KIP-714), and what the broker counts of them (Kafka: `ClientMetricsStats`).

A client chooses the names. Those of KIP-714 begin with `org.apache.kafka.`; all others get a prefix, so that no client
has a metric with a name of ours.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client import Metric

from kraft.limits import CLIENT_SERIES_PER_STEP
from kraft.metrics import kafka, own_names
from kraft.metrics.names import Reading

if TYPE_CHECKING:
    from kraft.broker.telemetry.handler import TelemetryHandler
    from kraft.broker.telemetry.pushed import Pushed, PushedTable, Series

STANDARD: Final = "org.apache.kafka."
"""The names that KIP-714 defines begin so."""
PREFIX: Final = "client_"
"""The prefix of all other names."""
_TOTAL: Final = "_total"
_RENAMED: Final = "exported_"
"""The prefix of a label that has the name of one of ours, as Prometheus itself renames labels that clash."""


def telemetry_readings(telemetry: TelemetryHandler, now_ms: int) -> Iterator[Reading]:
    """The counts of the broker. Kafka's counts of a client are those of all clients here."""
    counts = telemetry.counts
    yield Reading(kafka.TELEMETRY_INSTANCES, telemetry.instances.live(now_ms))
    yield Reading(kafka.TELEMETRY_UNKNOWN, counts.unknown_subscriptions)
    yield Reading(kafka.TELEMETRY_THROTTLED, counts.throttled)
    yield Reading(kafka.TELEMETRY_EXPORTED, counts.exported)
    yield Reading(kafka.TELEMETRY_FAILED, counts.failed)
    yield Reading(own_names.CLIENT_SERIES, telemetry.pushed.series)
    yield Reading(own_names.CLIENT_LEFT_OUT, counts.left_out)


def client_families(pushed: PushedTable, now_ms: int) -> Generator[None, None, list[Metric]]:
    """The families of what clients have pushed, in steps of some milliseconds; of two types of a name the first one."""
    families: dict[str, Metric] = {}
    known: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
    clashes = seen = 0
    for one in pushed.live(now_ms):
        for series in list(one.series.values()):
            clashes += not _add(families, known, one, series)
            seen += 1
            if seen % CLIENT_SERIES_PER_STEP == 0:
                yield None
    metric = own_names.CLIENT_CLASHES
    told = Metric(metric.name, metric.help, metric.type)
    told.add_sample(metric.name, {}, clashes)
    return [*families.values(), told]


def _add(
    families: dict[str, Metric],
    known: set[tuple[str, tuple[tuple[str, str], ...]]],
    of: Pushed,
    series: Series,
) -> bool:
    """Add a series; whether there is none of another type, and none with the same labels."""
    name, kind = prometheus_name(series.name, is_counter=series.is_counter), "gauge"
    if series.is_counter:
        kind = "counter"
    family = families.get(name)
    if family is None:
        base = name.removesuffix(_TOTAL) if series.is_counter else name
        family = families[name] = Metric(base, f"{series.name} of clients (KIP-714).", kind)
    labels = dict(of.labels)
    for key, value in series.labels:
        labels[f"{_RENAMED}{key}" if key in labels else key] = value
    identity = name, tuple(sorted(labels.items()))
    if family.type != kind or identity in known:
        return False
    known.add(identity)
    family.add_sample(name, labels, series.value)
    return True


def prometheus_name(name: str, *, is_counter: bool) -> str:
    """The name of a metric of a client as Prometheus has it: `org_apache_kafka_producer_connection_creation_total`."""
    word = "".join(one if one.isascii() and (one.isalnum() or one == "_") else "_" for one in name)
    if not name.startswith(STANDARD):
        word = PREFIX + word
    return f"{word.removesuffix(_TOTAL)}{_TOTAL}" if is_counter else word
