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
    for (const head of document.querySelectorAll("tr.group")) {
      let row = head.nextElementSibling;
      head.hidden = true;
      for (; row && row.className !== "group"; row = row.nextElementSibling) if (!row.hidden) head.hidden = false;
    }
    const filtered = words.length > 0 || shown < items.length;
    output.textContent = filtered ? `${shown} of ${items.length} rows and lanes` : "";
  };

  const lineAbove = table => {
    const before = table.parentElement.previousElementSibling;
    if (before?.className === "picks") return before;
    const line = document.createElement("div");
    line.className = "picks";
    table.parentElement.before(line);
    return line;
  };
  const labelled = (text, control) => {
    const label = document.createElement("label");
    label.append(text + " ", control);
    return label;
  };

  // Rows by a column: by the numbers of the cells if they have any, else by their texts; ties keep the given order.
  const value = cell => "v" in cell.dataset ? Number(cell.dataset.v)
    : cell.classList.contains("number") ? Number(cell.textContent.replaceAll(",", "")) : cell.textContent;
  const compare = (a, b) => typeof a === "number" && typeof b === "number"
    ? (Number.isNaN(a) ? -Infinity : a) - (Number.isNaN(b) ? -Infinity : b) || 0 : String(a) < String(b) ? -1 : String(a) > String(b) ? 1 : 0;
  const orders = new Map();
  const arrange = table => {
    const {rows, at, falls, groups} = orders.get(table);
    const body = table.tBodies[0];
    const sorted = at < 0 ? [...rows]
      : [...rows].sort((a, b) => (falls ? -1 : 1) * compare(value(a.cells[at]), value(b.cells[at])));
    body.querySelectorAll("tr.group").forEach(row => row.remove());
    if (!groups) return body.append(...sorted);
    const by = new Map();
    for (const row of sorted) {
      const name = row.cells[table.dataset.group].textContent;
      by.set(name, [...(by.get(name) ?? []), row]);
    }
    for (const [name, members] of by) {
      const head = document.createElement("tr");
      head.className = "group";
      const cell = head.insertCell();
      cell.colSpan = rows[0].cells.length;
      cell.textContent = `${name}: ${members.length} ${members.length === 1 ? "cluster" : "clusters"}`;
      head.hidden = members.every(row => row.hidden);
      body.append(head, ...members);
    }
  };
  const sortBy = (table, at, falls) => {
    Object.assign(orders.get(table), {at, falls});
    [...table.tHead.rows[0].cells].forEach((head, place) => {
      if (place === at) head.setAttribute("aria-sort", falls ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    arrange(table);
  };
  const makeSortable = table => {
    const heads = [...table.tHead.rows[0].cells];
    orders.set(table, {rows: [...table.tBodies[0].rows], at: -1, falls: true, groups: false});
    for (const [at, head] of heads.entries()) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      button.addEventListener("click", () => {
        const numbers = head.classList.contains("number") || head.classList.contains("time");
        const falls = head.hasAttribute("aria-sort") ? head.getAttribute("aria-sort") === "ascending" : numbers;
        sortBy(table, at, falls);
      });
      head.append(button);
    }
    if (!table.parentElement.matches(".index:not(.environments)")) return;
    const select = document.createElement("select");
    select.className = "order";
    select.append(new Option("worst first", -1), ...heads.map((head, at) => new Option(head.textContent, at)));
    select.addEventListener("change", () => {
      const at = Number(select.value);
      sortBy(table, at, at >= 0 && heads[at].classList.contains("number"));
    });
    lineAbove(table).append(labelled("sort by", select));
    if (!("group" in table.dataset)) return;
    const box = document.createElement("input");
    box.type = "checkbox";
    box.className = "group";
    box.addEventListener("change", () => {
      orders.get(table).groups = box.checked;
      arrange(table);
    });
    lineAbove(table).append(labelled("group by environment", box));
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
    if (chosen.length) {
      picks.set(table, chosen);
      for (const [, select, name] of chosen) lineAbove(table).append(labelled(name, select));
    }
    if (table.tBodies[0].rows.length > 1) makeSortable(table);
  }

  // A link to a row that the filter hides shows the row.
  addEventListener("hashchange", () => {
    const row = document.getElementById(location.hash.slice(1));
    if (!row?.hidden) return;
    input.value = "";
    for (const chosen of picks.values()) for (const [, select] of chosen) select.value = "";
    apply();
    row.scrollIntoView();
  });

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
