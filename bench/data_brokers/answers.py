"""Ways to send the records of an answer from a file to a socket: the CPU time of the sender for each MiB.

    python bench/data_brokers/answers.py [--sizes 64,1024,8192] [--mib 256] [--reps 7]

A sender answers over a loopback connection with ranges of one file in the page cache, and another process reads them.
All ways take turns in one run, so that their ratios hold on a busy machine. The sender's time in the kernel counts.

copies     read the range, join it three times into the frame as a broker did before 2026-11-24, and send the frame
sendmsg    read the range, and send the head and the range with one `sendmsg`
sendfile   send the head, then the range with `os.sendfile`
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import socket
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from spread import spread

HEAD_BYTES = 100
READ_BYTES = 1 << 20
MIB = 1 << 20
Way = Callable[[socket.socket, int, int, int], None]


def send_all(to: socket.socket, data: bytes | memoryview) -> None:
    """Send as the transport does: what the socket takes, and the rest from a view."""
    left: bytes | memoryview = data
    while sent := to.send(left):
        if sent == len(left):
            return
        left = memoryview(left)[sent:]


def copies(to: socket.socket, file: int, offset: int, size: int) -> None:
    """The records go into the body, the body into the frame, and the frame after its length."""
    body = b"".join((bytes(HEAD_BYTES - 9), os.pread(file, size, offset), b"\x00"))
    content = b"".join((bytes(4), b"\x00", body))
    send_all(to, b"".join((len(content).to_bytes(4, "big"), content)))


def sendmsg(to: socket.socket, file: int, offset: int, size: int) -> None:
    """The records are read, and not copied."""
    records = os.pread(file, size, offset)
    sent = to.sendmsg((bytes(HEAD_BYTES), records))
    if sent < HEAD_BYTES + size:
        send_all(to, memoryview(records)[sent - HEAD_BYTES :])


def sendfile(to: socket.socket, file: int, offset: int, size: int) -> None:
    """The records never come into this process."""
    to.send(bytes(HEAD_BYTES), socket.MSG_MORE)
    end = offset + size
    while offset < end:
        offset += os.sendfile(to.fileno(), file, offset, end - offset)


WAYS: tuple[Way, ...] = (copies, sendmsg, sendfile)


def drain(address: tuple[str, int]) -> None:
    """Read everything, as a consumer does."""
    with socket.create_connection(address) as source:
        buffer = bytearray(READ_BYTES)
        while source.recv_into(buffer):
            pass


def cpu_seconds() -> float:
    """The processor time of this process, in Python and in the kernel."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def cpu_us_of_a_mib(way: Way, to: socket.socket, file: int, size: int, mib: int) -> float:
    """Send so many MiB in answers of this size."""
    count = max(1, mib * MIB // size)
    before = cpu_seconds()
    for number in range(count):
        way(to, file, number % 8 * size, size)
    return 1e6 * (cpu_seconds() - before) / (count * size / MIB)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=lambda text: [int(each) for each in text.split(",")], default=[64, 1024, 8192])
    parser.add_argument("--mib", type=int, default=256, help="MiB of each way, size and repetition")
    parser.add_argument("--reps", type=int, default=7)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}; CPU us of the sender for a MiB, median (least-most); ratio to copies")
    with tempfile.TemporaryFile() as scratch, socket.create_server(("127.0.0.1", 0)) as server:
        for _ in range(8 * max(options.sizes)):
            scratch.write(os.urandom(1024))
        scratch.flush()
        reader = multiprocessing.Process(target=partial(drain, server.getsockname()), daemon=True)
        reader.start()
        to, _ = server.accept()
        with to:
            for kib in options.sizes:
                found: dict[str, list[float]] = {way.__name__: [] for way in WAYS}
                for rep in range(options.reps):
                    turn = rep % len(WAYS)
                    for way in WAYS[turn:] + WAYS[:turn]:
                        found[way.__name__].append(cpu_us_of_a_mib(way, to, scratch.fileno(), 1024 * kib, options.mib))
                for name, values in found.items():
                    ratios = [a / b for a, b in zip(values, found["copies"], strict=True)]
                    print(f"{kib:6} KiB  {name:10}{spread(values)!s:>26}{spread(ratios)!s:>22}", flush=True)
        reader.join()


if __name__ == "__main__":
    main()
