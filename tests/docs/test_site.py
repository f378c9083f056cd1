"""The documentation's site has every page, and the reference every public name."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

from metadata_log.spark.options import OPTION_NAMES
from support import ROOT

DOCS = ROOT / "docs"
GROUPS = ("Tutorials", "How-to guides", "Reference", "Explanation", "Laboratory")
LINK = re.compile(r"\]\(([\w./-]+)\.md(?:#\S+)?\)")

sys.path.insert(0, str(DOCS / "site"))
public_names = import_module("public_names")
twins = import_module("twins")


@pytest.mark.parametrize("module", public_names.MODULES)
def test_the_reference_has_each_public_module(module: str) -> None:
    page = (DOCS / "reference" / f"{module}.md").read_text()
    assert f".. automodule:: {module}\n" in page
    assert len(set(import_module(module).__all__)) > 0


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
    tasks = {group: pages for group, pages in site.items() if group.startswith("How to: ")}
    assert len(tasks) > 4, "one list of all guides is no help"
    assert {group: pages for group, pages in site.items() if group in GROUPS} | {
        "How-to guides": set().union(*tasks.values())
    } == links


@pytest.mark.parametrize("module", public_names.MODULES)
def test_dir_of_a_public_module_shows_its_public_names_alone(module: str) -> None:
    found = import_module(module)
    assert [name for name in dir(found) if not name.startswith("__")] == sorted(
        name for name in found.__all__ if not name.startswith("__")
    )


def test_the_site_has_each_page_as_markdown_and_a_list_of_them(tmp_path: Path) -> None:
    twins.write(tmp_path)
    listed = (tmp_path / "llms.txt").read_text()
    links = set(re.findall(r"\]\(([^)#:]+)[)#]", listed))
    assert len(links) > 90
    assert sorted(link for link in links if link.endswith(".md") and not (tmp_path / link).exists()) == []
    assert "docs/howto/lab.md" in links
    assert (tmp_path / "docs/howto/lab.md").read_text() == (DOCS / "howto/lab.md").read_text()
