"""Pages and help name the releases that are supported, and the page of releases is as it is printed."""

from __future__ import annotations

import re

from metadata_log.releases import SUPPORTED_RELEASES
from support import ROOT

OLDEST, NEWEST = (release.rpartition(".")[0] for release in (SUPPORTED_RELEASES[0], SUPPORTED_RELEASES[-1]))
NAMING = [
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if "decisions" not in path.parts),
    ROOT / "README.md",
    *sorted((ROOT / "kraft" / "cli").rglob("*.py")),
]
A_RANGE = re.compile(rf"\b(?:Kafka|of) {re.escape(OLDEST)} to (\d+\.\d+)\b")


def test_a_range_of_releases_ends_with_the_newest_line() -> None:
    """Two pages and a help text ended with the line before."""
    found = {str(path.relative_to(ROOT)): A_RANGE.findall(path.read_text()) for path in NAMING}
    named = {path: lines for path, lines in found.items() if lines}
    assert len(named) >= 4
    assert {path: lines for path, lines in named.items() if set(lines) != {NEWEST}} == {}
