"""A replicated dictionary in a Python program: `kraft.Store` beside PySyncObj, and beside etcd, in one run.

    python bench/embed.py [--clients 1,16,128] [--seconds 3] [--reps 3] [--rounds 3] [--only load,failover,loss,etcd]
                          [--dir DIR]

Three nodes of each, a process for each node, on loopback, with the default settings but for ours without a linger. All
quorums run at the same time, and one of them is loaded, in turn. The bench prints tables in Markdown.

- load: so many clients in the program of the leader put 128 bytes one after the other, each under a key of its own.
  Memory is that of the leader after all loads. PySyncObj has no durable mode. It runs with a journal, a mapped file
  that it never syncs, and its default of a batch each 100 ms; and without a journal, sending each entry at once.
- failover: a follower puts a new key every 20 ms; the leader is killed. From the signal to the first acknowledgement
  of a put that began after it.
- loss: all three nodes put new keys, and all are killed at once; acknowledged keys that the nodes lack after a restart.
  For "power fails" the files are first put back to what they were when the process last synced them
  (`embedded/power.py`), and files that it never synced are gone.
- etcd: clients with a connection each put values at etcd's leader, beside ours as above; and the time from a put until
  a watcher at the leader has seen it.

The lines of user code are those of `embedded/with_kraft.py` and `with_pysyncobj.py`, without blank lines, comments and
docstrings, and of the properties file of a node. PySyncObj and etcd are left out, and named, where they are missing.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

from load import close, drive, timed
from peer_quorums.etcd import find_etcd, leader_of, start_etcd, version_of
from peer_quorums.etcd_watch import EtcdWatch, WatchedClient
from quorums import free_ports, wait_until
from spread import spread

HERE: Final = Path(__file__).parent
NODES: Final = 3
PROPERTIES_LINES: Final = 7
"""The lines of the properties file of a node, which PySyncObj's program has as arguments."""
TITLES: Final = {
    "ours": "trio-kraft",
    "pysyncobj": "PySyncObj, journal",
    "pysyncobj-memory": "PySyncObj, no journal, no batches",
}
VALUE_BYTES: Final = 128
HAMMER_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 120.0
SETTLED_SECONDS: Final = 1.0


class Node:
    """A node in a process, which answers by lines."""

    def __init__(self, what: str, address: str, others: str, directory: Path, copies: Path | None) -> None:
        command = [sys.executable, str(HERE / "embedded" / "node.py"), what, address, others, str(directory)]
        command += [str(copies)] * (copies is not None)
        environment = os.environ | {"PYTHONPATH": str(HERE.parent)}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.lines: SimpleQueue[Any] = SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.put(json.loads(line))

    def tell(self, do: str, **more: object) -> None:
        """Ask for something that has no single answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self._process.stdin.flush()

    def ask(self, do: str, **more: object) -> Any:
        """Ask, and wait for the answer."""
        self.tell(do, **more)
        return self.lines.get(timeout=ANSWER_SECONDS)

    def kill(self) -> None:
        """End it as by `kill -9`."""
        self._process.send_signal(signal.SIGKILL)

    def gone(self) -> list[Any]:
        """Wait for its end; returns what it had said."""
        self._process.wait()
        found = []
        while True:
            try:
                found.append(self.lines.get(timeout=0.2))
            except Empty:
                return found


class Quorum:
    """Three nodes of one kind, until the stack closes."""

    def __init__(self, what: str, root: Path, stack: ExitStack, *, copies: bool = False) -> None:
        self.what = what
        self._root = root
        self._addresses = [f"127.0.0.1:{port}" for port in free_ports(NODES)]
        self._copies = copies
        self.nodes: list[Node] = []
        root.mkdir(parents=True)
        self.start()
        stack.callback(self.kill)

    def directory(self, number: int) -> Path:
        """The files of a node."""
        return self._root / f"node-{number}"

    def copies(self, number: int) -> Path:
        """The files of a node as they were last synced."""
        return self._root / f"synced-{number}"

    def start(self) -> None:
        """Start all nodes."""
        self.nodes = []
        for number, address in enumerate(self._addresses):
            others = ",".join(one for one in self._addresses if one != address)
            copies = self.copies(number) if self._copies else None
            self.nodes.append(Node(self.what, address, others, self.directory(number), copies))

    def leader(self) -> Node:
        """The node that leads, once one does."""
        found: list[Node] = []

        def leads() -> bool:
            found[:] = [node for node in self.nodes if node.ask("leads")]
            return len(found) == 1

        wait_until(leads, f"{TITLES[self.what]} has a leader")
        return found[0]

    def kill(self) -> None:
        """Kill all nodes at once."""
        for node in self.nodes:
            node.kill()


def failover_ms(what: str, root: Path) -> float:
    """From the kill of the leader to the first acknowledgement of a put that began after it."""
    with ExitStack() as stack:
        quorum = Quorum(what, root, stack)
        leader = quorum.leader()
        follower = next(node for node in quorum.nodes if node is not leader)
        follower.tell("hammer")
        follower.lines.get(timeout=ANSWER_SECONDS)
        time.sleep(SETTLED_SECONDS)
        killed = time.perf_counter()
        leader.kill()
        while (line := follower.lines.get(timeout=ANSWER_SECONDS))["began"] < killed:
            pass
        return float(1000 * (line["done"] - killed))


def lost(what: str, root: Path, *, power_fails: bool) -> tuple[int, int]:
    """How many acknowledged keys are missing after all nodes were killed, and how many were acknowledged."""
    with ExitStack() as stack:
        quorum = Quorum(what, root, stack, copies=power_fails)
        quorum.leader()
        for node in quorum.nodes:
            node.tell("hammer", every_ms=5.0)
        time.sleep(HAMMER_SECONDS)
        quorum.kill()
        acknowledged = {line["key"] for node in quorum.nodes for line in node.gone()}
        if power_fails:
            for number in range(NODES):
                shutil.rmtree(quorum.directory(number), ignore_errors=True)
                if quorum.copies(number).is_dir():
                    shutil.copytree(quorum.copies(number), quorum.directory(number))
        quorum.start()
        kept = set(quorum.leader().ask("keys"))
        return len(acknowledged - kept), len(acknowledged)


def code_lines(program: Path) -> int:
    """The lines of a program without blank lines, comments and docstrings."""
    tree = ast.parse(program.read_text(encoding="utf-8"))
    tree.body = tree.body[1:]
    return sum(1 for line in ast.unparse(tree).splitlines() if line.strip())


def load_etcd(addresses: Sequence[tuple[str, int]], clients: int, seconds: float) -> dict[str, float]:
    """Load the leader of etcd, with a watcher there."""
    leader = leader_of(list(addresses))
    assert leader is not None
    began: dict[tuple[bytes, bytes], float] = {}
    seen: list[tuple[float, float]] = []

    def on_change(key: bytes, value: bytes) -> None:
        since = began.get((key, value))
        if since is not None:
            seen.append((since, time.perf_counter()))

    EtcdWatch(leader, "bench-", on_change)
    loop = [WatchedClient(leader, number, VALUE_BYTES, began) for number in range(clients)]
    try:
        drive(loop, min(1.0, seconds))
        from_s = time.perf_counter()
        row = timed(loop, seconds)
    finally:
        close(loop)
    latencies = sorted(1000 * (at - since) for since, at in seen if since >= from_s)
    watch = [latencies[int(part * (len(latencies) - 1))] if latencies else 0.0 for part in (0.5, 0.99)]
    return {
        "per_second": row.per_second,
        "p50_ms": row.p50_ms,
        "p99_ms": row.p99_ms,
        "watch_p50_ms": watch[0],
        "watch_p99_ms": watch[1],
    }


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table in Markdown."""
    print(f"\n| {title} | " + " | ".join(columns) + " |")
    print("| --- " * (len(columns) + 1) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)


def cells(rows: Sequence[dict[str, float]], names: Sequence[str]) -> list[str]:
    """The medians and spreads of some figures."""
    return [str(spread([row[name] for row in rows])) for name in names]


def print_load(kinds: list[str], options: argparse.Namespace, root: Path) -> None:
    """Load each quorum in turn."""
    found: dict[tuple[str, int], list[dict[str, float]]] = {}
    with ExitStack() as stack:
        quorums = [Quorum(what, root / what, stack) for what in kinds]
        leaders = {quorum.what: quorum.leader() for quorum in quorums}
        for rep in range(options.reps):
            for clients in options.clients:
                for what in kinds[rep % len(kinds) :] + kinds[: rep % len(kinds)]:
                    row = leaders[what].ask("load", clients=clients, seconds=options.seconds)
                    found.setdefault((what, clients), []).append(row)
        memory = {what: leader.ask("memory") for what, leader in leaders.items()}
    names = ("per_second", "p50_ms", "p99_ms")
    rows = [[TITLES[what], str(clients), *cells(found[what, clients], names)] for what, clients in found]
    table("puts into a dictionary", ("clients", "commits/s", "p50 ms", "p99 ms"), rows)
    programs = {"ours": "with_kraft.py"}
    lines = {what: code_lines(HERE / "embedded" / programs.get(what, "with_pysyncobj.py")) for what in kinds}
    if "ours" in lines:
        lines["ours"] += PROPERTIES_LINES
    rows = [[TITLES[what], f"{memory[what]:.0f}", str(lines[what])] for what in kinds]
    table("program", ("memory of the leader, MB", "lines of user code"), rows)


def print_failover(kinds: list[str], options: argparse.Namespace, root: Path) -> None:
    """Kill leaders."""
    found: dict[str, list[float]] = {}
    for number in range(options.rounds):
        for what in kinds:
            found.setdefault(what, []).append(failover_ms(what, root / f"failover-{what}-{number}"))
    table("the leader is killed", ("ms until a put",), [[TITLES[what], str(spread(found[what]))] for what in kinds])


def print_loss(kinds: list[str], options: argparse.Namespace, root: Path) -> None:
    """Kill all nodes, and let their power fail."""
    rows = []
    for what in kinds:
        row = [TITLES[what]]
        for power_fails in (False, True):
            counts = [
                lost(what, root / f"loss-{what}-{power_fails}-{number}", power_fails=power_fails)
                for number in range(options.rounds)
            ]
            missing, acknowledged = (sum(numbers) for numbers in zip(*counts, strict=True))
            row.append(f"{missing:,} of {acknowledged:,}")
        rows.append(row)
    table("acknowledged puts that are lost", ("kill -9 of all three", "power fails at all three"), rows)


def print_etcd(program: str, options: argparse.Namespace, root: Path) -> None:
    """Load a store and etcd in turn, with watchers."""
    found: dict[tuple[str, int], list[dict[str, float]]] = {}
    etcd = version_of(program).replace("etcd Version: ", "etcd ")
    with ExitStack() as stack:
        (root / "etcd").mkdir()
        addresses = start_etcd(program, root / "etcd", stack)
        ours = Quorum("ours", root / "beside-etcd", stack).leader()
        for rep in range(options.reps):
            for clients in options.clients:
                for name in sorted((TITLES["ours"], etcd), reverse=bool(rep % 2)):
                    if name == etcd:
                        row = load_etcd(addresses, clients, options.seconds)
                    else:
                        row = ours.ask("load", clients=clients, seconds=options.seconds, watch=True)
                    found.setdefault((name, clients), []).append(row)
    names = ("per_second", "p50_ms", "p99_ms", "watch_p50_ms", "watch_p99_ms")
    rows = [[name, str(clients), *cells(found[name, clients], names)] for name, clients in found]
    table("puts", ("clients", "puts/s", "p50 ms", "p99 ms", "watch p50 ms", "watch p99 ms"), rows)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=lambda text: [int(one) for one in text.split(",")], default=[1, 16, 128])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--reps", type=int, default=3, help="loads of each kind")
    parser.add_argument("--rounds", type=int, default=3, help="kills of each kind")
    parser.add_argument("--targets", type=lambda text: text.split(","), default=list(TITLES), help="by default both")
    parser.add_argument("--only", type=lambda text: text.split(","), default=["load", "failover", "loss", "etcd"])
    parser.add_argument(
        "--dir", type=Path, default=Path(tempfile.gettempdir()), help="where the nodes keep their files"
    )
    return parser.parse_args()


def main() -> None:
    options = arguments()
    kinds = list(TITLES) if importlib.util.find_spec("pysyncobj") else ["ours"]
    if len(kinds) == 1:
        print("left out: PySyncObj is not installed (pip install pysyncobj)")
    kinds = [one for one in kinds if one in options.targets]
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}; medians (least to most)")
    with tempfile.TemporaryDirectory(prefix="bench-embed-", dir=options.dir, ignore_cleanup_errors=True) as scratch:
        root = Path(scratch)
        for name, show in (("load", print_load), ("failover", print_failover), ("loss", print_loss)):
            if name in options.only:
                show(kinds, options, root)
        if "etcd" in options.only:
            program = find_etcd()
            if program is None:
                print("left out: etcd is not on PATH")
            else:
                print_etcd(program, options, root)


if __name__ == "__main__":
    main()
