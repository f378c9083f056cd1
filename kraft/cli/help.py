"""Formats `--help` at every level: examples are never wrapped inside a word, an option, or a quoted text; and gives
hints after a mistyped command: the nearest command or option, or the translation of an option of Kafka's tools.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from inspect import cleandoc
from itertools import pairwise
from typing import Final

import click

from kraft.cli.kafka_tools import translate_command

_MISSING_COMMAND: Final = "Missing command."
_NO_SUCH_COMMAND: Final = re.compile(r"No such command '(.*)'\.?", re.DOTALL)
_NO_SUCH_OPTION: Final = re.compile(r"No such option:? '?(-[^\s']*)'?\.?")
_SIMILAR: Final = 0.6
_MOST: Final = 3


def help_of_bare_group(failed: Exception) -> str | None:
    """The help of a command group without a subcommand; None for each other failure."""
    if isinstance(failed, click.UsageError) and failed.message == _MISSING_COMMAND and failed.ctx is not None:
        return failed.ctx.get_help()
    return None


def what_is_wrong(failed: click.UsageError) -> str:
    """Click's sentence, without the suggestions that some of its versions add, since `hint_for` has them."""
    if _NO_SUCH_COMMAND.fullmatch(failed.message) or _NO_SUCH_OPTION.fullmatch(failed.message):
        return failed.message
    return failed.format_message()


def hint_for(failed: click.UsageError, words: Sequence[str]) -> str:
    """A suggestion derived from the words after `kraft`; otherwise a reference to the help."""
    path = failed.ctx.command_path if failed.ctx else "kraft"
    ours = translate_command(words)
    if ours is not None:
        return f"Type `kraft {shlex.join(ours)}`."
    near = [f"`{one}`" for one in _near(failed, path)]
    if near:
        return f"Did you mean {' or '.join(near)}? See `{path} --help`."
    if isinstance(failed, click.MissingParameter) and (example := _example_of(failed)):
        return f"For example `{example}`. See `{path} --help`."
    named = _name_like_an_option(failed)
    return f"A name that begins with - follows --, as in `{path} … -- {named}`." if named else f"See `{path} --help`."


def _example_of(failed: click.UsageError) -> str:
    """The first example of a command's help; empty without one."""
    if failed.ctx is None:
        return ""
    epilog = failed.ctx.command.epilog or ""
    if epilog.startswith(_EXAMPLE):
        return epilog.removeprefix(_EXAMPLE).strip()
    examples = cleandoc(failed.ctx.command.help or "").partition(_IN_DOCSTRING)[2].strip()
    return examples.partition("\n")[0].strip()


def _name_like_an_option(failed: click.UsageError) -> str | None:
    """The typed word that is no option, if the command takes names and it may be one."""
    match = _NO_SUCH_OPTION.fullmatch(failed.message)
    takes_names = failed.ctx is not None and any(isinstance(one, click.Argument) for one in failed.ctx.command.params)
    is_like_a_name = match is not None and not match[1].startswith("--")
    return match[1] if match is not None and is_like_a_name and takes_names else None


def _near(failed: click.UsageError, path: str) -> list[str]:
    """Existing commands or options with names similar to the typed one."""
    context = failed.ctx
    if context is None:
        return []
    if match := _NO_SUCH_COMMAND.fullmatch(failed.message):
        group = context.command
        known = group.list_commands(context) if isinstance(group, click.Group) else ()
        return [f"{path} {name}" for name in nearest(match[1], known)]
    if match := _NO_SUCH_OPTION.fullmatch(failed.message):
        options = (one for one in context.command.params if isinstance(one, click.Option) and not one.hidden)
        return nearest(match[1], (name for option in options for name in (*option.opts, *option.secondary_opts)))
    return []


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """The known words that begin with this one, or else resemble it, the best first."""
    names = list(known)
    begun = [name for name in names if len(word) > 1 and name.startswith(word)]
    return (begun or get_close_matches(word, names, n=_MOST, cutoff=_SIMILAR))[:_MOST]


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
