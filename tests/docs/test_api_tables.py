"""The pages of the API read on GitHub: each has a table of its public names, and the tables are those of the code."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

from support import ROOT

sys.path.append(str(ROOT / "docs" / "site"))
api_tables = import_module("api_tables")


@pytest.mark.parametrize("module", api_tables.MODULES)
def test_a_page_has_the_names_of_its_module(module: str) -> None:
    page = (ROOT / "docs" / "reference" / f"{module}.md").read_text("utf-8")
    assert api_tables.page_with_table(page, module) == page, "run docs/site/api_tables.py"
    assert page.count("\n| ") > 3
