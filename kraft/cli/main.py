"""The `kraft` command: finds the subcommand, and converts each failure to one clear line and an exit code.

Exit codes: 0 done, 1 failed, 2 usage error, 130 interrupted. An incomplete command is a usage error: `kraft` alone
prints its help on stderr. If the reader of the output closes the pipe (`| head`), the command ends with 0.
"""

from __future__ import annotations

import errno
import os
import select
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final, NoReturn

import click

from kraft.cli.commands import COMMANDS, SECTIONS
from kraft.cli.help import format_help_of, help_of_bare_group, hint_for, what_is_wrong
from kraft.config.errors import INTERRUPTED, CommandFailed, ConfigError, UsageError
from metadata_log.errors import MetadataLogError, install_extra
from metadata_log.printable import printable
from metadata_log.software import SOFTWARE_VERSION


class OutputClosed(Exception):
    """The reader of standard output has closed the pipe."""


@contextmanager
def closed_output_is_no_error() -> Iterator[None]:
    """Raise `OutputClosed` for a broken pipe inside the block if standard output, not a connection, is closed."""
    try:
        yield
    except BrokenPipeError as failed:
        if not output_is_closed():
            raise
        raise OutputClosed from failed
    except BaseExceptionGroup as group:  # nurseries wrap it
        if group.subgroup(BrokenPipeError) is None or not output_is_closed():
            raise
        raise OutputClosed from group


@contextmanager
def one_line_at_ctrl_c() -> Iterator[None]:
    """Raise `click.Abort` for Ctrl-C inside the block: click would write an empty line first."""
    try:
        yield
    except KeyboardInterrupt as interrupted:
        raise click.Abort from interrupted


def output_is_closed() -> bool:
    """Whether the reader of standard output has closed the pipe."""
    try:
        descriptor = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):  # no standard output, or one without a file descriptor
        return False
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def discard_output() -> None:
    """Discard output that is still buffered, so that the interpreter does not fail at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


FAILED: Final = 1
USAGE: Final = 2


class _Commands(click.Group):
    """Subcommands, each imported on demand: `kraft --help` does not import a node."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(COMMANDS[cmd_name].module), f"{cmd_name.replace('-', '_')}_command")
        assert isinstance(command, click.Command)
        return format_help_of(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), COMMANDS[name].about) for name in names])

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        with closed_output_is_no_error(), one_line_at_ctrl_c():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with closed_output_is_no_error(), one_line_at_ctrl_c():
            return super().invoke(ctx)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Example: kraft quickstart --for 60",
)
@click.version_option(SOFTWARE_VERSION, prog_name="kraft", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show a traceback when something fails.")
def kraft(debug: bool) -> None:
    """Run and inspect Apache Kafka's controllers, brokers and groups, and decode their files."""


format_help_of(kraft)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The console script; ends the process."""
    if not __debug__:
        _complain(
            "kraft does not run under python -O", "Its assertions guard your data: leave -O and PYTHONOPTIMIZE out."
        )
        sys.exit(FAILED)
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = kraft.main(words, prog_name="kraft", standalone_mode=False) or 0
        if sys.stdout is not None:
            with closed_output_is_no_error():
                sys.stdout.flush()
        sys.exit(code)
    except OutputClosed:
        discard_output()
        sys.exit(0)
    except (click.Abort, KeyboardInterrupt):
        # A terminal has written ^C to the line.
        click.echo("\nkraft: interrupted" if sys.stderr.isatty() else "kraft: interrupted", err=True)
        sys.exit(INTERRUPTED)
    except Exception as failed:
        if "--debug" in words:
            raise
        sys.exit(report(failed, words))


def report(failed: Exception, words: Sequence[str] = ()) -> int:
    """Report a failure on stderr; returns the exit code. `words` are those typed after `kraft`."""
    code = 0
    for cause in _causes(failed):
        if (help_text := help_of_bare_group(cause)) is not None:
            click.echo(help_text, err=True)
            return USAGE
        what, hint, its_code = _explain(cause, words)
        if what:
            _complain(what, hint)
        code = max(code, its_code)
    return code


def _causes(failed: Exception) -> Iterator[Exception]:
    """The failures in the groups that nurseries make, each once."""
    if isinstance(failed, ExceptionGroup):
        for part in failed.exceptions:
            yield from _causes(part)
    else:
        yield failed


def _explain(failed: Exception, words: Sequence[str]) -> tuple[str, str | None, int]:
    match failed:
        case click.UsageError():
            return _plain(what_is_wrong(failed)), hint_for(failed, words), USAGE
        case CommandFailed():
            return failed.what, failed.hint, failed.exit_code
        case click.ClickException():
            return _plain(failed.format_message()), None, failed.exit_code
        case UsageError():
            return str(failed), failed.hint, USAGE
        case ConfigError() | MetadataLogError():
            return str(failed), failed.hint, FAILED
        case ModuleNotFoundError() if extra := _EXTRAS.get((failed.name or "").partition(".")[0]):
            return f"{failed.name} is not installed", f"This needs an extra: {install_extra(extra)}.", FAILED
        case OSError():
            return _system_error(failed), _system_hint(failed), FAILED
        case AssertionError():
            return (
                f"an invariant is broken: {failed or 'see the traceback'}",
                "This is a bug: stop here, keep the log directory, and report it with the output of `kraft --debug …`.",
                FAILED,
            )
        case _:
            return f"{type(failed).__name__}: {failed}", "Run `kraft --debug …` for the traceback.", FAILED


_EXTRAS: Final = {
    "fsspec": "spark",
    "jinja2": "report",
    "numpy": "arrow",
    "pandas": "spark",
    "pyarrow": "arrow",
    "pyspark": "spark",
    "textual": "top",
}
"""The extra of the package that installs an optional library."""

_SYSTEM_HINTS: Final = {
    errno.EADDRINUSE: "Another process listens there: stop it, or choose another port.",
    errno.EADDRNOTAVAIL: "The host in listeners is not an address of this machine.",
    errno.EACCES: "Check the owner of the file or directory, and the user of this process.",
    errno.ENOSPC: "The disk is full: make room and start again. Nothing acknowledged is lost.",
    errno.EROFS: "The file system is read-only. The system log states whether a disk has failed.",
    errno.EIO: "The disk fails: replace it. docs/howto/damaged-disk.md describes how the node rejoins then.",
}


_FILE_HINTS: Final = {
    errno.EFBIG: "Put the file back from a copy.",
    errno.EINVAL: "Put a regular file there, or name another directory.",
    errno.EISDIR: "Put a file there, or name another path.",
    errno.ELOOP: "A symbolic link leads back to itself: name the directory that it was meant for.",
    errno.ENOENT: "Put the file back from a copy, or name another path.",
    errno.ENOTDIR: "A part of the path is a file: name a directory, as in log.dirs.",
}
"""For errors that name a file."""


def _system_hint(failed: OSError) -> str | None:
    number = failed.errno or 0
    return _SYSTEM_HINTS.get(number) or (_FILE_HINTS.get(number) if failed.filename is not None else None)


def _system_error(failed: OSError) -> str:
    text = failed.strerror or str(failed)
    return f"{text} ({failed.filename})" if failed.filename is not None else text


def _plain(text: str) -> str:
    """Click's sentences in this program's form: no capital, no full stop."""
    text = text.rstrip(".")
    return text[:1].lower() + text[1:]


def _complain(what: str, hint: str | None) -> None:
    colour = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    click.echo(click.style("kraft: error: ", fg="red", bold=True) + printable(what), err=True, color=colour)
    if hint is not None:
        click.echo(click.style("hint: ", bold=True) + printable(hint), err=True, color=colour)
