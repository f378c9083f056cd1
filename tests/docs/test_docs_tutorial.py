"""The tutorial is true: its commands are run in their order, and print what the page shows, numbers and ids aside."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from threading import Thread, Timer

import pytest

from support import ROOT
from support.documented_programs import shape
from support.eventually import eventually

PAGE = ROOT / "docs" / "tutorials" / "your-first-quorum.md"
BLOCK = re.compile(r"^```\n(?P<text>\$ .*?)^```$", re.MULTILINE | re.DOTALL)
NODE = re.compile(r"^  (?:controller|broker) (?P<id>\d+)  pid (?P<pid>\d+)  (?P<address>\S+:\d+) ", re.MULTILINE)
PATIENCE_SECONDS = 120
ELLIPSIS = "…"


class Quickstart:
    """The first terminal."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: Queue[str] = Queue()
        Thread(target=self._read, daemon=True).start()
        self.seen = ""
        while "broker 103" not in self.seen:
            self.seen += self.lines.get(timeout=PATIENCE_SECONDS)
        self.pids = {match["id"]: match["pid"] for match in NODE.finditer(self.seen)}
        self.addresses = [match["address"] for match in NODE.finditer(self.seen)][:3]

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(PATIENCE_SECONDS) == 0
        while "All nodes have stopped. The files are kept in mycluster." not in self.seen:
            self.seen += self.lines.get(timeout=PATIENCE_SECONDS)
        assert "Ctrl-C stops them all." in self.seen


@contextmanager
def quickstart(folder: Path) -> Iterator[Quickstart]:
    """The command of the page, on ports that are free here."""
    command = [sys.executable, "-u", "-m", "kraft", "quickstart", "--dir", "mycluster"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
        patience = Timer(PATIENCE_SECONDS, process.kill)
        patience.start()
        try:
            yield Quickstart(process)
        finally:
            patience.cancel()
            process.kill()


def commands() -> list[tuple[str, str]]:
    """The commands of the page, each with what the page shows below."""
    found = []
    for block in BLOCK.finditer(PAGE.read_text()):
        for part in re.split(r"^\$ ", block["text"], flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            found.append((command, shown))
    return found


def is_shown(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed; an ellipsis at the end stands for any lines.

    Which broker follows which differs from run to run, so the lines of a table may come in another order.
    """
    wanted = shape(shown)
    if wanted[-1:] == [ELLIPSIS]:
        return shape(printed)[: len(wanted) - 1] == wanted[:-1]
    return sorted(shape(printed)) == sorted(wanted)


def run(command: str, folder: Path, addresses: list[str]) -> str:
    """Run a command of the second terminal and return its output."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KRAFT_BOOTSTRAP_CONTROLLER": ",".join(addresses)}
    words = [sys.executable, "-m", *command.split()]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def run_until_shown(command: str, shown: str, folder: Path, addresses: list[str]) -> str:
    """Repeat a command that only reads until the page is right; say what was printed last if the page never is."""
    printed = ""

    def matches() -> bool:
        nonlocal printed
        printed = run(command, folder, addresses)
        return is_shown(shown, printed)

    try:
        eventually(matches, command)
    except AssertionError:
        pytest.fail(f"$ {command}\n{printed}\ninstead of\n{shown}")
    return printed


def test_tutorial_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    starting, *steps = commands()
    again = steps.index(next(step for step in steps if step[0] == starting[0]))
    leader = broker = ""
    killed: list[str] = []
    with quickstart(tmp_path) as terminal:
        assert is_shown(starting[1], terminal.seen + ELLIPSIS)
        for command, shown in steps[:again]:
            if command.startswith("kill"):
                killed.append(broker if killed else leader)
                os.kill(int(terminal.pids[killed[-1]]), signal.SIGKILL)
            elif " create " in command:
                printed = run(command, tmp_path, terminal.addresses)
                assert is_shown(shown, printed), printed
            else:
                live = "101" if broker != "101" else "102"
                here = command.replace("broker-101", f"broker-{live}")
                printed = run_until_shown(here, shown, tmp_path, terminal.addresses)
                leader = (re.findall(r"^LeaderId: +(\d+)", printed, re.MULTILINE) or [leader])[0]
                broker = (re.findall(r"^0 +(\d+)", printed, re.MULTILINE) or [broker])[0] if len(killed) < 2 else broker
        terminal.interrupt()
    assert len(killed) == 2
    assert leader not in killed
    with quickstart(tmp_path) as terminal:
        assert is_shown(steps[again][1], terminal.seen + ELLIPSIS)
        for command, shown in steps[again + 1 :]:
            run_until_shown(command, shown, tmp_path, terminal.addresses)
        terminal.interrupt()
