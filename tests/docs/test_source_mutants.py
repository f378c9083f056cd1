"""The tool that makes mutants of the source: what it kills, what survives, and the reviewed list."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support import ROOT

TOOL = ROOT / "bench" / "mutate_source.py"
EPOCHS = "metadata_log.log.epochs:EpochHistory.truncate_end: entry.offset < end_offset => entry.offset <= end_offset"
RETENTION = (
    "metadata_log.log.retention:_too_large: total > retention.max_bytes >= 0 => total >= retention.max_bytes >= 0"
)


def tool(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOL), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def test_every_reviewed_mutant_still_exists() -> None:
    done = tool("--check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "equivalent mutants" in done.stdout


def test_a_mutant_is_killed_by_a_test_of_its_lines_and_survives_without_one(tmp_path: Path) -> None:
    only = ("--package", "metadata_log.log", "--only", EPOCHS, "--only", RETENTION)
    where = ("--state", str(tmp_path / "outcomes.jsonl"), "--profiles", str(tmp_path))
    done = tool(*only, *where, "--tests", "tests/metadata_log/log/test_epochs.py")
    lines = done.stdout.splitlines()
    (killed,) = [line for line in lines if line.startswith("killed ")]
    assert EPOCHS in killed
    assert "tests/metadata_log/log/test_epochs.py::test_truncate_end[" in killed
    (survived,) = [line for line in lines if line.startswith("not reached")]
    assert RETENTION in survived
    assert lines[-1] == "2 of 2 mutants tried, 1 survived"
    assert done.returncode == 1
    assert len((tmp_path / "outcomes.jsonl").read_text().splitlines()) == 2
