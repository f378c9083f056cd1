"""The page about looking into a log shows what its commands really print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from support.kraft.command_line import run
from support.real_data import unpack

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "look-into-a-log.md"
BLOCK = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN: list[tuple[str, list[str]]] = []
for block in BLOCK.findall(PAGE.read_text()):
    for part in re.split(r"^\$ kraft ", block, flags=re.MULTILINE)[1:]:
        command, *lines = part.splitlines()
        SHOWN.append((command, lines))


def is_shown_as(printed: str, line: str) -> bool:
    return printed.startswith(line[:-1]) if line.endswith("…") else printed == line


@pytest.mark.parametrize(("command", "shown"), SHOWN, ids=[command for command, _ in SHOWN])
def test_a_command_prints_what_the_page_shows(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: str,
    shown: list[str],
) -> None:
    """An ellipsis stands for lines that are left out, or for the rest of a line."""
    unpack("clusters", "failover/nodes/c1", tmp_path / "c1")
    monkeypatch.chdir(tmp_path)
    done = run(capsys, *shlex.split(command))
    assert (done.code, done.err) == (0, "")
    printed = iter(done.out.splitlines())
    skipping = False
    for line in shown:
        if line == "…":
            skipping = True
            continue
        matching = (one for one in printed if not skipping or is_shown_as(one, line))
        assert is_shown_as(next(matching), line)
        skipping = False
    assert skipping or next(printed, None) is None
