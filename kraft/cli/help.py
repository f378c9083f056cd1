"""Formats `--help` at every level: examples are never wrapped inside a word, an option, or a quoted text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import click

_EXAMPLE: Final = "Example:"
_IN_DOCSTRING: Final = "\b\nExample:\n"
"""The first words of a docstring's last paragraph, if that has examples."""
_CONTINUED: Final = " \\"
_INDENT: Final = 4
_HYPHEN, _UNBROKEN_HYPHEN = "-", "\N{NON-BREAKING HYPHEN}"
_WORD: Final = re.compile(r"""(?:"[^"]*"|'[^']*'|[^\s"'])+""")


class _Formatter(click.HelpFormatter):
    """Wraps examples between the words of a shell command, and never at a hyphen."""

    def write(self, string: str) -> None:
        super().write(string.replace(_UNBROKEN_HYPHEN, _HYPHEN))

    def write_text(self, text: str) -> None:
        text_before, is_docstring, examples = text.partition(_IN_DOCSTRING)
        if is_docstring:
            if text_before.strip():
                super().write_text(text_before.rstrip().replace(_HYPHEN, _UNBROKEN_HYPHEN))
                self.write_paragraph()
            self._write_examples([line.strip() for line in examples.splitlines()])
        elif text.startswith(_EXAMPLE):
            self._write_examples([text.removeprefix(_EXAMPLE).strip()])
        else:
            super().write_text(text.replace(_HYPHEN, _UNBROKEN_HYPHEN))

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args.replace(_HYPHEN, _UNBROKEN_HYPHEN), prefix)

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl([(name, text.replace(_HYPHEN, _UNBROKEN_HYPHEN)) for name, text in rows], col_max, col_spacing)

    def _write_examples(self, commands: Sequence[str]) -> None:
        at = " " * self.current_indent
        if len(commands) == 1 and len(f"{at}{_EXAMPLE} {commands[0]}") <= self.width:
            self.write(f"{at}{_EXAMPLE} {commands[0]}\n")
            return
        self.write(f"{at}{_EXAMPLE}\n")
        for command in commands:
            for line in break_command(command, self.width - len(at) - _INDENT):
                self.write(f"{at}{' ' * _INDENT}{line}\n")


def break_command(command: str, width: int) -> list[str]:
    """A shell command in lines of at most this width, if its words permit. An option stays on the line of its value."""
    words = _WORD.findall(command)
    parts = [words[0]] if words else []
    for before, word in pairwise(words):
        if before.startswith("-") and not word.startswith("-"):
            parts[-1] += f" {word}"
        else:
            parts.append(word)
    lines: list[str] = []
    for part in parts:
        longer = f"{lines[-1]} {part}" if lines else part
        if lines and len(longer) + len(_CONTINUED) <= width:
            lines[-1] = longer
        else:
            lines.append(" " * _INDENT + part if lines else part)
    return [line + _CONTINUED for line in lines[:-1]] + lines[-1:]


class _Context(click.Context):
    formatter_class = _Formatter


def format_help_of(command: click.Command) -> click.Command:
    """Give a command and its subcommands this help format; a group without a subcommand is a usage error."""
    command.context_class = _Context
    if isinstance(command, click.Group):
        command.no_args_is_help = False
        for below in command.commands.values():
            format_help_of(below)
    return command
