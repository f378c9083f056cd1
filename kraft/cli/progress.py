"""Tells the progress of a long job after one second: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Final, Self

import click

FIRST_AFTER_SECONDS: Final = 1.0
LINES_EVERY_SECONDS: Final = 10.0
_BAR_EVERY_SECONDS: Final = 0.2
_ASKED: Final = "kraft.progress"


def _note(context: click.Context, _option: click.Parameter, is_wanted: bool) -> None:
    context.meta[_ASKED] = is_wanted


progress_option = click.option(
    "--progress/--no-progress",
    default=True,
    show_default=True,
    expose_value=False,
    callback=_note,
    envvar="KRAFT_PROGRESS",
    show_envvar=True,
    help="Tell on stderr how far a run of over a second is: a bar on a terminal, lines elsewhere.",
)
"""The option of long commands. A command without it has a bar on a terminal, and no lines."""


class LongJob:
    """A bar on stderr, which disappears at the end, or lines. `total` has the same unit as the argument of `advance`.

    With `prints`, the job writes to standard output as it goes: there is no bar where that is a terminal.
    """

    def __init__(self, title: str, total: int | None, *, unit: str = "", prints: bool = False) -> None:
        self._title = title
        self._total = total
        self._unit = f" {unit}" if unit else ""
        self._done = 0
        self._began = time.monotonic()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        tell = self._teller(prints=prints)
        if tell is not None:
            self._thread = threading.Thread(target=tell, name="progress", daemon=True)

    def expect(self, total: int) -> None:
        """Set the total amount, if it became known only now."""
        self._total = total

    def advance(self, amount: int) -> None:
        """Add to the finished amount."""
        self._done += amount

    def reached(self) -> str:
        """The finished amount in words; empty where none is counted."""
        if self._total is None and not self._done:
            return ""
        of = "" if self._total is None else f" of {self._total:,}"
        return f"{self._done:,}{of}{self._unit}"

    def __enter__(self) -> Self:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def _teller(self, *, prints: bool) -> Callable[[], None] | None:
        context = click.get_current_context(silent=True)
        asked = None if context is None else context.meta.get(_ASKED)
        if sys.stderr is None or asked is False or sys.platform == "emscripten":  # a browser has no threads
            return None
        if sys.stderr.isatty():
            return None if prints and sys.stdout.isatty() else self._draw
        return self._write_lines if asked else None

    def _write_lines(self) -> None:
        wait = FIRST_AFTER_SECONDS
        while not self._end.wait(wait):
            passed = time.monotonic() - self._began
            click.echo(f"{self._title}: {', '.join(filter(None, (self.reached(), f'{passed:.0f} s')))}", err=True)
            wait = min(passed, LINES_EVERY_SECONDS)

    def _draw(self) -> None:
        if self._end.wait(FIRST_AFTER_SECONDS):
            return
        # Most jobs end before their bar is due.
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True, no_color=bool(os.environ.get("NO_COLOR")))
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task(self._title, total=self._total)
            while not self._end.wait(_BAR_EVERY_SECONDS):
                words = f"{self._title} {self.reached()}".rstrip()
                progress.update(task, description=words, completed=self._done, total=self._total)
