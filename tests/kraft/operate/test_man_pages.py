"""Man pages: every command and option has its place, the roff is sound, and foreign characters cannot break it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from kraft.cli.main import kraft
from kraft.cli.man_pages import escape, man_pages
from support.kraft.cli_serving import COMMANDS
from support.kraft.command_line import run

SECTIONS = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "EXIT STATUS", "SEE ALSO"]


PAGES = dict(man_pages(kraft, "kraft", "1.2.3"))


def command_of(words: str) -> click.Command:
    command: click.Command = kraft
    for word in words.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None
        command = found
    return command


def read(page: str) -> str:
    """The text of a page as a reader sees it, without roff's escapes."""
    for escaped, plain in (("\\-", "-"), ("\\(aq", "'"), ("\\(dq", '"'), ("\\(ga", "`"), ("\\&", ""), ("\\e", "\\")):
        page = page.replace(escaped, plain)
    return page


def test_each_command_has_a_page() -> None:
    assert set(PAGES) == {"kraft.1", *(f"kraft-{words.replace(' ', '-')}.1" for words in COMMANDS)}


@pytest.mark.parametrize("words", ["", *COMMANDS])
def test_a_page_has_every_section_option_and_example(words: str) -> None:
    page = PAGES[f"{'-'.join(('kraft', *words.split()))}.1"]
    found = [name for name in re.findall(r"^\.SH (.+)$", page, re.MULTILINE) if name != "COMMANDS"]
    assert found == SECTIONS
    text = read(page)
    for option in command_of(words).params:
        if isinstance(option, click.Option) and not option.hidden:
            assert all(name in text for name in option.opts), option.opts
    assert re.search(rf"^kraft {words}", text[text.index(".SH EXAMPLES") :], re.MULTILINE)
    assert "\b" not in page
    assert page.isascii()


def test_roff_finds_nothing_to_warn_about(tmp_path: Path) -> None:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("groff, which reads the pages here, is not installed")
    for name, page in PAGES.items():
        (tmp_path / name).write_text(page)
    command = [groff, "-man", "-Tutf8", "-ww", "-z", *map(str, sorted(tmp_path.iterdir()))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_text_cannot_become_a_request() -> None:
    assert escape(".so /etc/passwd") == "\\&.so /etc/passwd"
    assert escape("'x \\n\n.y") == "\\(aqx \\en\n\\&.y"
    assert escape("é") == "\\[u00E9]"


def test_the_command_writes_the_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "man", "--into", str(tmp_path / "share" / "man1"))
    assert (done.code, done.out) == (0, f"wrote {len(PAGES)} pages into {tmp_path / 'share' / 'man1'}\n")
    assert {one.name for one in (tmp_path / "share" / "man1").iterdir()} == set(PAGES)
    assert "kraft-top" in (tmp_path / "share" / "man1" / "kraft.1").read_text().replace("\\-", "-")
