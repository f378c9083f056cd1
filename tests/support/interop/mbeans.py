"""The metrics of a node of either make under one key: the MBeans of Apache Kafka over JMX, and our `/metrics`.

The JMX connector of a node listens on loopback only.
"""

from __future__ import annotations

import urllib.request
from typing import Final

from msgspec import Struct
from prometheus_client.parser import text_string_to_metric_families

from kraft.metrics.kafka import KAFKA_METRICS
from kraft.metrics.names import Dialect, Kind, Mbean, Reading, series_of
from kraft.metrics.windows import Quantiles
from support.interop.kafka_tools import KafkaTools

JMX_TOOL: Final = "org.apache.kafka.tools.JmxTool"
DOMAINS: Final = ("kafka.controller", "kafka.server", "kafka.log", "kafka.coordinator.*")
SECONDS: Final = 20
OF_COORDINATORS: Final = (
    *("group-coordinator-metrics", "GroupMetadataManager"),
    *("transaction-coordinator-metrics", "TransactionMarkerChannelManager", "txn-marker-channel-metrics"),
)
"""The types of the metrics of the coordinators of groups and transactions."""
OF_BROKERS: Final = (
    *("broker-metadata-metrics", "KafkaServer", "share-coordinator-metrics", "ShareSessionCache", "ShareGroupMetrics"),
    *("LeaderReplication", "FollowerReplication", "Produce", "Fetch", "Request", "client-metrics"),
    *OF_COORDINATORS,
)
"""The types of metrics that controllers do not have."""
Tags = tuple[tuple[str, str], ...]


class Key(Struct, frozen=True, order=True):
    """One value of a node: its type and name as Kafka spells them, and its tags with keys as Prometheus spells them."""

    type: str
    name: str
    tags: Tags = ()


CONTROLLER_METRICS: Final = tuple(one for one in KAFKA_METRICS if one.type not in OF_BROKERS)
"""The rows of our table that a controller has."""


def jmx_options(port: int) -> tuple[str, ...]:
    """The options of a JVM that serves its MBeans on this port of the loopback address."""
    options = {"host": "127.0.0.1", "port": port, "rmi.port": port, "authenticate": "false", "ssl": "false"}
    found = tuple(f"-Dcom.sun.management.jmxremote.{key}={value}" for key, value in options.items())
    return (*found, "-Djava.rmi.server.hostname=127.0.0.1")


def values_of_kafka(tools: KafkaTools, port: int) -> dict[Key, str]:
    """Every value of Kafka's that our table has, read with Kafka's own JmxTool."""
    patterns = [word for domain in DOMAINS for word in ("--object-name", f"{domain}:*")]
    url = f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{port}/jmxrmi"
    done = tools.run(JMX_TOOL, "--jmx-url", url, "--one-time", "true", "--report-format", "properties", *patterns)
    assert done.returncode == 0, done.stderr + done.stdout
    lines = [line.rpartition("=") for line in done.stdout.splitlines()]
    found: dict[Key, str] = {}
    for at, _, value in lines:
        bean, _, attribute = at.rpartition(":")
        properties = dict(word.partition("=")[::2] for word in bean.partition(":")[2].split(","))
        kind, name = properties.pop("type", ""), properties.pop("name", "")
        metric = _ROWS.get((kind, name or attribute))
        if metric is not None and (not name or attribute == _ATTRIBUTES[metric.kind]):
            found[Key(kind, metric.name, _tags(properties))] = value
    return found


def values_of_ours(port: int) -> dict[Key, str]:
    """The same values of a node of ours, by the names of the default dialect."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=SECONDS) as answer:
        text = answer.read().decode()
    found: dict[Key, str] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            metric = _BY_SERIES.get(sample.name)
            if metric is None:
                continue
            labels = dict(sample.labels)
            value = repr(sample.value)
            if metric.kind is Kind.TEXT:
                del labels[metric.name.rpartition("-")[2]]
                value = labels.pop(metric.name.replace("-", "_"))
            found[Key(metric.type, metric.name, _tags(labels))] = value
    return found


_ROWS: Final = {(one.type, one.name): one for one in KAFKA_METRICS}
_ATTRIBUTES: Final = {Kind.GAUGE: "Value", Kind.METER: "Count", Kind.HISTOGRAM: "Count", Kind.TOTAL: "Count"}
"""The attribute of an MBean with a name that our first series shows."""


def _series(metric: Mbean) -> str:
    """The name of the series that has a metric's value, or the count of its values."""
    sample: float | str | Quantiles = 0.0
    if metric.kind is Kind.TEXT:
        sample = "x"
    elif metric.kind is Kind.HISTOGRAM:
        sample = Quantiles(0, 0.0, ())
    return series_of(Reading(metric, sample), Dialect.JMX_EXPORTER)[0].name


_BY_SERIES: Final = {_series(one): one for one in KAFKA_METRICS}


def _tags(found: dict[str, str]) -> Tags:
    return tuple(sorted((key.replace("-", "_"), value.strip('"')) for key, value in found.items()))


def same(one: str, other: str) -> bool:
    """Whether two values are the same number, or the same text."""
    try:
        return float(one) == float(other)
    except ValueError:
        return one == other
