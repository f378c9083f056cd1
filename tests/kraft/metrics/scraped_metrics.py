"""Three served controllers with metrics listeners, and what their listeners answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from support.controller_processes import IDS, QUICK_TIMEOUTS, Processes
from support.loopback import free_ports

SECONDS = 20


class Got(NamedTuple):
    """An answer over HTTP."""

    status: int
    body: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def get(port: int, path: str, *, method: str = "GET", headers: Mapping[str, str] | None = None) -> Got:
    connection = HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request(method, path, headers=dict(headers or {}))
        answer = connection.getresponse()
        return Got(answer.status, answer.read().decode())
    finally:
        connection.close()


class Scrape:
    """The series of one scrape."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.samples = [
            (sample.name, dict(sample.labels), sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]

    def all(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        return [
            (has, value)
            for found, has, value in self.samples
            if found == name and all(has.get(key) == wanted for key, wanted in labels.items())
        ]

    def value(self, name: str, **labels: str) -> float:
        found = self.all(name, **labels)
        assert len(found) == 1, (name, labels, found)
        return found[0][1]

    def has(self, name: str, **labels: str) -> bool:
        return bool(self.all(name, **labels))


_SELECTOR = re.compile(r"([a-z_][a-z0-9_]*)\{([^}]*)\}|\b((?:kafka|kraft|process|python)_[a-z0-9_]+)\b", re.IGNORECASE)
_LABEL = re.compile(r"""(\w+)\s*(=~|!=|=)\s*["']([^"']*)["']""")
OF_PROMETHEUS = {"namespace", "pod", "kubernetes_pod_name", "strimzi_io_name", "strimzi_io_cluster", "instance", "job"}
"""Labels that Prometheus adds to each series."""


def lacking(query: str, scrapes: list[Scrape]) -> list[str]:
    """The selectors of a query without a series in any scrape, and the labels of `by` that no series has."""
    missing = []
    names = []
    for match in _SELECTOR.finditer(query):
        name, selector = match[1] or match[3], match[2] or ""
        names.append(name)
        wanted = {
            key: value
            for key, operator, value in _LABEL.findall(selector)
            if operator == "=" and key not in OF_PROMETHEUS
        }
        if not any(scrape.has(name, **wanted) for scrape in scrapes):
            missing.append(match[0])
    for group in re.findall(r"\bby\s*\(([^)]*)\)", query):
        for label in (word.strip() for word in group.split(",")):
            found = any(label in has for scrape in scrapes for name in names for has, _ in scrape.all(name))
            if label not in OF_PROMETHEUS and not found:
                missing.append(f"by ({label})")
    return missing if names else [f"no selector in {query}"]


class Scraped(Processes):
    """Three controllers, each with a metrics listener."""

    def __init__(self, directory: Path, settings: Mapping[str, object] = QUICK_TIMEOUTS) -> None:
        self.metrics = dict(zip(IDS, free_ports(len(IDS)), strict=True))
        super().__init__(directory, settings)
        for node_id, port in self.metrics.items():
            with self.config(node_id).open("a") as config:
                config.write(f"kraft.metrics.listener={port}\n")

    def get(self, node_id: int, path: str) -> Got:
        return get(self.metrics[node_id], path)

    def scrape(self, node_id: int, query: str = "") -> Scrape:
        got = self.get(node_id, f"/metrics{query}")
        assert got.status == 200, got
        return Scrape(got.body)

    def is_ready(self, node_id: int) -> bool:
        try:
            return self.get(node_id, "/readyz").status == 200
        except OSError:
            return False

    def active(self, *node_ids: int) -> int:
        """The sum that alerts ask for."""
        name = "kafka_controller_kafkacontroller_activecontrollercount"
        return int(sum(self.scrape(node_id).value(name) for node_id in node_ids))


@contextmanager
def three_controllers(directory: Path) -> Iterator[Scraped]:
    controllers = Scraped(directory)
    try:
        for node_id in IDS:
            controllers.start(node_id)
        yield controllers
    finally:
        for node_id in list(controllers.running):
            controllers.kill(node_id)
