"""The reference of metrics is printed from the tables.

    PYTHONPATH=tests python tests/kraft/metrics/test_metrics_page.py

prints the reference page.
"""

from __future__ import annotations

from kraft.metrics.kafka import KAFKA_METRICS
from kraft.metrics.names import Dialect, Kind, Mbean, Reading, series_of
from kraft.metrics.own_names import OWN_METRICS
from kraft.metrics.windows import Quantiles
from kraft.node.metrics.meters import Meters
from support import ROOT

REFERENCE = ROOT / "docs/reference/metrics.md"


def names(metric: Mbean, dialect: Dialect) -> str:
    """The families of a metric in a dialect, without those that are only other names for older dashboards."""
    value: float | str | Quantiles = 0.0
    if metric.kind is Kind.TEXT:
        value = "x"
    elif metric.kind is Kind.HISTOGRAM:
        value = Quantiles(0, 0.0, ())
    return ", ".join(
        f"`{name}`" for name in dict.fromkeys(one.family for one in series_of(Reading(metric, value), dialect))
    )


def reference() -> str:
    """The page."""
    lines = [
        "# Metrics",
        "",
        "Printed from `kraft/metrics/kafka.py` and `kraft/metrics/own_names.py`.",
        "[Metrics and health](../howto/metrics-and-health.md) says how to get them.",
        "",
        "## Metrics of Kafka",
        "",
        "| MBean | default names | with `strimzi-jmx`, if others | meaning |",
        "| --- | --- | --- | --- |",
    ]
    for one in KAFKA_METRICS:
        default, strimzi = names(one, Dialect.JMX_EXPORTER), names(one, Dialect.STRIMZI_JMX)
        others = "" if strimzi == default else strimzi
        lines.append(f"| `{one.domain}:type={one.type}` `{one.name}` | {default} | {others} | {one.help} |")
    lines += ["", "## Metrics that Kafka lacks", "", "| name | type | meaning |", "| --- | --- | --- |"]
    own = [(one.name, one.type, one.help) for one in OWN_METRICS]
    own += [
        (f"{family.name}_total" if family.type == "counter" else family.name, family.type, family.documentation)
        for family in Meters().families()
    ]
    lines += [f"| `{name}` | {kind} | {text} |" for name, kind, text in sorted(own)]
    return "\n".join(lines) + "\n"


def test_the_reference_of_metrics_is_current() -> None:
    assert REFERENCE.read_text() == reference()


if __name__ == "__main__":
    print(reference(), end="")
