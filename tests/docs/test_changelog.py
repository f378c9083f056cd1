"""Each fragment of the changelog becomes a part of the page of the next release."""

from __future__ import annotations

import re
import subprocess
import sys

from support import ROOT

FRAGMENT = re.compile(r"\+[a-z0-9-]+\.(?:added|changed|removed|fixed|security)\.md")


def test_each_fragment_has_a_kind() -> None:
    names = [path.name for path in (ROOT / "changelog.d").iterdir() if path.name != "README.md"]
    assert [name for name in names if not FRAGMENT.fullmatch(name)] == []


def test_a_draft_of_the_next_release_has_each_fragment() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "9.9.9"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    page = re.sub(r"\s+", " ", done.stdout)
    texts = [path.read_text() for path in (ROOT / "changelog.d").glob("+*.md")]
    assert [text for text in texts if re.sub(r"\s+", " ", text).strip() not in page] == []
