"""Shows the progress of a long job: on a terminal only, and after one second."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

FIRST_AFTER_SECONDS: Final = 1.0


class LongJob:
    """A bar on stderr, which disappears at the end. `total` has the same unit as the argument of `advance`."""

    def __init__(self, title: str, total: int | None) -> None:
        self._title = title
        self._total = total
        self._done = 0
        self._show_at = time.monotonic() + FIRST_AFTER_SECONDS if sys.stderr.isatty() else float("inf")
        self._shown: tuple[Progress, TaskID] | None = None

    def expect(self, total: int) -> None:
        """Set the total amount, if it became known only now."""
        self._total = total
        if self._shown is not None:
            progress, task = self._shown
            progress.update(task, total=total)

    def advance(self, amount: int) -> None:
        """Add to the finished amount."""
        self._done += amount
        if self._shown is not None:
            progress, task = self._shown
            progress.update(task, completed=self._done)
        elif time.monotonic() >= self._show_at:
            # Most jobs end before their bar is due, or have no terminal.
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            console = Console(stderr=True, no_color=bool(os.environ.get("NO_COLOR")))
            columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
            progress = Progress(*columns, console=console, transient=True)
            self._shown = progress, progress.add_task(self._title, total=self._total, completed=self._done)
            progress.start()

    def __enter__(self) -> LongJob:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown is not None:
            self._shown[0].stop()
