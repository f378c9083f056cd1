"""Pictures and traces of runs: as documented, the violated moment is marked, and they are the same on every system."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from kraft.sim.pictures.diagram import render_diagram
from kraft.sim.pictures.execution import Execution, execution_of
from kraft.sim.search.schedule import decode_schedule
from support.metadata_log.browser import PHONE_WIDTH, WIDTH, look

SCHEDULES: Final = Path(__file__).parents[3] / "docs" / "schedules"
NAMES: Final = sorted(path.stem for path in SCHEDULES.glob("*.json"))
MEASURE: Final = """
<script>
addEventListener("load", () => setTimeout(() => {
  const all = selector => [...document.querySelectorAll(selector)];
  const box = element => element.getBoundingClientRect();
  const texts = all("svg text.label, svg text.time, svg text.name, svg text.violated").map(text => [box(text), text]);
  const crossed = all("svg line.arrow").flatMap(line => {
    const length = line.getTotalLength(), matrix = line.getScreenCTM();
    const points = [...Array(101).keys()].map(at =>
      line.getPointAtLength(length * at / 100).matrixTransform(matrix));
    return texts.filter(([b]) => points.some(p => p.x > b.left && p.x < b.right && p.y > b.top && p.y < b.bottom))
      .map(([, text]) => text.textContent);
  });
  const stacked = texts.flatMap(([a, one], at) => texts.slice(at + 1)
    .filter(([b]) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
      && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3)
      .map(([, other]) => [one, other].map(text => text.textContent)));
  const svg = document.querySelector("svg").getBoundingClientRect();
  const picture = document.querySelector(".picture");
  parent.postMessage([name, {
    errors: window.failures, crossed, stacked,
    width: document.documentElement.scrollWidth,
    scrolls: picture.scrollWidth > picture.clientWidth,
    outside: texts.filter(([b]) => b.left < svg.left - 1 || b.right > svg.right + 1)
      .map(([, text]) => text.textContent),
    smallest: Math.min(...all("body *").filter(each => each.textContent.trim() && !each.children.length
      && !each.matches("script, style, title") && box(each).width > 0)
      .map(each => parseFloat(getComputedStyle(each).fontSize))),
    marked: all("[data-violated] .label").map(label => label.textContent),
    violated: all("text.violated").map(text => text.textContent),
    panel: document.getElementById("panel").textContent,
    background: getComputedStyle(document.body).backgroundColor,
    arrows: all("svg line.arrow").length,
  }], "*");
}, 300));
</script>
"""


def execution(name: str) -> Execution:
    return execution_of(decode_schedule((SCHEDULES / f"{name}.json").read_bytes(), name))


@pytest.mark.parametrize("name", NAMES)
def test_the_documented_pictures_are_up_to_date(name: str) -> None:
    """`kraft sim replay docs/schedules/NAME.json --html docs/schedules/NAME.html` draws them anew."""
    assert (SCHEDULES / f"{name}.html").read_text() == render_diagram(execution(name))


@pytest.mark.parametrize("name", ["raft-figure-8", *(pytest.param(name, marks=pytest.mark.soak) for name in NAMES)])
def test_a_picture_is_legible_in_a_browser(name: str, tmp_path: Path) -> None:
    page = tmp_path / "picture.html"
    page.write_text(render_diagram(execution(name)))
    found = look(page, measure=MEASURE)
    for facts, width, background in (
        (found["desktop"], WIDTH, "rgb(255, 255, 255)"),
        (found["phone"], PHONE_WIDTH, "rgb(20, 23, 28)"),
    ):
        assert (facts["errors"], facts["crossed"], facts["stacked"], facts["outside"]) == ([], [], [], [])
        assert facts["arrows"] > 5
        assert facts["width"] <= width, "the page scrolls sidewards, not the picture alone"
        assert facts["smallest"] >= 11
        assert facts["background"] == background
        assert len(facts["marked"]) == len(facts["violated"]) == 1
        assert "committed below" in facts["panel"]
    assert found["phone"]["scrolls"]
    if name == "raft-figure-8":
        assert found["desktop"]["marked"] == ["node 1 asks 2: Vote"]
        assert found["desktop"]["violated"] == ["✗ violated: a leader has every committed record (_check_leading)"]
