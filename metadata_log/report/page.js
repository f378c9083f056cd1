"use strict";
{
  const tools = document.querySelector(".tools");
  const input = document.getElementById("filter");
  const output = document.getElementById("matches");
  const sections = [...document.querySelectorAll("section")];
  const items = [...document.querySelectorAll("tbody tr, .lane")].map(element => ({
    element,
    text: (element.matches("tr") ? [...element.cells].map(cell => cell.textContent).join(" ")
      : element.querySelector(".label").title + " " + element.querySelector(".label").textContent).toLowerCase(),
  }));
  const picks = new Map();  // A table's rows have to match the choices above the table, too.

  const apply = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const {element, text} of items) {
      const chosen = picks.get(element.closest("table")) ?? [];
      const fits = words.every(word => text.includes(word))
        && chosen.every(([at, select]) => !select.value || element.cells[at].textContent === select.value);
      element.hidden = !fits;
      shown += fits;
    }
    for (const section of sections) {
      section.hidden = words.length > 0 && !section.querySelector("tbody tr:not([hidden]), .lane:not([hidden])");
    }
    const filtered = words.length > 0 || shown < items.length;
    output.textContent = filtered ? `${shown} of ${items.length} rows and lanes` : "";
  };

  for (const table of document.querySelectorAll("table")) {
    const chosen = [];
    for (const [at, head] of [...table.tHead.rows[0].cells].entries()) {
      if (!("pick" in head.dataset)) continue;
      const values = new Set([...table.tBodies[0].rows].map(row => row.cells[at].textContent));
      const select = document.createElement("select");
      select.append(new Option("all", ""), ...[...values].sort().map(value => new Option(value, value)));
      select.addEventListener("change", apply);
      chosen.push([at, select, head.textContent]);
    }
    if (!chosen.length) continue;
    picks.set(table, chosen);
    const line = document.createElement("div");
    line.className = "picks";
    for (const [, select, name] of chosen) {
      const label = document.createElement("label");
      label.append(name + " ", select);
      line.append(label);
    }
    table.parentElement.before(line);
  }

  const themes = [["system", "light dark"], ["dark", "dark"], ["light", "light"]];
  let theme = 0;
  const button = document.getElementById("theme");
  button.addEventListener("click", () => {
    theme = (theme + 1) % themes.length;
    const [name, scheme] = themes[theme];
    document.documentElement.style.colorScheme = scheme;
    button.textContent = "Colours: " + name;
    button.setAttribute("aria-label", "colours: " + (name === "system" ? "as the system" : name));
  });
  input.addEventListener("input", apply);
  tools.hidden = false;
}
