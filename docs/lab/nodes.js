// The cards of the nodes, the links between them, and the partitions of brokers.
export const COLOURS = {
  Leader: "#009e73", Candidate: "#d55e00", Prospective: "#e69f00", Follower: "#56b4e9", Voted: "#0072b2",
  Unattached: "#b8b8b8", Resigned: "#cc79a7", Observer: "#8c6bb1", down: "#ffffff",
};
export const LETTERS = {
  Leader: "L", Candidate: "C", Prospective: "P", Follower: "F", Voted: "V", Unattached: "U", Resigned: "R", Observer: "O",
};
const EPOCHS = ["#cfe8ff", "#ffe2b8", "#d5f0c8", "#f6d0e4", "#e3d7fb", "#fff3a6", "#c9ece7"];
const FIRST_BROKER = 101;
export const PAUSE_MS = 2000, SLOW_MS = 1000;

const known = offset => (offset < 0 ? "unknown" : offset);

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

export class NodeCards {
  #cards = new Map();

  constructor(root, { act, choose }) {
    this.root = root;
    this.act = act;
    this.choose = choose;
  }

  build(ids, { changes_voters: changesVoters, takes_records: takesRecords, isRecorded }) {
    this.#cards.clear();
    this.root.replaceChildren(...ids.map(id => this.#card(id, changesVoters && id < FIRST_BROKER, takesRecords && id < FIRST_BROKER, isRecorded)));
  }

  #card(id, isDynamic, mayWrite, isRecorded) {
    const acts = [
      ["crash", "Crash", "c"], ["restart", "Start", "s"], ["isolate", "Cut off", "i"], ["pause", "Pause", "p"],
      ["slow-disk", "Slow disk", "d"], ["write", "Write", "w"],
      ...(isDynamic ? [["add-voter", "Add voter", ""], ["remove-voter", "Remove voter", ""]] : []),
    ].filter(([name]) => name !== "write" || mayWrite);
    const part = {
      mark: make("span", { class: "mark", "aria-hidden": "true" }), state: make("b"), facts: make("dl"),
      log: make("div", { class: "log" }), tags: make("div", { class: "tags" }),
      acts: Object.fromEntries(acts.map(([name, label, key]) => [name, make("button", {
        type: "button", "data-act": name, "aria-label": `${label} node ${id}`, title: key && `${label} (${id} then ${key})`,
        disabled: isRecorded, onclick: event => { event.stopPropagation(); this.act(name, id); },
      }, label)])),
    };
    const name = id >= FIRST_BROKER ? `broker ${id}` : `node ${id}`;
    const card = make("section", { class: "node", role: "listitem", "data-node": id, "aria-label": name, onclick: () => this.choose(id) },
      make("h3", {}, part.mark, name, part.state), part.facts, part.log, part.tags,
      make("div", { class: "acts" }, ...Object.values(part.acts)));
    this.#cards.set(id, { card, ...part, isRecorded });
    return card;
  }

  show(frame, moment, chosen) {
    for (const [id, part] of this.#cards) {
      const node = frame.nodes[id];
      part.card.classList.toggle("chosen", id === chosen);
      part.card.classList.toggle("moved", moment?.node === id);
      this.#fill(part, node?.now ?? { state: "down", epoch: 0, leader: -1, log: [], vote: null, high_watermark: -1,
        flushed_offset: -1, log_end_offset: 0 }, node ?? {});
    }
  }

  #fill(part, now, node) {
    const isDown = now.state === "down";
    part.card.style.setProperty("--state", COLOURS[now.state] ?? "#999999");
    part.card.classList.toggle("down", isDown);
    part.mark.textContent = LETTERS[now.state] ?? "–";
    part.state.textContent = isDown ? "down" : now.state;
    const vote = now.vote === null ? "no vote" : `a vote for ${now.vote}`;
    const rows = [
      ["epoch", now.epoch], ["leader", now.leader < 0 ? "none" : now.leader],
      ["on disk", `epoch ${node.stored_epoch ?? 0}, ${vote}`],
      ["committed", isDown ? "–" : now.high_watermark < 0 ? "not known" : `below ${now.high_watermark}`],
      ["log ends", `${now.log_end_offset}${isDown ? "" : `, flushed ${known(now.flushed_offset)}`}`],
      ...(node.voters?.length ? [["voters", node.voters.join(" ")]] : []),
    ];
    part.facts.replaceChildren(...rows.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, String(value))]));
    const batches = now.log.slice(-8);
    const cut = now.log.length > batches.length ? [make("i", {}, "…")] : [];
    part.log.replaceChildren(...cut, ...batches.map(([first, end, epoch]) => {
      const offsets = end > first + 1 ? `offsets ${first} to ${end - 1}` : `offset ${first}`;
      const isCommitted = end <= now.high_watermark;
      return make("span", { class: isCommitted ? "committed" : "", style: `--epoch:${EPOCHS[epoch % EPOCHS.length]}`,
        title: `${offsets} of epoch ${epoch}${isCommitted ? ", committed" : ""}` }, String(first));
    }), ...(now.log.length ? [] : [make("i", {}, "empty log")]));
    part.tags.textContent = [
      node.is_paused && "paused", node.flush_ms > 5 && `an fsync takes up to ${node.flush_ms} ms`,
    ].filter(Boolean).join(", ");
    if (part.isRecorded) return;
    for (const [name, button] of Object.entries(part.acts)) button.disabled = name === "restart" ? !isDown : isDown;
  }
}

export function showLinks(root, ids, cuts, isRecorded, toggle) {
  const isCut = new Set(cuts.map(String));
  const pairs = ids.flatMap((one, at) => ids.slice(at + 1).map(other => [one, other]));
  const few = pairs.length <= 10 ? pairs : cuts;
  // The keyboard's focus is on one of the buttons, and stays there while nothing changes.
  const shape = JSON.stringify([few, cuts, isRecorded]);
  if (root.dataset.shape === shape) return;
  root.dataset.shape = shape;
  root.replaceChildren(...few.map(([one, other]) => {
    const pressed = isCut.has(String([one, other]));
    return make("button", { type: "button", "aria-pressed": pressed ? "true" : "false", disabled: isRecorded || pressed,
      "data-link": `${one}-${other}`, title: pressed ? "no message passes; heal all" : "cut this link",
      onclick: () => toggle(one, other) }, `${one}–${other}`);
  }), ...(few.length ? [] : ["none is cut"]));
}

export function showPartitions(root, partitions) {
  const rows = Object.values(partitions).filter(one => one.text);
  root.hidden = !rows.length;
  const names = [...new Set(rows.map(one => one.name))].sort();
  root.replaceChildren(make("table", {},
    make("tr", {}, make("th", {}, "partition"), make("th", {}, "the cluster says"), make("th", {}, "replicas")),
    ...names.map(name => {
      const of = rows.filter(one => one.name === name);
      const replicas = of.filter(one => one.node).sort((a, b) => a.node - b.node);
      return make("tr", {}, make("td", {}, name), make("td", {}, of.find(one => !one.node)?.text ?? "–"),
        make("td", {}, ...replicas.flatMap(one => [`${one.node} ${one.text}`, make("br")])));
    })));
}
