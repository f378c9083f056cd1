"""Runs all checks over the facts: findings in order, and the checks that were skipped for want of an input."""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.operate.doctor.checks import (
    brokers,
    host,
    identity,
    internal_topics,
    live,
    logs,
    partitions,
    quorum,
    replicas,
    settings,
    tiered,
)
from kraft.operate.doctor.checks.check import Check
from kraft.operate.doctor.facts.catalog import CATALOG
from kraft.operate.doctor.facts.finding import RANK, Finding, Need
from kraft.operate.doctor.facts.node import Facts

CHECKS: Final[tuple[Check, ...]] = (
    *identity.CHECKS,
    *logs.CHECKS,
    *quorum.CHECKS,
    *settings.CHECKS,
    *brokers.CHECKS,
    *partitions.CHECKS,
    *internal_topics.CHECKS,
    *replicas.CHECKS,
    *tiered.CHECKS,
    *host.CHECKS,
    *live.CHECKS,
)
"""All checks, in the order of the catalog's parts."""


_EXPLAINED: Final = frozenset(("no-quorum-config", "self-not-in-voters", "listener-map"))
"""The checks that say more of a setting that a node refuses."""


ZOOKEEPER_MODE: Final = "zookeeper-mode"


class Skipped(Struct, frozen=True, kw_only=True):
    """A check that did not run, and the input that it needs."""

    id: str
    needs: str


class Diagnosis(Struct, frozen=True, kw_only=True):
    """Findings, the worst first, and the checks that did not run."""

    findings: tuple[Finding, ...]
    skipped: tuple[Skipped, ...]
    made: int
    """The number of checks that ran."""


def available(facts: Facts) -> frozenset[Need]:
    """The inputs that the facts hold."""
    directories = [one for node in facts.nodes for one in node.directories]
    at_hand = {
        Need.SETTINGS: any(node.settings is not None for node in facts.nodes),
        Need.DIRECTORY: any(one.exists for one in directories),
        Need.SEVERAL: len(facts.nodes) > 1,
        Need.IMAGE: facts.image is not None,
        Need.LIVE: facts.live is not None,
        Need.NAMES: facts.names is not None,
        Need.HOST: any(one.host is not None for one in directories) or any(node.files for node in facts.nodes),
    }
    return frozenset(need for need, is_there in at_hand.items() if is_there)


def without_zookeeper(facts: Facts) -> Facts:
    """The facts about nodes in KRaft mode: what the checks look for means nothing on a node in ZooKeeper mode."""
    if not any(node.in_zookeeper_mode for node in facts.nodes):
        return facts
    return replace(facts, nodes=tuple(node for node in facts.nodes if not node.in_zookeeper_mode))


def diagnose(facts: Facts) -> Diagnosis:
    """Run every check that has its inputs. Identical findings of several nodes become one."""
    kraft_facts = without_zookeeper(facts)
    inputs = available(kraft_facts)
    findings: list[Finding] = []
    skipped: dict[str, str] = {}
    ran: set[str] = set()
    for check in CHECKS:
        missing = [need for need in check.needs if need not in inputs]
        if missing:
            skipped.setdefault(check.id, missing[0])
            continue
        ran.add(check.id)
        findings += check.find(facts if check.id == ZOOKEEPER_MODE else kraft_facts)
    left_out = {name: needs for name, needs in skipped.items() if name not in ran}
    return Diagnosis(
        findings=in_order(merged(_once(findings))),
        skipped=tuple(Skipped(id=name, needs=left_out[name]) for name in CATALOG if name in left_out),
        made=len(ran),
    )


def _once(findings: list[Finding]) -> list[Finding]:
    """The findings, without a refused setting that another check explains better at the same place."""
    places = [place for one in findings if one.id in _EXPLAINED for place in one.read]
    return [
        one
        for one in findings
        if one.id != "config-refused" or not any(place.startswith(one.read[0]) for place in places)
    ]


def in_order(findings: list[Finding]) -> tuple[Finding, ...]:
    """The worst findings first, then by node, then by check."""
    return tuple(sorted(findings, key=lambda one: (RANK[one.severity], one.nodes, one.id)))


def merged(findings: list[Finding]) -> list[Finding]:
    """One finding for those that say the same of several nodes."""
    result: dict[tuple[object, ...], Finding] = {}
    for one in findings:
        key = (one.id, one.severity, one.evidence, one.consequence, one.remedy)
        known = result.get(key)
        if known is None:
            result[key] = one
            continue
        result[key] = replace(
            known,
            nodes=tuple(dict.fromkeys((*known.nodes, *one.nodes))),
            subjects=tuple(dict.fromkeys((*known.subjects, *one.subjects))),
            read=tuple(dict.fromkeys((*known.read, *one.read))),
        )
    return list(result.values())


def consequence(finding: Finding) -> str:
    """The consequence of a finding."""
    return finding.consequence or CATALOG[finding.id].consequence


def remedy(finding: Finding) -> str:
    """The remedy of a finding."""
    return finding.remedy or CATALOG[finding.id].remedy


def source(finding: Finding) -> str:
    """The JIRA issue, KIP or experiment behind a finding."""
    return CATALOG[finding.id].source


def exit_code(findings: tuple[Finding, ...]) -> int:
    """2 for a fatal finding, 1 for an error, else 0."""
    worst = min((RANK[one.severity] for one in findings), default=3)
    return {0: 2, 1: 1}.get(worst, 0)
