"""The pages about tests with Kafka: each program on them runs, as the file that its first line names."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.documented_programs import HOWTO, PYTHON, run_program

PAGES = (
    "howto/test-your-kafka-code.md",
    "howto/replace-a-container.md",
    "howto/break-kafka-on-purpose.md",
    "howto/test-a-share-consumer.md",
    "tutorials/your-first-kafka-test.md",
)
EMPTIED = """
import pytest


@pytest.fixture(autouse=True)
def emptied(request):
    if "kafka" in request.fixturenames:
        request.getfixturevalue("kafka").reset()
"""
"""Programs of different pages have topics of the same names."""
OPTIONS = ("-p", "kraft.testing.plugin", "-p", "no:cacheprovider", "-o", "pythonpath=your-first-kafka-test")


@pytest.mark.soak
def test_every_program_passes(tmp_path: Path) -> None:
    """All of them share one session, as the tests of a project do, and so one broker."""
    (tmp_path / "conftest.py").write_text(EMPTIED)
    tests = 0
    for page in PAGES:
        text = (HOWTO.parent / page).read_text()
        programs = {match["name"]: match["code"] for match in PYTHON.finditer(text)}
        assert len(programs) == text.count("```python"), f"{page}: a program has no name of its own in its first line"
        folder = tmp_path / Path(page).stem
        folder.mkdir()
        for name, program in programs.items():
            (folder / name).write_text(program)
            tests += program.count("def test_")
    printed = run_program("-m", "pytest", *OPTIONS, "-q", ".", folder=tmp_path)
    assert f"{tests} passed" in printed, printed
