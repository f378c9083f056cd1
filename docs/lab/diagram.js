// Lamport's space-time diagram of the moments around the one that is shown: time goes down, messages are arrows.
import { COLOURS, LETTERS } from "./nodes.js";

const SVG = "http://www.w3.org/2000/svg";
const ROW = 24, LANE = 74, FIRST = 96, TOP = 34, BEFORE = 24, AFTER = 8;

function draw(tag, attributes = {}, text = "") {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text) element.textContent = text;
  return element;
}

export function showDiagram(root, run, choose) {
  const ids = run.state.node_ids;
  const first = Math.max(0, run.cursor - BEFORE), end = Math.min(run.moments.length, run.cursor + AFTER + 1);
  const x = Object.fromEntries(ids.map((id, at) => [id, FIRST + LANE * at]));
  const y = at => TOP + ROW * (at - first + 0.5);
  const right = FIRST + LANE * (ids.length - 1) + 22;
  const width = Math.max(right + 330, root.clientWidth - 2), height = TOP + ROW * Math.max(end - first, 1) + 8;
  const svg = draw("svg", { width, height, role: "img", "aria-label": "the last events from top to bottom" });
  const defs = draw("defs");
  defs.innerHTML = '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    + '<path d="M0,0 L8,4 L0,8 z" fill="currentColor"/></marker>';
  svg.append(defs);
  for (const id of ids) {
    svg.append(draw("text", { x: x[id], y: 20, "text-anchor": "middle", "font-weight": 600 }, String(id)));
    bands(svg, run, id, x[id], first, end, y);
  }
  for (let at = first; at < end; at++) for (const one of run.moments[at].came ?? []) arrow(svg, one, at, first, x, y);
  for (let at = first; at < end; at++) svg.append(row(run, at, x, y(at), right, width, choose));
  root.replaceChildren(svg);
  if (run.cursor >= 0) root.scrollTop = y(run.cursor) - root.clientHeight * 0.7;
}

function bands(svg, run, id, x, first, end, y) {
  let from = first;
  const state = at => run.frames[at]?.nodes[id]?.now.state ?? "down";
  for (let at = first + 1; at <= end; at++) {
    if (at < end && state(at) === state(from)) continue;
    if (state(from) !== "down") svg.append(draw("rect", { x: x - 4, width: 8, y: y(from), fill: COLOURS[state(from)] ?? "#999",
      height: Math.max(y(Math.min(at, end - 1)) - y(from), 3) }));
    from = at;
  }
}

function arrow(svg, { sender, receiver, sent, what }, at, first, x, y) {
  if (x[sender] === undefined || x[receiver] === undefined) return;
  const edge = x[receiver] > x[sender] ? 6 : -6, from = Math.max(sent, first - 1);
  const line = draw("line", { x1: x[sender] + edge, y1: y(from), x2: x[receiver] - edge, y2: y(at), stroke: "currentColor",
    "stroke-opacity": /vote/i.test(what) ? 1 : 0.45, "stroke-width": /vote/i.test(what) ? 1.8 : 1, "marker-end": "url(#head)" });
  line.append(draw("title", {}, `${what}, ${sender} to ${receiver}`));
  svg.append(line);
}

function row(run, at, x, y, right, width, choose) {
  const moment = run.moments[at], node = run.frames[at].nodes[moment.node];
  const group = draw("g", { "data-at": at, class: at === run.cursor ? "chosen" : "" });
  group.append(draw("rect", { class: "row", x: right - 8, y: y - 11, width: width - right + 4, height: 22, rx: 4 }));
  group.append(draw("text", { class: "time", x: FIRST - 18, y: y + 4, "text-anchor": "end" }, `${moment.at_ms} ms`));
  if (moment.is_fault && x[moment.node] === undefined) {
    group.append(draw("line", { x1: FIRST - 10, x2: right - 12, y1: y, y2: y, stroke: "var(--note)", "stroke-width": 2 }));
  } else if (x[moment.node] !== undefined) {
    const state = node?.now.state ?? "down";
    group.append(draw("circle", { cx: x[moment.node], cy: y, r: 8, fill: COLOURS[state] ?? "#999", stroke: "#555" }));
    group.append(draw("text", { class: "state", x: x[moment.node], y: y + 4, "text-anchor": "middle" }, LETTERS[state] ?? "×"));
  }
  const what = moment.what.length > 60 ? `${moment.what.slice(0, 59)}…` : moment.what;
  group.append(draw("text", { x: right, y: y + 4 }, what), draw("title", {}, moment.what));
  group.addEventListener("click", () => choose(at));
  return group;
}
