"""`kraft shell`: browses the cluster's metadata like a file system, at any offset or time (Kafka: `MetadataShell`)."""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from typing import Final

import click

from kraft.cli.files.image_at import ImageAt, at_option, image_at, reading_options, report_damages, show_secrets_option
from kraft.cli.files.shell_commands import Session, ShellError, completions, execute, split
from kraft.cli.near import did_you_mean
from kraft.cli.text import echo
from kraft.config.errors import CommandFailed
from metadata_log.image.tree import Directory, image_tree
from metadata_log.reading.damage import OnDamage
from metadata_log.reading.timeline import At

PROMPT: Final = ">> "
UNKNOWN: Final = "unknown"


@click.command(
    "shell",
    short_help="Walk the metadata like a file system.",
    epilog="Example: kraft shell /var/lib/kafka/metadata --at 2026-11-21T08:17:00Z cat '/image/topics/byName/*/0'",
)
@click.argument("path", type=click.Path(exists=True), metavar="DIR")
@click.argument("words", nargs=-1, metavar="[COMMAND]")
@at_option
@reading_options
@show_secrets_option
@click.pass_context
def shell_command(
    context: click.Context, path: str, words: tuple[str, ...], *, at: At | None, on_damage: str, show_secrets: bool
) -> None:
    """Run one COMMAND (cat, find, help, ls, man, pwd, tree) on the metadata in DIR, or, without one, many at a prompt.

    DIR is a log directory, the directory of the metadata partition, a segment or a snapshot; a running node's may be
    read. Names and texts are those of Kafka's metadata shell.
    """
    found = image_at(path, at, OnDamage(on_damage))
    damaged = report_damages(found.damages, hint=found.hint)
    session = Session(root=_root(found, show_secrets), write=_write, complain=_complain)
    if words:
        _once(session, words)
    else:
        _loop(session, found)
    context.exit(1 if damaged else 0)


def _root(found: ImageAt, show_secrets: bool) -> Directory:
    version, commit_id = _own_version()
    return image_tree(found.image, found.provenance, version=version, commit_id=commit_id, show_secrets=show_secrets)


def _own_version() -> tuple[str, str]:
    """The version, and the commit if pip installed the package from a repository (PEP 610), as Kafka shows its own."""
    try:
        ours = distribution("trio-kraft")
    except PackageNotFoundError:
        return UNKNOWN, UNKNOWN
    origin = json.loads(ours.read_text("direct_url.json") or "{}")
    return ours.version, str(origin.get("vcs_info", {}).get("commit_id", UNKNOWN))


def _write(text: str) -> None:
    click.echo(text, nl=False)


def _complain(text: str) -> None:
    echo(text, err=True)


def _once(session: Session, words: tuple[str, ...]) -> None:
    """Run one command; a complaint of the command is a failure of the program."""
    complaints: list[str] = []
    session.complain = complaints.append
    try:
        execute(session, words)
    except ShellError as wrong:
        raise click.UsageError(str(wrong)) from wrong
    if complaints:
        hints = (_nearest(session, word) for word in words[1:])
        raise CommandFailed("; ".join(complaints), hint=next((hint for hint in hints if hint is not None), None))


def _nearest(session: Session, path: str) -> str | None:
    """The path with its first unknown name corrected to the most similar one; None if there is none."""
    if session.find(path):
        return None
    above, _, name = path.rstrip("/").rpartition("/")
    root = above or ("/" if path.startswith("/") else ".")
    if not session.find(root):
        return _nearest(session, root)
    known = [name for _, node in session.find(root) if isinstance(node, Directory) for name in node.names()]
    return did_you_mean(name, known)


def _loop(session: Session, found: ImageAt) -> None:
    """Run commands from the terminal until `exit` or Ctrl-D, or from a pipe until its end."""
    session.interactive = True
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if on_terminal:
        session.width = lambda: shutil.get_terminal_size().columns
        echo(f"[ {found.where} ]")
        _use_readline(session)
    while not session.ended:
        try:
            line = input(PROMPT) if on_terminal else sys.stdin.readline()
        except KeyboardInterrupt:
            echo("^C")
            continue
        except EOFError:
            click.echo()
            return
        if not on_terminal and not line:
            return
        if line.strip():
            _one_line(session, line.strip())


def _one_line(session: Session, line: str) -> None:
    session.history.append(line)
    try:
        words = split(line)
        if words:
            execute(session, words)
    except ShellError as wrong:
        session.complain(str(wrong))
    except KeyboardInterrupt:
        echo("^C")


def _use_readline(session: Session) -> None:
    """Enable editing, history and completion, if Python was built with a readline library."""
    with suppress(ImportError):
        readline = import_module("readline")
        found: list[str] = []

        def complete(_: str, state: int) -> str | None:
            if state == 0:
                found[:] = completions(session, readline.get_line_buffer()[: readline.get_endidx()])
            return found[state] if state < len(found) else None

        readline.set_completer_delims(" \t")
        readline.set_completer(complete)
        libedit = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if libedit else "tab: complete")
