"""Histories of a real store: three processes, clients, and faults; and porcupine, which judges them from outside."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from metadata_log.disk import OsDisk
from metadata_log.log.log_dir import format_directory
from support.kraft.namespaces import Machines
from support.loopback import free_ports

JUDGE: Final = Path(__file__).parent.parent.parent / "judges" / "porcupine"
WORKER: Final = Path(__file__).parent / "store_worker.py"
CLUSTER_ID: Final = "4L6g3nShT-eMCtK--X86sw"
IDS: Final = (1, 2, 3)
CLIENTS: Final = 5
PATIENCE_S: Final = 3.0
"""How long a client waits; then it does not know what became of its request."""


class Operation(Struct):
    """What a client has asked, and what it was told, as `judges/porcupine/main.go` reads it."""

    client: int
    call: int
    kind: str
    key: int
    value: str
    old: str = ""
    told: str = ""
    returned: int = msgspec.field(default=0, name="return")


class StoreProcesses:
    """Three processes of a store."""

    def __init__(self, directory: Path, planted: str = "", machines: Machines | None = None) -> None:
        """Format three directories. With `machines` each process is on one of its own, `n1` to `n3`."""
        self._directory, self._planted, self._machines = directory, planted, machines
        ports = free_ports(len(IDS))
        hosts = [f"10.64.0.{one}" if machines else "127.0.0.1" for one in IDS]
        self._at = dict(zip(IDS, zip(hosts, ports, strict=True), strict=True))
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self._waiting: dict[str, tuple[int, threading.Event, list[str]]] = {}
        for one in IDS:
            if machines is not None:
                machines.add(f"n{one}", hosts[one - 1])
            self._prepare(one)

    def _prepare(self, one: int) -> None:
        place = self._directory / f"node-{one}"
        format_directory(
            OsDisk(),
            str(place),
            node_id=one,
            cluster_id=CLUSTER_ID,
            rng=random.Random(one),
            now_ms=1_700_000_000_000,
            release="4.3",
        )
        host, port = self._at[one]
        entries = {
            "process.roles": "controller",
            "node.id": one,
            "controller.quorum.voters": ",".join(f"{each}@{h}:{p}" for each, (h, p) in self._at.items()),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://{host}:{port}",
            "log.dirs": place,
            "controller.quorum.election.timeout.ms": 300,
            "controller.quorum.fetch.timeout.ms": 600,
        }
        self._config(one).write_text("".join(f"{key}={value}\n" for key, value in entries.items()))

    def _config(self, one: int) -> Path:
        return self._directory / f"node-{one}.properties"

    def start(self, one: int) -> None:
        """Start a node that is down."""
        command = [sys.executable, str(WORKER), str(self._config(one)), self._planted]
        if self._machines is not None:
            command = self._machines.command(command, on=f"n{one}")
        with open(self._directory / f"node-{one}.err", "ab") as errors:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        self.running[one] = process
        threading.Thread(target=self._read, args=(process,), daemon=True).start()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.endswith(b"\n"):
                return
            answer = msgspec.json.decode(line, type=dict[str, str])
            waiting = self._waiting.pop(answer["id"], None)
            if waiting is not None:
                waiting[2].append(answer["told"])
                waiting[1].set()

    def ask(self, one: int, number: str, asked: dict[str, str]) -> str | None:
        """Ask a node; None if there is no answer in time."""
        done, told = threading.Event(), list[str]()
        self._waiting[number] = one, done, told
        process = self.running.get(one)
        try:
            assert process is None or process.stdin is not None
            if process is not None and process.stdin is not None:
                process.stdin.write(msgspec.json.encode({"id": number, **asked}) + b"\n")
                process.stdin.flush()
                done.wait(PATIENCE_S)
        except OSError:
            pass
        self._waiting.pop(number, None)
        return told[0] if told else None

    def wait(self) -> None:
        """Wait until each node answers."""
        asked = {"prefix": "first", "key": "0", "kind": "get", "value": "", "old": ""}
        for one in IDS:
            while self.ask(one, f"first-{one}", asked) is None:
                assert self.running[one].poll() is None, f"node {one} has ended"

    def kill(self, one: int) -> None:
        """`kill -9`."""
        process = self.running.pop(one)
        process.kill()
        process.wait()

    def signal(self, one: int, number: signal.Signals) -> None:
        """Send a signal to a node."""
        self.running[one].send_signal(number)

    def cut(self, one: int, *, is_up: bool) -> None:
        """Take a node off the wire, or put it back; nothing on one machine."""
        if self._machines is not None:
            subprocess.run(
                self._machines.command(("ip", "link", "set", f"n{one}", "up" if is_up else "down")), check=True
            )

    def stop(self) -> None:
        """End all processes."""
        for one in tuple(self.running):
            self.kill(one)


def history(
    processes: StoreProcesses, prefix: str, seconds: float, rng: random.Random, *, is_struck: bool = True
) -> list[Operation]:
    """What clients of keys with a prefix ask for so many seconds, while nodes are killed, paused and cut off."""
    operations: list[Operation] = []
    end = time.monotonic() + seconds
    numbers, over = count(), threading.Event()

    def client(name: int, own: random.Random) -> None:
        seen = ["", ""]
        while time.monotonic() < end:
            number = next(numbers)
            kind = own.choice(("get", "get", "put", "swap", "pair"))
            key = own.randrange(2)
            one = Operation(name, time.monotonic_ns(), kind, key, f"{name}-{number}", old=seen[key])
            asked = {"prefix": prefix, "key": str(key), "kind": kind, "value": one.value, "old": one.old}
            told = processes.ask(own.choice(IDS), f"{prefix}{number}", asked)
            if told is not None:
                one.told, one.returned = told, time.monotonic_ns()
                if kind == "get":
                    seen[key] = told
            operations.append(one)
            over.wait(own.random() * 0.02 + (0.1 if told is None else 0.0))

    clients = [threading.Thread(target=client, args=(each, random.Random(rng.random()))) for each in range(CLIENTS)]
    for each in clients:
        each.start()
    while is_struck and time.monotonic() < end:
        strike(processes, rng, over)
    for each in clients:
        each.join()
    return operations


def strike(processes: StoreProcesses, rng: random.Random, over: threading.Event) -> None:
    """One fault, and its end."""
    victim = rng.choice(IDS)
    pause_s = rng.choice((0.3, 1.0, 2.0))
    faults: tuple[tuple[Callable[[], None], Callable[[], None]], ...] = (
        (lambda: processes.kill(victim), lambda: processes.start(victim)),
        (
            lambda: processes.signal(victim, signal.SIGSTOP),
            lambda: processes.signal(victim, signal.SIGCONT),
        ),
        (lambda: processes.cut(victim, is_up=False), lambda: processes.cut(victim, is_up=True)),
    )
    begin, finish = rng.choice(faults)
    begin()
    over.wait(pause_s)
    finish()
    over.wait(rng.choice((0.2, 1.0)))


def judged(histories: list[list[Operation]], directory: Path) -> list[str]:
    """What porcupine says of each history: `ok`, `illegal` or `unknown`."""
    program = directory / "porcupine"
    go = shutil.which("go")
    assert go is not None
    subprocess.run([go, "build", "-o", str(program), "."], cwd=JUDGE, check=True, capture_output=True, text=True)
    lines = b"".join(msgspec.json.encode(each) + b"\n" for each in histories)
    done = subprocess.run([program], input=lines, capture_output=True, check=True)
    return done.stdout.decode().split()
