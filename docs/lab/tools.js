// The commands over files that the visitor drops: they run in the worker, and nothing leaves the machine.
import { call } from "./engine.js";
import { make } from "./nodes.js";

const $ = id => document.getElementById(id);
const LARGEST = 200_000_000;
let dropped = 0;

// Each entry is a path and a file. A dropped directory is walked.
async function walk(entry, prefix, found) {
  if (entry.isFile) {
    found.push([prefix + entry.name, await new Promise((resolve, reject) => entry.file(resolve, reject))]);
    return;
  }
  const reader = entry.createReader();
  for (;;) {
    const part = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!part.length) return;
    for (const one of part) await walk(one, `${prefix}${entry.name}/`, found);
  }
}

// What a command may be given: each file, and each directory that holds files.
function paths(files) {
  const folders = new Set(files.flatMap(path => {
    const parts = path.split("/").slice(0, -1);
    return parts.map((_, at) => parts.slice(0, at + 1).join("/"));
  }));
  const rank = path => (path.includes("__cluster_metadata") && folders.has(path) ? 0 : folders.has(path) ? 1 : 2);
  return [...folders, ...files].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
}

export function setUpTools() {
  async function take(files) {
    const size = files.reduce((sum, [, file]) => sum + file.size, 0);
    if (!files.length) return;
    if (size > LARGEST) {
      $("dropped").textContent = `These are ${Math.round(size / 1e6)} MB; the page takes ${LARGEST / 1e6} MB at most.`;
      return;
    }
    const root = `/dropped/${++dropped}/`;
    const contents = await Promise.all(files.map(async ([path, file]) => [root + path, await file.arrayBuffer()]));
    $("dropped").textContent = "Reading …";
    const inside = await call("write", [contents], { transfer: contents.map(([, bytes]) => bytes) });
    const all = [...files.map(([path]) => path), ...inside.map(path => path.slice(root.length))];
    $("tool-path").replaceChildren(...paths(all).map(path => make("option", { value: root + path }, path)));
    $("dropped").textContent = `${all.length} files, ${size.toLocaleString("en")} bytes, in this page only.`;
    $("tool-form").hidden = false;
  }

  const chosen = event => take([...event.target.files].map(file => [file.webkitRelativePath || file.name, file]));
  $("files").addEventListener("change", chosen);
  $("folder").addEventListener("change", chosen);
  $("drop").addEventListener("dragover", event => { event.preventDefault(); $("drop").classList.add("over"); });
  $("drop").addEventListener("dragleave", () => $("drop").classList.remove("over"));
  $("drop").addEventListener("drop", async event => {
    event.preventDefault();
    $("drop").classList.remove("over");
    const entries = [...event.dataTransfer.items].map(item => item.webkitGetAsEntry()).filter(Boolean), found = [];
    for (const entry of entries) await walk(entry, "", found);
    await take(found);
  });
  const showTopic = () => { $("tool-topic-label").hidden = !["history", "replay", "report"].includes($("tool-name").value); };
  $("tool-name").addEventListener("change", showTopic);
  showTopic();
  $("tool-form").addEventListener("submit", async event => {
    event.preventDefault();
    const name = $("tool-name").value, out = $("tool-out"), report = $("tool-report");
    out.hidden = false;
    report.hidden = true;
    out.textContent = "Running …";
    try {
      const text = await call("tool", [name, $("tool-path").value, $("tool-topic").value.trim()]);
      const isPage = text.startsWith("<!doctype html>");
      out.hidden = isPage;
      report.hidden = !isPage;
      if (isPage) report.srcdoc = text;
      else out.textContent = text || "Nothing.";
    } catch (failure) { out.textContent = failure.message; }
  });
}
