// "Find a planted bug": the worker runs seed after seed with the bug, and shortens what it finds.
import { call } from "./engine.js";
import { make } from "./nodes.js";

const $ = id => document.getElementById(id);
const SEEDS_AT_ONCE = 1;
const FIRST = ["vote-in-memory-only", "vote-without-log-check", "raft-figure-8", "flush-nothing"];

export function setUpBugs(bugs, { open, openSchedule }) {
  const order = [...bugs].sort((a, b) => place(a) - place(b) || a.name.localeCompare(b.name));
  function place(one) { const at = FIRST.indexOf(one.name); return at < 0 ? FIRST.length : at; }
  $("bug-name").replaceChildren(...order.map(one => make("option", { value: one.name }, one.name)));
  const tell = () => { $("bug-what").textContent = bugs.find(one => one.name === $("bug-name").value)?.what ?? ""; };
  $("bug-name").addEventListener("change", tell);
  tell();
  let searching = false;
  $("bug-stop").addEventListener("click", () => { searching = false; });
  $("bug-form").addEventListener("submit", async event => {
    event.preventDefault();
    const name = $("bug-name").value;
    searching = true;
    $("bug-search").disabled = true;
    $("bug-stop").hidden = false;
    const onProgress = text => { $("bug-progress").textContent = text; };
    try {
      for (let seed = 0; searching; seed += SEEDS_AT_ONCE) {
        const found = JSON.parse(await call("search", [name, seed, SEEDS_AT_ONCE], { onProgress }));
        if (!found.schedule) continue;
        const told = () => [`Seed ${seed} violates an invariant: ${found.actions} events, shortened to ${found.shrunk}. `,
          make("a", { href: `#${found.fragment}`, class: "bug-link", onclick: event => { event.preventDefault(); open(found.fragment); } }, "The link to the whole run"), "."];
        $("bug-progress").replaceChildren(...told());
        await openSchedule(found.schedule, found.fragment,
          [...told(), " Step through what matters here: Step goes on, and the last event shows what is violated."]);
        break;
      }
      if (!searching) $("bug-progress").textContent = "Stopped.";
    } catch (failure) {
      $("bug-progress").textContent = failure.message;
    } finally {
      searching = false;
      $("bug-search").disabled = false;
      $("bug-stop").hidden = true;
    }
  });
}
