"""The text and the JSON of `kraft doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import click
from msgspec import Struct

from kraft.cli.text import count
from kraft.operate.doctor.before import is_safe
from kraft.operate.doctor.checks.check import listed
from kraft.operate.doctor.diagnose import Diagnosis, consequence, remedy, source
from kraft.operate.doctor.facts.catalog import CATALOG
from kraft.operate.doctor.facts.finding import Described, Finding, Severity
from kraft.operate.doctor.facts.node import Facts
from kraft.operate.doctor.read_nodes import Unreadable
from metadata_log.printable import printable

_COLOURS: Final = {Severity.FATAL: "red", Severity.ERROR: "red", Severity.WARN: "yellow", Severity.INFO: "cyan"}
_MOST_READ: Final = 4
_NAMES: Final = {
    Severity.FATAL: ("fatal", "fatal"),
    Severity.ERROR: ("error", "errors"),
    Severity.WARN: ("warning", "warnings"),
    Severity.INFO: ("note", "notes"),
}


class Planned(Struct, frozen=True, kw_only=True):
    """A planned step and the reasons against it."""

    operation: str
    node_id: int | None
    reasons: tuple[Finding, ...]

    @property
    def title(self) -> str:
        """`restart 2`."""
        return self.operation if self.node_id is None else f"{self.operation} {self.node_id}"


class Report(Struct, frozen=True, kw_only=True):
    """Everything that a run of the doctor found."""

    facts: Facts
    diagnosis: Diagnosis
    unreadable: tuple[Unreadable, ...] = ()
    planned: Planned | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The reasons against the planned step, then the findings."""
        return (*(() if self.planned is None else self.planned.reasons), *self.diagnosis.findings)


def finding_json(finding: Finding) -> dict[str, Any]:
    """A finding as JSON fields."""
    return {
        "id": finding.id,
        "severity": str(finding.severity),
        "nodes": list(finding.nodes),
        "subject": ", ".join(finding.subjects),
        "subjects": list(finding.subjects),
        "read": list(finding.read),
        "evidence": finding.evidence,
        "consequence": consequence(finding),
        "remedy": remedy(finding),
        "source": source(finding),
    }


def report_json(report: Report) -> dict[str, Any]:
    """A report as one JSON object."""
    facts, planned = report.facts, report.planned
    result: dict[str, Any] = {
        "nodes": [
            {
                "name": node.name,
                "id": node.id,
                "roles": list(facts.roles(node)),
                "settings": None if node.settings is None else node.settings.source,
                "directories": [directory.path for directory in node.directories],
            }
            for node in facts.nodes
        ],
        "cluster": None if facts.live is None else facts.live.bootstrap,
        "findings": [finding_json(one) for one in report.findings],
        "made": report.diagnosis.made,
        "skipped": [{"id": one.id, "needs": one.needs} for one in report.diagnosis.skipped],
        "unreadable": [{"path": one.path, "why": one.why} for one in report.unreadable],
    }
    if planned is not None:
        result["before"] = {
            "operation": planned.operation,
            "node": planned.node_id,
            "safe": is_safe(list(planned.reasons)),
        }
    return result


def report_lines(report: Report) -> Iterator[str]:
    """A report as text: the answer about a planned step, findings, counts, and what was skipped."""
    for finding in report.findings:
        yield from _finding_lines(finding)
        yield ""
    if report.planned is not None:
        yield _verdict(report.planned)
    yield _summary(report)
    if report.facts.live is None and all(node.in_zookeeper_mode for node in report.facts.nodes):
        yield "No other check is about a node in ZooKeeper mode."
    else:
        yield from _coverage(report.diagnosis)


def _coverage(diagnosis: Diagnosis) -> Iterator[str]:
    """How many checks were made, and what the others need: silence about a fault may be a check that was not made."""
    skipped = sorted(diagnosis.skipped, key=lambda one: one.needs)
    made = count(diagnosis.made, "check")
    if not skipped:
        yield f"{made} made, each one that there is."
        return
    yield f"{made} made, {len(skipped)} not made."
    for needs, group in groupby(skipped, key=lambda one: one.needs):
        yield f"Give {needs} for: {listed(one.id for one in group)}."


def _finding_lines(finding: Finding) -> Iterator[str]:
    nodes = f" on {', '.join(finding.nodes)}" if finding.nodes else ""
    name = click.style(f"{finding.severity}: {finding.id}", fg=_COLOURS[finding.severity], bold=True)
    yield f"{name}{printable(nodes)}"
    yield f"  found: {_sentence(finding.evidence)}"
    yield f"  means: {_sentence(consequence(finding))}"
    yield f"  do:    {_sentence(remedy(finding))}"
    more = f" and {len(finding.read) - _MOST_READ} more" if len(finding.read) > _MOST_READ else ""
    yield f"  read:  {printable('; '.join(finding.read[:_MOST_READ]))}{more}"
    yield f"  see:   {source(finding)}"


def _sentence(text: str) -> str:
    return printable(text[:1].upper() + text[1:] if text[:1].isalpha() and " " in text and not _is_name(text) else text)


def _is_name(text: str) -> bool:
    """Whether a text begins with a command, a setting or a path, which keep their letters."""
    first = text.partition(" ")[0]
    return first in {"kraft", "chmod", "chown", "echo"} or any(mark in first for mark in "./=_:")


def _verdict(planned: Planned) -> str:
    if is_safe(list(planned.reasons)):
        careful = " See the warnings above." if planned.reasons else ""
        return f"Before {planned.title}: nothing that was read speaks against the step.{careful}"
    against = sum(one.severity in {Severity.FATAL, Severity.ERROR} for one in planned.reasons)
    return f"Before {planned.title}: do not do that now, for {count(against, 'reason')}."


def _summary(report: Report) -> str:
    numbers = [
        count(number, *_NAMES[severity])
        for severity in Severity
        if (number := sum(one.severity is severity for one in report.findings))
    ]
    what = [count(len(report.facts.nodes), "node")] if report.facts.nodes else []
    what += ["a live cluster"] if report.facts.live is not None else []
    return f"{' and '.join(what)} read: {', '.join(numbers) or 'nothing is wrong in what was checked'}."


def explanation_lines(check: Described) -> Sequence[str]:
    """The description of a check."""
    return (
        f"{check.id} ({check.severity})",
        "",
        check.title,
        f"Means:  {check.consequence}",
        f"Do:     {check.remedy}",
        f"Source: {check.source}",
    )


def explanation_json(check: Described) -> dict[str, str]:
    """The description of a check as JSON fields."""
    return {
        "id": check.id,
        "title": check.title,
        "severity": check.severity,
        "consequence": check.consequence,
        "remedy": check.remedy,
        "source": check.source,
    }


def ids() -> tuple[str, ...]:
    """All ids of checks, in the order of the catalog."""
    return tuple(CATALOG)
