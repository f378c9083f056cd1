"""The shipped dashboard and alert rules: their metrics exist on served controllers, and each alert has its page."""

from __future__ import annotations

import re
from typing import Any

import pytest

from shipped_queries import (
    ROOT,
    rules,
)

PARTS = ["Who fires it", "What it means", "First command", "Second command", "Then"]
"""What somebody who was woken looks for, in this order."""


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
