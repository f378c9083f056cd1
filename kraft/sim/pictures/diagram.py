"""Renders a story as Lamport's space-time diagram: one lane for each node, time downwards, messages as arrows.

The story is a schedule of the simulator, or what happened in the cluster of a test (`kraft.testing.picture`).

All arrows stay between the first and the last lane. The times are left of the first lane, and the label of each moment
is right of the last lane in the row of that moment. So no arrow crosses a label. The page has no external resources. A
click on a moment shows the state of every node at that moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import pairwise
from typing import Final

import msgspec
from msgspec import Struct

from kraft.sim.pictures.execution import Arrow, Execution, Moment
from kraft.sim.pictures.wording import change_text, label_of, readable, violated_invariant
from kraft.sim.world.actions import WORLD

ROW: Final = 26
"""Pixels from one moment to the next."""
LANE: Final = 92
"""Pixels from one node to the next."""
FIRST_LANE: Final = 112
TOP: Final = 46
BAND: Final = 10
LETTER: Final = 7.5
"""The widest average letter of a label in pixels, at a font size of 12 pixels."""


class Box(Struct, frozen=True):
    """The place of a text."""

    x: float
    y: float
    width: float
    height: float


class Segment(Struct, frozen=True):
    """The line of a message."""

    x1: float
    y1: float
    x2: float
    y2: float
    arrow: Arrow


class Layout(Struct, frozen=True):
    """The places of everything in a diagram."""

    width: int
    height: int
    lanes: dict[int, int]
    """The middle of each node's lane."""
    labels: tuple[Box, ...]
    """The label of each moment."""
    times: tuple[Box, ...]
    """The time of each moment."""
    names: tuple[Box, ...]
    """The name of each node."""
    segments: tuple[Segment, ...]


class Drawing(Struct, frozen=True, kw_only=True):
    """The content of a page."""

    title: str
    verdict: str
    """A sentence below the title."""
    moments: tuple[Moment, ...]
    arrows: tuple[Arrow, ...] = ()
    violated: str = ""
    """The invariant that the last moment violates; empty for none."""


def y_of(at: int) -> int:
    """The middle of the row of a moment."""
    return TOP + ROW * (at + 1)


def layout_of(drawing: Drawing) -> Layout:
    """The places of a diagram in pixels. No segment touches a label, a time or a name."""
    node_ids = tuple(drawing.moments[-1].nodes) if drawing.moments else ()
    lanes = {node_id: FIRST_LANE + LANE * at for at, node_id in enumerate(node_ids)}
    left = max(lanes.values(), default=FIRST_LANE) + 22
    labels = tuple(
        Box(left, y_of(at) - 9, LETTER * len(label_of(moment)), 18) for at, moment in enumerate(drawing.moments)
    )
    times = tuple(_time_box(at, moment.at_ms) for at, moment in enumerate(drawing.moments))
    names = tuple(Box(x - 4 * LETTER, 8, 8 * LETTER, 18) for x in lanes.values())
    segments = tuple(
        _segment(arrow, lanes) for arrow in drawing.arrows if arrow.sender in lanes and arrow.receiver in lanes
    )
    right = max((box.x + box.width for box in labels), default=left)
    return Layout(int(right) + 12, y_of(len(drawing.moments)) + ROW // 2, lanes, labels, times, names, segments)


def _time_box(at: int, at_ms: int) -> Box:
    width = LETTER * len(f"{at_ms:,} ms")
    return Box(FIRST_LANE - 20 - width, y_of(at) - 9, width, 18)


def _segment(arrow: Arrow, lanes: dict[int, int]) -> Segment:
    """The line from lane to lane; of a message that never arrives only the beginning."""
    x1, y1, x2 = lanes[arrow.sender], y_of(arrow.sent), lanes[arrow.receiver]
    edge = BAND // 2 if x2 > x1 else -BAND // 2
    if arrow.arrived is None:
        return Segment(x1 + edge, y1, x1 + (34 if x2 > x1 else -34), y1 + 11, arrow)
    return Segment(x1 + edge, y1, x2 - edge, y_of(arrow.arrived), arrow)


COLOURS: Final = {
    "Leader": "#009e73",
    "Candidate": "#d55e00",
    "Prospective": "#e69f00",
    "Follower": "#56b4e9",
    "Voted": "#0072b2",
    "Unattached": "#b8b8b8",
    "Resigned": "#cc79a7",
    "Observer": "#8c6bb1",
    "Fenced": "#f0e442",
    "Paused": "#777777",
    "down": "#ffffff",
}
"""The colours of states, which colour-blind readers can distinguish (Okabe and Ito)."""
SHORT: Final = {
    "Leader": "L",
    "Candidate": "C",
    "Prospective": "P",
    "Follower": "F",
    "Voted": "V",
    "Unattached": "U",
    "Resigned": "R",
    "Observer": "O",
    "Fenced": "X",
    "Paused": "=",
}
"""The letter of each state, in its mark: readers need not rely on the colours."""
_STYLE: Final = """
:root { color-scheme: light dark; --page: light-dark(#ffffff, #14171c); --ink: light-dark(#222222, #e6e9ef);
  --soft: light-dark(#666666, #aab2c0); --line: light-dark(#444444, #b8c0cc); --faint: light-dark(#dddddd, #363c47);
  --lost: light-dark(#8a8a8a, #7d8592); --bad: light-dark(#c1121f, #ff6b6b); --alarm: light-dark(#fde3e4, #47191d);
  --panel: light-dark(#f4f4f4, #23272f); --world: light-dark(#f0d9a8, #5c4a1e); --note: light-dark(#7a5000, #e6c27a); }
body { font: 14px/1.4 system-ui, "DejaVu Sans", sans-serif; color: var(--ink); background: var(--page);
  margin: 0 20px 40px; }
h1 { font-size: 20px; } h2 { font-size: 16px; } h3 { font-size: 14px; } p { overflow-wrap: anywhere; max-width: 110ch; }
.broken { color: var(--bad); font-weight: 600; }
main { display: flex; align-items: flex-start; gap: 24px; }
.picture { overflow-x: auto; min-width: 0; flex: 0 1 auto; }
aside { position: sticky; top: 10px; flex: 1 1 330px; min-width: 0; max-width: 460px; font-size: 13px;
  overflow-x: auto; }
aside table { border-collapse: collapse; font-size: 12px; }
aside td, aside th { padding: 2px 8px 2px 0; text-align: left; }
aside ul { padding-left: 18px; }
svg { display: block; } svg text { font-size: 12px; fill: var(--ink); } svg .time { fill: var(--soft); }
svg .note { fill: var(--note); font-style: italic; }
svg .state { font-size: 11px; font-weight: 700; fill: #111; paint-order: stroke; stroke: #fff; stroke-width: 2.5px; }
svg .violated { fill: var(--bad); font-weight: 700; }
.alarm { fill: var(--alarm); stroke: var(--bad); stroke-width: 2px; }
.moment { cursor: pointer; } .moment:hover .mark, .moment.chosen .mark { stroke: var(--ink); stroke-width: 3px; }
.moment:focus { outline: none; } .moment:focus .mark { stroke: var(--ink); stroke-width: 3px; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 14px; }
.legend i { display: inline-block; min-width: 15px; height: 15px; margin-right: 4px; border: 1px solid var(--lost);
  font: 700 11px/15px system-ui, sans-serif; text-align: center; color: #111; vertical-align: 1px;
  text-shadow: 0 0 2px #fff, 0 0 2px #fff; }
button { font: inherit; }
@media (max-width: 800px) { body { margin: 0 10px 30px; } main { flex-direction: column; align-items: stretch; }
  aside { position: static; max-width: none; flex-basis: auto; } }
"""
_SCRIPT: Final = """
const moments = JSON.parse(document.getElementById("moments").textContent);
const told = JSON.parse(document.getElementById("told").textContent);
const hasLogs = moments.some(moment => Object.values(moment.nodes).some(node => node.log_end_offset >= 0));
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
  for (const line of told[at]) panel.appendChild(document.createElement("p")).textContent = line;
  const table = panel.appendChild(document.createElement("table"));
  const head = table.insertRow();
  const ofLogs = hasLogs ? ["vote for", "committed below", "flushed below", "log end"] : [];
  for (const name of ["node", "state", "epoch", "leader", ...ofLogs]) cell(head, "th", name);
  for (const [id, node] of Object.entries(moment.nodes)) {
    const row = table.insertRow();
    const known = number => number < 0 ? "unknown" : number;
    const values = [id, node.state, node.epoch, node.leader < 0 ? "none" : node.leader, node.vote ?? "none",
                    known(node.high_watermark), known(node.flushed_offset), node.log_end_offset];
    for (const value of hasLogs ? values : values.slice(0, 4)) cell(row, "td", value);
  }
  if (!hasLogs) return;
  panel.appendChild(document.createElement("h3")).textContent = "Logs";
  const list = panel.appendChild(document.createElement("ul"));
  for (const [id, node] of Object.entries(moment.nodes)) {
    const batches = node.log.map(([first, end, epoch]) =>
      (end > first + 1 ? "offsets " + first + " to " + (end - 1) : "offset " + first) + " of epoch " + epoch);
    list.appendChild(document.createElement("li")).textContent = "node " + id + ": " + (batches.join(", ") || "empty");
  }
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
const schemes = [["system", "light dark"], ["dark", "dark"], ["light", "light"]];
let scheme = 0;
document.getElementById("theme").addEventListener("click", event => {
  scheme = (scheme + 1) % schemes.length;
  document.documentElement.style.colorScheme = schemes[scheme][1];
  event.target.textContent = "Colours: " + schemes[scheme][0];
});
if (moments.length) show(moments.length - 1);
"""


def render_diagram(execution: Execution) -> str:
    """Render the description of a schedule as an HTML page; see `render_page`."""
    return render_page(drawing_of(execution))


def drawing_of(execution: Execution) -> Drawing:
    """Make the page of a schedule."""
    mutant, failure = execution.schedule.mutant, execution.replayed.failure
    violated = "" if failure is None else violated_invariant(failure)
    return Drawing(
        title=f"The bug {mutant}" if mutant else "A schedule",
        verdict=f"Violated: {violated}. {readable(str(failure))}" if violated else "No invariant is violated.",
        moments=execution.moments,
        arrows=execution.arrows,
        violated=violated,
    )


def render_page(drawing: Drawing) -> str:
    """Render a story as an HTML page that needs no network; the page has some kilobytes for each moment."""
    layout = layout_of(drawing)
    violated = len(drawing.moments) - 1 if drawing.violated else -1
    parts = [
        f'<svg width="{layout.width}" height="{layout.height}" role="img" aria-label="the events from top to bottom">',
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" style="fill:var(--line)"/></marker></defs>',
        *_alarm(drawing, layout, violated),
        *_bands(drawing, layout),
        *(_arrow(segment) for segment in layout.segments),
        *(line for at, moment in enumerate(drawing.moments) for line in _moment(at, moment, layout, at == violated)),
        "</svg>",
    ]
    data = _as_script(drawing.moments)
    told = _as_script([[change_text(detail) for detail in moment.details] for moment in drawing.moments])
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(drawing.title)}</title><style>{_STYLE}</style></head><body>\n{_heading(drawing)}\n"
        f'<main><div class="picture">{chr(10).join(parts)}</div><aside id="panel" aria-live="polite"></aside></main>\n'
        f'<script type="application/json" id="moments">{data}</script>'
        f'<script type="application/json" id="told">{told}</script><script>{_SCRIPT}</script></body></html>\n'
    )


def _as_script(value: object) -> str:
    return msgspec.json.encode(value).decode().replace("<", "\\u003c")


def _heading(drawing: Drawing) -> str:
    kind = ' class="broken"' if drawing.violated else ""
    used = {node.state for moment in drawing.moments for node in moment.nodes.values()}
    legend = "".join(
        f'<span><i style="background:{colour}">{SHORT.get(state, "")}</i>{state}</span>'
        for state, colour in COLOURS.items()
        if state in used
    )
    how = "Click a moment, or go up and down with the arrow keys, to see the state of every node."
    lost = "A dashed line is a message that never arrives. " if drawing.arrows else ""
    return (
        f"<h1>{escape(drawing.title)}</h1><p{kind}>{escape(drawing.verdict)}</p>"
        f'<p class="legend">{legend}</p><p>{how} {lost}A cross is a fault. '
        '<button id="theme" type="button">Colours: system</button></p>'
    )


def _alarm(drawing: Drawing, layout: Layout, violated: int) -> Iterator[str]:
    """The row of the moment `violated` (-1 for none), and the name of the violated invariant below that row."""
    if violated < 0:
        return
    y, box = y_of(violated), layout.labels[violated]
    yield f'<rect class="alarm" x="2" y="{y - 12}" width="{layout.width - 4}" height="24" rx="4"/>'
    name = escape(drawing.violated)
    yield f'<text class="violated" x="{box.x}" y="{y + 25}">✗ violated: {name}</text>'


def _bands(drawing: Drawing, layout: Layout) -> Iterator[str]:
    """The state of each node from moment to moment, in colours."""
    bottom = y_of(len(drawing.moments) - 1)
    for node_id, x in layout.lanes.items():
        yield f'<text class="name" x="{x}" y="21" text-anchor="middle" font-weight="600">node {node_id}</text>'
        yield f'<line x1="{x}" y1="30" x2="{x}" y2="{bottom}" style="stroke:var(--faint)" stroke-dasharray="2 4"/>'
        changes: list[tuple[int, str, int]] = []
        for at, moment in enumerate(drawing.moments):
            now = moment.nodes[node_id]
            if not changes or changes[-1][1:] != (now.state, now.epoch):
                changes.append((at, now.state, now.epoch))
        for (at, state, epoch), (end, *_) in pairwise([*changes, (len(drawing.moments) - 1, "", 0)]):
            if state != "down":
                colour = COLOURS.get(state, "#999999")
                yield (
                    f'<rect x="{x - BAND // 2}" y="{y_of(at)}" width="{BAND}" height="{max(y_of(end) - y_of(at), 4)}" '
                    f'fill="{colour}"><title>{escape(state)}, epoch {epoch}</title></rect>'
                )


def _arrow(segment: Segment) -> str:
    arrow = segment.arrow
    what = escape(f"{arrow.what}, {arrow.sender} to {arrow.receiver}")
    line = f'<line class="arrow" x1="{segment.x1}" y1="{segment.y1}" x2="{segment.x2}" y2="{segment.y2}"'
    if arrow.arrived is None:
        return f'{line} style="stroke:var(--lost)" stroke-dasharray="3 3"><title>{what}: never arrives</title></line>'
    return f'{line} style="stroke:var(--line)" marker-end="url(#head)"><title>{what}</title></line>'


def _moment(at: int, moment: Moment, layout: Layout, is_violated: bool) -> Iterator[str]:
    y, box, label = y_of(at), layout.labels[at], escape(label_of(moment))
    is_of_world = moment.node == WORLD or moment.node not in layout.lanes
    kind = "note" if is_of_world else "what"
    yield (
        f'<g class="moment" data-at="{at}" tabindex="0"{" data-violated" if is_violated else ""}>'
        f"<title>{label}</title>{_time(moment, layout.times[at], y)}"
        f"{_world(layout, y) if is_of_world else _mark(moment, layout.lanes[moment.node], y)}"
        f'<text class="label {kind}" x="{box.x}" y="{y + 4}">{label}</text></g>'
    )


def _time(moment: Moment, box: Box, y: int) -> str:
    return f'<text class="time" x="{box.x + box.width}" y="{y + 4}" text-anchor="end">{moment.at_ms:,} ms</text>'


def _world(layout: Layout, y: int) -> str:
    last = max(layout.lanes.values(), default=FIRST_LANE)
    return f'<line class="mark" x1="{FIRST_LANE - 12}" y1="{y}" x2="{last + 12}" y2="{y}" style="stroke:var(--world)"/>'


def _mark(moment: Moment, x: int, y: int) -> str:
    if moment.is_fault:
        cross = f"M{x - 6},{y - 6} l12,12 m0,-12 l-12,12"
        return f'<path class="mark" d="{cross}" style="stroke:var(--bad)" stroke-width="3"/>'
    state = moment.nodes[moment.node].state
    return (
        f'<circle class="mark" cx="{x}" cy="{y}" r="8" fill="{COLOURS.get(state, "#999999")}" stroke="#555"/>'
        f'<text class="state" x="{x}" y="{y + 4}" text-anchor="middle">{SHORT.get(state, "")}</text>'
    )
