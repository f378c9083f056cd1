"""The documentation's site: it builds without a warning, has every page, and its search finds the tutorials."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from metadata_log.spark.options import OPTION_NAMES
from support import ROOT
from support.left_out import leave_out

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


# The search of the site.


SEARCH = ROOT / "tests" / "support" / "site_search.cjs"
PAGES = ("docs/index.md", "docs/tutorials/*.md", "docs/howto/*.md", "docs/reference/kraft*.md", "docs/glossary.md")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A part of the site, with the names of the API: a whole build takes minutes."""
    application = pytest.importorskip("sphinx.application")
    out = tmp_path_factory.mktemp("site")
    chosen = {"include_patterns": list(PAGES), "html_theme": "basic"}
    app = application.Sphinx(
        ROOT, ROOT / "docs", out / "html", out / "doctrees", "html", chosen, status=None, warning=None
    )
    app.builder.build_all()
    return out / "html"


def found(site: Path, word: str) -> list[str]:
    node = shutil.which("node")
    if node is None:
        leave_out("node", "node is not here")
    done = subprocess.run([node, SEARCH, site, word], capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("word", "first"), [("lock", "your-first-lock"), ("quorum", "your-first-quorum"), ("repair", "your-first-repair")]
)
def test_the_tutorial_of_a_word_is_found_first(site: Path, word: str, first: str) -> None:
    assert found(site, word)[0] == f"docs/tutorials/{first}"


def test_a_tutorial_that_only_mentions_a_word_is_not_put_first(site: Path) -> None:
    pages = found(site, "redis")
    assert pages[0] == "docs/howto/from-redis-locks"
