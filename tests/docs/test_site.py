"""The sources of the documentation's site: `uv run poe docs` builds the site, and fails on any warning.

Here is what needs no build: that the reference has each public module, and that the build's own check can fail.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

from metadata_log.spark.options import OPTION_NAMES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GROUPS = ("Tutorials", "How-to guides", "Reference", "Explanation", "Laboratory")
LONGEST = 300
"""So many lines has a page at most that a reader needs."""
LINK = re.compile(r"\]\(([\w./-]+)\.md(?:#\S+)?\)")
ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)

sys.path.insert(0, str(DOCS / "site"))
public_names = import_module("public_names")
twins = import_module("twins")


@pytest.mark.parametrize("module", public_names.MODULES)
def test_the_reference_has_each_public_module(module: str) -> None:
    page = (DOCS / "reference" / f"{module}.md").read_text()
    assert f".. automodule:: {module}\n" in page
    assert len(set(import_module(module).__all__)) > 0


def test_a_public_name_without_an_entry_is_missing() -> None:
    described = set(public_names.public_names())
    assert public_names.missing_names(described) == []
    assert public_names.missing_names(described - {"kraft.Node"}) == ["kraft.Node"]


def test_each_option_of_the_spark_source_is_in_the_reference() -> None:
    page = (DOCS / "reference" / "metadata_log.spark.md").read_text()
    assert sorted(re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", page, re.MULTILINE)) == sorted(OPTION_NAMES)


def test_the_overview_and_the_site_have_the_same_pages_in_the_same_groups() -> None:
    overview = re.split(r"^## ", (DOCS / "README.md").read_text(), flags=re.MULTILINE)[1:]
    links = {part.partition("\n")[0]: set(LINK.findall(part)) for part in overview}
    site: dict[str, set[str]] = {}
    for tree in re.findall(r"^```\{toctree\}\n(.*?)^```$", (DOCS / "index.md").read_text(), re.MULTILINE | re.DOTALL):
        (caption,) = re.findall(r"^:caption: (.+)$", tree, re.MULTILINE)
        site[caption] = {line for line in tree.splitlines() if line and not line.startswith(":") and "*" not in line}
    assert tuple(links) == GROUPS
    assert {group: pages for group, pages in site.items() if group in GROUPS} == links


def test_a_page_for_readers_is_short() -> None:
    """A longer page is split, or belongs to the laboratory."""
    for part in re.split(r"^## ", (DOCS / "README.md").read_text(), flags=re.MULTILINE)[1:]:
        if not part.startswith("Laboratory\n"):
            lines = {page: len((DOCS / f"{page}.md").read_text().splitlines()) for page in LINK.findall(part)}
            assert {page: count for page, count in lines.items() if count > LONGEST} == {}


def test_indented_code_of_a_docstring_is_shown_as_code() -> None:
    lines = ["A client.", "", "    async with it:", "        pass", "", "Args:", "    one: A name,", "        or two."]
    marked = public_names.with_marked_code(lines)
    assert marked == [*lines[:2], "::", "", *lines[2:]]
    assert public_names.with_marked_code(marked) == marked


def glossary() -> list[tuple[str, str]]:
    rows = re.findall(
        r"^\| (?P<term>[^|]+) \| (?P<meaning>[^|]+) \|$", (DOCS / "glossary.md").read_text(), re.MULTILINE
    )
    return [row for row in rows if row[0] not in {"term", "---"}]


def test_the_glossary_defines_each_term_once_and_in_order() -> None:
    terms = [term.lower() for term, _ in glossary()]
    assert len(terms) > 90
    assert len(set(terms)) == len(terms)
    falls = [at for at in range(1, len(terms)) if terms[at - 1] > terms[at]]
    assert len(falls) == 2, "each of the three tables is in alphabetical order"


def test_terms_that_a_definition_uses_are_defined() -> None:
    known = {name.lower() for term, _ in glossary() for name in re.split(r" \(|\)", term) if name}
    used = {term.lower() for _, meaning in glossary() for term in re.findall(r"\*([^*]+)\*", meaning)}
    forms = {form for term in known for form in (term, f"{term}s", f"{term}ted", f"{term}'s")}
    assert used - forms == set()


def test_the_site_has_each_page_as_markdown_and_a_list_of_them(tmp_path: Path) -> None:
    twins.write(tmp_path)
    listed = (tmp_path / "llms.txt").read_text()
    links = set(re.findall(r"\]\(([^)#:]+)[)#]", listed))
    assert len(links) > 90
    assert sorted(link for link in links if link.endswith(".md") and not (tmp_path / link).exists()) == []
    assert "docs/howto/lab.md" in links
    assert (tmp_path / "docs/howto/lab.md").read_text() == (DOCS / "howto/lab.md").read_text()
