"""Each fragment of the changelog becomes a part of the page of the next release."""

from __future__ import annotations

import re

from support import ROOT

FRAGMENT = re.compile(r"\+[a-z0-9-]+\.(?:added|changed|removed|fixed|security)\.md")


def test_each_fragment_has_a_kind() -> None:
    names = [path.name for path in (ROOT / "changelog.d").iterdir() if path.name != "README.md"]
    assert [name for name in names if not FRAGMENT.fullmatch(name)] == []
