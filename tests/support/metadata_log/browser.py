"""Looks at an HTML file with a real browser, headless and without network; skips where there is none.

One run shows the page twice, in frames of 1280 pixels (light) and 390 pixels (dark), and a picture has both.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

WIDTH: Final = 1280
PHONE_WIDTH: Final = 390
HEIGHT: Final = 9000
"""Room for a whole page in one picture."""
NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
OFFLINE: Final = "--host-resolver-rules=MAP * ~NOTFOUND"
FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    OFFLINE,
)
FRAMES: Final = {"desktop": (WIDTH, "light"), "phone": (PHONE_WIDTH, "dark")}

MEASURE: Final = """
<script>
addEventListener("load", () => setTimeout(() => {
  const box = element => { const r = element.getBoundingClientRect();
    return {x: r.x, y: r.y + scrollY, w: r.width, h: r.height}; };
  const overlap = (a, b) => Math.min(a.x + a.w, b.x + b.w) - Math.max(a.x, b.x) > 1
    && Math.min(a.y + a.h, b.y + b.h) - Math.max(a.y, b.y) > 1;
  const pairs = (elements, name) => { const boxes = elements.map(box).map((b, i) => [b, name(elements[i])]);
    return boxes.flatMap(([a, n], i) => boxes.slice(i + 1).filter(([b]) => overlap(a, b)).map(([, m]) => [n, m])); };
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const visible = element => box(element).w > 0 && box(element).h > 0;
  const holdsText = element => [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
  const size = element => parseFloat(getComputedStyle(element).fontSize);
  const outside = (element, edge) => { const t = box(element), p = box(edge);
    return t.w > 0 && (t.x < p.x - 1 || t.x + t.w > p.x + p.w + 2); };
  const found = {
    title: document.title,
    width: document.documentElement.scrollWidth,
    requests: performance.getEntriesByType("resource").map(entry => entry.name),
    errors: window.failures,
    background: getComputedStyle(document.body).backgroundColor,
    smallest: Math.min(...all("body *").filter(each => visible(each) && holdsText(each)
      && !each.matches("script, style")).map(size)),
    blocks: pairs(all("header, .tools, .legend, .cards, nav, section, footer"), each => each.id || each.className),
    parts: all("section").flatMap(
      section => pairs(all("h2, .lead, .plot, .more, .picks, .scroll, .none", section),
        each => `${section.id} ${each.className}`)),
    sections: all("section").map(each => each.id),
    silent: all("section").filter(each => !each.querySelector(".plot, table, .none")).map(each => each.id),
    cut: all(".scroll").filter(each => each.scrollWidth > each.clientWidth + 1).map(each => each.parentElement.id),
    plots: all(".plot").map(plot => ({
      id: plot.id,
      marks: all(".track i, path", plot).filter(visible).length,
      lanes: all(".lane", plot).length,
      track: Math.min(...all(".lane .track", plot).map(track => box(track).w)),
      overlaps: pairs(all(".label, .value, .axis .track span", plot).filter(visible), each => each.textContent),
      outside: all(".track *, .axis span", plot).filter(each => outside(each, plot)).map(each => each.textContent),
    })),
    legend: all(".legend .key").map(key => ({
      meaning: key.textContent.trim(),
      colour: getComputedStyle(key.querySelector(".swatch")).backgroundColor,
      look: key.querySelector(".swatch").className,
    })),
    looks: [...new Set(all(".track i, .track path").map(mark => /k-\\S+/.exec(mark.getAttribute("class"))[0]))],
    words: all(".label, .arrow-label").length,
  };
  const input = document.getElementById("filter");
  if (input) {
    const count = () => all("tbody tr, .lane").filter(each => !each.hidden).length;
    const filter = text => { input.value = text; input.dispatchEvent(new Event("input")); };
    const before = count();
    const filtered = Object.fromEntries((window.FILTERS ?? []).map(text => { filter(text);
      return [text, {shown: count(), said: document.getElementById("matches").textContent,
        sections: all("section").filter(each => !each.hidden).map(each => each.id),
        wrong: all("tbody tr, .lane").filter(each => !each.hidden && !text.split(" ").every(word =>
          (each.textContent + (each.querySelector(".label")?.title ?? "")).includes(word))).length}]; }));
    filter("");
    const select = document.querySelector(".picks select");
    let picked = null;
    if (select) {
      select.value = select.options[1].value;
      select.dispatchEvent(new Event("change"));
      const table = select.closest("section").querySelector(".picks + .scroll table");
      picked = {value: select.value, rows: all("tbody tr", table).filter(each => !each.hidden)
        .map(each => each.textContent)};
      select.value = "";
      select.dispatchEvent(new Event("change"));
    }
    const theme = document.getElementById("theme");
    const themes = [1, 2, 3].map(() => { theme.click();
      return [theme.textContent, getComputedStyle(document.body).backgroundColor]; });
    Object.assign(found, {before, filtered, after: count(), picked, themes});
  }
  parent.postMessage([name, found], "*");
}, 500));
</script>
"""
WATCH: Final = (
    "<script>window.failures = []; addEventListener('error', e => failures.push(e.message));"
    "window.FILTERS = {filters};</script>"
)
BOTH: Final = """<!doctype html><html><head><style>
body {{ margin: 0; display: flex; align-items: flex-start; gap: 10px; }}
iframe {{ border: 0; height: {height}px; flex: none; }}
</style></head><body>{frames}<script>
const found = {{}};
addEventListener("message", ({{data}}) => {{
  found[data[0]] = data[1];
  if (Object.keys(found).length < {count}) return;
  const out = document.createElement("pre");
  out.id = "measured";
  out.hidden = true;
  out.textContent = JSON.stringify(found);
  document.body.append(out);
}});
</script></body></html>
"""


def browser() -> str:
    """The browser's program. Skips the test where there is none; with CI=true that is a failure."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        reason = "no Chromium here (on Debian: apt-get install chromium)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def look(page: Path, *, filters: tuple[str, ...] = (), measure: str = MEASURE) -> dict[str, dict[str, Any]]:
    """Look at a page with a browser, measured by a script that is added to a copy of it; and a picture beside it.

    Args:
        page: The page.
        filters: Texts to type into the page's filter.
        measure: The script; it posts the name of its window and its findings to the parent window.

    Returns:
        The findings by frame: `desktop` and `phone`.
    """
    program = browser()
    text = page.read_text()
    measured, both = page.with_suffix(".measured.html"), page.with_suffix(".both.html")
    watch = WATCH.replace("{filters}", json.dumps(filters))
    measured.write_text(text.replace("<head>", f"<head>{watch}", 1).replace("</body>", f"{measure}</body>"))
    frames = "".join(
        f'<iframe name="{name}" src="{measured.name}" style="width:{width}px;color-scheme:{scheme}"></iframe>'
        for name, (width, scheme) in FRAMES.items()
    )
    both.write_text(BOTH.format(frames=frames, count=len(FRAMES), height=HEIGHT))
    picture = page.with_suffix(".png")
    dom = _run(program, both, "--dump-dom", f"--screenshot={picture}")
    found = re.search(r'<pre id="measured"[^>]*>(.*?)</pre>', dom, re.DOTALL)
    assert found is not None, dom[-2000:]
    assert picture.stat().st_size > 20_000
    facts: dict[str, dict[str, Any]] = json.loads(html.unescape(found[1]))
    return facts


def _run(program: str, page: Path, *what: str) -> str:
    width = sum(width for width, _ in FRAMES.values()) + 10
    done = subprocess.run(
        [
            *(program, *FLAGS, f"--window-size={width},{HEIGHT}", "--virtual-time-budget=20000"),
            *(f"--user-data-dir={page.parent / 'profile'}", *what, page.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
