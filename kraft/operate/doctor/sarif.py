"""Findings in SARIF 2.1.0, which code scanners and CI systems show."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from kraft.operate.doctor.diagnose import consequence, remedy, source
from kraft.operate.doctor.facts.catalog import CATALOG
from kraft.operate.doctor.facts.finding import Finding, Severity

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: Final = {Severity.FATAL: "error", Severity.ERROR: "error", Severity.WARN: "warning", Severity.INFO: "note"}
_PLACE: Final = re.compile(r"(?P<path>/?[^:,]+?)(?::(?P<line>\d+))?(?:[:,] .*)?")
"""A place that was read: a path, perhaps a line, then the field or the offset."""

_REQUEST: Final = re.compile(r": (?:Describe|Fetch)")
"""A place that is a request to a live cluster, and no file."""


def sarif(findings: Sequence[Finding], version: str) -> dict[str, Any]:
    """The findings as a SARIF log; `version` is that of this software."""
    used = [name for name in CATALOG if any(one.id == name for one in findings)]
    rules = [
        {
            "id": name,
            "shortDescription": {"text": CATALOG[name].title},
            "fullDescription": {"text": CATALOG[name].consequence},
            "help": {"text": f"{CATALOG[name].remedy}. Source: {CATALOG[name].source}"},
        }
        for name in used
    ]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "kraft doctor", "version": version, "rules": rules}},
                "results": [_result(one, used.index(one.id)) for one in findings],
            }
        ],
    }


def _result(finding: Finding, rule: int) -> dict[str, Any]:
    on = f"{', '.join(finding.nodes)}: " if finding.nodes else ""
    return {
        "ruleId": finding.id,
        "ruleIndex": rule,
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{on}{finding.evidence}. {consequence(finding)} {remedy(finding)}"},
        "locations": [_location(place) for place in finding.read],
        "properties": {
            "severity": str(finding.severity),
            "nodes": list(finding.nodes),
            "subjects": list(finding.subjects),
            "source": source(finding),
        },
    }


def _location(place: str) -> dict[str, Any]:
    if _REQUEST.search(place):
        return {"logicalLocations": [{"fullyQualifiedName": place}], "message": {"text": place}}
    match = _PLACE.fullmatch(place)
    path, line = (place, None) if match is None else (match["path"], match["line"])
    physical: dict[str, Any] = {"artifactLocation": {"uri": path.replace(" ", "%20")}}
    if line is not None:
        physical["region"] = {"startLine": int(line)}
    return {"physicalLocation": physical, "message": {"text": place}}
