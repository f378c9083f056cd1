"""Output functions of several commands: failures, times, tables, many lines at once, files for their owner only."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click

from metadata_log.disk import DIRECTORY_MODE, FILE_MODE
from metadata_log.printable import printable, printable_lines

LINES_AT_ONCE: Final = 1000
"""Each call of `click.echo` flushes, so one call prints many lines."""


def table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Lines with the cells of each column below its name; the last column has no fixed width."""
    cells = [list(names), *([printable(str(cell)) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def echo(line: str, *, err: bool = False) -> None:
    """Print one line with foreign control characters escaped; JSON stays JSON."""
    click.echo(printable(line), err=err)


def echo_raw(line: str) -> None:
    """Print one line as it is, for programs that read it; on a terminal as `echo` does."""
    if sys.stdout.isatty():
        echo(line)
    else:
        click.echo(line.encode())


def echo_lines(lines: Iterable[str]) -> None:
    """Print many lines, each like `echo`."""
    rest = iter(lines)
    while chunk := list(islice(rest, LINES_AT_ONCE)):
        click.echo(joined(chunk))


def say(facts: Mapping[str, Any], lines: Iterable[str], *, as_json: bool) -> None:
    """Print the facts as one JSON object, or the lines otherwise."""
    if as_json:
        echo(json.dumps(facts, ensure_ascii=False))
    else:
        echo_lines(lines)


def joined(lines: Sequence[str]) -> str:
    """Some lines as one printable text."""
    text = "\n".join(lines)
    if text.count("\n") != len(lines) - 1:
        text = "\n".join(map(printable, lines))
    return printable_lines(text)


def echo_text(text: str) -> None:
    """Print a text of several lines; its line breaks and tabs are kept."""
    click.echo("\t".join(map(printable_lines, text.split("\t"))))


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 topic`, `1,200 topics`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def make_private(out: Path) -> None:
    """Create an empty file that only its owner may read; an existing file keeps its access rights."""
    os.close(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))


def make_private_directory(out: Path) -> None:
    """Create a directory that only its owner may read; an existing directory keeps its access rights."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
