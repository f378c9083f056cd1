"""What a run of the whole suite shows while it goes on: how much is done of each kind of proof.

On a terminal this is one line that is written again; elsewhere a line at each tenth. A failed test is named at once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import pytest

from support.tiers import KINDS, REST, kind_of

AGAIN_SECONDS = 0.2
"""A terminal gets the line as often, at most."""


class Progress:
    """Counts the tests that are done, by kind, in place of a letter for each."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal
        self._is_terminal = terminal._tw.hasmarkup
        self._totals: Counter[str] = Counter()
        self._done: Counter[str] = Counter()
        self._failed = 0
        self._tenths = 0
        self._next = 0.0
        # This is instead of the percentage at the end of each line of letters.
        terminal._show_progress_info = False

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.expect([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        self.expect(ids)

    def expect(self, ids: Sequence[str]) -> None:
        """Count the tests that will run: each process of pytest-xdist names all of them."""
        self._totals = Counter(map(kind_of, ids)) or self._totals

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed += 1
            self._terminal.ensure_newline()
            self._terminal.write_line(f"FAILED {report.nodeid} ({report.when})", red=True)
        if report.when == "teardown":
            self._done[kind_of(report.nodeid)] += 1
            self._show()

    def _show(self) -> None:
        done, total = self._done.total(), self._totals.total()
        now = time.monotonic()
        if self._is_terminal and (now >= self._next or done == total):
            self._next = now + AGAIN_SECONDS
            line = self.line()
            self._terminal.rewrite(line[: self._terminal._tw.fullwidth - 1], erase=True)
        elif not self._is_terminal and total and (tenths := 10 * done // total) > self._tenths:
            self._tenths = tenths
            self._terminal.ensure_newline()
            self._terminal.write_line(self.line())

    def line(self) -> str:
        """How much is done: the whole, and each kind."""
        total = self._totals.total()
        share = f"{100 * self._done.total() // total if total else 0:3} %"
        kinds = (kind for kind in (REST, *KINDS) if self._totals[kind])
        parts = (f"{kind} {self._done[kind]:,}/{self._totals[kind]:,}" for kind in kinds)
        failed = f"  {self._failed} FAILED" if self._failed else ""
        return f"{share}{failed}  {' · '.join(parts)}"


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """No letter for any outcome: what failed has a line, and the summary has the reasons of what was skipped."""
    if hasattr(report, "wasxfail") or not isinstance(report, pytest.TestReport):
        return None
    if report.failed:
        return ("failed" if report.when == "call" else "error"), "", "FAILED"
    if report.skipped:
        return "skipped", "", ""
    return ("passed" if report.when == "call" else ""), "", ""


def repeat_command(nodeid: str, sections: Sequence[tuple[str, str]]) -> str:
    """The command that runs a failed test again, with the order of Trio's tasks that it had."""
    seed = next((text.strip() for _, text in sections if text.startswith("TRIO_SEED=")), "")
    return f"{seed + ' ' if seed else ''}uv run pytest '{nodeid}'"
