"""The content of a screen, as text and as pictures."""

from __future__ import annotations

import asyncio
import html
import re
import shutil
import subprocess
from collections.abc import Callable

from textual.pilot import Pilot

from kraft.cli.cluster.top_screen import TopScreen
from support import ROOT

OUT = ROOT / "out" / "top"
PATIENCE_SECONDS = 60
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
_TEXT = re.compile(r'<text[^>]* y="([\d.]+)"[^>]*clip-path[^>]*>(.*?)</text>')
_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_SIZE = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')


def text_of(svg: str) -> str:
    """The text of a picture, line by line."""
    lines: dict[float, str] = {}
    for at, text in _TEXT.findall(svg):
        lines[float(at)] = lines.get(float(at), "") + html.unescape(text).replace("\xa0", " ")
    return "\n".join(lines[at].rstrip() for at in sorted(lines))


def picture(app: TopScreen, name: str) -> str:
    """Write the present screen to `out/top/NAME.svg`, and to a PNG where a browser is here; returns the SVG."""
    OUT.mkdir(parents=True, exist_ok=True)
    svg = _FONT.sub("", app.export_screenshot(title="kraft top"))  # a picture that loads no font from the network
    path = OUT / f"{name}.svg"
    path.write_text(svg)
    program = next((found for one in BROWSERS if (found := shutil.which(one))), None)
    size = _SIZE.search(svg)
    if program is not None and size is not None:
        page = OUT / f"{name}.html"
        page.write_text(f'<body style="margin:0;background:#121212">{svg}</body>')
        wanted = f"--window-size={int(float(size[1])) + 1},{int(float(size[2])) + 1}"
        png = OUT / f"{name}.png"
        subprocess.run(
            [program, *FLAGS, wanted, f"--user-data-dir={OUT / 'profile'}", f"--screenshot={png}", page.as_uri()],
            capture_output=True,
            check=True,
            timeout=120,
        )
        assert png.stat().st_size > 5_000
    return svg


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
