"""The programs of the pages that lead from PySyncObj and from Redis locks run."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.documented_programs import program, run_program


@pytest.mark.parametrize(
    ("page", "name", "printed"),
    [
        ("from-pysyncobj.md", "total.py", "5 5\n"),
        ("from-pysyncobj.md", "shared.py", "green\n'colour' has version 1\nheld with a token: True\n"),
        ("from-redis-locks.md", "locked.py", "first\nanother one writes\nanother writer has come since\n"),
    ],
)
def test_the_programs_run(page: str, name: str, printed: str, tmp_path: Path) -> None:
    program(page, name, tmp_path)
    assert run_program(name, "node", folder=tmp_path) == printed
