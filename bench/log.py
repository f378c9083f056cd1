"""The throughput of the embedded log: three nodes in one process, messages in memory, files and fsync on a real disk.

    python bench/log.py [--load 1,128,1024,1x1,128x1,1024x1,16x64] [--seconds 5] [--reps 3] [--value-bytes 128]
                        [--dir DIR] [--worlds trio,asyncio,threads]

N: one task keeps N appends of one record under way with `append_soon`. NxM: each of N tasks appends M records at once
with `append`, so that N * M records are outstanding. A commit is fsync on two of the three nodes; "turn ms" is the
longest time for which the owner of the leader let no other task run. The bench measures `kraft.open_node` without
sockets. `commit.py` has sockets, and Apache Kafka as a peer, which cannot be embedded like this; `ab.py --what log`
runs an earlier commit beside this one.

--worlds also measures `kraft.asyncio` and `kraft.sync`: the nodes run in a thread of their own, beside the program that
appends. All that is in one process, in turn, on the same nodes. They have rows for handles only.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from commit import calibrate
from log_nodes import Asked, Loaded, load, open_leader
from msgspec import structs
from spread import spread

import kraft.asyncio
import kraft.sync
from kraft.node.node import Node
from kraft.trio_thread import TrioThread


@asynccontextmanager
async def opened(root: Path) -> AsyncIterator[Node]:
    """The leader of three nodes."""
    async with AsyncExitStack() as stack:
        yield await open_leader(root, stack)


def measure(thread: TrioThread[Node], world: str, asked: Asked, values: list[bytes]) -> Loaded:
    """Load the leader, which runs in the thread, from there or from here."""
    if world == "trio":
        return thread.call(load, thread.value, asked, values)
    if world == "threads":
        # A coroutine that waits for nothing, as what it calls has waited.
        loading = load(kraft.sync.Node(thread, thread.value), structs.replace(asked, by_threads=True), values)
        try:
            loading.send(None)
        except StopIteration as done:
            found: Loaded = done.value
            return found
        raise AssertionError("it waits for something")
    with asyncio.Runner() as runner:
        return runner.run(load(kraft.asyncio.Node(thread, thread.value), asked, values))


def run(options: argparse.Namespace, root: Path) -> None:
    titles = ("records/s", "p50 ms", "p99 ms", "CPU us", "turn ms", "spin ms", "sync us")
    print(f"{'load':>20}" + "".join(f"{title:>10}" for title in titles))
    thread = TrioThread(opened(root), "bench-log")
    rates: dict[str, list[float]] = {}
    for _ in range(options.reps):
        for what, world in itertools.product(options.load.split(","), options.worlds.split(",")):
            tasks, by_tasks, records = what.partition("x")
            if by_tasks and world != "trio":
                continue
            values = [b"x" * options.value_bytes] * int(records or 1)
            calibration = calibrate(root)
            row = measure(thread, world, Asked(int(tasks), options.seconds, bool(by_tasks)), values)
            name = f"{world} {what}"
            rates.setdefault(name, []).append(row.per_second)
            print(
                f"{name:>20}{row.per_second:10.0f}{row.p50_ms:10.2f}{row.p99_ms:10.2f}{row.cpu_us:10.2f}"
                f"{row.turn_ms:10.1f}{calibration.spin_ms:10.1f}{calibration.fdatasync_us:10.0f}",
                flush=True,
            )
    thread.stop()
    for name, found in rates.items():
        print(f"median (least-most) of {len(found)} at {name}: {spread(found)} records/s")
    print(f"load average {os.getloadavg()[0]:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", default="1,128,1024,1x1,128x1,1024x1,16x64", help="handles, or tasks x records")
    parser.add_argument("--worlds", default="trio", help="the APIs: trio, asyncio, threads")
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--value-bytes", type=int, default=128)
    parser.add_argument(
        "--dir", type=Path, default=Path(tempfile.gettempdir()), help="where the nodes keep their files"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-log-", dir=options.dir) as scratch:
        run(options, Path(scratch))


if __name__ == "__main__":
    main()
