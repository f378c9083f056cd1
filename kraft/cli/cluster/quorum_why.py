"""The states of the controllers as text, for `kraft quorum status --why` and for every command without a leader: one
line for each controller, then whether a majority answers; and the report of it while no active controller answers.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from kraft.admin import AdminClient
from kraft.admin.client import DELAY_MS
from kraft.admin.conditions import Condition, EpochReport, Progress, conditions_without_leader
from kraft.cli.text import count, echo
from metadata_log.types import NO_NODE, Uuid

_WORTH_TELLING_MS: Final = 2_000
"""A voter that fetched or was caught up within this time is healthy."""


def why_lines(conditions: Sequence[Condition], *, has_leader: bool) -> list[str]:
    """A sentence for each controller, and one about all of them."""
    what = "voter" if has_leader else "controller"
    lines = [f"{_name(one, what)}: {', '.join(_reasons(one))}." for one in conditions]
    silent = [one for one in conditions if not isinstance(one.report, EpochReport)]
    answering = len(conditions) - len(silent)
    verdict = f"{majority(conditions)} make a majority" if has_leader else _missing(conditions, silent)
    return [*lines, f"{answering} of {len(conditions)} answer; {verdict}."]


def majority(conditions: Sequence[Condition]) -> int:
    """The number of controllers that make a majority, if all of these are voters."""
    return len(conditions) // 2 + 1


def leads(condition: Condition) -> bool:
    """Whether this controller reports that it is the leader."""
    report = condition.report
    return isinstance(report, EpochReport) and report.leader_id == condition.id != NO_NODE


def _missing(conditions: Sequence[Condition], silent: Sequence[Condition]) -> str:
    """Say why there is no leader, as far as the controllers that answer show."""
    leader = next((one.id for one in conditions if leads(one)), None)
    if leader is not None:
        return f"controller {leader} leads, and no request was answered in time"
    if len(silent) == len(conditions):
        return "whether there is a leader is unknown"
    lacking = majority(conditions) - (len(conditions) - len(silent))
    if lacking > 0:
        names = ", ".join(_name(one, "controller").lower() for one in silent)
        verb = "answers" if lacking == 1 else "answer"
        return f"{majority(conditions)} make a majority: there is no leader until {lacking} more {verb} ({names})"
    (leader_id, epoch), followers = Counter(
        (one.report.leader_id, one.report.epoch) for one in conditions if isinstance(one.report, EpochReport)
    ).most_common(1)[0]
    if leader_id != NO_NODE and followers >= majority(conditions):
        return f"{followers} follow controller {leader_id} in epoch {epoch}, which has not answered as the leader"
    return "that is a majority, without a leader: an election is going on, or the controllers cannot reach each other"


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


class NoLeaderReport:
    """Prints to stderr which controllers answer, in which state, and what lacks for a majority; the same only once.

    Args:
        explains_timeouts: Whether to report timeouts, too. Without this, the command itself reports them.
        repeats: Whether to report again when the states have changed, and no active controller has answered since.
    """

    def __init__(self, *, explains_timeouts: bool = True, repeats: bool = True) -> None:
        self._explains_timeouts = explains_timeouts
        self._repeats = repeats
        self._told: list[str] = []

    async def on_delay(self, admin: AdminClient) -> None:
        """Report that no active controller answers, unless a controller leads: then the operation itself takes long."""
        if self._told and not self._repeats:
            return
        conditions = await conditions_without_leader(admin)
        if not any(map(leads, conditions)):
            seconds = f"{DELAY_MS / 1000:g} s"
            self._tell(conditions, f"kraft: warning: no active controller has answered for {seconds}; still trying")

    async def on_timeout(self, admin: AdminClient) -> None:
        """Report why an operation has found no active controller."""
        if self._explains_timeouts and (self._repeats or not self._told):
            self._tell(await conditions_without_leader(admin))

    def is_shown(self, conditions: Sequence[Condition]) -> bool:
        """Whether a terminal shows exactly these states already; else the caller prints them, and that is noted.

        Output into a file or a pipe lacks what went to stderr, so that the answer is False then.
        """
        lines = why_lines(conditions, has_leader=False)
        shown, self._told = self._told, lines
        return lines == shown and sys.stdout.isatty() and sys.stderr.isatty()

    def on_answer(self) -> None:
        """Report the next loss of the leader, even if the controllers have the same states then."""
        self._told = []

    def _tell(self, conditions: Sequence[Condition], warning: str | None = None) -> None:
        lines = why_lines(conditions, has_leader=False)
        if lines == self._told:
            return
        self._told = lines
        for line in lines if warning is None else (warning, *lines):
            echo(line, err=True)
