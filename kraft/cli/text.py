"""Output functions of several commands: failures, times, tables, many lines at once."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

import click

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
