"""Pictures and traces of runs: as documented, the violated moment is marked, and they are the same on every system."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

import pytest

from kraft.sim.pictures.diagram import render_diagram
from kraft.sim.pictures.execution import Execution, execution_of
from kraft.sim.pictures.records import Records
from kraft.sim.search.schedule import decode_schedule
from kraft.sim.world.actions import Administer
from kraft.sim.world.trace import Trace
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record
from metadata_log.serde import encode
from metadata_log.types import Uuid
from support.metadata_log.browser import PHONE_WIDTH, WIDTH, look
from transport.protocol.apis import ApiKey
from transport.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

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


def test_a_request_of_a_client_tells_what_is_asked() -> None:
    version, topic = 13, Uuid(bytes(15) + b"\x01")
    data = write_batch([Record(0, 0, 0, b"k", b"v")], epoch=-1, producer_id=5, producer_epoch=0, base_sequence=7)
    named = TopicProduceData(topic_id=topic, partition_data=[PartitionProduceData(0, data)])
    body = encode(ProduceRequest(acks=-1, topic_data=[named]), version)
    told = Records().request_of(Administer(0, 101, 1, ApiKey.PRODUCE, version, body))
    assert told == "gets Produce for unknown topic-0: 1 record, sequence 7 of producer 5, acks=all"


# The trace of a run says the same on every system.


EIO_OF_A_BROWSER = 29


def traced(number: int) -> Trace:
    trace = Trace()
    trace.add(10, 1, f"fetch: OSError {OSError(number, 'write failed', '/log/x')}")
    return trace


def test_an_error_of_the_system_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    here = traced(errno.EIO)
    assert here.text == "10 1 fetch: OSError [EIO] write failed: '/log/x'"
    digest = here.digest
    monkeypatch.setattr("errno.errorcode", {EIO_OF_A_BROWSER: "EIO"})
    assert traced(EIO_OF_A_BROWSER).digest == digest
