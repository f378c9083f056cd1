"""Hints after a mistyped command: the nearest command or option, or the translation of an option of Kafka's tools."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
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
    named = _name_like_an_option(failed)
    return f"A name that begins with - follows --, as in `{path} … -- {named}`." if named else f"See `{path} --help`."


def _name_like_an_option(failed: click.UsageError) -> str | None:
    """The typed word that is no option, if the command takes names and it may be one."""
    found = _NO_SUCH_OPTION.fullmatch(failed.message)
    takes_names = failed.ctx is not None and any(isinstance(one, click.Argument) for one in failed.ctx.command.params)
    is_like_a_name = found is not None and not found[1].startswith("--")
    return found[1] if found is not None and is_like_a_name and takes_names else None


def _near(failed: click.UsageError, path: str) -> list[str]:
    """Existing commands or options with names similar to the typed one."""
    context = failed.ctx
    if context is None:
        return []
    if found := _NO_SUCH_COMMAND.fullmatch(failed.message):
        group = context.command
        known = group.list_commands(context) if isinstance(group, click.Group) else ()
        return [f"{path} {name}" for name in nearest(found[1], known)]
    if found := _NO_SUCH_OPTION.fullmatch(failed.message):
        options = (one for one in context.command.params if isinstance(one, click.Option) and not one.hidden)
        return nearest(found[1], (name for option in options for name in (*option.opts, *option.secondary_opts)))
    return []


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """The known words that begin with this one, or else resemble it, the best first."""
    names = list(known)
    begun = [name for name in names if len(word) > 1 and name.startswith(word)]
    return (begun or get_close_matches(word, names, n=_MOST, cutoff=_SIMILAR))[:_MOST]
