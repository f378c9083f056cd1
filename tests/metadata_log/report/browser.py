"""Looks at an HTML file with a real browser, headless and without network; skips where there is none."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

WIDTH = 1280
HEIGHT = 9000
"""Room for a whole page in one picture."""
NAMES = ("chromium", "chromium-browser", "google-chrome")
OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND"
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", OFFLINE)

MEASURE = """
<script>
addEventListener("load", () => setTimeout(() => {
  const box = element => { const r = element.getBoundingClientRect();
    return {x: r.x, y: r.y + scrollY, w: r.width, h: r.height}; };
  const overlap = (a, b) => Math.min(a.x + a.w, b.x + b.w) - Math.max(a.x, b.x) > 1
    && Math.min(a.y + a.h, b.y + b.h) - Math.max(a.y, b.y) > 1;
  const pairs = (elements, name) => { const boxes = elements.map(box).map((b, i) => [b, name(elements[i])]);
    return boxes.flatMap(([a, n], i) => boxes.slice(i + 1).filter(([b]) => overlap(a, b)).map(([, m]) => [n, m])); };
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const plots = all(".plot").map(plot => ({
    id: plot.id,
    marks: all(".point path, .heatmaplayer image, .js-line, .js-fill, path.point", plot)
      .filter(mark => mark.getBoundingClientRect().width > 0 || mark.getBoundingClientRect().height > 0).length,
    height: plot.getBoundingClientRect().height,
    drawn: plot.querySelector("svg.main-svg")?.getBoundingClientRect().height ?? 0,
    texts: all("svg text", plot).filter(text => text.textContent.trim()).length,
    smallest: Math.min(...all("svg text", plot).map(text => parseFloat(getComputedStyle(text).fontSize))),
    overlaps: pairs(all("svg text", plot).filter(text => text.textContent.trim()), text => text.textContent),
    outside: all("svg text", plot).filter(text => { const t = box(text), p = box(plot);
      return t.w > 0 && (t.x < p.x - 1 || t.x + t.w > p.x + p.w + 1 || t.y < p.y - 1 || t.y + t.h > p.y + p.h + 1); })
      .map(text => text.textContent),
  }));
  const found = {
    title: document.title,
    width: document.documentElement.scrollWidth,
    height: document.documentElement.scrollHeight,
    requests: performance.getEntriesByType("resource").map(entry => entry.name),
    drawn: document.documentElement.dataset.drawn ?? null,
    errors: window.failures,
    blocks: pairs(all("header, .cards, nav, section, footer"), each => each.id || each.tagName || each.className),
    parts: all("section").flatMap(
      section => pairs(all("h2, .lead, .plot, .scroll, .none", section), each => `${section.id} ${each.className}`)),
    sections: all("section").map(each => each.id),
    silent: all("section").filter(each => !each.querySelector(".plot, table, .none")).map(each => each.id),
    cut: all(".scroll").filter(each => each.scrollWidth > each.clientWidth + 1).map(each => each.parentElement.id),
    plots,
  };
  const out = document.createElement("pre");
  out.id = "measured";
  out.hidden = true;
  out.textContent = JSON.stringify(found);
  document.body.append(out);
}, 1500));
</script>
"""
WATCH = "<script>window.failures = []; addEventListener('error', e => failures.push(e.message));</script>"


def browser() -> str:
    """The browser's program. Skips the test where there is none; with CI=true that is a failure."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        reason = "no Chromium here (on Debian: apt-get install chromium)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def look(page: Path) -> dict[str, Any]:
    """What a browser makes of a page, measured by a script that is added to a copy of it; and a picture beside it."""
    program = browser()
    text = page.read_text()
    measured = page.with_suffix(".measured.html")
    measured.write_text(text.replace("<head>", f"<head>{WATCH}", 1).replace("</body>", f"{MEASURE}</body>"))
    picture = page.with_suffix(".png")
    dom = _run(program, measured, "--dump-dom", f"--screenshot={picture}")
    found = re.search(r'<pre id="measured"[^>]*>(.*?)</pre>', dom, re.DOTALL)
    assert found is not None, dom[-2000:]
    assert picture.stat().st_size > 20_000
    facts: dict[str, Any] = json.loads(html.unescape(found[1]))
    return facts


def _run(program: str, page: Path, *what: str) -> str:
    done = subprocess.run(
        [
            *(program, *FLAGS, f"--window-size={WIDTH},{HEIGHT}", "--virtual-time-budget=20000"),
            *(f"--user-data-dir={page.parent / 'profile'}", *what, page.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
