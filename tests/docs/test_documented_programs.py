"""The programs and commands of the README, of pages and of `examples` run, and print what is shown."""

from __future__ import annotations

import ast
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

import pytest

import kraft.sync
from support import ROOT
from support.documented_programs import HOWTO, PYTHON, commands, commands_of, matches, program, run
from support.eventually import eventually
from support.loopback import free_ports

README = ROOT / "README.md"
STEP = re.compile(r"^✓ (?P<step>[\w ]+?)  ", re.MULTILINE)


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 120


def test_its_commands_print_what_it_shows(tmp_path: Path) -> None:
    shown = commands(README)
    assert [command.split()[0] for command, _ in shown] == ["python3", "kraft", "kraft"]
    for command, lines in shown:
        printed = run(command, tmp_path)
        assert matches(lines, printed), "\n".join([f"$ {command}", *printed])


@pytest.mark.parametrize("name", [match["name"] for match in PYTHON.finditer(README.read_text())])
def test_its_programs_run(name: str, tmp_path: Path) -> None:
    code = next(match["code"] for match in PYTHON.finditer(README.read_text()) if match["name"] == name)
    (port,) = free_ports(1)
    (tmp_path / name).write_text(code.replace("19091", str(port)))
    command = ["-m", "pytest", "-q", "-p", "kraft.testing.plugin"] if name.startswith("test_") else []
    done = subprocess.run([sys.executable, *command, name], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_steps_of_the_tour_that_it_shows_are_those_of_the_tour() -> None:
    tour = (ROOT / "tests" / "test_quickstart.py").read_text()
    steps = STEP.findall(README.read_text())
    assert len(steps) == 3
    assert [step for step in steps if f'"{step}"' not in tour] == []


# The pages that answer operators' questions are true: their commands are run, and print what the pages show.


PAGES = (
    "if-a-rack-fails.md",
    "keep-the-history.md",
    "materialize.md",
    "no-controller.md",
    "read-a-metadata-log.md",
    "recover-a-quorum.md",
    "unavailable-partitions.md",
    "what-is-wrong-with-a-quorum.md",
    "who-changed-a-config.md",
    "who-led-a-partition.md",
)
PROGRAM = re.compile(r"^```python\n# (?P<name>\w+\.py)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
STARTS_SPARK = re.compile(r"kraft fleet (?!materialize )")


@pytest.mark.parametrize("page", PAGES)
def test_commands_print_what_the_page_shows(page: str, tmp_path: Path) -> None:
    for written in PROGRAM.finditer((HOWTO / page).read_text()):
        (tmp_path / written["name"]).write_text(written["code"])
    run_commands = [(command, shown) for command, shown in commands(HOWTO / page) if not STARTS_SPARK.match(command)]
    assert len(run_commands) > 1
    for command, shown in run_commands:
        printed = run(command, tmp_path)
        assert matches(shown, printed), "\n".join([f"$ {command}", *printed])


# The programs of the page about an embedded log that append many values.


def test_the_examples_of_many_appends_and_of_snapshots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two programs append to one log, and a third keeps a total of another, of which it begins with the snapshot."""
    page = "embed-a-replicated-log.md"
    monkeypatch.chdir(tmp_path)
    words, numbers = (one_voter(tmp_path, name) for name in ("words", "numbers"))
    for name in ("in_threads.py", "handles.py"):
        monkeypatch.setattr(sys, "argv", [name, words])
        runpy.run_path(str(program(page, name, tmp_path)), run_name="__main__")
        first, *rest = capsys.readouterr().out.splitlines()
        told = re.fullmatch(r"offsets (\d+) to (\d+)", first)
        assert told is not None, first
        assert int(told[2]) - int(told[1]) >= 999
        assert [line.rpartition(" ")[0] for line in rest] == ["committed at offset"] * 3
    with kraft.sync.open_node(kraft.Config.load(numbers)) as node:
        node.wait_for_leader()
        for _ in range(2):
            node.append([b"1"] * 1000)
    totals = str(program(page, "totals.py", tmp_path))
    with running(totals, numbers):
        log = tmp_path / "data-numbers" / "__cluster_metadata-0"
        eventually(lambda: any(log.glob("0*[1-9]*-*.checkpoint")), "a snapshot of the totals")
    with running(totals, numbers) as again:
        assert again.stdout is not None
        told = re.fullmatch(r"the total is (\d+) at offset (\d+)\n", again.stdout.readline())
        assert told is not None
        assert 1000 <= int(told[1]) < int(told[2])


def one_voter(folder: Path, name: str) -> str:
    """The properties file of a quorum of one node, whose directory is formatted."""
    (port,) = free_ports(1)
    path = folder / f"{name}.properties"
    path.write_text(
        f"process.roles=controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\nlog.dirs=data-{name}\n"
        f"listeners=CONTROLLER://127.0.0.1:{port}\ncontroller.quorum.voters=1@127.0.0.1:{port}\n"
    )
    kraft.format(kraft.Config.load(str(path)), "4L6g3nShT-eMCtK--X86sw")
    return str(path)


@contextmanager
def running(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A program that is killed at the end."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, *words], env=environment, stdout=subprocess.PIPE, text=True) as process:
        patience = Timer(60, process.kill)
        patience.start()
        try:
            yield process
        finally:
            patience.cancel()
            process.kill()


# The examples run, print what their first lines promise, and stand on the page beside them.


EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.name for path in EXAMPLES.glob("*.py"))


def first_lines(name: str) -> str:
    text = ast.get_docstring(ast.parse((EXAMPLES / name).read_text()))
    assert text is not None
    return text


@pytest.mark.parametrize("name", NAMES)
def test_an_example_prints_what_it_promises(name: str, tmp_path: Path) -> None:
    promised = re.findall(r"^    (.*)$", first_lines(name), re.MULTILINE)
    for command, lines in commands_of(promised):
        printed = run(command, tmp_path)
        assert matches(lines, printed), "\n".join([f"$ {command}", *printed])
    assert f"examples/{name}" in command


def test_the_page_lists_each_example_with_its_purpose() -> None:
    rows = re.findall(r"^\| \[(.+?)\]\(\1\) \| (.+) \|$", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert sorted(rows) == [(name, first_lines(name).partition("\n")[0]) for name in NAMES]
    assert len(rows) == 10
