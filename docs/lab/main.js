// The page of the lab: a run that is watched, and what the visitor does to it.
import { asked, call, ready } from "./engine.js";
import { Run, lastDeedMs } from "./run.js";
import { NodeCards, PAUSE_MS, SLOW_MS, make, showLinks, showPartitions } from "./nodes.js";
import { showDiagram } from "./diagram.js";
import { setUpBugs } from "./bugs.js";
import { setUpScenarios } from "./scenarios.js";
import { rulesOf } from "./rules.js";
import { setUpTools } from "./tools.js";

const $ = id => document.getElementById(id);
const run = new Run();
const FRAME_MS = 100, SAVED = "kraft-lab-run.json";
const FIRST = "seed=7&members=replica&nodes=3&profile=quiet", FIRST_MS = 3000;
let chosen = 1, playing = null, clockMs = 0, shape = "";

let kinds = new Map(), bugs = [], whole = "";

const cards = new NodeCards($("nodes-view"), { act, choose: id => { chosen = id; show(); } });

function say(text, isBad = false) {
  $("status").textContent = text;
  $("status").hidden = !text;
  $("status").classList.toggle("verdict", isBad);
  $("status").classList.toggle("bad", isBad);
}

// Whether the work was done; if not, the page says why.
async function attempt(work) {
  try { await work(); say(""); return true; } catch (failure) { stop(); say(failure.message, true); return false; }
}

// What is shown

function show() {
  if (!run.state) return;
  const { frame, moment, state } = run;
  const now = `${state.node_ids} ${state.members} ${run.isRecorded}`;
  if (now !== shape) {
    shape = now;
    if (!state.node_ids.includes(chosen)) chosen = state.node_ids[0];
    cards.build(state.node_ids, { ...kinds.get(state.members), isRecorded: run.isRecorded });
  }
  cards.show(frame, moment, chosen);
  const voters = state.node_ids.filter(id => id < 101);
  showLinks($("links"), voters.length === state.node_ids.length ? voters : state.node_ids, frame.cuts, run.isRecorded,
    (one, other) => act("cut", one, other));
  $("heal").disabled = run.isRecorded;
  showPartitions($("partitions"), frame.partitions);
  $("cursor").max = Math.max(run.moments.length - 1, 0);
  $("cursor").value = run.cursor;
  $("clock").textContent = `${Math.max(run.isAtEnd && playing ? clockMs : run.nowMs, 0).toLocaleString("en")} ms`;
  $("now").textContent = moment ? moment.what : "Nothing has happened yet: press Play, or Step.";
  const reason = lastReason(), rules = rulesOf(moment, reason);
  $("why").hidden = !reason && !rules.length;
  $("why").replaceChildren(reason, ...rules.flatMap(({ href, text }) => [" ", make("a", { href }, text)]));
  const isShown = run.isAtEnd && state.verdict;
  $("verdict").hidden = !isShown;
  $("verdict").textContent = isShown ? state.verdict : "";
  $("verdict").classList.toggle("bad", state.is_violated);
  $("back").disabled = run.cursor <= 0;
  $("step").disabled = $("change").disabled = $("end").disabled = run.isAtEnd && state.is_over;
  $("last-change").disabled = run.cursor <= 0;
  showLaptop(state);
  const bug = bugs.find(one => one.name === state.bug);
  $("planted").hidden = !bug;
  $("planted").textContent = bug ? `This copy of the code has a planted bug, ${bug.name}: ${bug.what}` : "";
  story();
  showDiagram($("diagram"), run, at => { stop(); run.show(at); });
}

// What repeats the run elsewhere: a seed alone is a command, and what a visitor did is in a file.
function showLaptop(state) {
  const computed = `${state.now_ms.toLocaleString("en")} ms`;
  $("command").textContent = `kraft sim replay ${SAVED}`;
  $("computed").textContent = computed;
  $("digest").textContent = state.digest;
  $("save").title = `All events that are computed, up to ${computed}`;
  $("copy").textContent = run.isRecorded && whole ? "Copy link to the whole run" : "Copy link";
  $("copy").disabled = run.isRecorded && !whole;
  $("copy").title = run.isRecorded ? (whole ? "The whole run, of which these are the events that matter" : "A saved run has no link: send the file") : "";
}

// The last sentence about a vote at or shortly before the moment.
function lastReason() {
  for (let at = run.cursor; at >= Math.max(0, run.cursor - 3); at--) if (run.moments[at].why) return run.moments[at].why;
  return "";
}

function story() {
  const first = Math.max(0, run.cursor - 40);
  const items = [];
  for (let at = Math.min(run.cursor + 4, run.moments.length - 1); at >= first; at--) {
    const moment = run.moments[at];
    const more = [moment.why, ...(moment.details ?? []).slice(0, 4)].filter(Boolean);
    items.push(make("li", { class: `${at === run.cursor ? "chosen" : ""} ${moment.is_fault ? "fault" : ""}` },
      make("time", {}, `${moment.at_ms} ms`), ` ${moment.what}`, ...more.map(text => make("small", {}, text))));
  }
  $("story").replaceChildren(...items);
}

run.addEventListener("change", () => { if (!playing) clockMs = run.nowMs; show(); });

// What the visitor does

function act(name, ...nodes) {
  const ms = { pause: PAUSE_MS, "slow-disk": SLOW_MS }[name] ?? 0;
  return attempt(async () => {
    if (run.isAtEnd && playing) await run.advance(clockMs);
    await run.act(name, nodes, ms);
    remember();
  });
}

function remember() {
  whole = run.state?.fragment || whole;
  if (whole) history.replaceState(null, "", `#${whole}`);
}

async function open(fragment, untilMs = 0) {
  stop();
  ask();
  await run.open(fragment, untilMs);
  whole = "";
  remember();
  fillForm(run.state.fragment);
  tab("run");
}

// `fragment` is the link to the run of which the schedule is a part; a file has none.
async function openSchedule(text, fragment = "", told = []) {
  stop();
  await run.openSchedule(text);
  whole = fragment;
  history.replaceState(null, "", fragment ? `#${fragment}` : location.pathname + location.search);
  ask(...told);
  await run.step();
  tab("run");
}

function ask(...parts) {
  $("question").replaceChildren(...parts);
  $("question").hidden = !parts.length;
}

function fillForm(fragment) {
  const known = new URLSearchParams(fragment);
  $("seed").value = known.get("seed") ?? 0;
  for (const name of ["members", "nodes", "profile", "bug"]) {
    const value = known.get(name) ?? (name === "bug" ? "" : null);
    if (value !== null && [...$(name).options].some(one => one.value === value)) $(name).value = value;
  }
}

$("new-run").addEventListener("submit", event => {
  event.preventDefault();
  const of = name => encodeURIComponent($(name).value);
  const bug = $("bug").value ? `&bug=${of("bug")}` : "";
  attempt(() => open(`seed=${of("seed")}&members=${of("members")}&nodes=${of("nodes")}&profile=${of("profile")}${bug}`));
});

// Time

function stop() {
  clearTimeout(playing);
  playing = null;
  $("play").textContent = "▶ Play";
}

function play() {
  clockMs = run.isAtEnd ? Math.max(clockMs, run.nowMs) : run.nowMs;
  $("play").textContent = "❚❚ Pause";
  const tick = async () => {
    const began = performance.now();
    clockMs += Number($("speed").value) * FRAME_MS / 1000;
    try {
      if (run.isAtEnd || run.moments.at(-1).at_ms < clockMs) await run.advance(clockMs);
    } catch (failure) { stop(); say(failure.message, true); return; }
    if (playing === null) return;
    let at = run.cursor;
    while (at + 1 < run.moments.length && run.moments[at + 1].at_ms <= clockMs) at++;
    run.show(at);
    if (run.state.is_over && run.isAtEnd) { stop(); show(); return; }
    playing = setTimeout(tick, Math.max(FRAME_MS - (performance.now() - began), 0));
  };
  playing = setTimeout(tick, 0);
}

const toggle = () => (playing ? (stop(), show()) : play());
const paused = work => () => { stop(); attempt(work); };
$("play").addEventListener("click", toggle);
$("step").addEventListener("click", paused(() => run.step()));
$("back").addEventListener("click", paused(() => run.back()));
$("end").addEventListener("click", async () => {
  stop();
  if (await attempt(() => run.toEnd()) && !run.state.is_over) {
    say("No promise was broken up to here. A run in which only you make faults goes on for an hour of its time: “To the end” again goes on.");
  }
});
$("last-change").addEventListener("click", () => { stop(); run.lastChange(); });
$("change").addEventListener("click", paused(() => run.nextChange()));
$("cursor").addEventListener("input", () => { stop(); run.show(Number($("cursor").value)); });
$("heal").addEventListener("click", () => act("heal"));

const KEYS = { c: "crash", s: "restart", i: "isolate", p: "pause", d: "slow-disk", w: "write" };
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("run").hidden || event.target.closest("input, select, textarea")) return;
  const isButton = event.target.closest("button, summary, a");
  if (event.key === " " && !isButton) toggle();
  else if (event.key === "ArrowRight") (event.shiftKey ? $("change") : $("step")).click();
  else if (event.key === "ArrowLeft") (event.shiftKey ? $("last-change") : $("back")).click();
  else if (/^[1-9]$/.test(event.key) && run.state?.node_ids[event.key - 1]) { chosen = run.state.node_ids[event.key - 1]; show(); }
  else if (event.key === "End") $("end").click();
  else if (event.key === "h") act("heal");
  else if (KEYS[event.key]) cards.root.querySelector(`[data-node="${chosen}"] [data-act="${KEYS[event.key]}"]`)?.click();
  else return;
  event.preventDefault();
});

// Links and files

export function saveFile(name, text, type = "application/json") {
  const link = make("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

$("copy").addEventListener("click", () => attempt(async () => {
  remember();
  await navigator.clipboard.writeText(location.href);
  $("copy").textContent = "Copied";
  setTimeout(() => showLaptop(run.state), 2000);
}));
$("save").addEventListener("click", () => attempt(async () => saveFile(SAVED, await call("saved"))));
$("whole").addEventListener("click", () => attempt(async () => saveFile("kraft-lab-run.html", await call("diagram"), "text/html")));
$("open-file").addEventListener("change", event => attempt(async () => openSchedule(await event.target.files[0].text())));

// Parts of the page

function tab(name) {
  for (const button of document.querySelectorAll("[data-tab]")) button.setAttribute("aria-pressed", String(button.dataset.tab === name));
  for (const id of ["run", "scenarios", "bugs", "tools"]) $(id).hidden = id !== name;
  if (name !== "run") stop();
  else show();
}
for (const button of document.querySelectorAll("[data-tab]")) button.addEventListener("click", () => tab(button.dataset.tab));

const SCHEMES = [["system", "light dark"], ["dark", "dark"], ["light", "light"]];
$("theme").addEventListener("click", event => {
  const next = (SCHEMES.findIndex(([name]) => event.target.textContent.endsWith(name)) + 1) % SCHEMES.length;
  document.documentElement.style.colorScheme = SCHEMES[next][1];
  event.target.textContent = `Colours: ${SCHEMES[next][0]}`;
});

window.addEventListener("hashchange", () => attempt(() => open(location.hash.slice(1), lastDeedMs(location.hash))));

async function begin() {
  const took = await ready;
  const known = await asked("known");
  $("profile").replaceChildren(...known.profiles.sort(([a], [b]) => (b === "quiet") - (a === "quiet"))
    .map(([name, what]) => make("option", { value: name, title: what }, name === "quiet" ? "only mine" : name)));
  kinds = new Map(known.kinds.map(one => [one.name, one]));
  bugs = known.bugs;
  $("members").replaceChildren(...known.kinds.map(({ name, label }) => make("option", { value: name }, label)));
  $("bug").append(...bugs.map(({ name }) => name).sort().map(name => make("option", { value: name }, name)));
  $("bug").addEventListener("change", () => { $("members").value = bugs.find(one => one.name === $("bug").value)?.members ?? $("members").value; });
  setUpBugs(bugs, { open: fragment => attempt(() => open(fragment)), openSchedule });
  setUpScenarios({ open, run, question: $("question") });
  setUpTools();
  const fragment = location.hash.slice(1);
  await open(fragment || FIRST, fragment ? lastDeedMs(fragment) : FIRST_MS).catch(failure => {
    say(failure.message, true);
    return open(FIRST, FIRST_MS);
  });
  if (!fragment) ask("Node 2 leads. Press Play, crash it, and see who is elected, and why.");
  if ($("status").textContent.startsWith("Loading")) say("");
  performance.mark("interactive");
  window.lab = { run, took, interactiveMs: performance.now() };
}

begin().catch(failure => say(`The lab could not be loaded: ${failure.message}`, true));
