"""The text of `kraft quorum status --why`: one line for each controller, then whether a majority answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kraft.admin.conditions import Condition, EpochReport, Progress
from kraft.cli.text import count
from metadata_log.types import NO_NODE, Uuid

_WORTH_TELLING_MS: Final = 2_000
"""A voter that fetched or was caught up within this time is healthy."""


def why_lines(conditions: Sequence[Condition], *, has_leader: bool) -> list[str]:
    """A sentence for each controller, and one about all of them."""
    what = "voter" if has_leader else "controller"
    lines = [f"{_name(one, what)}: {', '.join(_reasons(one))}." for one in conditions]
    answering = sum(isinstance(one.report, EpochReport) for one in conditions)
    verdict = f"{len(conditions) // 2 + 1} make a majority" if has_leader else "there is no leader"
    return [*lines, f"{answering} of {len(conditions)} answer; {verdict}."]


def why_facts(conditions: Sequence[Condition]) -> list[dict[str, Any]]:
    """The same as JSON fields: a controller that answers has an epoch and a leader, another has a failure."""
    return [_facts(one) for one in conditions]


def _name(condition: Condition, what: str) -> str:
    number = "" if condition.id == NO_NODE else f" {condition.id}"
    address = "" if condition.endpoint is None else f" at {condition.endpoint}"
    return f"{what.capitalize()}{number}{address}"


def _reasons(condition: Condition) -> list[str]:
    report = condition.report
    if isinstance(report, str):
        reasons = [f"cannot be asked: {report.removeprefix(f'{condition.endpoint}: ')}"]
    elif report.leader_id == NO_NODE:
        reasons = [f"knows of no leader in epoch {report.epoch}"]
    elif report.leader_id == condition.id:
        reasons = [f"leads in epoch {report.epoch}"]
    else:
        reasons = [f"follows {report.leader_id} in epoch {report.epoch}"]
    if condition.other_directories:
        others = " and ".join(map(str, condition.other_directories))
        reasons.append(f"fetches with directory {others}, and the voter is {condition.directory_id}")
    if condition.progress is not None:
        reasons += _lags(condition.progress)
    if (warning := _certificate_warning(condition)) is not None:
        reasons.append(warning)
    return reasons


def _certificate_warning(condition: Condition) -> str | None:
    if condition.certificate is None:
        return None
    # Loaded here, because a command without TLS needs no library of certificates.
    from kraft.security.certificates import validity_warning

    return validity_warning(condition.certificate)


def _lags(progress: Progress) -> list[str]:
    lags = []
    if progress.behind:
        lags.append(f"behind by {count(progress.behind, 'record')}")
    for what, since_ms in (("fetched", progress.silent_ms), ("had everything", progress.behind_ms)):
        if since_ms is not None and since_ms > _WORTH_TELLING_MS:
            lags.append(f"last {what} {since_ms / 1000:.1f} s ago")
    return lags


def _facts(condition: Condition) -> dict[str, Any]:
    report, progress = condition.report, condition.progress
    facts: dict[str, Any] = {
        "id": None if condition.id == NO_NODE else condition.id,
        "directoryId": None if condition.directory_id == Uuid.ZERO else str(condition.directory_id),
        "endpoint": None if condition.endpoint is None else str(condition.endpoint),
        "otherDirectoryIds": [str(one) for one in condition.other_directories],
    }
    if isinstance(report, str):
        facts["failure"] = report
    else:
        facts |= {"epoch": report.epoch, "leaderId": None if report.leader_id == NO_NODE else report.leader_id}
    if condition.certificate is not None:
        facts["certificate"] = {
            "subject": condition.certificate.subject,
            "expires": condition.certificate.ends.isoformat(),
            "warning": _certificate_warning(condition),
        }
    if progress is not None:
        facts |= {"behind": progress.behind, "behindMs": progress.behind_ms, "silentMs": progress.silent_ms}
    return facts
