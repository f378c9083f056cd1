"""The cost of a state machine above the log: three nodes in one process, messages in memory, files and fsync on a real
disk, as in `log.py`.

    python bench/machine.py [--tasks 1,128] [--seconds 5] [--reps 3] [--dir DIR]

Each of N tasks repeats one operation: append a record to a raw log, submit a command at the leader or at a follower,
read linearizably at the leader or at a follower. The CPU time is that of all three nodes. No peer can be embedded.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from random import Random

import trio
from log_nodes import make_nodes, open_leader
from msgspec import Struct
from spread import spread

from kraft import Position, StateMachine, StateMachineNode, open_node

WARM_UP_SECONDS = 0.5
COLUMNS = ("ops/s", "p50 ms", "p99 ms", "CPU us/op")


class Add(Struct, frozen=True):
    """A command as large as a small record."""

    amount: int
    why: str = "x" * 100


class Counter(StateMachine[Add, int]):
    """A counter."""

    def __init__(self) -> None:
        self.total = 0

    def apply(self, command: Add, at: Position) -> int:
        """Add to the number."""
        self.total += command.amount
        return self.total

    def snapshot(self) -> bytes:
        """Encode the number."""
        return str(self.total).encode()

    def restore(self, data: bytes) -> None:
        """Replace the number."""
        self.total = int(data)

    def value(self) -> int:
        """The number."""
        return self.total


async def open_machines(
    root: Path, stack: AsyncExitStack
) -> tuple[StateMachineNode[Add, int], StateMachineNode[Add, int]]:
    """Three nodes until the stack closes; returns the leader, and a follower."""
    nodes = [
        await stack.enter_async_context(
            open_node(config, state_machine=Counter, transport=transport, rng=Random(config.node_id))
        )
        for config, transport in make_nodes(root)
    ]
    leader_id = (await nodes[0].wait_for_leader()).leader_id
    leader = nodes[leader_id - 1]
    while not leader.is_active:
        await leader.wait_for_change()
    return leader, nodes[leader_id % len(nodes)]


async def measure(do: Callable[[], Awaitable[object]], tasks: int, seconds: float) -> tuple[float, ...]:
    """Operations per second, p50 and p99 in ms, and CPU time per operation in us, after a warm-up."""
    latencies: list[float] = []
    now = time.perf_counter
    cpu = 0.0

    async def repeat() -> None:
        while True:
            began = now()
            await do()
            latencies.append(now() - began)

    async with trio.open_nursery() as nursery:
        for _ in range(tasks):
            nursery.start_soon(repeat)
        await trio.sleep(WARM_UP_SECONDS)
        latencies.clear()
        began, cpu = now(), time.process_time()
        await trio.sleep(seconds)
        took, cpu, found = now() - began, time.process_time() - cpu, sorted(latencies)
        nursery.cancel_scope.cancel()
    p50, p99 = (1000 * found[int(part * (len(found) - 1))] for part in (0.5, 0.99))
    return len(found) / took, p50, p99, 1e6 * cpu / len(found)


async def run(options: argparse.Namespace, root: Path) -> None:
    print(f"median (least-most) of {options.reps} rounds")
    print(f"{'what':>22}{'tasks':>7}" + "".join(f"{name:>26}" for name in COLUMNS))
    rows: dict[tuple[str, int], list[tuple[float, ...]]] = {}
    for rep in range(options.reps):
        folder = root / str(rep)
        async with AsyncExitStack() as stack:
            log = await open_leader(folder / "log", stack)
            leader, follower = await open_machines(folder / "machine", stack)
            kinds: dict[str, Callable[[], Awaitable[object]]] = {
                "append to a raw log": partial(log.append, [b"x" * 110]),
                "submit at the leader": partial(leader.submit, Add(1)),
                "submit at a follower": partial(follower.submit, Add(1)),
                "read at the leader": leader.read,
                "read at a follower": follower.read,
            }
            for tasks in map(int, options.tasks.split(",")):
                for what, do in kinds.items():
                    rows.setdefault((what, tasks), []).append(await measure(do, tasks, options.seconds))
    for (what, tasks), found in rows.items():
        print(f"{what:>22}{tasks:>7}" + "".join(f"{spread(column)!s:>26}" for column in zip(*found, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default="1,128")
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument(
        "--dir", type=Path, default=Path(tempfile.gettempdir()), help="where the nodes keep their files"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-machine-", dir=options.dir) as scratch:
        trio.run(run, options, Path(scratch))


if __name__ == "__main__":
    main()
