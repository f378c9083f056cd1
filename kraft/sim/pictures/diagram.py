"""Renders a story as Lamport's space-time diagram: one lane for each node, time downwards, messages as arrows.

The page has no external resources. A click on a moment shows the state of every node at that moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import pairwise
from typing import Final

import msgspec

from kraft.sim.pictures.execution import Arrow, Execution, Moment
from kraft.sim.world.actions import WORLD

ROW: Final = 26
"""Pixels from one moment to the next."""
LANE: Final = 250
LEFT: Final = 90
INSET: Final = 30
TOP: Final = 46
BAND: Final = 10
COLOURS: Final = {
    "Leader": "#009e73",
    "Candidate": "#d55e00",
    "Prospective": "#e69f00",
    "Follower": "#56b4e9",
    "Voted": "#0072b2",
    "Unattached": "#b8b8b8",
    "Resigned": "#cc79a7",
    "Observer": "#8c6bb1",
    "down": "#ffffff",
}
"""The colours of states, which colour-blind readers can distinguish (Okabe and Ito)."""
_STYLE: Final = """
body { font: 14px/1.4 system-ui, sans-serif; color: #222; margin: 0 20px 40px; }
h1 { font-size: 20px; } .broken { color: #c1121f; font-weight: 600; }
main { display: flex; align-items: flex-start; gap: 24px; }
aside { position: sticky; top: 10px; min-width: 330px; font-size: 13px; }
aside table { border-collapse: collapse; } aside td, aside th { padding: 2px 8px 2px 0; text-align: left; }
aside pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f4f4f4; padding: 6px; }
svg text { font-size: 12px; } .time { fill: #777; } .note { fill: #8a5a00; font-style: italic; }
.what { paint-order: stroke; stroke: #fff; stroke-width: 3px; }
.moment { cursor: pointer; } .moment:hover circle, .moment.chosen circle { stroke: #222; stroke-width: 3px; }
.moment:focus { outline: none; } .moment:focus circle { stroke: #222; stroke-width: 3px; }
.legend span { margin-right: 14px; white-space: nowrap; }
.legend i { display: inline-block; width: 12px; height: 12px; margin-right: 4px; border: 1px solid #999; }
"""
_SCRIPT: Final = """
const moments = JSON.parse(document.getElementById("moments").textContent);
const marks = [...document.querySelectorAll(".moment")];
const panel = document.getElementById("panel");
function cell(row, tag, text) { const c = row.appendChild(document.createElement(tag)); c.textContent = text; }
function show(at) {
  const moment = moments[at];
  marks.forEach(mark => mark.classList.toggle("chosen", Number(mark.dataset.at) === at));
  panel.replaceChildren();
  const title = panel.appendChild(document.createElement("h2"));
  const subject = moment.node ? "node " + moment.node + " " : "";
  title.textContent = (at + 1) + ". " + moment.at_ms + " ms: " + subject + moment.what;
  for (const line of moment.details) panel.appendChild(document.createElement("p")).textContent = line;
  const table = panel.appendChild(document.createElement("table"));
  const head = table.insertRow();
  for (const name of ["node", "state", "epoch", "leader", "vote", "committed", "flushed", "log"]) {
    cell(head, "th", name);
  }
  for (const [id, node] of Object.entries(moment.nodes)) {
    const row = table.insertRow();
    const known = number => number < 0 ? "" : number;
    for (const value of [id, node.state, node.epoch, known(node.leader), node.vote ?? "", known(node.high_watermark),
                         known(node.flushed_offset), node.log_end_offset]) cell(row, "td", value);
  }
  panel.appendChild(document.createElement("h3")).textContent = "logs (offsets, and of which epoch)";
  const logs = Object.entries(moment.nodes).map(([id, node]) =>
    id + ": " + node.log.map(([first, end, epoch]) => first + (end > first + 1 ? "-" + (end - 1) : "") + "@" + epoch)
      .join("  "));
  panel.appendChild(document.createElement("pre")).textContent = logs.join("\\n");
}
marks.forEach(mark => {
  mark.addEventListener("click", () => show(Number(mark.dataset.at)));
  mark.addEventListener("focus", () => show(Number(mark.dataset.at)));
});
document.addEventListener("keydown", event => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  const at = marks.findIndex(mark => mark.classList.contains("chosen"));
  const next = marks[Math.min(Math.max(at + step, 0), marks.length - 1)];
  next.focus();
  event.preventDefault();
});
if (moments.length) show(moments.length - 1);
"""


def render_diagram(execution: Execution) -> str:
    """Render a description as an HTML page that needs no network; the page has some kilobytes for each moment."""
    node_ids = tuple(execution.moments[-1].nodes) if execution.moments else ()
    lanes = {node_id: LEFT + INSET + LANE * at for at, node_id in enumerate(node_ids)}
    width, height = LEFT + INSET + LANE * max(len(lanes), 1), TOP + ROW * (len(execution.moments) + 1)
    level = {arrow.sent for arrow in execution.arrows if arrow.sent == arrow.arrived}
    parts = [
        f'<svg width="{width}" height="{height}" role="img" aria-label="what happened, from top to bottom">',
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#444"/></marker></defs>',
        *_bands(execution, lanes),
        *(line for arrow in execution.arrows for line in _arrow(arrow, lanes)),
        *(
            line
            for at, moment in enumerate(execution.moments)
            for line in _moment(at, moment, lanes, width, at in level)
        ),
        "</svg>",
    ]
    data = msgspec.json.encode(execution.moments).decode().replace("<", "\\u003c")
    title = escape(execution.schedule.mutant or "schedule")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body>\n{_heading(execution)}\n<main><div>{chr(10).join(parts)}</div>"
        f'<aside id="panel" aria-live="polite"></aside></main>\n'
        f'<script type="application/json" id="moments">{data}</script><script>{_SCRIPT}</script></body></html>\n'
    )


def _heading(execution: Execution) -> str:
    schedule = execution.schedule
    title = f"The bug {schedule.mutant}" if schedule.mutant else "A schedule"
    failure = execution.replayed.failure
    verdict = f'<p class="broken">{escape(str(failure))}</p>' if failure else "<p>No promise is broken.</p>"
    legend = "".join(f'<span><i style="background:{colour}"></i>{state}</span>' for state, colour in COLOURS.items())
    how = "Click a moment, or go up and down with the arrow keys, to see the state of every node."
    dashed = "A dashed arrow is a message that never arrives."
    return f'<h1>{escape(title)}</h1>{verdict}<p class="legend">{legend}</p><p>{how} {dashed}</p>'


def _y(at: int) -> int:
    return TOP + ROW * (at + 1)


def _bands(execution: Execution, lanes: dict[int, int]) -> Iterator[str]:
    """The state of each node from moment to moment, in colours."""
    bottom = _y(len(execution.moments) - 1)
    for node_id, x in lanes.items():
        yield f'<text x="{x}" y="20" text-anchor="middle" font-weight="600">node {node_id}</text>'
        yield f'<line x1="{x}" y1="30" x2="{x}" y2="{bottom}" stroke="#ddd" stroke-dasharray="2 4"/>'
        changes: list[tuple[int, str, int]] = []
        for at, moment in enumerate(execution.moments):
            now = moment.nodes[node_id]
            if not changes or changes[-1][1:] != (now.state, now.epoch):
                changes.append((at, now.state, now.epoch))
        for (at, state, epoch), (end, *_) in pairwise([*changes, (len(execution.moments) - 1, "", 0)]):
            if state != "down":
                colour = COLOURS.get(state, "#999999")
                yield (
                    f'<rect x="{x - BAND // 2}" y="{_y(at)}" width="{BAND}" height="{max(_y(end) - _y(at), 4)}" '
                    f'fill="{colour}"><title>{escape(state)}, epoch {epoch}</title></rect>'
                )


def _arrow(arrow: Arrow, lanes: dict[int, int]) -> Iterator[str]:
    if arrow.sender not in lanes or arrow.receiver not in lanes:
        return
    x1, y1, x2 = lanes[arrow.sender], _y(arrow.sent), lanes[arrow.receiver]
    what = f"{arrow.what}, {arrow.sender} to {arrow.receiver}"
    if arrow.arrived is None:
        end = f'x2="{x1 + (x2 - x1) // 4}" y2="{y1 + ROW // 2}" stroke="#bbb" stroke-dasharray="3 3"'
        yield f'<line x1="{x1}" y1="{y1}" {end}><title>{escape(what)}: never arrives</title></line>'
        return
    edge = BAND // 2 if x2 > x1 else -BAND // 2
    end = f'x2="{x2 - edge}" y2="{_y(arrow.arrived)}" stroke="#444" marker-end="url(#head)"'
    yield f'<line x1="{x1 + edge}" y1="{y1}" {end}><title>{escape(what)}</title></line>'


def _moment(at: int, moment: Moment, lanes: dict[int, int], width: int, has_level_arrow: bool) -> Iterator[str]:
    y = _y(at)
    if moment.node == WORLD or moment.node not in lanes:
        yield f'<line x1="{LEFT}" y1="{y}" x2="{width}" y2="{y}" stroke="#f0d9a8"/>'
        yield (
            f'<g class="moment" data-at="{at}" tabindex="0"><circle cx="{LEFT - 8}" cy="{y}" r="4" fill="#e6c27a"/>'
            f'<text class="note" x="{LEFT + 4}" y="{y - 4}">{escape(moment.what)}</text></g>'
        )
        return
    x, now = lanes[moment.node], moment.nodes[moment.node]
    own = [detail for detail in moment.details if not detail.startswith("node ")]
    label = "; ".join((moment.what, *(detail.partition("->")[2] or detail for detail in own[-1:])))
    mark = (
        f'<path d="M{x - 6},{y - 6} l12,12 m0,-12 l-12,12" stroke="#c1121f" stroke-width="3"/>'
        if moment.is_fault
        else f'<circle cx="{x}" cy="{y}" r="5" fill="{COLOURS.get(now.state, "#999999")}" stroke="#555"/>'
    )
    shown = label if len(label) <= 38 else f"{label[:37]}…"
    yield (
        f'<g class="moment" data-at="{at}" tabindex="0"><title>{escape(label)}</title>'
        f'<text class="time" x="{LEFT - 16}" y="{y + 4}" text-anchor="end">{moment.at_ms} ms</text>{mark}'
        f'<text class="what" x="{x + 12}" y="{y - 5 if has_level_arrow else y + 4}">{escape(shown)}</text></g>'
    )
