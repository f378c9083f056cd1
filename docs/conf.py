"""How Sphinx makes the site of the documentation (`poe docs`), from the pages of the repository where they stand."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS / "site"), str(DOCS.parent)]

import lab  # noqa: E402
import twins  # noqa: E402

logger = logging.getLogger(__name__)

project = "trio-kraft"
author = "the trio-kraft contributors"
project_copyright = author
root_doc = "docs/index"
include_patterns = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md", "docs/**"]
exclude_patterns = ["docs/site", "docs/lab"]
extensions = ["myst_parser", "public_names", "sphinx.ext.autodoc"]

# Links between pages, and to headings of a page as GitHub names them, are checked; hosts elsewhere are not asked.
myst_heading_anchors = 4

# Docstrings write code in single backticks.
default_role = "code"
autodoc_default_options = {
    "imported-members": True,
    "members": True,
    "show-inheritance": True,
    "undoc-members": True,
}
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 100

html_theme = "furo"
html_title = "trio-kraft"
html_extra_path = ["site/root"]
html_search_scorer = str(DOCS / "site" / "search_scorer.js")
html_static_path = ["site/static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False


def copy_pictures(app: Sphinx, failure: Exception | None) -> None:
    """Copy the pictures that pages name in HTML, for light and dark, which Sphinx does not read."""
    if failure is None:
        shutil.copytree(DOCS / "pictures", Path(app.outdir) / "docs" / "pictures", dirs_exist_ok=True)


def write_twins(app: Sphinx, failure: Exception | None) -> None:
    """Write the Markdown of each page beside it, and `llms.txt`."""
    if failure is None:
        twins.write(Path(app.outdir))


def build_lab(app: Sphinx, failure: Exception | None) -> None:
    """Build the page of the lab. Where its parts cannot be fetched, the site goes without. Under CI=true that is
    an error, unless `TESTS_WITHOUT` names the lab.
    """
    if failure is not None:
        return
    try:
        lab.build(Path(app.outdir) / "docs" / "lab")
    except lab.CannotFetch as missing:
        without = os.environ.get("TESTS_WITHOUT", "").split(",")
        say = logger.warning if os.environ.get("CI") == "true" and "lab" not in without else logger.info
        say("the site goes without the page of the lab: %s", missing)


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("build-finished", copy_pictures)
    app.connect("build-finished", write_twins)
    app.connect("build-finished", build_lab)
