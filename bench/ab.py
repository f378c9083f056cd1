"""Two commits side by side, in one go and in turn: is the later one quicker?

    python bench/ab.py [OLD [NEW]] [--what commit,produce,fetch,offsets,log] [--clients 1,16,128]
                       [--outstanding 1,128,1024] [--reps 3] [--seconds 1]

OLD and NEW are revisions of git; NEW is the working tree unless it is given, and OLD the last release (a tag `v…`), or
the commit `BASE` where there is no release yet. Each is unpacked into a directory of its own, and runs with this
interpreter and its packages, under the same load by the generator of this tree:

- commit: three controllers, and clients that write as in `commit.py`
- produce: one controller and three brokers; each client produces a batch of one record after the other, with acks=all
- fetch: the same brokers; each client fetches one batch after the other from the leader
- offsets: the same brokers; each client commits an offset of its own group, of no members, at the group's coordinator
- log: three nodes of a raw log in one process (`log_nodes.py`), where one program keeps --outstanding appends of one
  record under way by `append_soon`, or by as many tasks where a version has no handles; log, tasks: by tasks in both

Both versions run at the same time, and one of them is loaded, in turn, for --seconds. For each number of clients the
bench prints the medians of the rounds, and the ratios NEW / OLD of the rows of the same round: median (least-most).
CPU is that of all nodes for one request. Only the ratios compare with other runs.

Where a commit is not in this clone (a shallow one), or an old one has no brokers with data, a line says so.
"""

from __future__ import annotations

import argparse
import io
import os
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from data_brokers.wire import ACKS_ALL, WireClient, answered, batch_of, fetch_frame, frame_of, produce_frame
from load import Address, LoopClient, Refused, Row, close, connect, drive, find_leader, parse_addresses, timed, writers
from log_nodes import Asked
from log_nodes import Loaded as EmbeddedRow
from msgspec import Struct
from processes import cpu_seconds
from quorums import AT_ONCE, CLUSTER_ID, QuorumLayout, free_ports
from spread import spread

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from data_brokers.cluster import DataCluster, format_directory

from support.interop.our_nodes import our_controller
from support.interop.real_kafka import running
from transport.protocol.errors import Error
from transport.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from transport.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

ROOT: Final = Path(__file__).parent.parent
BASE: Final = "58227d3ec22f23de60ba1776ae064d96150a81b8"
"""What is compared until there is a release: the last commit before limits and turns made commits slower."""
PACKAGES: Final = ("kraft", "metadata_log", "transport")
VALUE_BYTES: Final = 128
WARM_UP_SECONDS: Final = 0.3
FETCH_CLIENTS: Final = 16
TOPIC: Final = "bench"
BROKERS: Final = 3
SESSION_S: Final = 60.0
OFFSET_COMMIT_VERSION: Final = 8
FIND_COORDINATOR_VERSION: Final = 4
LEADER_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 0.05
BEFORE_BASE_OFFSET: Final = 4 + 4 + 1 + 1 + 1 + len(TOPIC) + 1 + 4 + 2
"""The bytes of an answer to `produce_frame` up to the offset: length, header, counts, name, index, error."""


class NotHere(Exception):
    """A revision cannot be measured."""


class Side(Struct):
    """One version of the code."""

    name: str
    tree: Path

    @property
    def python(self) -> list[str]:
        """Python with the packages of this version."""
        return ["env", f"PYTHONPATH={self.tree}", "PYTHONSAFEPATH=1", sys.executable]

    @property
    def kraft(self) -> list[str]:
        """The command of this version, without arguments."""
        return [*self.python, "-m", "kraft"]


class Measured(Struct, frozen=True):
    """One row."""

    per_second: float
    p50_ms: float
    cpu_us: float


Loaded = Callable[[int, float], Measured]
"""Loads the nodes of one side with so many clients, for so many seconds."""


class WireLoop:
    """A closed loop with one frame; each answer must begin like the first one."""

    def __init__(self, address: Address, frame: bytes, first: bytes, alike: int) -> None:
        self.connection = connect(address)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection.setblocking(False)
        self.sent_at = 0.0
        self._frame = frame
        self._size = 4 + len(first)
        self._start = (len(first).to_bytes(4, "big") + first)[:alike]
        self._answer = b""

    def send(self) -> None:
        """Send the frame."""
        self.connection.send(self._frame)

    def receive(self) -> bool:
        """Read what has arrived."""
        self._answer += self.connection.recv(1 << 16)
        if len(self._answer) < self._size:
            return False
        if len(self._answer) > self._size or not self._answer.startswith(self._start):
            raise Refused("an answer is not like the first one")
        self._answer = b""
        return True


def commit_of(revision: str) -> str:
    """The commit of a revision; raises `NotHere`."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        shallow = subprocess.run(
            ["git", "-C", str(ROOT), "rev-parse", "--is-shallow-repository"],
            capture_output=True,
            text=True,
            check=False,
        )
        why = "this clone is shallow" if shallow.stdout.strip() == "true" else "this is no clone with its history"
        raise NotHere(f"{revision} is not here: {why}")
    return done.stdout.strip()


def last_release() -> str:
    """The last tag of a release before HEAD; empty if there is none."""
    command = ["git", "-C", str(ROOT), "describe", "--tags", "--abbrev=0", "--match=v[0-9]*"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def side_of(revision: str, root: Path) -> Side:
    """The packages of a revision in a directory of their own; for "." the working tree itself."""
    if revision == ".":
        return Side("working tree", ROOT)
    commit = commit_of(revision)
    tree = root / commit[:12]
    packed = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit, *PACKAGES], capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(tree, filter="data")
    return Side(revision if len(revision) < 20 else commit[:8], tree)


def controllers(side: Side, root: Path, stack: ExitStack) -> Loaded:
    """Three controllers."""
    ports = dict(zip((1, 2, 3), free_ports(3), strict=True))
    layout = QuorumLayout(root, CLUSTER_ID, ports, AT_ONCE)
    root.mkdir(parents=True)
    for node in ports:
        format_directory(layout.properties(node), side.kraft)
    nodes = stack.enter_context(running(layout, our_controller(layout, side.kraft), name=side.name))
    leader = find_leader(parse_addresses(layout.bootstrap))
    return partial(
        measure,
        lambda clients: writers(leader, clients, VALUE_BYTES),
        lambda: cpu_seconds(one.popen.pid for one in nodes.processes.values()),
    )


def brokers(side: Side, root: Path, stack: ExitStack) -> dict[str, Loaded]:
    """Three brokers with data, to be loaded by producers, by consumers, and by what commits offsets."""
    cluster = DataCluster("ours", root, BROKERS, "", SESSION_S, stack, kraft=side.kraft)
    cluster.create(TOPIC, 1)
    address = cluster.address(cluster.first)
    produce = produce_frame(TOPIC, 0, batch_of(1, VALUE_BYTES), ACKS_ALL)
    fetch = fetch_frame(TOPIC, 0, 0, 1)
    with WireClient(address) as client:
        produced = client.ask(produce)
        client.produce(produce)
        assert client.fetch(fetch), "there is nothing to fetch"

    def fetchers(clients: int) -> list[WireLoop]:
        # The answer names the high watermark, which is that of the last round of producers.
        with WireClient(address) as client:
            fetched = client.ask(fetch)
        return [WireLoop(address, fetch, fetched, 4 + len(fetched)) for _ in range(clients)]

    loops: dict[str, Callable[[int], Sequence[LoopClient]]] = {
        "produce": lambda clients: [WireLoop(address, produce, produced, BEFORE_BASE_OFFSET) for _ in range(clients)],
        "fetch": fetchers,
        "offsets": lambda clients: [commits_of(address, f"group-{number}") for number in range(clients)],
    }
    return {what: partial(measure, loop, cluster.cpu_seconds) for what, loop in loops.items()}


def commits_of(address: Address, group: str) -> WireLoop:
    """A client that commits an offset of a group, at the group's coordinator."""
    deadline = time.monotonic() + LEADER_SECONDS
    while True:
        try:
            coordinator = coordinator_of(address, group)
            frame = offset_frame(group, TOPIC)
            with WireClient(coordinator) as client:
                committed = client.ask(frame)
            error = answered(committed, OFFSET_COMMIT_VERSION, OffsetCommitResponse).topics[0].partitions[0].error_code
            if error:
                raise Refused(Error.of(error).name)
        except Refused:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_SECONDS)
        else:
            return WireLoop(coordinator, frame, committed, 4 + len(committed))


def coordinator_of(address: Address, group: str) -> Address:
    """Where a group's coordinator listens; raises `Refused` while there is none."""
    with WireClient(address) as client:
        asked = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
        [found] = client.request(asked, FIND_COORDINATOR_VERSION, FindCoordinatorResponse).coordinators
    if found.error_code:
        raise Refused(Error.of(found.error_code).name)
    return found.host, found.port


def offset_frame(group: str, topic: str) -> bytes:
    """An OffsetCommit of a client that is no member, length included."""
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=42)
    return frame_of(
        OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[part])]),
        OFFSET_COMMIT_VERSION,
    )


def measure(
    clients_of: Callable[[int], Sequence[LoopClient]],
    cpu_seconds_of: Callable[[], float],
    clients: int,
    seconds: float,
) -> Measured:
    """Load one side."""
    loop = clients_of(clients)
    try:
        drive(loop, WARM_UP_SECONDS)
        before = cpu_seconds_of()
        row: Row = timed(loop, seconds)
        cpu = cpu_seconds_of() - before
    finally:
        close(loop)
    return Measured(row.per_second, row.p50_ms, 1e6 * cpu / row.commits)


class Embedded:
    """Three nodes of one version in one process, and the program that appends to their log."""

    def __init__(self, side: Side, root: Path, stack: ExitStack) -> None:
        root.mkdir(parents=True)
        self.longest_turn_ms = 0.0
        self._process = stack.enter_context(
            subprocess.Popen(
                [*side.python, str(Path(__file__).parent / "log_nodes.py"), str(root)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        stack.callback(self._process.communicate)

    def load(self, outstanding: int, seconds: float, *, by_tasks: bool) -> Measured:
        """Measure one row."""
        to, of = self._process.stdin, self._process.stdout
        assert to is not None
        assert of is not None
        to.write(msgspec.json.encode(Asked(outstanding, seconds, by_tasks)).decode() + "\n")
        to.flush()
        row = msgspec.json.decode(of.readline(), type=EmbeddedRow)
        self.longest_turn_ms = max(self.longest_turn_ms, row.turn_ms)
        return Measured(row.per_second, row.p50_ms, row.cpu_us)


def compare_logs(sides: tuple[Side, Side], root: Path, options: argparse.Namespace) -> None:
    """Load the raw logs of both."""
    with ExitStack() as stack:
        old, new = (Embedded(side, root / f"log-{number}", stack) for number, side in enumerate(sides))
        for what, by_tasks in (("log", False), ("log, tasks", True)):
            new.longest_turn_ms = 0.0
            before, after = partial(old.load, by_tasks=by_tasks), partial(new.load, by_tasks=by_tasks)
            compare(what, before, after, options.outstanding, options)
            print(f"{what}: the longest turn of the new leader took {new.longest_turn_ms:.1f} ms", flush=True)


def compare(what: str, old: Loaded, new: Loaded, counts: Sequence[int], options: argparse.Namespace) -> None:
    """Load both in turn, and print a line for each number of clients."""
    rows: dict[int, list[tuple[Measured, Measured]]] = {}
    for rep in range(options.reps):
        for clients in counts:
            first, second = (old, new) if rep % 2 == 0 else (new, old)
            found = [one(clients, options.seconds) for one in (first, second)]
            rows.setdefault(clients, []).append((found[0], found[1]) if rep % 2 == 0 else (found[1], found[0]))
    for clients, pairs in rows.items():
        cells = []
        for name in Measured.__struct_fields__:
            before, after = ([getattr(pair[side], name) for pair in pairs] for side in (0, 1))
            # A short row on a coarse clock may have taken no processor time at all.
            ratios = [new / old if old else 1.0 for old, new in zip(before, after, strict=True)]
            cells.append(f"{spread(before).median:>10,.4g}{spread(after).median:>10,.4g}  {spread(ratios)!s:<19}")
        print(f"{what:10}{clients:6}  {''.join(cells)}", flush=True)


def run(options: argparse.Namespace, sides: tuple[Side, Side], root: Path) -> None:
    """Everything that is asked for."""
    old, new = sides
    names = ("requests/s: old, new, ratio", "p50 ms: old, new, ratio", "CPU us: old, new, ratio")
    print(f"old: {old.name}, new: {new.name}, load of the machine before: {os.getloadavg()[0]:.1f}")
    print(f"{'':8}{'clients':>8}  " + "".join(f"{name:>39}  " for name in names), flush=True)
    if "commit" in options.what:
        with ExitStack() as stack:
            pair = [controllers(side, root / f"commit-{number}", stack) for number, side in enumerate(sides)]
            compare("commit", pair[0], pair[1], options.clients, options)
    if "log" in options.what:
        compare_logs(sides, root, options)
    asked = [what for what in ("produce", "fetch", "offsets") if what in options.what]
    if not asked:
        return
    for side in sides:
        if not has_data(side):
            print(f"{', '.join(asked)}: {side.name} has no brokers with data")
            return
    with ExitStack() as stack:
        both = [brokers(side, root / f"brokers-{number}", stack) for number, side in enumerate(sides)]
        for what in asked:
            counts = [FETCH_CLIENTS] if what == "fetch" else options.clients
            compare(what, both[0][what], both[1][what], counts, options)


def has_data(side: Side) -> bool:
    """Whether brokers of a version hold records: before, they had no log."""
    return any((side.tree / "kraft" / room / "log").is_dir() for room in ("partitions", "broker"))


def numbers(text: str) -> list[int]:
    """`1,16,128`."""
    return [int(one) for one in text.split(",")]


def words(text: str) -> list[str]:
    """`commit,produce`."""
    return text.split(",")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", nargs="?", default="", metavar="OLD")
    parser.add_argument("new", nargs="?", default=".", metavar="NEW")
    parser.add_argument("--what", type=words, default=["commit", "produce", "fetch", "offsets"])
    parser.add_argument("--clients", type=numbers, default=[1, 16, 128])
    parser.add_argument("--outstanding", type=numbers, default=[1, 128, 1024])
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument(
        "--dir", type=Path, default=Path(tempfile.gettempdir()), help="where the nodes keep their files"
    )
    return parser.parse_args()


def main() -> None:
    options = arguments()
    old = options.old or last_release()
    if not old:
        print(f"there is no release yet: compared with {BASE[:8]}")
        old = BASE
    with tempfile.TemporaryDirectory(prefix="bench-ab-", dir=options.dir) as scratch:
        root = Path(scratch)
        try:
            sides = (side_of(old, root), side_of(options.new, root))
        except NotHere as reason:
            print(f"skipped: {reason}")
            return
        run(options, sides, root)


if __name__ == "__main__":
    main()
