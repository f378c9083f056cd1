"""The throughput of the embedded log: three nodes in one process, messages in memory, files and fsync on a real disk.

    python bench/log.py [--load 1x1,128x1,1024x1,16x64] [--seconds 5] [--reps 3] [--value-bytes 128] [--dir DIR]

NxM: each of N tasks appends M records at once and waits for their commit, which is fsync on two of the three nodes; N *
M records are outstanding. The bench measures `kraft.open_node` without sockets. `commit.py` has sockets, and Apache
Kafka as a peer, which cannot be embedded like this.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import trio
from commit import calibrate
from spread import spread

from kraft import Config, open_node
from kraft.node.node import Node
from metadata_log.disk import OsDisk
from metadata_log.log.log_dir import format_directory
from metadata_log.types import random_uuid
from transport import MemoryNetwork, MemoryTransport

NODES = (1, 2, 3)
WARM_UP_SECONDS = 1.0
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


async def open_leader(root: Path, stack: AsyncExitStack) -> Node:
    """Three nodes on fresh directories until the stack closes; returns the leader."""
    nodes = [
        await stack.enter_async_context(open_node(config, transport=transport, rng=Random(config.node_id)))
        for config, transport in make_nodes(root)
    ]
    leader = await nodes[0].wait_for_leader()
    return nodes[leader.leader_id - 1]


def make_nodes(root: Path) -> list[tuple[Config, MemoryTransport]]:
    """Three fresh directories, and a network in memory."""
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


async def measure(leader: Node, tasks: int, seconds: float, values: list[bytes]) -> tuple[float, float, float]:
    """Records per second, p50 and p99 of an append in ms, after a warm-up."""
    latencies: list[float] = []
    now = time.perf_counter
    measured_from = now() + WARM_UP_SECONDS
    end = measured_from + seconds

    async def append() -> None:
        while (began := now()) < end:
            await leader.append(values)
            if began >= measured_from:
                latencies.append(now() - began)

    async with trio.open_nursery() as nursery:
        for _ in range(tasks):
            nursery.start_soon(append)
    latencies.sort()
    p50, p99 = (1000 * latencies[int(part * (len(latencies) - 1))] for part in (0.5, 0.99))
    return len(latencies) * len(values) / (now() - measured_from), p50, p99


async def run(options: argparse.Namespace, root: Path) -> None:
    print(f"{'load':>12}{'records/s':>12}{'p50 ms':>9}{'p99 ms':>9}{'spin ms':>9}{'sync us':>9}")
    async with AsyncExitStack() as stack:
        leader = await open_leader(root, stack)
        rates: dict[str, list[float]] = {}
        for _ in range(options.reps):
            for load in options.load.split(","):
                tasks, _, records = load.partition("x")
                values = [b"x" * options.value_bytes] * int(records)
                calibration = calibrate(root)
                rate, p50, p99 = await measure(leader, int(tasks), options.seconds, values)
                rates.setdefault(load, []).append(rate)
                print(
                    f"{load:>12}{rate:12.0f}{p50:9.2f}{p99:9.2f}"
                    f"{calibration.spin_ms:9.1f}{calibration.fdatasync_us:9.0f}",
                    flush=True,
                )
    for load, found in rates.items():
        print(f"median (least-most) of {len(found)} at {load}: {spread(found)} records/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", default="1x1,128x1,1024x1,16x64", help="tasks x records in one append")
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--value-bytes", type=int, default=128)
    parser.add_argument(
        "--dir", type=Path, default=Path(tempfile.gettempdir()), help="where the nodes keep their files"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-log-", dir=options.dir) as scratch:
        trio.run(run, options, Path(scratch))


if __name__ == "__main__":
    main()
