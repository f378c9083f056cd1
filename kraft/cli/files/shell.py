"""`kraft shell`: browses the cluster's metadata like a file system, at any offset or time (Kafka: `MetadataShell`)."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from io import StringIO
from itertools import islice
from typing import Final

import click
from msgspec import Struct, field
from rich.columns import Columns
from rich.console import Console
from rich.text import Text

from kraft.cli.files.image_at import ImageAt, at_option, image_at, reading_options, report_damages, show_secrets_option
from kraft.cli.near import did_you_mean
from kraft.cli.progress import progress_option
from kraft.cli.text import LINES_AT_ONCE, echo
from kraft.config.errors import CommandFailed
from metadata_log.image.tree import Directory, Leaf, Node, Path, absolute, find_lines, image_tree, matches, tree_lines
from metadata_log.printable import printable
from metadata_log.reading.damage import OnDamage
from metadata_log.reading.timeline import At

Write = Callable[[str], None]


class ShellError(Exception):
    """A command cannot run; the message is one line for the user."""


class Session(Struct, kw_only=True):
    """The state of a shell between two commands.

    `write` takes text of whole lines; `complain` takes a line about a failure. `width` is the terminal's width, or None
    to list one name a line.
    """

    root: Directory
    write: Write
    complain: Write
    interactive: bool = False
    width: Callable[[], int] | None = None
    working_directory: Path = ()
    history: list[str] = field(default_factory=list)
    ended: bool = False

    def lines(self, lines: Iterable[str]) -> None:
        """Write many lines, some thousand at a time."""
        rest = iter(lines)
        while chunk := list(islice(rest, LINES_AT_ONCE)):
            self.write("".join(f"{printable(line)}\n" for line in chunk))

    def find(self, path: str) -> list[tuple[Path, Node]]:
        """The nodes that match a path or a glob."""
        return list(matches(self.root, absolute(path, self.working_directory)))


class Command(Struct, frozen=True):
    """One command: its description, its number of arguments, and whether it works only at a prompt."""

    about: str
    usage: str
    run: Callable[[Session, list[str]], None]
    least: int = 0
    most: int | None = None
    prompt_only: bool = False


def execute(session: Session, words: Sequence[str]) -> None:
    """Run one command. An unknown path is a complaint; raises `ShellError` for a command that cannot run."""
    name, *arguments = words
    command = COMMANDS.get(name)
    if command is None:
        raise ShellError(f"unknown command {name}: the commands are {', '.join(COMMANDS)}")
    if command.prompt_only and not session.interactive:
        raise ShellError(f"{name} is for the prompt that `kraft shell DIR` gives")
    if len(arguments) < command.least or (command.most is not None and len(arguments) > command.most):
        raise ShellError(f"{name} is used as `{command.usage}`")
    command.run(session, arguments)


def split(line: str) -> list[str]:
    """The words of a line, with quotes as in a Unix shell; raises `ShellError`. The glob interprets backslashes."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.escape = ""
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError:
        raise ShellError("a quotation mark is not closed") from None


def completions(session: Session, line: str) -> list[str]:
    """The completions of the last word of a line: commands first, then paths; directories end in a slash."""
    *before, word = line.split(" ")
    words = [each for each in before if each]
    if not words or (words[0] == "man" and len(words) == 1):
        return [name for name in COMMANDS if name.startswith(word)]
    if words[0] in {"help", "history", "exit", "pwd"}:
        return []
    above, slash, last = word.rpartition("/")
    hits = session.find(above + slash if above + slash else ".")
    return [
        f"{above}{slash}{printable(name)}{'/' if isinstance(child, Directory) else ''}"
        for _, node in hits
        if isinstance(node, Directory)
        for name, child in _beginning_with(node, last)
    ]


def _beginning_with(node: Directory, start: str) -> Iterator[tuple[str, Node]]:
    names = [name for name in node.names() if name.startswith(start)]
    return ((name, child) for name in names if (child := node.child(name)) is not None)


def _cat(session: Session, targets: list[str]) -> None:
    for target in targets:
        for _, node in _found(session, "cat", target, "No such file or directory."):
            if isinstance(node, Directory):
                session.complain(f"cat: {target}: Is a directory")
            else:
                session.lines([node.text])


def _tree(session: Session, targets: list[str]) -> None:
    for target in targets:
        for _, node in _found(session, "tree", target, "No such file or directory."):
            session.lines(tree_lines(node))


def _find(session: Session, paths: list[str]) -> None:
    for path in paths or ["."]:
        hits = _found(session, "find", path, "no such file or directory.")
        for names, node in hits:
            # Kafka prints the glob itself before the names below it, regardless of the matched name.
            shown = path if len(hits) == 1 and not set(path) & set("*?{\\") else "/" + "/".join(names)
            session.lines(find_lines(node, shown))


def _found(session: Session, command: str, path: str, words: str) -> list[tuple[Path, Node]]:
    hits = session.find(path)
    if not hits:
        session.complain(f"{command}: {path}: {words}")
    return hits


def _ls(session: Session, targets: list[str]) -> None:
    files: list[str] = []
    directories: list[tuple[str, list[str]]] = []
    for target in targets or ["."]:
        for path, node in _found(session, "ls", target, "no such file or directory."):
            name = path[-1] if path else "/"
            if isinstance(node, Leaf):
                files.append(name)
            else:
                directories.append((name, node.names()))
    session.lines(_columns(files, session))
    several = bool(files) or len(directories) > 1
    first = not files
    for name, children in directories:
        if not children:
            continue
        if several:
            session.lines([*([] if first else [""]), f"{name}:"])
            first = False
        session.lines(_columns(children, session))


def _columns(names: list[str], session: Session) -> Iterable[str]:
    """Names one a line, or in columns that fit on the terminal, sorted downwards."""
    names = [printable(name) for name in names]
    if not names or session.width is None:
        return names
    page = StringIO()
    console = Console(file=page, width=session.width(), color_system=None, force_terminal=False)
    console.print(Columns([Text(name, no_wrap=True) for name in names], padding=(0, 2), column_first=True))
    return [line.rstrip() for line in page.getvalue().splitlines()]


def _cd(session: Session, targets: list[str]) -> None:
    target = targets[0] if targets else "/"
    for path, node in _found(session, "cd", target, "no such directory."):
        if isinstance(node, Directory):
            session.working_directory = path
        else:
            session.complain(f"cd: {target}: not a directory.")


def _pwd(session: Session, _: list[str]) -> None:
    session.lines(["/" + "/".join(session.working_directory)])


def _exit(session: Session, _: list[str]) -> None:
    session.ended = True


def _history(session: Session, arguments: list[str]) -> None:
    count = len(session.history)
    if arguments:
        if not arguments[0].isdecimal():
            raise ShellError(f"history: {arguments[0]} is no number")
        count = min(count, int(arguments[0]))
    first = len(session.history) - count
    session.lines(f"{first + number:5}  {line}" for number, line in enumerate(session.history[first:]))


def _help(session: Session, _: list[str]) -> None:
    width = max(map(len, COMMANDS))
    session.lines(
        [
            "The metadata of a cluster as a tree: `ls` shows what there is, `cat` and `tree` what it says.",
            "Paths may hold *, ? and {a,b}.",
            "",
            *(f"  {name:{width}}  {command.about}" for name, command in COMMANDS.items()),
        ]
    )


def _man(session: Session, arguments: list[str]) -> None:
    name = arguments[0]
    if name not in COMMANDS:
        session.complain(f"man: unknown command {name}. Type help to get a list of commands.")
        return
    session.lines([f"{name}: {COMMANDS[name].about}", "", f"usage: {COMMANDS[name].usage}"])


COMMANDS: Final[dict[str, Command]] = {
    "cat": Command("Show the contents of metadata files.", "cat FILE...", _cat, least=1),
    "cd": Command("Set the current working directory.", "cd [DIRECTORY]", _cd, most=1, prompt_only=True),
    "exit": Command("Exit the metadata shell.", "exit", _exit, most=0, prompt_only=True),
    "find": Command("Search for nodes in the directory hierarchy.", "find [PATH...]", _find),
    "help": Command("Display this help message.", "help", _help, most=0),
    "history": Command("Print command history.", "history [COUNT]", _history, most=1, prompt_only=True),
    "ls": Command("List metadata nodes.", "ls [PATH...]", _ls),
    "man": Command("Show the help text for a specific command.", "man COMMAND", _man, least=1, most=1),
    "pwd": Command("Print the current working directory.", "pwd", _pwd, most=0),
    "tree": Command("Show the contents of metadata nodes in a tree structure.", "tree PATH...", _tree, least=1),
}


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
@progress_option
@click.pass_context
def shell_command(
    context: click.Context, path: str, words: tuple[str, ...], *, at: At | None, on_damage: str, show_secrets: bool
) -> None:
    """Run one COMMAND (cat, find, help, ls, man, pwd, tree) on the metadata in DIR, or, without one, many at a prompt.

    DIR is a log directory, the directory of the metadata partition, a segment or a snapshot; a running node's may be
    read. Names and texts are those of Kafka's metadata shell.
    """
    replayed = image_at(path, at, OnDamage(on_damage))
    damaged = report_damages(replayed.damages, hint=replayed.hint)
    session = Session(root=_root(replayed, show_secrets), write=_write, complain=_complain)
    if words:
        _once(session, words)
    else:
        _loop(session, replayed)
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
        candidates: list[str] = []

        def complete(_: str, state: int) -> str | None:
            if state == 0:
                candidates[:] = completions(session, readline.get_line_buffer()[: readline.get_endidx()])
            return candidates[state] if state < len(candidates) else None

        readline.set_completer_delims(" \t")
        readline.set_completer(complete)
        libedit = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if libedit else "tab: complete")
