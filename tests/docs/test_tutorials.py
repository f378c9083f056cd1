"""The tutorials of the four doors are true: their programs run, and their commands print what the pages show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest

from support.documented_programs import HOWTO, PYTHON, commands, matches, run, run_program, shape
from support.loopback import free_ports

TUTORIALS = HOWTO.parent / "tutorials"
PATIENCE_SECONDS = 60
PLUGIN = ("-p", "kraft.testing.plugin", "-p", "no:cacheprovider")


@pytest.mark.parametrize("name", ["your-first-repair", "your-first-broken-protocol"])
def test_commands_print_what_the_page_shows(name: str, tmp_path: Path) -> None:
    shown = commands(TUTORIALS / f"{name}.md")
    assert len(shown) > 4
    folder = tmp_path
    for command, lines in shown:
        if command.startswith("cd "):
            folder /= command.removeprefix("cd ")
            continue
        printed = run(command, folder)
        assert matches(shape("\n".join(lines)), shape("\n".join(printed))), "\n".join([f"$ {command}", *printed])
    if name == "your-first-repair":
        assert list(tmp_path.iterdir()) == [tmp_path / "repair"], "files beside those of the clone"


def programs(name: str, folder: Path) -> list[str]:
    """Write the programs of a tutorial into a folder; their names."""
    found = {match["name"]: match["code"] for match in PYTHON.finditer((TUTORIALS / f"{name}.md").read_text())}
    for path, code in found.items():
        (folder / path).write_text(code)
    return list(found)


def test_the_tests_of_the_first_kafka_test_pass(tmp_path: Path) -> None:
    programs("your-first-kafka-test", tmp_path)
    assert " passed" in run_program("-m", "pytest", *PLUGIN, "-q", ".", folder=tmp_path)


class Worker:
    """A program of the page about locks, and the lines that it prints."""

    def __init__(self, number: int, process: subprocess.Popen[str], lines: Queue[str]) -> None:
        self.number = number
        self.process = process
        self._lines = lines
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.strip())


@contextmanager
def worker(folder: Path, number: int, lines: Queue[str]) -> Iterator[Worker]:
    command = [sys.executable, "worker.py", str(number)]
    environment = {**os.environ, "PYTHONPATH": str(HOWTO.parent.parent)}
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Worker(number, process, lines)
        finally:
            process.kill()


def next_holder(lines: Queue[str]) -> tuple[int, str, int]:
    """Who works next, after whom, and with which token."""
    while not (told := re.fullmatch(r"worker (\d) works after (.+)", lines.get(timeout=PATIENCE_SECONDS))):
        pass
    while not (token := re.fullmatch(r"token (\d+)", lines.get(timeout=PATIENCE_SECONDS))):
        pass
    return int(told[1]), told[2], int(token[1])


def test_the_lock_of_the_page_survives_its_holder(tmp_path: Path) -> None:
    assert programs("your-first-lock", tmp_path) == ["worker.py"]
    ports = free_ports(3)
    code = (tmp_path / "worker.py").read_text()
    code = code.replace("127.0.0.1:1909{number}", f"127.0.0.1:{{{ports}[number - 1]}}")
    for number, port in enumerate(ports, 1):
        code = code.replace(f"1909{number}", str(port))
    (tmp_path / "worker.py").write_text(code)
    lines: Queue[str] = Queue()
    with ExitStack() as stack:
        workers = {number: stack.enter_context(worker(tmp_path, number, lines)) for number in (1, 2, 3)}
        first, before, token = next_holder(lines)
        assert before == "nobody"
        workers[first].process.kill()
        second, before, later = next_holder(lines)
        assert (second != first, before, later > token) == (True, f"worker {first}", True)
        stack.enter_context(worker(tmp_path, first, lines))
        while lines.get(timeout=PATIENCE_SECONDS) != f"worker {first} stands in line":
            pass
