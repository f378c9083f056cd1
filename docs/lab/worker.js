// Runs Python in a worker, so that the page stays quick. Each message calls one function of `kraft.sim.lab.page`.
// The site has the large files compressed, as some hosts send files as they are.
const PACKED = ["pyodide.asm.wasm", "pyodide.asm.mjs", "pyodide-lock.json"];
const TYPES = { wasm: "application/wasm", mjs: "text/javascript", json: "application/json" };
const here = new URL("./", self.location.href);
const took = { start: performance.now() };

async function unpacked(name) {
  const answer = await ask(new URL(`pyodide/${name}.gz`, here));
  if (!answer.ok) throw new Error(`${name}: ${answer.status}`);
  const packed = await answer.blob();
  // A host may have declared the compression, and the browser has undone it then.
  const head = new Uint8Array(await packed.slice(0, 2).arrayBuffer());
  const isPacked = head[0] === 0x1f && head[1] === 0x8b;
  const body = isPacked ? packed.stream().pipeThrough(new DecompressionStream("gzip")) : packed.stream();
  return new Response(body, { headers: { "Content-Type": TYPES[name.split(".").pop()] } });
}

const ask = self.fetch.bind(self);
self.fetch = (what, options) => {
  const name = String(what.url ?? what).split("/").pop();
  return PACKED.includes(name) ? unpacked(name) : ask(what, options);
};

async function load() {
  const packages = ask(new URL("packages.zip", here)).then(answer => answer.arrayBuffer());
  const module = await (await unpacked("pyodide.asm.mjs")).blob();
  const createPyodideModule = (await import(URL.createObjectURL(module))).default;
  const { loadPyodide } = await import("./pyodide/pyodide.mjs");
  const python = await loadPyodide({
    indexURL: new URL("pyodide/", here).href, createPyodideModule,
  });
  took.python = performance.now();
  python.unpackArchive(await packages, "zip", { extractDir: "/packages" });
  took.unpacked = performance.now();
  python.runPython("import sys\nsys.path.insert(0, '/packages')\nfrom kraft.sim.lab.page import Page\npage = Page()");
  took.ready = performance.now();
  postMessage({ ready: { python: took.python - took.start, packages: took.unpacked - took.python,
    import: took.ready - took.unpacked } });
  return python;
}

const loading = load();
loading.catch(failure => postMessage({ failed: String(failure) }));

self.onmessage = async ({ data: { id, call, args } }) => {
  try {
    const python = await loading;
    const page = python.globals.get("page");
    if (call === "tool") {
      postMessage({ id, result: python.pyimport("kraft.cli.doctor.in_page").run_tool(...args) });
      return;
    }
    if (call === "write") {
      for (const [path, bytes] of args[0]) {
        python.FS.mkdirTree(path.slice(0, path.lastIndexOf("/")));
        python.FS.writeFile(path, new Uint8Array(bytes));
      }
      const { unpacked } = python.pyimport("kraft.cli.doctor.in_page");
      postMessage({ id, result: args[0].flatMap(([path]) => JSON.parse(unpacked(path))) });
      return;
    }
    const onProgress = text => postMessage({ id, progress: text });
    const result = page[call](...args, ...(call === "search" ? [onProgress] : []));
    postMessage({ id, result });
  } catch (failure) {
    postMessage({ id, error: String(failure.message ?? failure).trim().split("\n").pop() });
  }
};
