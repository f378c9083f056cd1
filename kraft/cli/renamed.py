"""Renamed options and values: the old name works for one more release, is hidden in the help, and prints a note on
stderr.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click


def note_renamed(old: str, new: str) -> None:
    """Print on stderr that a name has changed."""
    click.echo(f"kraft: note: {old} is called {new}, and the old name ends with the next release", err=True)


def renamed_option(
    old: str, new: str, parameter: str, *, convert: Callable[[Any], Any] | None = None, **attributes: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the hidden option `old` to a command with the option `new` for `parameter`.

    `convert` converts the old value to the new one; `attributes` are those of `click.option`. It is a usage error to
    give both options.
    """
    kept = f"old_{parameter}"

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_old_name(*args: Any, **given: Any) -> None:
            value = given.pop(kept)
            if value is not None:
                context = click.get_current_context()
                if context.get_parameter_source(parameter) is not click.core.ParameterSource.DEFAULT:
                    raise click.UsageError(f"{old} is the old name of {new}: give one of them", context)
                note_renamed(old, new)
                given[parameter] = value if convert is None else convert(value)
            command(*args, **given)

        return click.option(old, kept, hidden=True, default=None, **attributes)(with_old_name)

    return add
