"""The rate and latency of commits: three controllers over TCP with fsync, ours beside Apache Kafka's, in one run.

    python bench/commit.py [--targets ours,kafka0,kafka] [--clients 1,16,128] [--reps 3] [--seconds 5] [--heat 10]
                           [--heap 512m] [--dir DIR] [--external NAME=host:port,host:port]…
                           [--security PLAINTEXT,SSL,SASL_SSL]

`ours` and `kafka0` append at once (controller.quorum.append.linger.ms=0); `kafka` has Kafka's default of 25 ms. All
quorums run at the same time. The same generator (`load.py`) loads them one after the other, in rotating order, because
only rows of one run are comparable. Before the first row the generator loads each quorum for the same time (--heat), so
that the compilers of the JVMs are equally warm; the bench prints the flags of the JVMs. --external adds any other
quorum that speaks Kafka's protocol. The directory should be on the disk to measure.

--security starts each quorum once for each of these protocols: SSL is TLS 1.3 with a certificate of the server, and
SASL_SSL adds a login by PLAIN. The connections between the controllers have the same protocol. "CPU us" is the
processor time of all three controllers for one commit.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from load import (
    WARM_UP_SECONDS,
    Address,
    LoopClient,
    close,
    drive,
    find_leader,
    parse_addresses,
    timed,
    writers,
)
from msgspec import Struct
from peer_quorums.secured import PLAINTEXT, PROTOCOLS, connector_of, settings_of
from peer_quorums.secured import writers as secured_writers
from quorums import AT_ONCE, HEAP, Nodes, jvm_flags, start_quorum
from spread import spread

LINGER = {"ours": AT_ONCE, "kafka0": AT_ONCE, "kafka": ()}
TITLE = {"ours": "ours, linger 0", "kafka0": "Kafka, linger 0", "kafka": "Kafka, linger 25 ms (default)"}
HEAT_CLIENTS = 64
_CELLS = ("per_second", "p50_ms", "p99_ms", "cpu_us")


class Target(Struct, frozen=True):
    """A quorum to load."""

    title: str
    addresses: list[Address]
    flags: str = ""
    """The flags of its JVMs, if it has some."""
    protocol: str = PLAINTEXT
    nodes: Nodes | None = None

    @property
    def leader(self) -> Address:
        """The node that commits."""
        return find_leader(self.addresses, to=connector_of(self.protocol))

    def run(self, clients: int, seconds: float, value_bytes: int) -> Measured:
        """Load the leader, and measure when the clients are warm."""
        loop = self._clients(clients, value_bytes)
        try:
            drive(loop, WARM_UP_SECONDS)
            before = self._cpu_seconds()
            row = timed(loop, seconds)
            cpu = self._cpu_seconds() - before
        finally:
            close(loop)
        return Measured(row.per_second, row.p50_ms, row.p99_ms, row.max_ms, 1e6 * cpu / row.commits)

    def _clients(self, clients: int, value_bytes: int) -> Sequence[LoopClient]:
        if self.protocol == PLAINTEXT:
            return writers(self.leader, clients, value_bytes)
        return secured_writers(self.leader, clients, value_bytes, connector_of(self.protocol))

    def _cpu_seconds(self) -> float:
        """The processor time of all nodes so far; 0 for a quorum that runs already."""
        return 0.0 if self.nodes is None else sum(_cpu_seconds(one.popen.pid) for one in self.nodes.processes.values())


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Measured(Struct, frozen=True):
    """A row: the load's result, and the processor time of all nodes for one commit."""

    per_second: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    cpu_us: float


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


def start(name: str, protocol: str, root: Path, stack: ExitStack, heap: str) -> Target:
    """Three controllers of one implementation, formatted and listening until the stack closes."""
    below = root / protocol
    below.mkdir(exist_ok=True)
    layout, nodes = start_quorum(name, below, stack, (*LINGER[name], *settings_of(protocol, below)), heap)
    title = TITLE[name] if protocol == PLAINTEXT else f"{TITLE[name]}, {protocol}"
    return Target(title, parse_addresses(layout.bootstrap), jvm_flags(name, heap), protocol, nodes)


def measure(
    targets: list[Target], options: argparse.Namespace, directory: Path
) -> dict[tuple[str, int], list[Measured]]:
    """Load each target with each number of clients, repeatedly; print each row at once."""
    rows: dict[tuple[str, int], list[Measured]] = {}
    for target in targets:
        if target.flags:
            print(f"{target.title}: JVM flags {target.flags}")
        target.run(HEAT_CLIENTS, options.heat, options.value_bytes)
    print(f"heat: {options.heat:g} s with {HEAT_CLIENTS} clients, each quorum")
    print(
        f"{'':32}{'clients':>8}{'commits/s':>11}{'p50 ms':>9}{'p99 ms':>9}{'max ms':>9}{'CPU us':>9}"
        f"{'spin ms':>9}{'sync us':>9}"
    )
    for rep in range(options.reps):
        turn = rep % len(targets)
        for clients in options.clients:
            for target in targets[turn:] + targets[:turn]:
                calibration = calibrate(directory)
                row = target.run(clients, options.seconds, options.value_bytes)
                rows.setdefault((target.title, clients), []).append(row)
                print(
                    f"{target.title:32}{clients:8}{row.per_second:11.0f}{row.p50_ms:9.2f}{row.p99_ms:9.2f}"
                    f"{row.max_ms:9.1f}{row.cpu_us:9.0f}{calibration.spin_ms:9.1f}{calibration.fdatasync_us:9.0f}",
                    flush=True,
                )
    return rows


def summarise(targets: list[Target], rows: dict[tuple[str, int], list[Measured]], clients: list[int]) -> None:
    """The medians over the rounds with their spread, and the ratios to the first target."""
    first = targets[0].title
    print(
        f"\nmedian (least-most) of {len(rows[first, clients[0]])}; ratio: {first} / that row, of rows of the same round"
    )
    columns = ("commits/s", "p50 ms", "p99 ms", "CPU us", "ratio")
    print(f"{'':32}{'clients':>8}" + "".join(f"{column:>26}" for column in columns))
    for number in clients:
        for target in targets:
            found = rows[target.title, number]
            cells = [spread([getattr(row, name) for row in found]) for name in _CELLS]
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
    parser.add_argument(
        "--security", type=lambda text: text.split(","), default=[PLAINTEXT], help=f"of {', '.join(PROTOCOLS)}"
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
    options = parser.parse_args()
    if unknown := set(options.security) - set(PROTOCOLS):
        parser.error(f"--security: there is no {', '.join(sorted(unknown))}")
    return options


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="bench-commit-", dir=options.dir) as scratch, ExitStack() as stack:
        root = Path(scratch)
        targets = [
            start(name, protocol, root, stack, options.heap)
            for protocol in options.security
            for name in options.targets.split(",")
            if name
        ]
        for text in options.external:
            name, _, addresses = text.partition("=")
            targets.append(Target(name, parse_addresses(addresses)))
        rows = measure(targets, options, root)
        summarise(targets, rows, options.clients)


if __name__ == "__main__":
    main()
