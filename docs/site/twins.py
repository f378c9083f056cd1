"""The pages of the site as Markdown, for programs: each page beside its HTML, and `llms.txt`, which lists them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
HEAD: Final = "# trio-kraft\n\n> Apache Kafka's controller quorum and brokers in Python, true to the byte.\n\n"
_LINK: Final = re.compile(r"\]\((?!https?:)([^)#]+)")


def pages() -> Iterator[str]:
    """The paths of all pages, from the root of the repository."""
    yield from ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")
    yield from sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))


def llms() -> str:
    """The list of pages with a line for each, from the overview, with links from the root of the site."""
    overview = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    sections = overview[overview.index("\n## ") + 1 :]
    return HEAD + _LINK.sub(lambda link: f"]({_from_root(link[1])}", sections)


def _from_root(target: str) -> str:
    return (ROOT / "docs" / target).resolve().relative_to(ROOT).as_posix()


def write(out: Path) -> None:
    """Write the Markdown of each page, and `llms.txt`, into the folder of the site."""
    for page in pages():
        (out / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / page, out / page)
    (out / "llms.txt").write_text(llms(), encoding="utf-8")
