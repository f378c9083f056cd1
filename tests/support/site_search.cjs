// Prints what the search of a built site finds for a word, the best first: `node site_search.cjs SITE WORD`.
const { readFileSync } = require("node:fs");
const vm = require("node:vm");
const [site, word] = process.argv.slice(2);
const element = { replaceChildren() {}, childNodes: [] };
const document = { getElementById: () => element, createElement: () => element };
const page = vm.createContext({ document, URLSearchParams,
  DOCUMENTATION_OPTIONS: {}, SPHINX_HIGHLIGHT_ENABLED: false, location: { search: "" }, _ready() {}, _: text => text, word });
page.window = page;
for (const name of ["_static/language_data.js", "_static/searchtools.js", "searchindex.js"])
  vm.runInContext(readFileSync(`${site}/${name}`, "utf8"), page);
const found = vm.runInContext("Search._performSearch(...Search._parseQuery(word))", page);
console.log(JSON.stringify(found.reverse().map(([document]) => document)));
