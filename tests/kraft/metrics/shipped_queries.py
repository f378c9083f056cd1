"""The shipped dashboard and alerts, and the queries of them that metrics do not answer."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from scraped_metrics import Scrape, lacking
from support import ROOT

ALERTS = ROOT / "deploy/prometheus/kraft-alerts.yml"
DASHBOARD = ROOT / "deploy/grafana/kraft-quorum.json"


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


OF_OTHER_NODES = {
    "kraft_no_leader_reason_info",
    "kraft_tls_certificate_not_after_timestamp_seconds",
    "kraft_tls_ca_not_after_timestamp_seconds",
    "kraft_authentication_total",
    "by (mechanism)",
    "by (result)",
}
"""Series of a node without a quorum, and of one with TLS: `test_certificate_metrics.py` has these."""


def shipped_queries() -> list[str]:
    """Every expression, without the choice of a job and without its comparison of labels."""
    exprs = [rule["expr"] for rule in rules()] + [target["expr"] for one in panels() for target in one["targets"]]
    return [re.sub(r'\{job="\$job"\}', "", expr) for expr in exprs]


def unanswered(scrapes: list[Scrape]) -> list[str]:
    """The shipped expressions that name a series which no scrape has."""
    return [
        query
        for query in shipped_queries()
        if set(lacking(query.replace(" le,", " ").replace(", le)", ")"), scrapes)) - OF_OTHER_NODES
    ]
