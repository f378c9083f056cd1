"""A node of a replicated dictionary that `embed.py` loads: `kraft.Store`, or PySyncObj.

    python bench/embedded/node.py WHAT ADDRESS OTHERS DIR [COPIES]

WHAT is `ours`, `pysyncobj` (with a journal) or `pysyncobj-memory` (without one, and quicker, as it sends each entry at
once). Each line of the input asks for something, and a line of JSON answers it; `hammer` prints a line for each put
that is acknowledged, until the process ends. With COPIES the files are watched as `power.py` says.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Protocol

import msgspec
import power
from msgspec import Struct

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
VALUE_BYTES = 128
DRAIN_SECONDS = 30.0


class Ask(Struct, frozen=True):
    """A request of the driver."""

    do: str
    clients: int = 1
    seconds: float = 1.0
    watch: bool = False
    every_ms: float = 20.0


class Loaded(Struct, frozen=True):
    """The figures of a node under load."""

    per_second: float
    p50_ms: float
    p99_ms: float
    watch_p50_ms: float
    watch_p99_ms: float


Done = Callable[[bool], None]


class Dictionary(Protocol):
    """A node of a replicated dictionary."""

    def is_leader(self) -> bool:
        """Whether this node leads."""

    def put(self, key: str, value: bytes, done: Done) -> None:
        """Begin to put a value; `done` is called with whether it is committed, in any thread."""

    def keys(self) -> list[str]:
        """All keys."""

    def watch(self, on_change: Callable[[str, bytes], None]) -> None:
        """Call a function for each change from now on."""


class Ours:
    """A node with a store, in a Trio loop of a thread."""

    def __init__(self, address: str, others: list[str], directory: str) -> None:
        import trio

        from kraft import Config, Store, open_store
        from metadata_log.disk import OsDisk
        from metadata_log.log.log_dir import format_directory

        numbered = sorted((address, *others))
        node_id = numbered.index(address) + 1
        voters = ",".join(f"{number}@{one}" for number, one in enumerate(numbered, 1))
        config = Config.parse(
            f"process.roles=controller\nnode.id={node_id}\ncontroller.quorum.voters={voters}\n"
            f"controller.listener.names=CONTROLLER\nlisteners=CONTROLLER://{address}\nlog.dirs={directory}\n"
            "controller.quorum.append.linger.ms=0\n"
        )
        if not Path(directory, "meta.properties").exists():
            rng, now_ms = Random(node_id), time.time_ns() // 10**6
            disk = OsDisk()
            format_directory(disk, directory, node_id=node_id, cluster_id=CLUSTER_ID, rng=rng, now_ms=now_ms)
        self._trio = trio
        self._ready = threading.Event()

        async def main() -> None:
            async with open_store(config) as store, trio.open_nursery() as nursery:
                self._store: Store = store
                self._nursery, self._token = nursery, trio.lowlevel.current_trio_token()
                self._thread_id = threading.get_ident()
                self._ready.set()
                await trio.sleep_forever()

        threading.Thread(target=trio.run, args=(main,), daemon=True).start()
        self._ready.wait()

    def is_leader(self) -> bool:
        return bool(self._store.node.is_active)

    def put(self, key: str, value: bytes, done: Done) -> None:
        if threading.get_ident() == self._thread_id:
            self._nursery.start_soon(self._put, key, value, done)
        else:
            self._token.run_sync_soon(self._nursery.start_soon, self._put, key, value, done)

    async def _put(self, key: str, value: bytes, done: Done) -> None:
        await self._store.put(key, value)
        done(True)

    def keys(self) -> list[str]:
        async def scan() -> list[str]:
            found: list[str] = []
            while not (page := await self._store.scan(after=found[-1] if found else "")).is_last:
                found += [entry.key for entry in page.entries]
            return found + [entry.key for entry in page.entries]

        result: list[str] = self._trio.from_thread.run(scan, trio_token=self._token)
        return result

    def watch(self, on_change: Callable[[str, bytes], None]) -> None:
        async def follow() -> None:
            async for event in self._store.watch():
                on_change(event.key, event.value or b"")

        self._token.run_sync_soon(self._nursery.start_soon, follow)


class Theirs:
    """A node with PySyncObj's dictionary."""

    def __init__(self, address: str, others: list[str], directory: str, *, has_journal: bool) -> None:
        from pysyncobj import SyncObj, SyncObjConf
        from pysyncobj.batteries import ReplDict

        Path(directory).mkdir(exist_ok=True)
        self._address = address
        self._data = ReplDict()
        journal = str(Path(directory, "journal"))
        quick = SyncObjConf(appendEntriesUseBatch=False)
        conf = SyncObjConf(journalFile=journal, fullDumpFile=f"{journal}.dump") if has_journal else quick
        self._node = SyncObj(address, others, consumers=[self._data], conf=conf)

    def is_leader(self) -> bool:
        return bool(self._node.isReady()) and str(self._node._getLeader()) == self._address

    def put(self, key: str, value: bytes, done: Done) -> None:
        self._data.set(key, value, callback=lambda _, error: done(not error))

    def keys(self) -> list[str]:
        self._node.waitReady()
        # A leader has applied what is committed once it has committed something itself.
        self._data.set("applied", b"", sync=True, timeout=DRAIN_SECONDS)
        return list(self._data.keys())

    def watch(self, on_change: Callable[[str, bytes], None]) -> None:
        raise RuntimeError("PySyncObj has no watch")


def part(numbers: list[float], of: float) -> float:
    """A quantile in ms, 0 of nothing."""
    return 1000 * sorted(numbers)[int(of * (len(numbers) - 1))] if numbers else 0.0


def load(node: Dictionary, ask: Ask) -> Loaded:
    """Each client puts one value after the other under a key of its own."""
    taken: list[float] = []
    seen: list[float] = []
    began: dict[str, float] = {}
    now = time.perf_counter
    values = (b"0".ljust(VALUE_BYTES, b"x"), b"1".ljust(VALUE_BYTES, b"x"))
    from_s = now() + min(1.0, ask.seconds)
    end = from_s + ask.seconds
    left = threading.Semaphore(0)
    if ask.watch:

        def on_change(key: str, value: bytes) -> None:
            since = began.get(f"{key}{value[:1]!r}", 0.0)
            if from_s <= since < end:
                seen.append(now() - since)

        node.watch(on_change)

    def go(client: int, turn: int) -> None:
        key = f"bench-{client}"
        since = began[f"{key}{values[turn][:1]!r}"] = now()

        def done(is_committed: bool) -> None:
            at = now()
            if is_committed and from_s <= since < end:
                taken.append(at - since)
            if at < end:
                go(client, turn ^ 1)
            else:
                left.release()

        node.put(key, values[turn], done)

    for client in range(ask.clients):
        go(client, 0)
    for _ in range(ask.clients):
        left.acquire(timeout=DRAIN_SECONDS)
    rate = len(taken) / ask.seconds
    return Loaded(rate, part(taken, 0.5), part(taken, 0.99), part(seen, 0.5), part(seen, 0.99))


def hammer(node: Dictionary, ask: Ask) -> None:
    """Begin a put of a new key now and then; print each that is acknowledged, with its times."""
    prefix = f"{os.getpid()}-"
    number = 0
    while True:
        key, began = f"{prefix}{number}", time.perf_counter()

        def done(is_committed: bool, key: str = key, began: float = began) -> None:
            if is_committed:
                say({"key": key, "began": began, "done": time.perf_counter()})

        node.put(key, b"x" * VALUE_BYTES, done)
        number += 1
        time.sleep(ask.every_ms / 1000)


def say(what: object) -> None:
    """Print a line at once, whole."""
    os.write(1, msgspec.json.encode(what) + b"\n")


def memory_mb() -> float:
    """The resident memory of this process."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def main() -> None:
    what, address, others, directory, *copies = sys.argv[1:]
    if copies:
        power.watch(Path(directory), Path(copies[0]))
    peers = others.split(",")
    node: Dictionary = (
        Ours(address, peers, directory)
        if what == "ours"
        else Theirs(address, peers, directory, has_journal=what == "pysyncobj")
    )
    for line in sys.stdin:
        ask = msgspec.json.decode(line, type=Ask)
        match ask.do:
            case "leads":
                say(node.is_leader())
            case "load":
                say(load(node, ask))
            case "memory":
                say(memory_mb())
            case "keys":
                say(node.keys())
            case "hammer":
                threading.Thread(target=hammer, args=(node, ask), daemon=True).start()
            case _:
                raise ValueError(ask.do)


if __name__ == "__main__":
    main()
