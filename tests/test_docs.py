"""The documentation is true: its programs run, its links lead somewhere, its commands exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import click
import pytest
import trio

from kraft.cli.main import kraft
from support import ROOT
from support.documented_programs import HOWTO, program, run_program
from support.eventually import pause
from support.loopback import free_ports
from support.real_data import unpack

PAGES = sorted(
    [*ROOT.glob("*.md"), ROOT / "examples/README.md", ROOT / "tests/README.md", *(ROOT / "docs").rglob("*.md")]
)
LINK = re.compile(r"\[[^\]]+\]\((?!https?:)(?P<target>[^)#\s]+)?(?:#(?P<anchor>[^)\s]+))?\)")
COMMAND = re.compile(r"(?:^(?:\$ |.*(?:do|--no-dev) |ID=\$\()?|`)kraft ([a-z][^`;&)\n]*)", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.finditer(page.read_text()):
        target = (page.parent / link["target"]).resolve() if link["target"] else page
        assert target.exists(), link[0]
        assert link["anchor"] is None or link["anchor"] in anchors(target), link[0]


def test_every_page_is_in_the_index() -> None:
    """A page that no index names is not read."""
    index = (ROOT / "docs" / "README.md").read_text() + (ROOT / "docs" / "decisions" / "README.md").read_text()
    pages = [
        page for page in PAGES if page.is_relative_to(ROOT / "docs") and page.name not in {"README.md", "index.md"}
    ]
    assert [page.name for page in pages if page.name not in index] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_and_tests_that_are_named_exist(page: Path) -> None:
    text = page.read_text()
    for path in re.findall(r"`((?:kraft|metadata_log|transport|tests|bench|docs)/[\w./*-]+)`", text):
        assert list(ROOT.glob(path.rstrip("/"))), f"{path} does not exist"
    for name in re.findall(r"`(test_\w+)`", text):
        assert name in names_of_tests(), f"{name} does not exist"


@cache
def names_of_tests() -> frozenset[str]:
    """The names of all tests and of their files."""
    files = list((ROOT / "tests").rglob("test_*.py"))
    tests = (re.findall(r"^ *(?:async )?def (test_\w+)\(", path.read_text(), re.MULTILINE) for path in files)
    return frozenset(path.stem for path in files).union(*tests)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_exist(page: Path) -> None:
    for line in COMMAND.findall(page.read_text()):
        command: click.Command = kraft
        words = line.split()
        while isinstance(command, click.Group) and words:
            found = command.get_command(click.Context(command), words.pop(0))
            assert found is not None, f"kraft {line}"
            command = found
        known = {name for parameter in command.params for name in parameter.opts}
        unknown = [word for word in words if word.startswith("-") and word.partition("=")[0] not in known]
        assert not unknown, f"kraft {line}: {unknown}"


def test_the_search_for_commands_finds_some() -> None:
    assert "sim run --mutant vote-without-log-check" in COMMAND.findall((ROOT / "README.md").read_text())


async def test_the_example_of_a_replicated_log(tmp_path: Path) -> None:
    """Three programs, one log: all of them print the leader's greeting."""
    path = program("embed-a-replicated-log.md", "replicated.py", tmp_path)
    greetings: list[str] = []
    async with three_of(path) as processes, trio.open_nursery() as nursery:
        for process in processes:
            nursery.start_soon(wait_for_greeting, process, greetings)
    assert len(greetings) == 3
    assert len(set(greetings)) == 1


async def test_the_example_of_a_state_machine(tmp_path: Path) -> None:
    """Three programs, one counter: numbers are typed into any of them."""
    path = program("your-own-state-machine.md", "counter.py", tmp_path)
    conversation = (
        *((number, "", "the total is 0") for number in range(3)),
        (0, "5", "the total is now 5"),
        (1, "-7", "refused: there are only 5"),
        (2, "-2", "the total is now 3"),
    )
    async with three_of(path) as processes:
        for at, typed, wanted in conversation:
            assert await converse(processes[at], typed) == wanted


async def test_the_examples_of_a_store(tmp_path: Path) -> None:
    """Three nodes of one quorum, with Trio, with asyncio and with threads: each serves what the others have written."""
    names = ("with_trio.py", "with_asyncio.py", "with_threads.py")
    paths = [program("key-value-store.md", name, tmp_path) for name in names]
    ports = free_ports(3)
    async with three_of(*paths, arguments=[str(port) for port in ports]):
        clients = [await connected(port) for port in ports]
        for writer in clients:
            version = await asked(writer, "put a 1")
            for reader in clients:
                assert await asked(reader, "get a") == f"{version} 1"
            assert await asked(clients[0], "delete a") == "deleted"
            assert await asked(writer, "get a") == "nothing"


def test_the_example_of_nodes_that_join_and_leave(tmp_path: Path) -> None:
    path = program("key-value-store.md", "members.py", tmp_path)
    shown = re.search(r"^```\n(voters: .*?)^```$", (HOWTO / "key-value-store.md").read_text(), re.MULTILINE | re.DOTALL)
    assert shown is not None
    assert run_program(path.name, "nodes", folder=tmp_path) == shown[1]


async def connected(port: int) -> trio.SocketStream:
    """A connection to a program that is starting."""
    while True:
        try:
            return await trio.open_tcp_stream("127.0.0.1", port)
        except OSError:
            await pause()


async def asked(client: trio.SocketStream, line: str) -> str:
    await client.send_all(f"{line}\n".encode())
    said = b""
    while not said.endswith(b"\n"):
        said += await client.receive_some(1)
    return said.decode().rstrip()


@asynccontextmanager
async def three_of(*paths: Path, arguments: Sequence[str] = ("", "", "")) -> AsyncIterator[list[trio.Process]]:
    """A program, or three, on three nodes, which talk through their standard streams; for a minute at most."""
    programs = paths * 3 if len(paths) == 1 else paths
    format_three(paths[0].parent)
    processes = [
        await trio.lowlevel.open_process(
            [sys.executable, str(path), f"c{node_id}.properties", *filter(None, [argument])],
            cwd=path.parent,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for node_id, (path, argument) in enumerate(zip(programs, arguments, strict=True), 1)
    ]
    try:
        with trio.fail_after(60):
            yield processes
    finally:
        for process in processes:
            process.kill()
            await process.wait()


async def converse(process: trio.Process, typed: str) -> str:
    """Type a line, if it is one, and read the next."""
    assert process.stdin is not None
    assert process.stdout is not None
    if typed:
        await process.stdin.send_all(f"{typed}\n".encode())
    said = b""
    while not said.endswith(b"\n"):
        said += await process.stdout.receive_some(1)
    return said.decode().rstrip()


def format_three(folder: Path) -> None:
    """Three properties files and formatted directories, on ports that are free now."""
    ports = dict(zip((1, 2, 3), free_ports(3), strict=True))
    voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in ports.items())
    for node_id, port in ports.items():
        (folder / f"c{node_id}.properties").write_text(
            f"process.roles=controller\nnode.id={node_id}\ncontroller.listener.names=CONTROLLER\n"
            f"listeners=CONTROLLER://127.0.0.1:{port}\ncontroller.quorum.voters={voters}\nlog.dirs=data-{node_id}\n"
        )
        command = ["format", "-c", f"c{node_id}.properties", "--cluster-id", "4L6g3nShT-eMCtK--X86sw"]
        run_program("-m", "kraft", *command, folder=folder)


async def wait_for_greeting(process: trio.Process, greetings: list[str]) -> None:
    """Read what a program prints until a line of the log is among it."""
    assert process.stdout is not None
    text = ""
    async for piece in process.stdout:
        text += piece.decode()
        if found := re.search(r"^\d+ hello from node \d$", text, re.MULTILINE):
            greetings.append(found[0])
            return
    pytest.fail(f"it ended without a greeting: {text}")


def test_the_examples_of_clusters(tmp_path: Path) -> None:
    names = ("test_failover.py", "test_brokers.py", "test_records.py")
    paths = [str(program("test-with-a-cluster.md", name, tmp_path)) for name in names]
    said = run_program("-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "trio_mode=true", *paths, folder=tmp_path)
    assert "5 passed" in said


def test_the_example_of_simulated_clusters(tmp_path: Path) -> None:
    path = program("test-with-a-cluster.md", "runs.py", tmp_path)
    assert re.search(
        r"^1 \d+ events \d+ changes of partitions$", run_program(str(path), "2", folder=tmp_path), re.MULTILINE
    )


def test_the_examples_of_testing_a_state_machine(tmp_path: Path) -> None:
    accounts = program("test-your-own-state-machine.md", "test_accounts.py", tmp_path)
    assert "4 passed" in run_program("-m", "pytest", "-q", "-p", "no:cacheprovider", str(accounts), folder=tmp_path)
    said = run_program(str(program("test-your-own-state-machine.md", "history.py", tmp_path)), folder=tmp_path)
    assert said in (HOWTO / "test-your-own-state-machine.md").read_text()


def test_the_check_of_linearizability_decides_the_example_of_a_state_machine(tmp_path: Path) -> None:
    """A search that does not know the order of the log leaves the histories of these seeds undecided."""
    program("test-your-own-state-machine.md", "test_accounts.py", tmp_path)
    code = (
        "from kraft.sim import run, workload_spec_of\n"
        "from test_accounts import Accounts, draw\n"
        "spec = workload_spec_of(Accounts, draw)\n"
        "print([run(seed, 3, workload_spec=spec, allow_undecided=True).undecided for seed in (9, 43, 49)])"
    )
    assert run_program("-c", code, folder=tmp_path) == "[0, 0, 0]\n"


@pytest.mark.soak
def test_the_example_of_a_schedule_that_is_shrunk(tmp_path: Path) -> None:
    program("test-your-own-state-machine.md", "test_accounts.py", tmp_path)
    said = run_program(str(program("test-your-own-state-machine.md", "find.py", tmp_path)), folder=tmp_path)
    first, second, *_ = said.splitlines()
    assert f"{first}\n{second}\n" in (HOWTO / "test-your-own-state-machine.md").read_text()
    assert "<svg" in (tmp_path / "picture.html").read_text()


def test_the_example_of_reading_a_log(tmp_path: Path) -> None:
    """On a directory of a real Kafka controller."""
    path = program("read-a-metadata-log.md", "configs.py", tmp_path)
    partition = next(unpack("static3", "nodes/c1", tmp_path / "data").rglob("__cluster_metadata-0"))
    said = run_program(str(path), str(partition), folder=tmp_path)
    assert "min.insync.replicas = 1" in said
