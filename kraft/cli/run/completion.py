"""`kraft completion`: the script with which a shell completes the words of `kraft`."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

VARIABLE: Final = "_KRAFT_COMPLETE"
"""The environment variable by which the script asks for words; Click's form of the program's name."""
SHELLS: Final = ("bash", "zsh", "fish")


@click.command(
    "completion",
    short_help="Print a shell's completion.",
    epilog="Example: kraft completion bash >/etc/bash_completion.d/kraft",
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion_command(shell: str) -> None:
    """Print the script that completes commands, options and files of `kraft` in this shell.

    bash needs version 4.4 or later. To try it without installing: source <(kraft completion bash).
    """
    kind = get_completion_class(shell)
    assert kind is not None, shell
    completion = kind(click.Group("kraft"), {}, "kraft", VARIABLE)
    click.echo(completion.source_template % completion.source_vars())
