// A run as the page knows it: its moments, the state of every node at each, and the moment that is shown.
import { asked } from "./engine.js";

const FAR_MS = 3_600_000;
const MOST_MOMENTS = 30_000;
const LED = /^(?:node (\d+): )?(leads|follows) (\S+) in epoch (\d+): (.*)$/;
const COMMITTED = /^committed: (\S+) has (.*)$/;
const GONE = /^(?:node (\d+): )?(\S+) is gone$/;

export class Run extends EventTarget {
  moments = [];
  frames = [];
  cursor = -1;
  state = null;
  #queue = Promise.resolve();

  get frame() { return this.frames[this.cursor] ?? { nodes: {}, cuts: [], partitions: {} }; }
  get moment() { return this.moments[this.cursor] ?? null; }
  get nowMs() { return this.moment?.at_ms ?? 0; }
  get isAtEnd() { return this.cursor >= this.moments.length - 1; }
  get isRecorded() { return this.state !== null && this.state.fragment === ""; }

  // Calls go to the worker one after another, as each continues the run of the one before.
  #next(work) {
    const result = this.#queue.then(work);
    this.#queue = result.catch(() => {});
    return result;
  }

  open(fragment, untilMs = 0) {
    return this.#next(async () => { this.#begin(await asked("open", fragment, untilMs)); });
  }

  openSchedule(text) {
    return this.#next(async () => { this.#begin(await asked("open_schedule", text)); });
  }

  #begin(state) {
    this.moments = [];
    this.frames = [];
    this.cursor = -1;
    this.#take(state);
    this.cursor = Math.max(this.moments.length - 1, -1);
    this.#changed();
  }

  #take(state) {
    this.state = state;
    for (const moment of state.moments) this.#add(moment);
  }

  #add(moment) {
    const before = this.frames.at(-1) ?? { nodes: {}, cuts: [], partitions: {} };
    const nodes = { ...before.nodes, ...moment.nodes };
    let partitions = before.partitions;
    for (const detail of moment.details ?? []) {
      const told = place(detail, moment.node);
      if (told) partitions = { ...partitions, [told.key]: told };
    }
    this.moments.push(moment);
    this.frames.push({ nodes, cuts: moment.cuts ?? before.cuts, partitions });
  }

  advance(untilMs, most = 400) {
    return this.#next(async () => {
      if (this.state.is_over) return;
      this.#take(await asked("advance", Math.round(untilMs), most));
    });
  }

  show(cursor) {
    this.cursor = Math.min(Math.max(cursor, this.moments.length ? 0 : -1), this.moments.length - 1);
    this.#changed();
  }

  async step() {
    if (this.isAtEnd) await this.advance(FAR_MS, 1);
    this.show(this.cursor + 1);
  }

  back() { this.show(this.cursor - 1); }

  // To the next moment at which the state, epoch or vote of a node is another one, or something is broken.
  async nextChange() {
    for (let round = 0; round < 12; round++) {
      for (let at = this.cursor + 1; at < this.moments.length; at++) if (this.#isChange(at)) return this.show(at);
      if (this.state.is_over) break;
      const before = this.moments.length;
      await this.advance(FAR_MS, 500);
      if (this.moments.length === before) break;
    }
    this.show(this.moments.length - 1);
  }

  // Runs in which only the visitor breaks something last an hour of virtual time, and so stop earlier.
  async toEnd() {
    const until = this.moments.length + MOST_MOMENTS;
    while (!this.state.is_over && this.moments.length < until) {
      const before = this.moments.length;
      await this.advance(FAR_MS, 1000);
      this.show(this.moments.length - 1);
      if (this.moments.length === before) break;
    }
    this.show(this.moments.length - 1);
  }

  lastChange() {
    let at = this.cursor - 1;
    while (at > 0 && !this.#isChange(at)) at--;
    this.show(at);
  }

  #isChange(at) {
    const moment = this.moments[at], before = this.frames[at - 1]?.nodes ?? {};
    if (moment.is_fault) return true;
    return Object.entries(moment.nodes ?? {}).some(([id, { now }]) => {
      const was = before[id]?.now;
      return !was || was.state !== now.state || was.epoch !== now.epoch || was.vote !== now.vote;
    });
  }

  // A deed at a moment in the past begins the run again and goes another way from there.
  async act(name, nodes = [], ms = 0, text = "") {
    if (!this.isAtEnd) {
      const atMs = this.nowMs;
      await this.open(withDeedsUntil(this.state.fragment, atMs), atMs);
      while (this.state.now_ms < atMs && !this.state.is_over && this.moments.length % 3000 === 0) await this.advance(atMs, 3000);
    }
    await this.#next(async () => { this.#take(await asked("do", name, nodes, ms, text)); });
    this.show(this.moments.length - 1);
  }

  #changed() { this.dispatchEvent(new Event("change")); }
}

// The time of the last deed in a link: who gets the link begins there.
export function lastDeedMs(fragment) {
  return Number(/[&#]do=(?:[^&]*,)?(\d+)\.[^,&]*(?:&|$)/.exec(fragment)?.[1] ?? 0);
}

export function withDeedsUntil(fragment, untilMs) {
  const parts = fragment.split("&").filter(part => !part.startsWith("do="));
  const deeds = /(?:^|&)do=([^&]*)/.exec(fragment)?.[1].split(",").filter(one => Number(one.split(".")[0]) < untilMs) ?? [];
  return [...parts, ...(deeds.length ? [`do=${deeds.join(",")}`] : [])].join("&");
}

function place(detail, node) {
  const led = LED.exec(detail);
  if (led) {
    const [, named, role, name, epoch, offsets] = led;
    return { key: `${name} ${named ?? node}`, name, node: Number(named ?? node), text: `${role} in epoch ${epoch}: ${offsets}` };
  }
  const committed = COMMITTED.exec(detail);
  if (committed) return { key: `${committed[1]} 0`, name: committed[1], node: 0, text: committed[2] };
  const gone = GONE.exec(detail);
  return gone ? { key: `${gone[2]} ${gone[1] ?? node}`, name: gone[2], node: Number(gone[1] ?? node), text: "" } : null;
}
