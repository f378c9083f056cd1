// The worker with the simulator, as promises.
const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
const waiting = new Map();
let last = 0;

export const ready = new Promise((resolve, reject) => {
  worker.addEventListener("message", ({ data }) => {
    if (data.ready) resolve(data.ready);
    else if (data.failed) reject(new Error(data.failed));
    else if (data.progress !== undefined) waiting.get(data.id)?.onProgress?.(data.progress);
    else {
      const { resolve: done, reject: fail } = waiting.get(data.id);
      waiting.delete(data.id);
      if (data.error !== undefined) fail(new Error(data.error));
      else done(data.result);
    }
  });
  worker.addEventListener("error", event => reject(new Error(event.message)));
});

export function call(name, args = [], { onProgress, transfer = [] } = {}) {
  const id = ++last;
  return new Promise((resolve, reject) => {
    waiting.set(id, { resolve, reject, onProgress });
    worker.postMessage({ id, call: name, args }, transfer);
  });
}

export const asked = async (name, ...args) => JSON.parse(await call(name, args));
