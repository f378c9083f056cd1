"""The pages that answer operators' questions are true: their commands are run, and print what the pages show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.documented_programs import ELLIPSIS, HOWTO, commands, matches, run

PAGES = (
    "if-a-rack-fails.md",
    "keep-the-history.md",
    "materialize.md",
    "no-controller.md",
    "recover-a-quorum.md",
    "unavailable-partitions.md",
    "what-is-wrong-with-a-quorum.md",
    "who-changed-a-config.md",
    "who-led-a-partition.md",
)
PROGRAM = re.compile(r"^```python\n# (?P<name>\w+\.py)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
STARTS_SPARK = re.compile(r"kraft fleet (?!materialize )")


@pytest.mark.parametrize("page", PAGES)
def test_commands_print_what_the_page_shows(page: str, tmp_path: Path) -> None:
    for program in PROGRAM.finditer((HOWTO / page).read_text()):
        (tmp_path / program["name"]).write_text(program["code"])
    run_commands = [(command, shown) for command, shown in commands(HOWTO / page) if not STARTS_SPARK.match(command)]
    assert len(run_commands) > 1
    for command, shown in run_commands:
        printed = run(command, tmp_path)
        assert matches(shown, printed), "\n".join([f"$ {command}", *printed])


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        (["a", "b"], ["a", "b"], True),
        (["a", ELLIPSIS, "d"], ["a", "b", "c", "d"], True),
        (["a", ELLIPSIS], ["a"], True),
        (["a", ELLIPSIS, "d"], ["a", "b"], False),
        (["a"], ["a", "b"], False),
        ([], ["a"], False),
    ],
)
def test_matches_accepts_only_equal_output_with_ellipses(shown: list[str], printed: list[str], same: bool) -> None:
    assert matches(shown, printed) is same
