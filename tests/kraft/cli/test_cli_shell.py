"""`kraft shell`: its ten commands, one-shot, from a pipe and at a prompt; completion; what it says when it cannot."""

from __future__ import annotations

import io
import os
import pty
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft.cli.files.image_at import image_at
from kraft.cli.files.shell import COMMANDS, Session, completions, execute
from metadata_log.image.tree import image_tree
from support.kraft.command_line import Done, run
from support.kraft.damaged import damaged
from support.real_data import archive, unpack

SNAPSHOT = "__cluster_metadata-0/00000000000000000516-0000000004.checkpoint"
TREE = "4b9df725ee33725f.tree.txt"
FIND = "4b9df725ee33725f.find.txt"
PROMPT_SECONDS = 30


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("clusters", "old39/nodes/c3", tmp_path_factory.mktemp("c3"))


@pytest.fixture
def session(node: Path) -> Session:
    """A shell with its output gathered in a list."""
    found = image_at(str(node), None)
    root = image_tree(found.image, found.provenance, version="1.0", commit_id="unknown")
    lines: list[str] = []
    complaints: list[str] = []
    made = Session(root=root, write=lines.append, complain=complaints.append, interactive=True)
    made.history = []
    return made


def shell(capsys: pytest.CaptureFixture[str], path: Path, *words: str) -> Done:
    return run(capsys, "shell", str(path), *words)


def lines_of(done: Done) -> list[str]:
    assert (done.code, done.err) == (0, "")
    return done.out.splitlines()


def test_a_snapshot_is_shown_as_kafkas_shell_shows_it(capsys: pytest.CaptureFixture[str], node: Path) -> None:
    """But for its provenance, which is that of the last record it stands for."""
    ours = lines_of(shell(capsys, node / SNAPSHOT, "--show-secrets", "tree", "image"))
    theirs = archive("shell")[TREE].decode().splitlines()
    differ = [(one, other) for one, other in zip(ours, theirs, strict=True) if one != other]
    assert differ == [
        (
            "  offset 515, epoch 4, time 2026-11-21T08:37:56.925Z[UTC]",
            "  offset 107, epoch 4, time 2026-11-21T08:37:56.987Z[UTC]",
        )
    ]
    assert lines_of(shell(capsys, node / SNAPSHOT, "find", "image")) == archive("shell")[FIND].decode().splitlines()


def test_globs_lists_and_paths(capsys: pytest.CaptureFixture[str], node: Path) -> None:
    assert lines_of(shell(capsys, node, "ls")) == ["image", "local"]
    assert lines_of(shell(capsys, node, "pwd")) == ["/"]
    listed = lines_of(shell(capsys, node, "ls", "/image/features/metadataVersion", "/image/cluster", "local"))
    assert listed == ["metadataVersion", "", "cluster:", "brokers", "controllers", "", "local:", "commitId", "version"]
    names = lines_of(shell(capsys, node, "find", "/image/topics/byName/{after,__}*/name"))
    assert names[0] == "/image/topics/byName/__transaction_state/name"
    assert all(name.endswith("/name") for name in names)
    assert lines_of(shell(capsys, node, "cat", "/image/topics/byName/__*/name")) == ["__transaction_state"]


def test_the_shell_shows_snapshots_and_log_at_an_offset(capsys: pytest.CaptureFixture[str], node: Path) -> None:
    early, late = (lines_of(shell(capsys, node, "--at", at, "ls", "/image/topics/byName")) for at in ("200", "500"))
    assert len(early) < len(late)
    assert lines_of(shell(capsys, node, "--at", "200", "cat", "/image/provenance"))[0].startswith("offset 200, epoch ")


def test_existing_paths_are_printed_before_the_error_of_missing_ones(
    capsys: pytest.CaptureFixture[str], node: Path
) -> None:
    done = shell(capsys, node, "cat", "/image/producerIds/nextProducerId", "/nothing")
    assert (done.code, done.out) == (1, "2000\n")


def test_shell_reports_damage_with_its_position(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    done = shell(capsys, damaged("bitflip-middle-batch", tmp_path), "cat", "/image/provenance")
    assert (done.code, done.out) == (1, "offset 5270, epoch 12, time 2026-11-21T08:17:38.278Z[UTC]\n")
    assert "00000000000000004847.log, byte 32167, offset 5271)" in done.err


def test_commands_from_a_pipe(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, node: Path) -> None:
    commands = [
        "cd image/cluster",
        "pwd",
        "",
        "ls",
        "cd brokers/101",
        "cd /nothing",
        "nothing",
        "cat 'an open quotation",
        "cd ..",
        "cd",
        "pwd",
        "history 3",
        "exit",
        "ls",
    ]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(commands)))
    done = shell(capsys, node)
    assert done.code == 0
    assert done.out.splitlines() == [
        "/image/cluster",
        "brokers",
        "controllers",
        "/",
        "    8  cd",
        "    9  pwd",
        "   10  history 3",
    ]
    assert done.err.splitlines() == [
        "cd: brokers/101: not a directory.",
        "cd: /nothing: no such directory.",
        f"unknown command nothing: the commands are {', '.join(COMMANDS)}",
        "a quotation mark is not closed",
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", list(COMMANDS)),
        ("c", ["cat", "cd"]),
        ("man h", ["help", "history"]),
        ("ls ", ["image/", "local/"]),
        ("ls i", ["image/"]),
        ("cat /image/f", ["/image/features/"]),
        ("cat /image/features/m", ["/image/features/metadataVersion"]),
        ("tree x image/cluster/", ["image/cluster/brokers/", "image/cluster/controllers/"]),
        ("cat /nothing/x", []),
        ("pwd ", []),
        ("exit x", []),
    ],
)
def test_completion(session: Session, line: str, expected: list[str]) -> None:
    assert completions(session, line) == expected


def test_completion_is_relative_to_the_current_directory(session: Session) -> None:
    execute(session, ["cd", "/image/cluster"])
    assert completions(session, "ls b") == ["brokers/"]
    assert completions(session, "ls ../pr") == ["../producerIds/", "../provenance"]


class Terminal:
    """The other end of a terminal at which a program runs."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._unread = ""

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def read_until(self, text: str, nudge: str = "") -> str:
        """Everything up to and with the next `text`; a nudge is typed whenever a second has brought nothing."""
        deadline = time.monotonic() + PROMPT_SECONDS
        while text not in self._unread:
            left = deadline - time.monotonic()
            assert left > 0, f"waiting for {text!r} after {self._unread!r}"
            if select.select([self.descriptor], [], [], min(left, 1.0) if nudge else left)[0]:
                self._unread += os.read(self.descriptor, 4096).decode()
            elif nudge:
                self.type(nudge)
        found, _, self._unread = self._unread.partition(text)
        return found + text


@pytest.fixture
def terminal(node: Path) -> Iterator[Terminal]:
    """The shell at a terminal of its own; it ends before the test does."""
    child, descriptor = pty.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.environ |= {"TERM": "dumb", "COLUMNS": "60"}
        os.execv(sys.executable, [sys.executable, "-m", "kraft", "shell", str(node)])
    yield Terminal(descriptor)
    os.close(descriptor)
    os.waitpid(child, 0)


def test_a_prompt_with_completion_and_ctrl_c(terminal: Terminal) -> None:
    assert "after offset 634, epoch 6" in terminal.read_until(">> ")
    terminal.type("ls /image/fea\t\n")
    assert "metadataVersion" in terminal.read_until(">> ")
    terminal.type("half a line")
    terminal.read_until("half a line")
    # Ctrl-C makes the kernel forget what it has not passed on yet, the next prompt perhaps among it.
    terminal.type("\x03")
    terminal.read_until(">> ", nudge="\n")
    terminal.type("pwd\n")
    assert "half" not in terminal.read_until("\r\n/\r\n")
    terminal.read_until(">> ")
    terminal.type("\x04")
