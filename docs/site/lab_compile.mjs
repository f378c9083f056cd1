// Compiles the packages of the lab with the Python that will run them: `node lab_compile.mjs FOLDER` replaces FOLDER/packages.zip.
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const folder = path.resolve(process.argv[2]);
const { loadPyodide } = await import(pathToFileURL(`${folder}/pyodide/pyodide.mjs`));
const python = await loadPyodide({ indexURL: `${folder}/pyodide/` });
python.unpackArchive(new Uint8Array(fs.readFileSync(`${folder}/packages.zip`)), "zip", { extractDir: "/packages" });
await python.runPythonAsync(`
import compileall, os, zipfile
from pathlib import Path
from py_compile import PycInvalidationMode

os.chdir("/packages")
assert compileall.compile_dir(".", quiet=1, legacy=True, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
files = sorted(str(path) for path in Path(".").rglob("*") if path.is_file() and path.suffix != ".py")
with zipfile.ZipFile("/packages.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
    for name in files:
        archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), Path(name).read_bytes(), zipfile.ZIP_DEFLATED, 9)
`);
fs.writeFileSync(`${folder}/packages.zip`, python.FS.readFile("/packages.zip"));
