"""The screen of `kraft top`: its keys, its colours, and how a terminal is left; polls and words are tested beside."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from support.eventually import eventually
from support.loopback import free_ports

pytest.importorskip("textual")


from kraft.cli.cluster.top_screen import TopScreen
from kraft.operate.top.layout import Settings
from kraft.operate.top.samples import Sample
from top_samples import SILENT, sample
from top_screens import until

SIZE = (80, 24)
"""The colour that pictures give to text without a colour."""


class _Recorded:
    """Polls that give some samples at once."""

    def __init__(self, *samples: Sample) -> None:
        self.samples = samples
        self.calls: list[str] = []

    def start(self, on_sample: Callable[[Sample], None], on_failure: Callable[[Exception], None]) -> None:
        self.calls.append("start")
        for one in self.samples:
            on_sample(one)
        if not self.samples:
            on_failure(ValueError("the first answer"))

    def pause(self, is_paused: bool) -> None:
        self.calls.append(f"pause {is_paused}")

    def refresh(self) -> None:
        self.calls.append("refresh")

    def stop(self) -> None:
        self.calls.append("stop")


@pytest.mark.parametrize("width", [40, 80, 132])
def test_each_width_shows_the_head_and_the_keys(width: int) -> None:
    polls = _Recorded(sample(), sample(3.0, SILENT))
    app = TopScreen(polls, Settings(interval_s=1.0))

    async def story() -> None:
        async with app.run_test(size=(width, 24)) as pilot:
            text = await until(pilot, app, lambda text: "NO LEADER" in text, "the samples are shown")
            assert max(map(len, text.splitlines())) <= width
            await pilot.press("r", "s", "p")
            if width >= 80:
                await until(pilot, app, lambda text: "by lag" in text and "PAUSED" in text, "order and pause are shown")
            await pilot.press("ctrl+c")
        assert app.return_value == 130
        assert polls.calls == ["start", "refresh", "pause True", "stop"]

    asyncio.run(story())


def test_a_failure_of_the_polls_ends_the_screen() -> None:
    app = TopScreen(_Recorded(), Settings(interval_s=1.0))

    async def story() -> None:
        async with app.run_test(size=SIZE) as pilot:
            await pilot.pause()

    asyncio.run(story())
    assert isinstance(app.return_value, ValueError)


@contextmanager
def in_a_terminal(*words: str, term: str) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], bytes], int]]:
    """`kraft top` in a terminal of its own: the process, what it has written, and where its keys go."""
    keys, terminal = pty.openpty()
    os.set_blocking(keys, False)
    written = bytearray()

    def read() -> bytes:
        try:
            while part := os.read(keys, 65_536):
                written.extend(part)
        except (BlockingIOError, OSError):
            pass
        return bytes(written)

    environment = {**os.environ, "TERM": term, "COLUMNS": "80", "LINES": "24"}
    command = [sys.executable, "-m", "kraft", "top", *words]
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment) as process:
        os.close(terminal)
        try:
            yield process, read, keys
        finally:
            process.kill()
            os.close(keys)


@pytest.mark.parametrize(
    ("term", "end", "code"), [("xterm", b"q", 0), ("xterm", signal.SIGTERM, 0), ("dumb", signal.SIGINT, 130)]
)
def test_a_terminal_gets_the_screen_and_is_left_clean(term: str, end: bytes | signal.Signals, code: int) -> None:
    """Without a cluster: the view says that no controller answers, and goes on trying until its end."""
    words = ("--bootstrap-controller", f"127.0.0.1:{free_ports(1)[0]}", "--timeout", "0.2", "--interval", "0.2")
    with in_a_terminal(*words, term=term) as (process, read, keys):
        screens = 2 if term == "dumb" else 1
        eventually(lambda: read().count(b"NO LEADER") >= screens or process.poll() is not None, "the screen is there")
        assert process.poll() is None, read()
        if isinstance(end, bytes):
            os.write(keys, end)
        else:
            process.send_signal(end)
        eventually(lambda: bool(read()) and process.poll() is not None, "the command ends")
        assert process.returncode == code, read()
        text = read()
        assert b"Traceback" not in text
        if term == "dumb":
            assert b"\x1b" not in text, "screens follow each other as plain text"
        else:
            assert text.rindex(b"\x1b[?1049l") > text.rindex(b"\x1b[?1049h"), "the terminal's own screen is back"
