// Runs Python code in Pyodide under node: `node run_seeds.mjs FOLDER CODE`, where FOLDER has what `docs/site/lab.py` calls the runtime.
// The code leaves its result as text in `told`.
import fs from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, code] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(`${folder}/pyodide/pyodide.mjs`));
const python = await loadPyodide({ indexURL: `${folder}/pyodide/`, stdout: text => console.error(text) });
python.unpackArchive(new Uint8Array(fs.readFileSync(`${folder}/packages.zip`)), "zip", { extractDir: "/packages" });
await python.runPythonAsync(`import sys\nsys.path.insert(0, "/packages")\n${code}`);
console.log(python.globals.get("told"));
