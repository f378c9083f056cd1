"""Three nodes with a raw log in one process, messages in memory, files and fsync on a real disk; and their load.

    python bench/log_nodes.py DIR

As a program it is the part of `ab.py` that runs a version of the code: for each line of its input, such as
`{"outstanding": 128, "seconds": 1, "by_tasks": false}`, it loads the leader and prints a line with a `Loaded`. So it
uses only what all versions have; those without `append_soon` are loaded by tasks.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import trio
from msgspec import Struct

from kraft import Config, open_node
from metadata_log.disk import OsDisk
from metadata_log.types import random_uuid
from transport import MemoryNetwork, MemoryTransport

NODES = (1, 2, 3)
WARM_UP_SECONDS = 0.5
VALUE = b"x" * 128
SETTINGS = """\
process.roles=controller
node.id={node}
controller.quorum.voters=1@node-1:9093,2@node-2:9093,3@node-3:9093
controller.listener.names=CONTROLLER
listeners=CONTROLLER://node-{node}:9093
listener.security.protocol.map=CONTROLLER:PLAINTEXT
log.dirs={directory}
controller.quorum.append.linger.ms=0
"""


class Asked(Struct, frozen=True):
    """A row to measure."""

    outstanding: int
    seconds: float
    by_tasks: bool = False
    by_threads: bool = False


class Loaded(Struct, frozen=True):
    """The figures of a leader under load."""

    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    """The processor time of all nodes, and of the program, for one record."""
    turn_ms: float
    """The longest turn of the leader; 0 where it does not measure its turns."""


async def open_leader(root: Path, stack: AsyncExitStack) -> Any:
    """Three nodes on fresh directories until the stack closes; returns the leader."""
    nodes = [
        await stack.enter_async_context(open_node(config, transport=transport, rng=Random(config.node_id)))
        for config, transport in make_nodes(root)
    ]
    leader = await nodes[0].wait_for_leader()
    return nodes[leader.leader_id - 1]


def make_nodes(root: Path) -> list[tuple[Config, MemoryTransport]]:
    """Three fresh directories, and a network in memory."""
    # Before it had rooms, the package had this module at its top.
    where = "metadata_log.log_dir" if find_spec("metadata_log.log_dir") else "metadata_log.log.log_dir"
    format_directory = import_module(where).format_directory
    network, rng = MemoryNetwork(use_codec=False), Random(7)
    cluster_id = str(random_uuid(rng))
    made = []
    for node in NODES:
        directory = str(root / f"node-{node}")
        config = Config.parse(SETTINGS.format(node=node, directory=directory))
        format_directory(
            OsDisk(), directory, node_id=node, cluster_id=cluster_id, rng=rng, now_ms=time.time_ns() // 10**6
        )
        made.append((config, MemoryTransport(network, f"node-{node}")))
    return made


async def append_by_tasks(leader: Any, tasks: int, end: float, values: list[bytes]) -> list[tuple[float, float]]:
    """Each of N tasks makes one append after the other; returns the begin and the end of each."""
    done: list[tuple[float, float]] = []
    now = time.perf_counter

    async def append() -> None:
        while (began := now()) < end:
            await leader.append(values)
            done.append((began, now()))

    async with trio.open_nursery() as nursery:
        for _ in range(tasks):
            nursery.start_soon(append)
    return done


async def append_by_handles(
    leader: Any, outstanding: int, end: float, values: list[bytes], settled: Callable[[Any], Awaitable[Any]]
) -> list[tuple[float, float]]:
    """One task keeps N appends under way, and waits for the oldest; returns the begin and the end of each append."""
    done: list[tuple[float, float]] = []
    now = time.perf_counter
    handles: deque[tuple[Any, float]] = deque()
    began = now()
    while began < end:
        handles.append((leader.append_soon(values), began))
        began = now()
        if len(handles) == outstanding:
            handle, since = handles.popleft()
            await settled(handle)
            began = now()
            done.append((since, began))
    for handle, since in handles:
        await settled(handle)
        done.append((since, now()))
    return done


def awaited(handle: Any) -> Any:
    """What Trio and asyncio wait for."""
    return handle


async def returned(handle: Any) -> None:
    """Wait in a thread: nothing here is awaited."""
    handle.result()


async def load(leader: Any, asked: Asked, values: list[bytes]) -> Loaded:
    """Load the leader, and measure when it is warm. `asked.outstanding` appends of all values are under way."""
    append: Callable[[Any, int, float, list[bytes]], Awaitable[list[tuple[float, float]]]]
    if asked.by_threads:
        append = partial(append_by_handles, settled=returned)
    elif asked.by_tasks or not hasattr(leader, "append_soon"):
        append = append_by_tasks
    else:
        append = partial(append_by_handles, settled=awaited)
    await append(leader, asked.outstanding, time.perf_counter() + WARM_UP_SECONDS, values)
    turn = getattr(getattr(leader, "trio", leader), "longest_turn", None)
    if turn is not None:
        turn.ms = 0.0
    began, cpu = time.perf_counter(), time.process_time()
    done = await append(leader, asked.outstanding, began + asked.seconds, values)
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    latencies = sorted(end - begin for begin, end in done)
    p50, p99 = (1000 * latencies[int(part * (len(latencies) - 1))] for part in (0.5, 0.99))
    records = len(done) * len(values)
    return Loaded(records / took, p50, p99, 1e6 * cpu / records, 0.0 if turn is None else turn.ms)


async def obey(root: Path) -> None:
    """Measure a row for each line of the input."""
    async with AsyncExitStack() as stack:
        leader = await open_leader(root, stack)
        while line := await trio.to_thread.run_sync(sys.stdin.readline):
            found = await load(leader, msgspec.json.decode(line, type=Asked), [VALUE])
            print(msgspec.json.encode(found).decode(), flush=True)


if __name__ == "__main__":
    trio.run(obey, Path(sys.argv[1]))
