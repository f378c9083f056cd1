"""The shipped dashboard and alert rules: their metrics exist on served controllers, and each alert has its page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.kraft.scraped import Scrape, lacking

ROOT = Path(__file__).parents[3]
ALERTS = ROOT / "deploy/prometheus/kraft-alerts.yml"
DASHBOARD = ROOT / "deploy/grafana/kraft-quorum.json"


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


PARTS = ["Who fires it", "What it means", "First command", "Second command", "Then"]
"""What somebody who was woken looks for, in this order."""
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


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_has_a_severity_a_summary_and_a_runbook_with_its_expression(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"]["summary"].endswith(".")
    page = (ROOT / rule["annotations"]["runbook"]).read_text()
    assert page.startswith(f"# {rule['alert']}\n")
    assert f"`{rule['expr']}`" in page
    assert re.findall(r"^(?:## |\*\*)([A-Z][a-z ]+)", page, re.MULTILINE) == PARTS
    first, second = re.findall(r"^## \w+ command\n\n```\n(.+)\n```\n\n\S", page, re.MULTILINE)
    assert first != second


def test_every_runbook_belongs_to_an_alert() -> None:
    named = {rule["annotations"]["runbook"] for rule in rules()}
    assert named == {str(path.relative_to(ROOT)) for path in (ROOT / "docs/runbooks").glob("*.md")}


def test_panels_do_not_overlap_and_have_queries() -> None:
    places = [(one["gridPos"]["x"], one["gridPos"]["y"]) for one in panels()]
    assert len(set(places)) == len(places) > 15
    assert all(one["targets"] and one["title"] for one in panels())
