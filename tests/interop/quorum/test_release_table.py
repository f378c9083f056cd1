"""Each row of the page of releases, tried again."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from support.interop.release_table import CELLS, RELEASES, row

pytestmark = [pytest.mark.kafka, pytest.mark.soak]

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "releases.md"


@pytest.mark.parametrize(("kind", "other", "release"), list(product(CELLS, RELEASES, RELEASES)))
def test_the_page_says_what_happens(kind: str, other: str, release: str, tmp_path: Path) -> None:
    assert row(kind, release, other, tmp_path) in PAGE.read_text().splitlines()
