"""The cost of a commit and the memory of a node as the log grows: the same commits at 10⁴ to 10⁷ records.

    python bench/growth.py [--sizes 10000,100000,1000000,10000000] [--commits 2000] [--value-bytes 16] [--dir DIR]

Three nodes in one process with a raw log each, messages in memory, files and fsync on a real disk, as in `log.py`.
Between the measurements the log is filled with batches of 100 records. The reference of each size is the first size, in
the same process: "ratio" is the processor time of one commit of one record against that at the first size. Memory is
the resident memory of the process, for three nodes, after a garbage collection.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import trio
from log_nodes import open_leader
from msgspec import Struct

from kraft.node.node import Node

FILL_RECORDS = 100
FILL_TASKS = 32
PAGE_BYTES = resource.getpagesize()


class Point(Struct, frozen=True):
    """The figures at one size of the log."""

    records: int
    cpu_us: float
    p50_us: float
    p99_us: float
    resident_mib: float
    fill_per_second: float


async def fill(leader: Node, up_to: int, value: bytes) -> float:
    """Append until the log has so many records; returns the rate in records per second."""
    began, first = time.perf_counter(), leader.status().high_watermark
    left = max(0, up_to - first)
    values = [value] * FILL_RECORDS

    async def append() -> None:
        nonlocal left
        while left > 0:
            left -= FILL_RECORDS
            await leader.append(values)

    async with trio.open_nursery() as nursery:
        for _ in range(FILL_TASKS):
            nursery.start_soon(append)
    spent = time.perf_counter() - began
    os.sync()  # so that delayed writes of the filling do not affect the following commits
    return (leader.status().high_watermark - first) / spent


async def measure(leader: Node, commits: int, value: bytes) -> tuple[float, float, float]:
    """Processor time of one commit, p50 and p99 of its latency, in µs; one record after the other."""
    durations = []
    spent = time.process_time()
    for _ in range(commits):
        began = time.perf_counter()
        await leader.append([value])
        durations.append(time.perf_counter() - began)
    spent = time.process_time() - spent
    durations.sort()
    p50, p99 = (1e6 * durations[int(part * (commits - 1))] for part in (0.5, 0.99))
    return 1e6 * spent / commits, p50, p99


def resident_mib() -> float:
    """The resident memory of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * PAGE_BYTES / 2**20


async def run(options: argparse.Namespace, root: Path) -> None:
    value = b"x" * options.value_bytes
    points: list[Point] = []
    print(f"{'records':>12}{'CPU µs':>9}{'ratio':>7}{'p50 µs':>9}{'p99 µs':>9}{'MiB':>8}{'filled/s':>10}")
    async with AsyncExitStack() as stack:
        leader = await open_leader(root, stack)
        await measure(leader, options.commits, value)
        for size in options.sizes:
            rate = await fill(leader, size, value)
            cpu, p50, p99 = await measure(leader, options.commits, value)
            point = Point(leader.status().high_watermark, cpu, p50, p99, resident_mib(), rate)
            points.append(point)
            print(
                f"{point.records:12,}{point.cpu_us:9.0f}{point.cpu_us / points[0].cpu_us:7.2f}{point.p50_us:9.0f}"
                f"{point.p99_us:9.0f}{point.resident_mib:8.1f}{point.fill_per_second:10.0f}",
                flush=True,
            )
    first, last = points[0], points[-1]
    print(
        f"from {first.records:,} to {last.records:,} records: a commit costs {last.cpu_us / first.cpu_us:.2f} times as"
        f" much, and the nodes take {last.resident_mib - first.resident_mib:+.1f} MiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes", type=lambda text: [int(each) for each in text.split(",")], default=[10**4, 10**5, 10**6, 10**7]
    )
    parser.add_argument("--commits", type=int, default=2000, help="measured at each size")
    parser.add_argument("--value-bytes", type=int, default=16)
    parser.add_argument(
        "--dir", type=Path, default=Path(tempfile.gettempdir()), help="where the nodes keep their files"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-growth-", dir=options.dir) as scratch:
        trio.run(run, options, Path(scratch))


if __name__ == "__main__":
    main()
