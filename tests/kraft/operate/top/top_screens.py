"""The content of a screen, as text."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Callable

from textual.pilot import Pilot

from kraft.cli.cluster.top_screen import TopScreen

PATIENCE_SECONDS = 60
_TEXT = re.compile(r'<text[^>]* y="([\d.]+)"[^>]*clip-path[^>]*>(.*?)</text>')


def text_of(svg: str) -> str:
    """The text of a picture, line by line."""
    lines: dict[float, str] = {}
    for at, text in _TEXT.findall(svg):
        lines[float(at)] = lines.get(float(at), "") + html.unescape(text).replace("\xa0", " ")
    return "\n".join(lines[at].rstrip() for at in sorted(lines))


async def until(pilot: Pilot[int | Exception], app: TopScreen, holds: Callable[[str], bool], what: str) -> str:
    """Wait until the text of the screen holds; returns the text."""
    text = ""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds(text := text_of(app.export_screenshot())):
                await pilot.pause(0.1)
    except TimeoutError:
        raise AssertionError(f"{what}: not within {PATIENCE_SECONDS} s. The screen:\n{text}") from None
    return text
