"""The lower bound of a commit's latency: three bare programs beside our nodes, in one run.

    python bench/floor.py [--bursts 60] [--computing 142,102,52,53] [--seed 0] [--dir DIR]

"bare" are a leader and two followers in Python, without Trio, that only read, check a CRC, append, fdatasync and send.
The leader responds when it and one follower have the record on disk. "computing" are the same programs, which also
compute for so many µs: the leader before its append, a follower before its append and before its response, the leader
before its response. One client sends a hundred requests to one quorum, then to another, in an order drawn from the
seed, so that other load on the machine affects all alike. The ratios are those of the medians of bursts, with standard
errors.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import select
import socket
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle, repeat
from pathlib import Path
from random import Random
from typing import Final

import load
from msgspec import Struct
from quorums import AT_ONCE, start_quorum
from spread import spread

REQUEST: Final = b"v" * 190
ANSWER: Final = b"k" * 60
CRC_BYTES: Final = 4
RECORD_BYTES: Final = 210
"""The length of a batch with one change of a configuration."""
TOLD_BYTES: Final = 96
FOLLOWER: Final = b"F"
CLIENT: Final = b"C"
FOLLOWERS: Final = 2
ASKED_AT_ONCE: Final = 100
NOT_COUNTED: Final = 5
"""The number of first requests in a burst to ignore, because of cold caches."""
WARM_UP_CLIENTS: Final = 16
WARM_UP_SECONDS: Final = 2.0
LEAST_BURSTS: Final = 2
READ_BYTES: Final = 1 << 16

Exchange = Callable[[], None]


class Computing(Struct, frozen=True):
    """The computing time of bare programs in µs, by place."""

    leader_appends: int = 0
    follower_appends: int = 0
    follower_tells: int = 0
    leader_answers: int = 0


def compute(microseconds: int) -> None:
    """Compute for so many microseconds."""
    end = time.perf_counter() + microseconds / 1e6
    while time.perf_counter() < end:
        pass


def connect(port: int, name: bytes) -> socket.socket:
    """A connection to a bare leader that begins with a name."""
    connection = load.connect(("127.0.0.1", port))
    connection.sendall(name)
    return connection


def append(log: int, data: bytes, size: int) -> int:
    """Append to a log of the given size; returns the new size."""
    return size + os.pwrite(log, data, size)


def lead(listening: socket.socket, path: Path, computing: Computing) -> None:
    """Append each request of the client, forward the record, and respond once a majority has the record on disk."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT)
    size = 0
    connections = [listening.accept()[0] for _ in range(FOLLOWERS + 1)]
    names = {each.fileno(): each.recv(1) for each in connections}
    (client,) = (each for each in connections if names[each.fileno()] == CLIENT)
    followers = {each.fileno(): each for each in connections if each is not client}
    flushed = dict.fromkeys(followers, 0)
    poll = select.epoll()
    for each in connections:
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        poll.register(each.fileno(), select.EPOLLIN)
    is_asked = False
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == client.fileno():
                if not (request := client.recv(READ_BYTES)):
                    return
                compute(computing.leader_appends)
                body = request.ljust(RECORD_BYTES - CRC_BYTES)
                record = zlib.crc32(body).to_bytes(CRC_BYTES, "big") + body
                size = append(log, record, size)
                for follower in followers.values():
                    follower.send(record)
                os.fdatasync(log)
                is_asked = True
            else:
                told = followers[descriptor].recv(READ_BYTES)[-TOLD_BYTES:]
                flushed[descriptor] = int.from_bytes(told[:8], "big")
            if is_asked and max(flushed.values()) == size:
                compute(computing.leader_answers)
                is_asked = False
                client.send(ANSWER)


def follow(port: int, path: Path, computing: Computing) -> None:
    """Append the leader's records, and report the durable size to the leader."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT)
    size = 0
    leader = connect(port, FOLLOWER)
    data = b""
    while more := leader.recv(READ_BYTES):
        data += more
        whole = len(data) - len(data) % RECORD_BYTES
        records, data = data[:whole], data[whole:]
        for at in range(0, whole, RECORD_BYTES):
            crc = int.from_bytes(records[at : at + CRC_BYTES], "big")
            assert zlib.crc32(records[at + CRC_BYTES : at + RECORD_BYTES]) == crc, at
        compute(computing.follower_appends)
        size = append(log, records, size)
        os.fdatasync(log)
        compute(computing.follower_tells)
        leader.send(size.to_bytes(8, "big").ljust(TOLD_BYTES, b"\0"))


def asking(connection: socket.socket, frames: Iterable[bytes], expected: bytes) -> Exchange:
    """A function that sends the next of these frames, and waits for this response."""
    following = iter(frames)

    def ask() -> None:
        connection.send(next(following))
        if connection.recv(READ_BYTES) != expected:
            raise load.Refused("an answer was not that of a committed write")

    return ask


@contextmanager
def bare_quorum(directory: Path, computing: Computing) -> Iterator[Exchange]:
    """Three bare programs, and the function that sends a request to them."""
    directory.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        fork = multiprocessing.get_context("fork")
        processes = [
            fork.Process(target=lead, args=(listening, directory / "leader", computing)),
            *(
                fork.Process(target=follow, args=(port, directory / f"follower-{number}", computing))
                for number in range(FOLLOWERS)
            ),
        ]
        for one in processes:
            one.start()
        try:
            with connect(port, CLIENT) as connection:
                yield asking(connection, repeat(REQUEST), ANSWER)
        finally:
            for one in processes:
                one.terminate()
                one.join()


@contextmanager
def our_quorum(root: Path) -> Iterator[Exchange]:
    """Three of our nodes, and the function that sends a request to them."""
    with ExitStack() as stack:
        layout, _ = start_quorum("ours", root, stack, AT_ONCE)
        leader = load.find_leader(load.parse_addresses(layout.bootstrap))
        load.run(leader, WARM_UP_CLIENTS, WARM_UP_SECONDS)
        client = load.Client(leader, (load.frame_of(0, 0, 128), load.frame_of(0, 1, 128)), load.error_of)
        stack.callback(client.connection.close)
        client.connection.settimeout(load.ANSWER_SECONDS)
        yield asking(client.connection, cycle(client.frames), client.expected)


def burst(ask: Exchange) -> float:
    """The median latency of one client in ms."""
    now = time.perf_counter
    took = []
    for _ in range(ASKED_AT_ONCE):
        asked_at = now()
        ask()
        took.append(now() - asked_at)
    return 1000 * statistics.median(took[NOT_COUNTED:])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: Computing(*(int(each) for each in text.split(",")))  # noqa: E731
    parser.add_argument("--bursts", type=int, default=60, help="of a hundred requests to each quorum")
    parser.add_argument("--computing", type=numbers, default=Computing(142, 102, 52, 53), metavar="µs,µs,µs,µs")
    parser.add_argument("--seed", type=int, default=0, help="draws the order of the quorums in each round")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()), help="where the logs are kept")
    options = parser.parse_args()
    if options.bursts < LEAST_BURSTS:
        parser.error(f"an error needs at least {LEAST_BURSTS} bursts")
    return options


def main() -> None:
    options = arguments()
    rng = Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="bench-floor-", dir=options.dir) as scratch, ExitStack() as stack:
        root = Path(scratch)
        quorums = {
            "ours": stack.enter_context(our_quorum(root)),
            "bare": stack.enter_context(bare_quorum(root / "bare", Computing())),
            "computing": stack.enter_context(bare_quorum(root / "computing", options.computing)),
        }
        medians: dict[str, list[float]] = {name: [] for name in quorums}
        for _ in range(options.bursts):
            for name in rng.sample(list(quorums), len(quorums)):
                medians[name].append(burst(quorums[name]))
    print(f"{options.bursts} bursts, median (least-most) of their p50s; the mean of the ratios and its standard error")
    print(f"{'':12}{'p50 ms':>26}{'of ours':>10}{'±':>8}")
    for name, found in medians.items():
        ratios = [one / ours for one, ours in zip(found, medians["ours"], strict=True)]
        error = statistics.stdev(ratios) / len(ratios) ** 0.5
        print(f"{name:12}{spread(found)!s:>26}{statistics.mean(ratios):10.3f}{error:8.3f}")


if __name__ == "__main__":
    main()
