"""Each measurement has a command that a bench understands."""

from __future__ import annotations

import re

import pytest

from support import ROOT

RECORD = (ROOT / "docs" / "measurements.md").read_text()
SECTIONS = {
    match[1]: match[2] for match in re.finditer(r"^## (.+?)\n(.*?)(?=^## |\Z)", RECORD, re.MULTILINE | re.DOTALL)
}
COMMAND = re.compile(r"`(?:chrt -r 1 )?python bench/(\w+\.py)([^`]*)`")


@pytest.mark.parametrize("title", SECTIONS)
def test_commands_name_benches_and_their_options(title: str) -> None:
    for match in COMMAND.finditer(SECTIONS[title]):
        text = (ROOT / "bench" / match[1]).read_text()
        named = re.match(r" ([a-z]+)", match[2])  # a subcommand has a module of its own
        if named:
            text += "".join(one.read_text() for one in (ROOT / "bench").glob(f"*/{named[1]}.py"))
        if "parse_options" in text:  # the options that every bench of brokers has
            text += (ROOT / "bench" / "data_brokers" / "report.py").read_text()
        for option in re.findall(r"--[a-z-]+", match[2]):
            assert f'"{option}"' in text, f"{match[1]} has no option {option}"
