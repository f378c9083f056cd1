"""The services over HTTP of the page: each node answers, and `kill -9` of the leader loses and rewinds nothing."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from random import Random
from typing import Any

import pytest

import kraft.sync
from kraft.adapters.reach import store_at
from kraft.history_checker import check_history
from kraft.sim.workloads.linearizability import Operation, Verdict, check
from kraft.store import Event
from store_quorums import client_url, prepare
from support import ROOT
from support.documented_programs import HOWTO, commands, program
from support.eventually import eventually
from support.left_out import leave_out
from support.loopback import free_ports

PAGE = "serve-a-store-over-http.md"
KEYS = 5
CLIENTS = 6
KILLS = 4
BETWEEN = 300
"""The operations from one event to the next."""


def request(port: int, method: str, key: str, body: str | None = None, timeout: float = 5) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, f"/keys/{key}", body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def answers(port: int) -> bool:
    with suppress(OSError, HTTPException):
        return request(port, "GET", "absent")[0] == 404
    return False


class Service:
    """A process of the service."""

    def __init__(self, command: Callable[[int], list[str]], node: Path) -> None:
        (self.port,) = free_ports(1)
        self.command, self.node = command(self.port), node
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "KRAFT_CONFIG": str(self.node)}
        with self.node.with_suffix(".log").open("ab") as log:
            self.process = subprocess.Popen(self.command, env=environment, cwd=self.node.parent, stdout=log, stderr=log)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def services(folder: Path, command: Callable[[Path, int], list[str]]) -> Iterator[tuple[list[Path], list[Service]]]:
    files = prepare(folder, 3)
    running = [Service(partial(command, node), node) for node in files]
    try:
        for each in running:
            each.start()
        for each in running:
            eventually(lambda port=each.port: answers(port), "the service answers")
        yield files, running
    finally:
        for each in running:
            each.kill()


def fastapi(folder: Path) -> Callable[[Path, int], list[str]]:
    program(PAGE, "service_fastapi.py", folder)
    serve = [sys.executable, "-m", "uvicorn", "service_fastapi:app", "--log-level", "warning", "--port"]
    return lambda node, port: [*serve, str(port)]


def wsgi(folder: Path) -> Callable[[Path, int], list[str]]:
    path = program(PAGE, "service_wsgi.py", folder)
    return lambda node, port: [sys.executable, str(path), str(node), str(port)]


def test_the_application_of_wsgi(store: kraft.sync.Store, tmp_path: Path) -> None:
    path = program(PAGE, "service_wsgi.py", tmp_path)
    spec = importlib.util.spec_from_file_location("service_wsgi", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    application = module.service(store)

    def ask(method: str, body: bytes = b"") -> tuple[str, bytes]:
        said: list[str] = []
        asked = {
            "REQUEST_METHOD": method,
            "PATH_INFO": "/keys/a",
            "CONTENT_LENGTH": str(len(body)),
            "wsgi.input": io.BytesIO(body),
        }
        text = b"".join(application(asked, lambda status, headers: said.append(status)))
        return said[0], text

    assert ask("GET") == ("404 Not Found", b"")
    assert ask("PUT", b"one") == ("200 OK", b"")
    assert ask("GET") == ("200 OK", b"one")
    assert ask("POST") == ("404 Not Found", b"")


def register(state: str | None, asked: tuple[str, str | None]) -> tuple[str | None, str | None]:
    """The model: a key with a value. A read returns it, and a write nothing."""
    kind, value = asked
    return (value, None) if kind == "put" else (state, state)


def follow(store: kraft.sync.Store, log: list[Event]) -> None:
    """Note all changes, in the order of the log."""
    log.extend(store.watch("k", after=0))


class Clients:
    """Threads that write and read some keys by any of the services, and note when they asked and what they heard."""

    def __init__(self, running: Sequence[Service]) -> None:
        self.history: list[Operation] = []
        self._running = running
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(CLIENTS)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def go_on(self) -> None:
        """Wait until more has been asked and answered."""
        wanted = len(self.history) + BETWEEN
        eventually(lambda: len(self.history) >= wanted, "the clients go on")

    def stop(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        rng, count = Random(number), 0
        while not self._ended.is_set():
            key = f"k{rng.randrange(KEYS)}"
            asked: tuple[str, str | None] = ("get", None)
            if rng.random() < 0.5:
                count += 1
                asked = ("put", f"{number}-{count}")
            called = time.monotonic_ns()
            try:
                port = rng.choice(self._running).port
                status, text = request(port, asked[0].upper(), key, asked[1])
            except (OSError, HTTPException):
                # The answer is lost: a read says nothing, and a write may take effect at any time.
                if asked[0] == "put":
                    self._note(number, key, asked, called, None)
                self._ended.wait(0.02)
                continue
            output = text if asked[0] == "get" and status == 200 else None
            assert status == 200 or (status == 404 and asked[0] == "get"), (status, text)
            self._note(number, key, asked, called, time.monotonic_ns(), output)

    def _note(
        self,
        client: int,
        key: str,
        asked: tuple[str, str | None],
        invoked: int,
        returned: int | None,
        output: str | None = None,
    ) -> None:
        one = Operation(client=client, key=key, input=asked, invoked=invoked, returned=returned, output=output)
        self.history.append(one)

    def read_all(self) -> None:
        """Read each key at each service: a write that was answered and is lost would contradict what is read."""
        for service in self._running:
            for number in range(KEYS):
                called = time.monotonic_ns()
                status, text = request(service.port, "GET", f"k{number}", timeout=30)
                read = text if status == 200 else None
                self._note(CLIENTS, f"k{number}", ("get", None), called, time.monotonic_ns(), read)


@pytest.mark.soak
@pytest.mark.parametrize("kind", [fastapi, wsgi], ids=["fastapi", "wsgi"])
def test_the_leader_is_killed_again_and_again_under_load(
    kind: Callable[[Path], Callable[[Path, int], list[str]]], tmp_path: Path
) -> None:
    with services(tmp_path, kind(tmp_path)) as (files, running):
        clients, log = Clients(running), list[Event]()
        clients.start()
        try:
            with store_at(client_url(files)) as looking:
                threading.Thread(target=follow, args=(looking, log), daemon=True).start()
                for _ in range(KILLS):
                    clients.go_on()
                    leader = looking.node.status().leader.leader_id
                    victim = running[leader - 1]
                    victim.kill()
                    clients.go_on()
                    victim.start()
                    eventually(lambda port=victim.port: answers(port), "the killed one is back")
                clients.stop()
                end = looking.scan("k").revision
                eventually(lambda: bool(log) and log[-1].revision == end, "the log is read")
        finally:
            clients.stop()
        clients.read_all()
    answered = sum(1 for one in clients.history if one.returned is not None)
    assert answered > 500
    acknowledged = [(one.key, one.input[1]) for one in clients.history if one.input[0] == "put" and one.returned]
    logged = [(event.key, (event.value or b"").decode()) for event in log]
    assert len(set(logged)) == len(logged)
    assert set(acknowledged) <= set(logged)
    # The order of the log, which the check tries first: it would not end otherwise, with so many writes at a time.
    found: Any = check(clients.history, None, register, witness=[(key, ("put", value)) for key, value in logged])
    assert found.verdict is Verdict.LINEARIZABLE, found
    history = check_history(*(str(tmp_path / f"node-{number}") for number in (1, 2, 3)))
    # The log holds the store's commands, and no records of metadata.
    assert not [one for one in history.findings if one.rule != "Metadata"], history.findings
    print(f"{answered} operations were answered, {len(clients.history) - answered} writes had no answer")


def test_the_session_of_the_page(tmp_path: Path) -> None:
    """Its three lines of a shell, as they stand there but for the ports, and what `curl` gets."""
    if shutil.which("curl") is None:
        leave_out("curl", "curl is not on the PATH")
    page = (HOWTO / PAGE).read_text()
    program(PAGE, "service_fastapi.py", tmp_path)
    ports = free_ports(6)
    renamed = dict(zip(("19091", "19092", "19093", "8001", "8002", "8003"), map(str, ports), strict=True))
    prepared, started = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for one, other in renamed.items():
        prepared = prepared.replace(one, other)
    of_node = "".join(f"{number}) port={ports[number - 1]}; http={ports[number + 2]};; " for number in (1, 2, 3))
    choose = f"case $n in {of_node}esac; "
    prepared = prepared.replace("do\n", f"do {choose}\n", 1).replace("1909$n", "$port")
    started = started.replace("do ", f"do {choose}", 1).replace("800$n", "$http")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}
    shell = partial(subprocess.Popen, cwd=tmp_path, env=environment, start_new_session=True)
    assert shell(["sh", "-ec", prepared]).wait() == 0
    running = shell(["sh", "-ec", f"{started}\nwait"])
    try:
        for port in ports[3:]:
            eventually(lambda port=port: answers(port), "the service answers")
        for command, lines in commands(HOWTO / PAGE):
            words = command
            for one, other in renamed.items():
                words = words.replace(f":{one}/", f":{other}/")
            done = subprocess.run(["sh", "-c", f"{words} --silent"], capture_output=True, text=True, check=True)
            assert re.fullmatch(re.escape("\n".join(lines)).replace("…", ".*"), done.stdout), (command, done.stdout)
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
