"""The tables of public names in the reference, for readers on GitHub, where Sphinx's directives are only text.

    python docs/site/api_tables.py    # writes the tables

Each page has one between its introduction and the directive: the names of the module with their first sentences.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any, Final

MODULES: Final = (
    *("kraft", "kraft.asyncio", "kraft.client", "kraft.store", "kraft.sync", "kraft.testing"),
    *("metadata_log", "metadata_log.spark", "transport"),
)
ROOT: Final = Path(__file__).parents[2]
BEGIN: Final = "<!-- names -->\n"
END: Final = "<!-- end of names -->\n"
DIRECTIVE: Final = "```{eval-rst}\n"


def table_of(module: str) -> str:
    """A row for each public name of a module: where it is defined, and its first sentence."""
    public = import_module(module)
    names = sorted(public.__all__, key=str.lower)
    rows = [f"| {linked(name, getattr(public, name))} | {first_sentence(module, name)} |" for name in names]
    return "\n".join(["| name | |", "| --- | --- |", *rows]) + "\n"


def linked(name: str, what: Any) -> str:
    """The name with a link to the file that defines it, if one does."""
    try:
        path = Path(inspect.getsourcefile(what) or "").relative_to(ROOT)
    except (TypeError, ValueError):
        return f"`{name}`"
    return f"[`{name}`](../../{path.as_posix()})"


def first_sentence(module: str, name: str) -> str:
    """The first sentence of a docstring of ours; empty for a value, whose class has another one."""
    what = getattr(import_module(module), name)
    text = inspect.getdoc(what) if inspect.isroutine(what) or inspect.isclass(what) else ""
    paragraph = " ".join((text or "").split("\n\n")[0].split())
    plain = re.sub(r"\s*\((?:Kafka|KIP)[^)]*\)", "", paragraph)
    return re.split(r"(?<=\.)\s", plain, maxsplit=1)[0].replace("|", "\\|")


def page_with_table(page: str, module: str) -> str:
    """The text of a page with the table of its module in front of the directive."""
    if BEGIN in page:
        before, _, rest = page.partition(BEGIN)
        page = before + rest.partition(END)[2].lstrip("\n")
    before, directive, after = page.partition(DIRECTIVE)
    assert directive, module
    return f"{before}{BEGIN}\n{table_of(module)}\n{END}\n{directive}{after}"


def main() -> None:
    """Write all tables."""
    for module in MODULES:
        path = ROOT / "docs" / "reference" / f"{module}.md"
        path.write_text(page_with_table(path.read_text("utf-8"), module), encoding="utf-8")


if __name__ == "__main__":
    main()
