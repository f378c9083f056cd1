// Ten scenarios: each a run with deeds that is replayed, and a question before the answer.
import { make } from "./nodes.js";

export async function setUpScenarios({ open, run, question }) {
  const scenarios = await (await fetch(new URL("./scenarios.json", import.meta.url))).json();
  document.getElementById("scenario-list").replaceChildren(...scenarios.map((one, at) =>
    make("li", {}, make("button", { type: "button", "data-scenario": at, onclick: () => begin(one) }, one.title), make("br"), one.what)));

  async function begin(one) {
    const next = scenarios[scenarios.indexOf(one) + 1];
    await open(one.fragment, one.from);
    const answer = make("button", { type: "button", id: "answer", onclick: async () => {
      await run.advance(one.until, 3000);
      run.show(run.moments.findLastIndex(moment => moment.at_ms <= one.until));
      question.replaceChildren(make("strong", {}, one.title), make("br"), one.answer,
        ...(next ? [make("button", { type: "button", id: "next-scenario", onclick: () => begin(next) }, `Next: ${next.title}`)] : []));
    } }, "Show the answer");
    question.replaceChildren(make("strong", {}, one.title), make("br"), one.question, answer);
    question.hidden = false;
  }
}
