"""What the controllers report while no active controller answers. Every command that needs a leader prints this."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kraft.admin import AdminClient
from kraft.admin.client import DELAY_MS
from kraft.admin.conditions import Condition, conditions_without_leader
from kraft.cli.cluster.quorum_why import leads, why_lines
from kraft.cli.text import echo


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
