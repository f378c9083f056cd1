"""The screen of `kraft top`: paints the lines of the layout, and takes the keys."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import chain
from typing import ClassVar, Final, Protocol

from msgspec.structs import replace
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Footer, Static

from kraft.cli.cluster.administration import Cluster
from kraft.cli.cluster.top_thread import PollThread
from kraft.config.errors import INTERRUPTED
from kraft.operate.top.layout import Line, Settings, Tone, layout
from kraft.operate.top.model import Model, Sort
from kraft.operate.top.samples import Sample
from transport.interface import Endpoint

STYLES: Final = {
    Tone.PLAIN: "",
    Tone.HEAD: "bold",
    Tone.GOOD: "bold $text-success",
    Tone.WARN: "$text-warning",
    Tone.BAD: "bold $text-error",
    Tone.DIM: "dim",
}
"""One meaning for each colour; the words alone tell the same."""


class Polls(Protocol):
    """Samples for a screen: `PollThread`."""

    def start(self, on_sample: Callable[[Sample], None], on_failure: Callable[[Exception], None]) -> None:
        """Begin; the callbacks may be called in another thread."""

    def pause(self, is_paused: bool) -> None:
        """Stop the samples for a while, or go on."""

    def refresh(self) -> None:
        """Take a sample now."""

    def stop(self) -> None:
        """End."""


class TopScreen(App[int | Exception]):
    """The screen: a head that stays, a body that scrolls, and a line with the keys."""

    CSS = """
    Screen { layout: vertical; }
    #head { height: auto; padding: 0; }
    #body { height: 1fr; scrollbar-size-vertical: 1; }
    #rows { height: auto; }
    """
    TITLE = "kraft top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "leave(0)", "Quit"),
        ("p", "pause", "Pause"),
        ("s", "sort", "Sort"),
        ("r", "refresh", "Refresh"),
        ("ctrl+c", f"leave({INTERRUPTED})", ""),
    ]

    def __init__(self, polls: Polls, settings: Settings) -> None:
        super().__init__()
        self._polls = polls
        self._settings = settings
        self._model = Model()

    def compose(self) -> ComposeResult:
        """The parts of the screen, from the top."""
        yield Static(id="head")
        with VerticalScroll(id="body"):
            yield Static(id="rows")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to poll."""
        loop = asyncio.get_running_loop()
        with suppress(RuntimeError, ValueError):  # outside of the main thread there are no signals
            loop.add_signal_handler(signal.SIGTERM, self.exit, 0)
        self._polls.start(
            lambda sample: _call(loop, self._take, sample),
            lambda failed: _call(loop, self.exit, failed),
        )
        self._paint()

    def on_unmount(self) -> None:
        """End the polls."""
        self._polls.stop()

    def on_resize(self) -> None:
        """Paint for the new width."""
        self._paint()

    def action_leave(self, code: int) -> None:
        """End with an exit code."""
        self.exit(code)

    def action_pause(self) -> None:
        """Stop refreshing, or go on."""
        self._settings = replace(self._settings, is_paused=not self._settings.is_paused)
        self._polls.pause(self._settings.is_paused)
        self._paint()

    def action_sort(self) -> None:
        """Take the next order."""
        orders = list(Sort)
        following = orders[(orders.index(self._settings.sort) + 1) % len(orders)]
        self._settings = replace(self._settings, sort=following)
        self._paint()

    def action_refresh(self) -> None:
        """Refresh now."""
        self._polls.refresh()

    def _take(self, sample: Sample) -> None:
        self._model.take(sample)
        self._paint()

    def _paint(self) -> None:
        if not self.query("#rows"):
            return  # a resize before the parts of the screen exist
        width = self.size.width - 1  # the scroll bar
        screen = layout(self._model.view(self._settings.sort), replace(self._settings, width=width))
        self.query_one("#head", Static).update(content(screen.head))
        self.query_one("#rows", Static).update(content(screen.body))


def content(lines: Iterable[Line]) -> Content:
    """The lines with their colours."""
    parts = chain.from_iterable((*((span.text, STYLES[span.tone]) for span in line), ("\n", "")) for line in lines)
    return Content.assemble(*parts).rstrip()


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., object], argument: object) -> None:
    """Call from another thread; a screen that has ended meanwhile needs no sample."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function, argument)


def show_screen(cluster: Cluster, listeners: tuple[Endpoint, ...], settings: Settings) -> int:
    """Show the screen until the user ends it; returns the exit code. Raises what ended the polls."""
    assert settings.interval_s is not None
    ended = TopScreen(PollThread(cluster, listeners, settings.interval_s), settings).run()
    if isinstance(ended, Exception):
        raise ended
    return INTERRUPTED if ended is None else ended
