"""`kraft man`: writes the man pages of every command."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import click

from kraft.cli.man_pages import man_pages
from kraft.cli.text import count, echo


@click.command(
    "man",
    short_help="Write man pages.",
    epilog="Example: kraft man --into ~/.local/share/man/man1",
)
@click.option(
    "--into",
    "directory",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder for the pages, made if it is absent: a folder man1 that man searches (see manpath).",
)
@click.pass_context
def man_command(context: click.Context, *, directory: Path) -> None:
    """Write one man page for kraft and for each of its commands, from the texts of --help.

    Pages of the same name are replaced. To read one without installing: man -l DIR/kraft-quorum-status.1.
    """
    root = context.find_root().command
    assert isinstance(root, click.Group)
    directory.mkdir(parents=True, exist_ok=True)
    pages = dict(man_pages(root, "kraft", version("trio-kraft")))
    for name, text in pages.items():
        (directory / name).write_text(text, "utf-8")
    echo(f"wrote {count(len(pages), 'page')} into {directory}")
