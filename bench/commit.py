"""The rate and latency of commits: three controllers over TCP with fsync, ours beside Apache Kafka's, in one run.

    python bench/commit.py [--targets ours,kafka0,kafka] [--clients 1,16,128] [--reps 3] [--seconds 5] [--heat 10]
                           [--heap 512m] [--dir DIR] [--external NAME=host:port,host:port]…

`ours` and `kafka0` append at once (controller.quorum.append.linger.ms=0); `kafka` has Kafka's default of 25 ms. All
quorums run at the same time. The same generator (`load.py`) loads them one after the other, in rotating order, because
only rows of one run are comparable. Before the first row the generator loads each quorum for the same time (--heat), so
that the compilers of the JVMs are equally warm; the bench prints the flags of the JVMs. --external adds any other
quorum that speaks Kafka's protocol. The directory should be on the disk to measure.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from load import Address, Row, find_leader, parse_addresses, run
from msgspec import Struct
from quorums import AT_ONCE, HEAP, jvm_flags, start_quorum
from spread import spread

LINGER = {"ours": AT_ONCE, "kafka0": AT_ONCE, "kafka": ()}
TITLE = {"ours": "ours, linger 0", "kafka0": "Kafka, linger 0", "kafka": "Kafka, linger 25 ms (default)"}
HEAT_CLIENTS = 64


class Target(Struct, frozen=True):
    """A quorum to load."""

    title: str
    addresses: list[Address]
    flags: str = ""
    """The flags of its JVMs, if it has some."""


class Calibration(Struct, frozen=True):
    """The load of the machine just before a row."""

    spin_ms: float
    fdatasync_us: float


def calibrate(directory: Path) -> Calibration:
    """A fixed loop (best of 5) and a 1 KiB append with fdatasync (median of 100)."""
    spins = []
    for _ in range(5):
        started = time.perf_counter()
        total = 0
        for number in range(200_000):
            total += number & 7
        spins.append(time.perf_counter() - started)
    syncs = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for number in range(100):
            started = time.perf_counter()
            os.pwrite(file.fileno(), b"x" * 1024, number * 1024)
            os.fdatasync(file.fileno())
            syncs.append(time.perf_counter() - started)
    return Calibration(1000 * min(spins), 1e6 * statistics.median(syncs))


def start(name: str, root: Path, stack: ExitStack, heap: str) -> Target:
    """Three controllers of one implementation, formatted and listening until the stack closes."""
    layout, _ = start_quorum(name, root, stack, LINGER[name], heap)
    return Target(TITLE[name], parse_addresses(layout.bootstrap), jvm_flags(name, heap))


def measure(targets: list[Target], options: argparse.Namespace, directory: Path) -> dict[tuple[str, int], list[Row]]:
    """Load each target with each number of clients, repeatedly; print each row at once."""
    rows: dict[tuple[str, int], list[Row]] = {}
    for target in targets:
        if target.flags:
            print(f"{target.title}: JVM flags {target.flags}")
        run(find_leader(target.addresses), HEAT_CLIENTS, options.heat)
    print(f"heat: {options.heat:g} s with {HEAT_CLIENTS} clients, each quorum")
    print(f"{'':32}{'clients':>8}{'commits/s':>11}{'p50 ms':>9}{'p99 ms':>9}{'max ms':>9}{'spin ms':>9}{'sync us':>9}")
    for rep in range(options.reps):
        turn = rep % len(targets)
        for clients in options.clients:
            for target in targets[turn:] + targets[:turn]:
                calibration = calibrate(directory)
                leader = find_leader(target.addresses)
                row = run(leader, clients, options.seconds, value_bytes=options.value_bytes)
                rows.setdefault((target.title, clients), []).append(row)
                print(
                    f"{target.title:32}{clients:8}{row.per_second:11.0f}{row.p50_ms:9.2f}{row.p99_ms:9.2f}"
                    f"{row.max_ms:9.1f}{calibration.spin_ms:9.1f}{calibration.fdatasync_us:9.0f}",
                    flush=True,
                )
    return rows


def summarise(targets: list[Target], rows: dict[tuple[str, int], list[Row]], clients: list[int]) -> None:
    """The medians over the rounds with their spread, and the ratios to the first target."""
    first = targets[0].title
    print(
        f"\nmedian (least-most) of {len(rows[first, clients[0]])}; ratio: {first} / that row, of rows of the same round"
    )
    columns = ("commits/s", "p50 ms", "p99 ms", "ratio")
    print(f"{'':32}{'clients':>8}" + "".join(f"{column:>26}" for column in columns))
    for number in clients:
        for target in targets:
            found = rows[target.title, number]
            cells = [spread([getattr(row, name) for row in found]) for name in ("per_second", "p50_ms", "p99_ms")]
            pairs = zip(rows[first, number], found, strict=True)
            cells.append(spread([reference.per_second / row.per_second for reference, row in pairs]))
            print(f"{target.title:32}{number:8}" + "".join(f"{cell!s:>26}" for cell in cells))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(each) for each in text.split(",")]  # noqa: E731
    parser.add_argument("--targets", default="ours,kafka0,kafka", help="which quorums to start, the first is compared")
    parser.add_argument(
        "--external", action="append", default=[], metavar="NAME=ADDRESSES", help="a quorum that runs already"
    )
    parser.add_argument("--clients", type=numbers, default=[1, 16, 128])
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--heat", type=float, default=10.0, help="seconds of load before the first row, for compilers")
    parser.add_argument("--heap", default=HEAP, help="the largest heap of each JVM")
    parser.add_argument("--value-bytes", type=int, default=128)
    parser.add_argument(
        "--dir", type=Path, default=Path(tempfile.gettempdir()), help="where the nodes keep their files"
    )
    return parser.parse_args()


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="bench-commit-", dir=options.dir) as scratch, ExitStack() as stack:
        root = Path(scratch)
        targets = [start(name, root, stack, options.heap) for name in options.targets.split(",") if name]
        for text in options.external:
            name, _, addresses = text.partition("=")
            targets.append(Target(name, parse_addresses(addresses)))
        rows = measure(targets, options, root)
        summarise(targets, rows, options.clients)


if __name__ == "__main__":
    main()
