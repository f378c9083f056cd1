"""The search of the site, as a browser runs it: who looks for a word of a tutorial's title finds the tutorial first."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from support.left_out import leave_out

ROOT = Path(__file__).parents[2]
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
