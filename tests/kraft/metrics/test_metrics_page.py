"""The pages of metrics are true: the reference is printed from the tables, and the how-to shows what a node answers.

    PYTHONPATH=tests python tests/kraft/metrics/test_metrics_page.py

prints the reference page.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

import pytest

from kraft.metrics.kafka import KAFKA_METRICS
from kraft.metrics.names import Dialect, Kind, Mbean, Reading, series_of
from kraft.metrics.own_names import OWN_METRICS
from kraft.metrics.windows import Quantiles
from kraft.node.metrics.meters import Meters
from support import ROOT
from support.eventually import eventually
from support.kraft.command_line import CLUSTER_ID, run, write_config
from support.loopback import free_ports

REFERENCE = ROOT / "docs/reference/metrics.md"
HOWTO = ROOT / "docs/howto/metrics-and-health.md"


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


def shown() -> dict[str, str]:
    """The commands of the how-to with what the page shows below each."""
    blocks = re.findall(r"^```\n(\$ .*?)^```$", HOWTO.read_text(), re.MULTILINE | re.DOTALL)
    found = {}
    for block in blocks:
        for part in block.split("$ ")[1:]:
            command, _, output = part.partition("\n")
            found[command] = output
    return found


def without_numbers(text: str) -> str:
    return re.sub(r"\d+(\.\d+)?", "N", text)


def test_the_how_to_shows_what_a_node_answers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    port, metrics = free_ports(2)
    config = write_config(tmp_path, port=port)
    assert run(capsys, "format", "-c", str(config), "-t", CLUSTER_ID).code == 0

    def get(path: str) -> str:
        connection = HTTPConnection("127.0.0.1", metrics, timeout=10)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        except OSError:
            return ""
        finally:
            connection.close()

    command = [sys.executable, "-m", "kraft", "serve", "-c", str(config), "--metrics", f"127.0.0.1:{metrics}"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=ROOT)
    try:
        eventually(lambda: '"ready":true' in get("/readyz"), "the node is ready")
        pages = shown()
        assert len(pages) == 3
        for asked, output in pages.items():
            path = re.findall(r"9404(/\w+)", asked)[0]
            answer = get(path)
            if path == "/metrics":
                pattern = re.findall(r"grep -E '([^']*)'", asked)[0]
                lines = [line for line in answer.splitlines() if re.search(pattern, line)]
                answer = "".join(f"{line}\n" for line in lines)
            else:
                assert json.loads(output).keys() == json.loads(answer).keys()
            assert without_numbers(answer) == without_numbers(output)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


if __name__ == "__main__":
    print(reference(), end="")
