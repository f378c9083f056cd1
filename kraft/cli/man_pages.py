"""`kraft man`: man pages in roff from the help of each command: the sections that man(7) readers expect, and nothing by
hand.

click-man, the published generator, knows neither examples nor exit codes, wraps examples, and needs setuptools when it
runs. So the pages are written here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Final

import click

from kraft.cli.text import count, echo
from metadata_log.software import SOFTWARE_VERSION

SECTION: Final = 1
SOURCE: Final = "trio-kraft"
EXIT_CODES: Final = (
    (0, "Done. A reader that closes the pipe early counts as done."),
    (1, "Failed; standard error names the cause and the next step. Some commands end with 1 for what they found, too."),
    (2, "Wrong usage. Where a command has other meanings, as kraft doctor, its description names them."),
    (130, "Interrupted by Ctrl-C."),
)
_ESCAPES: Final = {"\\": "\\e", "-": "\\-", '"': "\\(dq", "'": "\\(aq", "`": "\\(ga"}
_EXAMPLE: Final = "Example:"
_MARK: Final = "\b\n"
_BREAKS: Final = re.compile(r"\s+")


def man_pages(root: click.Group, name: str, version: str) -> Iterator[tuple[str, str]]:
    """The file name and the text of each page: the program, and every command and group below it. `version` is the foot
    of each page.
    """
    yield from _pages(root, click.Context(root, info_name=name, **root.context_settings), (name,), version)


def _pages(
    command: click.Command, context: click.Context, path: tuple[str, ...], version: str
) -> Iterator[tuple[str, str]]:
    below = _below(command, context)
    yield f"{'-'.join(path)}.{SECTION}", _page(command, context, path, tuple(below), version)
    for name, subcommand in below.items():
        yield from _pages(subcommand, click.Context(subcommand, info_name=name, parent=context), (*path, name), version)


def _below(command: click.Command, context: click.Context) -> dict[str, click.Command]:
    if not isinstance(command, click.Group):
        return {}
    commands = ((name, command.get_command(context, name)) for name in command.list_commands(context))
    return {name: one for name, one in commands if one is not None and not one.hidden}


def _page(
    command: click.Command, context: click.Context, path: tuple[str, ...], below: tuple[str, ...], version: str
) -> str:
    title = "-".join(path)
    text, examples = _text_and_examples(command)
    lines = [
        f'.TH "{escape(title.upper())}" "{SECTION}" "" "{escape(f"{SOURCE} {version}")}" "{escape(path[0])} manual"',
        ".nh",
        ".ad l",
        ".SH NAME",
        f"{escape(title)} \\- {escape(_short(command, text))}",
        ".SH SYNOPSIS",
        f".B {escape(' '.join(path))}",
        *(escape(piece) for piece in command.collect_usage_pieces(context)),
        ".SH DESCRIPTION",
        *_paragraphs(text),
    ]
    if options := [one for one in command.get_params(context) if not getattr(one, "hidden", False)]:
        lines += [".SH OPTIONS", *(line for one in options for line in _option(one, context))]
    if below:
        lines += [".SH COMMANDS"]
        for name in below:
            assert isinstance(command, click.Group)
            subcommand = command.get_command(context, name)
            assert subcommand is not None
            lines += [".TP", f".BR {escape(f'{title}-{name}')} ({SECTION})", escape(subcommand.get_short_help_str(200))]
    if examples:
        lines += [".SH EXAMPLES"]
        for one in examples:
            lines += [".PP", ".nf", ".RS", escape(one), ".RE", ".fi"]
    lines.append(".SH EXIT STATUS")
    for code, meaning in EXIT_CODES:
        lines += [".TP", f".B {code}", escape(meaning)]
    lines += [".SH SEE ALSO", ",\n".join(f".BR {escape(one)} ({SECTION})" for one in _related(path, below))]
    return "\n".join(lines).replace(",\n.BR", " ,\n.BR") + "\n"


def _related(path: tuple[str, ...], below: tuple[str, ...]) -> list[str]:
    """The pages above and below; for the program itself, those of its commands."""
    above = ["-".join(path[:length]) for length in range(1, len(path))]
    return [*above, *("-".join((*path, name)) for name in below)] or ["-".join(path)]


def _short(command: click.Command, text: str) -> str:
    said = command.short_help or text.partition(".")[0]
    return _BREAKS.sub(" ", said).strip().rstrip(".")


def _text_and_examples(command: click.Command) -> tuple[str, list[str]]:
    """The description without its examples, and the examples: from the end of the help, or from the epilog."""
    help_text = cleandoc((command.help or "").partition("\f")[0])
    text, _, inside = help_text.partition(f"{_MARK}{_EXAMPLE}\n")
    epilog = cleandoc(command.epilog or "").replace("\b", "").strip().removeprefix(_EXAMPLE)
    lines = [line.strip() for part in (inside, epilog) for line in part.splitlines()]
    return text.strip(), [line for line in lines if line]


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text):
        if not paragraph.strip():
            continue
        yield ".PP"
        if paragraph.startswith("\b"):  # lines that are kept as they are
            yield from (".nf", *(escape(line) for line in paragraph.removeprefix("\b").strip().splitlines()), ".fi")
        else:
            yield escape(_BREAKS.sub(" ", paragraph).strip())


def _option(option: click.Parameter, context: click.Context) -> Iterator[str]:
    """One entry; an argument has no text of its own."""
    if isinstance(option, click.Option):
        record = option.get_help_record(context)
        if record is None:
            return
        names, text = record
        yield from (".TP", f".B {escape(names)}", escape(_BREAKS.sub(" ", text).strip()) or "\\&")
    else:
        yield from (".TP", f".I {escape(option.make_metavar(context))}", "An argument of the command.")


def escape(text: str) -> str:
    """The text for roff: no character begins a request or an escape, and hyphens can be copied."""
    text = "".join(_ESCAPES.get(one, one if one.isascii() else f"\\[u{ord(one):04X}]") for one in text)
    return "\n".join(f"\\&{line}" if line.startswith(".") else line for line in text.split("\n"))


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
    pages = dict(man_pages(root, "kraft", SOFTWARE_VERSION))
    for name, text in pages.items():
        (directory / name).write_text(text, "utf-8")
    echo(f"wrote {count(len(pages), 'page')} into {directory}")
