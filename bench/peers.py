"""The rate and latency of commits: ours beside etcd, ZooKeeper and Apache Kafka, all in one run.

    python bench/peers.py [--targets ours,etcd,zookeeper,kafka0,kafka] [--clients 1,16,128] [--turns 5] [--seconds 3]
                          [--heat 10] [--busy 0] [--value-bytes 128] [--heap 512m] [--dir DIR] [--json]
    python bench/peers.py --turns 5 --seconds 3 --busy 2        # for example: beside two processes that always compute

Three nodes of each on loopback, all up at the same time, with their files in one directory, which should be on the disk
to measure. Each has its default durability: a write is answered when it is on the disks of a majority. `ours` and
`kafka0` append at once (controller.quorum.append.linger.ms=0); `kafka` has Kafka's default of 25 ms. etcd and ZooKeeper
have their default settings.

One generator (`load.py`) loads one quorum after the other with closed-loop clients, each with a connection of its own
and one write of 128 bytes outstanding. The clients of ours, Kafka and etcd are connected to the leader. Those of
ZooKeeper are spread over its servers, as its own client does. Before the first turn the generator loads each quorum for
the same time (--heat), so that the compilers of the JVMs are equally warm. A turn loads each quorum with each number of
clients. The order changes with each turn. Only rows of one run are comparable.

Two more figures of each: the time from the start of its three processes, at once, until they have committed a write,
with the other targets up or not started yet (once); and the resident memory of its largest node after all turns.

A peer that is not installed is named with what to install, and skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

import processes
from commit import LINGER, TITLE, Calibration, calibrate
from load import LoopClient, Row, find_leader, load, parse_addresses, writers
from msgspec import Struct, to_builtins
from msgspec.structs import replace
from peer_quorums import etcd, zookeeper
from quorums import KAFKA_VERSION, KafkaUnavailable, find_java, jvm_flags, start_quorum
from spread import Spread, spread

HEAT_CLIENTS: Final = 64
WARM_UP_SECONDS: Final = 0.5
FIGURES: Final = ("per_second", "p50_ms", "p99_ms")
BUSY_LOOP: Final = """\
import os, sys
parent = int(sys.argv[1])
while os.getppid() == parent:
    for number in range(1_000_000):
        number * number
"""
"""Computes until its parent has ended."""
CPUINFO: Final = Path("/proc/cpuinfo")
MOUNTS: Final = Path("/proc/self/mounts")

Open = Callable[[int], Sequence[LoopClient]]
"""Connects so many clients."""


class Missing(Exception):
    """A peer is not installed; the message says what to install."""


class Target(Struct, frozen=True):
    """A running quorum to load."""

    name: str
    title: str
    version: str
    flags: str
    """The flags of the JVM, if there is one."""
    open_clients: Open
    processes: tuple[int, ...] = ()
    start_ms: float = 0.0


class Footprint(Struct, frozen=True):
    """What a quorum takes beside its rate."""

    start_ms: float
    """From the start of its processes until a write is committed."""
    resident_mb: float
    """Of its largest node, after all turns."""


class Conditions(Struct, frozen=True):
    """The conditions of a figure, except the peers."""

    date: str
    cores: int
    processor: str
    kernel: str
    python: str
    file_system: str
    niceness: int
    busy: int


class Turn(Struct, frozen=True):
    """The machine just before a turn."""

    turn: int
    order: tuple[str, ...]
    load_average: float
    calibration: Calibration


class Measured(Struct, frozen=True):
    """One row of one turn."""

    target: str
    turn: int
    row: Row


class Line(Struct, frozen=True):
    """One quorum with one number of clients. The ratios are ours / this peer, each of rows of the same turn."""

    target: str
    clients: int
    per_second: Spread
    p50_ms: Spread
    p99_ms: Spread
    ratio_of_rates: Spread
    ratio_of_p50: Spread


class Report(Struct, frozen=True):
    """All that a run found."""

    conditions: Conditions
    peers: dict[str, dict[str, str]]
    missing: dict[str, str]
    footprints: dict[str, Footprint]
    turns: list[Turn]
    rows: list[Measured]
    lines: list[Line]


def start_kafka_wire(name: str, root: Path, stack: ExitStack, options: argparse.Namespace) -> Target:
    """Three controllers of ours, or of Apache Kafka."""
    try:
        layout, _ = start_quorum(name, root, stack, LINGER[name], options.heap)
    except KafkaUnavailable as why:
        raise Missing(f"{why}; python tests/support/kafka_jars.py {KAFKA_VERSION} fetches Apache Kafka") from None
    addresses = parse_addresses(layout.bootstrap)
    is_ours = name == "ours"
    return Target(
        name,
        TITLE[name],
        f"trio-kraft {version('trio-kraft')}" if is_ours else f"Apache Kafka {KAFKA_VERSION}",
        jvm_flags(name, options.heap),
        lambda clients: writers(find_leader(addresses), clients, options.value_bytes),
    )


def start_etcd(name: str, root: Path, stack: ExitStack, options: argparse.Namespace) -> Target:
    """Three servers of etcd."""
    program = etcd.find_etcd()
    if program is None:
        raise Missing(etcd.INSTALL)
    addresses = etcd.start_etcd(program, root, stack)
    return Target(
        name,
        "etcd",
        etcd.version_of(program),
        "",
        lambda clients: etcd.open_clients(addresses, clients, options.value_bytes),
    )


def start_zookeeper(name: str, root: Path, stack: ExitStack, options: argparse.Namespace) -> Target:
    """Three servers of ZooKeeper."""
    try:
        java = find_java()
    except KafkaUnavailable as why:
        raise Missing(str(why)) from None
    classpath = zookeeper.find_classpath()
    if classpath is None:
        raise Missing(zookeeper.INSTALL)
    flags = f"-Xmx{options.heap}"
    addresses = zookeeper.start_zookeeper((java, flags), classpath, root, stack)
    return Target(
        name,
        "ZooKeeper",
        zookeeper.version_of(addresses),
        flags,
        lambda clients: zookeeper.open_clients(addresses, clients, options.value_bytes),
    )


START: Final[dict[str, Callable[[str, Path, ExitStack, argparse.Namespace], Target]]] = {
    "ours": start_kafka_wire,
    "etcd": start_etcd,
    "zookeeper": start_zookeeper,
    "kafka0": start_kafka_wire,
    "kafka": start_kafka_wire,
}


def start_all(
    root: Path, stack: ExitStack, options: argparse.Namespace, out: Callable[[str], None]
) -> tuple[list[Target], dict[str, str]]:
    """Start each target that is installed; returns what runs, and what to install for the others."""
    targets: list[Target] = []
    missing: dict[str, str] = {}
    for name in options.targets:
        try:
            targets.append(_first_write(name, root, stack, options))
        except Missing as why:
            missing[name] = str(why)
            out(f"missing: {name}: {why}")
    return targets, missing


def _first_write(name: str, root: Path, stack: ExitStack, options: argparse.Namespace) -> Target:
    """Start a target, and wait until it has committed a write, which each new client makes."""
    before = processes.children()
    target = START[name](name, root, stack, options)
    for client in target.open_clients(1):
        client.connection.close()
    committed = processes.now()
    began = {pid: at for pid, at in processes.children().items() if pid not in before}
    assert began, f"{name} has started no process"
    return replace(target, processes=tuple(began), start_ms=1000 * (committed - min(began.values())))


def footprints_of(targets: Sequence[Target]) -> dict[str, Footprint]:
    """Of each target its start, and its memory now."""
    return {
        one.name: Footprint(one.start_ms, max(map(processes.resident_bytes, one.processes)) / 1e6) for one in targets
    }


def conditions_of(directory: Path, busy: int) -> Conditions:
    """The machine and its system."""
    models = [line.partition(":")[2].strip() for line in read_lines(CPUINFO) if line.startswith("model name")]
    mounts = [line.split()[1:3] for line in read_lines(MOUNTS)]
    holds = [(point, kind) for point, kind in mounts if directory.resolve().is_relative_to(point)]
    return Conditions(
        date=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        cores=len(os.sched_getaffinity(0)),
        processor=models[0] if models else platform.machine(),
        kernel=platform.release(),
        python=platform.python_version(),
        file_system=max(holds, key=lambda one: len(one[0]))[1] if holds else "unknown",
        niceness=os.nice(0),
        busy=busy,
    )


def read_lines(path: Path) -> list[str]:
    """The lines of a file, none if there is no such file."""
    return path.read_text().splitlines() if path.exists() else []


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """So many processes that compute while the block lasts."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY_LOOP, str(os.getpid())]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def in_order(targets: Sequence[Target], turn: int) -> list[Target]:
    """Each turn begins with another target; odd turns go backwards, so that each has other neighbours."""
    first = turn % len(targets)
    order = [*targets[first:], *targets[:first]]
    return order if turn % 2 == 0 else [order[0], *reversed(order[1:])]


def measure(
    targets: Sequence[Target], options: argparse.Namespace, directory: Path, out: Callable[[str], None]
) -> tuple[list[Turn], list[Measured]]:
    """Load each target equally long, then in turns; print each row at once."""
    for target in targets:
        load(target.open_clients(HEAT_CLIENTS), options.heat, warm_up=0)
    turns: list[Turn] = []
    rows: list[Measured] = []
    with busy_loops(options.busy):
        for number in range(options.turns):
            order = in_order(targets, number)
            turn = Turn(number + 1, tuple(one.name for one in order), os.getloadavg()[0], calibrate(directory))
            turns.append(turn)
            out(
                f"\nturn {turn.turn} of {options.turns}: fdatasync of 1 KiB p50 {turn.calibration.fdatasync_us:.0f} µs,"
                f" a fixed loop {turn.calibration.spin_ms:.1f} ms, load average {turn.load_average:.1f}"
            )
            out(f"{'':32}{'clients':>8}{'commits/s':>11}{'p50 ms':>9}{'p99 ms':>9}{'max ms':>9}")
            for clients in options.clients:
                for target in order:
                    row = load(target.open_clients(clients), options.seconds, warm_up=WARM_UP_SECONDS)
                    rows.append(Measured(target.name, turn.turn, row))
                    out(
                        f"{target.title:32}{clients:8}{row.per_second:11,.0f}{row.p50_ms:9.2f}{row.p99_ms:9.2f}"
                        f"{row.max_ms:9.1f}"
                    )
    return turns, rows


def summarise(targets: Sequence[Target], rows: Sequence[Measured], clients: Sequence[int]) -> list[Line]:
    """The figures of each target over all turns, and the ratios of the first target to each."""
    lines: list[Line] = []
    for number in clients:
        of = {
            target.name: [one.row for one in rows if one.target == target.name and one.row.clients == number]
            for target in targets
        }
        first = of[targets[0].name]
        for name, found in of.items():
            rate, p50, p99 = (spread([getattr(row, figure) for row in found]) for figure in FIGURES)
            pairs = list(zip(first, found, strict=True))
            lines.append(
                Line(
                    name,
                    number,
                    rate,
                    p50,
                    p99,
                    ratio_of_rates=spread([ours.per_second / row.per_second for ours, row in pairs]),
                    ratio_of_p50=spread([ours.p50_ms / row.p50_ms for ours, row in pairs]),
                )
            )
    return lines


def show_conditions(conditions: Conditions, targets: Sequence[Target], options: argparse.Namespace) -> Iterator[str]:
    """The conditions as lines."""
    one = conditions
    yield f"{one.date}: {one.cores} cores ({one.processor}), Linux {one.kernel}, Python {one.python}, {one.file_system}"
    yield (
        f"nice {one.niceness}, {one.busy} busy loops beside; {options.turns} turns of {options.seconds:g} s a row;"
        f" heat {options.heat:g} s with {HEAT_CLIENTS} clients; values of {options.value_bytes} bytes"
    )
    for target in targets:
        yield f"{target.title:32}{target.version}{'; JVM flags ' + target.flags if target.flags else ''}"


def show_lines(targets: Sequence[Target], lines: Sequence[Line], turns: int) -> Iterator[str]:
    """The table of all turns."""
    titles = {target.name: target.title for target in targets}
    first = targets[0].title
    yield f"\nmedian (least-most) of {turns} turns; ratios: {first} / that row, of rows of the same turn"
    columns = ("commits/s", "p50 ms", "p99 ms", "ratio of rates", "ratio of p50")
    yield f"{'':32}{'clients':>8}" + "".join(f"{column:>26}" for column in columns)
    for line in lines:
        cells = (line.per_second, line.p50_ms, line.p99_ms, line.ratio_of_rates, line.ratio_of_p50)
        yield f"{titles[line.target]:32}{line.clients:8}" + "".join(f"{cell!s:>26}" for cell in cells)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(each) for each in text.split(",")]  # noqa: E731
    names = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--targets", type=names, default=list(START), help="the first one is compared with the others")
    parser.add_argument("--clients", type=numbers, default=[1, 16, 128])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of load for each row, after half a second")
    parser.add_argument("--heat", type=float, default=10.0, help="seconds of load for each target at first")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="busy loops beside the turns")
    parser.add_argument("--value-bytes", type=int, default=128)
    parser.add_argument("--heap", default="512m", help="the largest heap of each JVM")
    parser.add_argument(
        "--dir", type=Path, default=Path(tempfile.gettempdir()), help="where the nodes keep their files"
    )
    parser.add_argument("--json", action="store_true", help="print one object in place of the tables")
    options = parser.parse_args()
    if unknown := set(options.targets) - set(START):
        parser.error(f"unknown targets: {', '.join(sorted(unknown))}")
    return options


def end_with_cleanup(number: int, _: FrameType | None) -> NoReturn:
    """Leave by an exception, so that each process is ended and each directory removed."""
    raise SystemExit(128 + number)


def main() -> None:
    options = arguments()
    signal.signal(signal.SIGTERM, end_with_cleanup)

    def out(line: str) -> None:
        if not options.json:
            print(line, flush=True)

    with tempfile.TemporaryDirectory(prefix="bench-peers-", dir=options.dir) as scratch, ExitStack() as stack:
        root = Path(scratch)
        targets, missing = start_all(root, stack, options, out)
        if not targets:
            raise SystemExit("no target is installed")
        conditions = conditions_of(root, options.busy)
        for line in show_conditions(conditions, targets, options):
            out(line)
        turns, rows = measure(targets, options, root, out)
        footprints = footprints_of(targets)
    lines = summarise(targets, rows, options.clients)
    for text in show_lines(targets, lines, options.turns):
        out(text)
    out(f"\n{'':32}{'start to first write, ms':>26}{'resident, largest node, MB':>28}")
    for one in targets:
        out(f"{one.title:32}{footprints[one.name].start_ms:26,.0f}{footprints[one.name].resident_mb:28,.0f}")
    if options.json:
        peers = {one.name: {"title": one.title, "version": one.version, "jvm_flags": one.flags} for one in targets}
        print(json.dumps(to_builtins(Report(conditions, peers, missing, footprints, turns, rows, lines)), indent=2))


if __name__ == "__main__":
    main()
