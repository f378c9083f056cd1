"""The bugs that were chosen by kind: each can still be planted, and the check of its kind finds it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from support import ROOT


def tool(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "bench" / "kinds.py"), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)


def test_each_bug_can_be_planted_and_the_page_says_what_was_found() -> None:
    done = tool("--check")
    assert done.returncode == 0, done.stdout + done.stderr
    found = msgspec.json.decode((ROOT / "bench" / "kinds_outcomes.json").read_bytes())
    assert len(found) >= 20
    assert all(one["new"] for one in found.values()), "the check of the kind finds each"


def test_the_check_of_a_kind_finds_its_bugs(tmp_path: Path) -> None:
    done = tool("--new", "--state", str(tmp_path / "outcomes.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == len(tool("--list").stdout.splitlines()) >= 20
