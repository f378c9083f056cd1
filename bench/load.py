"""The load generator: closed-loop clients in one process around one epoll set.

Each client sends one request, waits for the response, and sends the next request. `drive` loads clients of any protocol
(`LoopClient`). `Client` speaks Kafka's protocol. In `run`, the request is IncrementalAlterConfigs v1 for a
client-metrics resource of the client's own. This is the only admin write without a broker, and causes one ConfigRecord.
The generator encodes frames before the clock starts, and compares responses with the first good one, so that it costs
less than the measured nodes.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.frames import FrameReader
from transport.protocol.headers import decode_response, encode_request
from transport.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

CLIENT_METRICS = 16
SET = 0
WARM_UP_SECONDS = 1.0
ANSWER_SECONDS = 120.0
LEADER_SECONDS = 60.0

Address = tuple[str, int]


class Refused(Exception):
    """A write got an error instead of a commit, or no response at all."""


class Row(Struct, frozen=True):
    """The result of one run of the generator."""

    clients: int
    commits: int
    per_second: float
    p50_ms: float
    p99_ms: float
    max_ms: float


def parse_addresses(text: str) -> list[Address]:
    """`host:port,host:port`."""
    pairs = [each.rpartition(":") for each in text.split(",")]
    return [(host, int(port)) for host, _, port in pairs]


def frame_of(client: int, turn: int, value_bytes: int) -> bytes:
    """A write, length prefix included. A client alternates its values, because a controller records only changes."""
    value = f"bench-{client}-{turn}-".ljust(value_bytes, "x")
    config = AlterableConfig(name="metrics", config_operation=SET, value=value)
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=f"bench-{client}", configs=[config])
    message = IncrementalAlterConfigsRequest(resources=[resource])
    frame = encode_request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, client, "bench", message)
    return len(frame).to_bytes(4, "big") + frame


def error_of(frame: bytes) -> Error:
    """The first error in a response."""
    _, answer = decode_response(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, frame)
    assert isinstance(answer, IncrementalAlterConfigsResponse)
    return next((Error(each.error_code) for each in answer.responses if each.error_code), Error.NONE)


def connect(address: Address) -> socket.socket:
    """A connection without Nagle's delay."""
    connection = socket.create_connection(address, ANSWER_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def ask(connection: socket.socket, frame: bytes) -> bytes:
    """Send one frame and wait for its response, which is returned without its length."""
    reader = FrameReader()
    connection.sendall(frame)
    while data := connection.recv(1 << 16):
        for answer in reader.feed(data):
            return answer
    raise Refused("the connection was closed instead of an answer")


def find_leader(
    addresses: Sequence[Address], seconds: float = LEADER_SECONDS, to: Callable[[Address], socket.socket] = connect
) -> Address:
    """The node that commits a write; retries until there is one. `to` connects to a node."""
    deadline = time.monotonic() + seconds
    last: object = None
    turn = 0
    while time.monotonic() < deadline:
        for address in addresses:
            try:
                with to(address) as connection:
                    last = error_of(ask(connection, frame_of(-1, turn, 64)))
            except (OSError, Refused) as failure:
                last = failure
            if last == Error.NONE:
                return address
        turn += 1
        time.sleep(0.1)
    raise Refused(f"no leader among {addresses}: {last!r}")


class LoopClient(Protocol):
    """A client with at most one outstanding request, on a connection of its own that does not block."""

    connection: socket.socket
    sent_at: float
    """When the client sent its last request; only the generator uses this time."""

    def send(self) -> None:
        """Send the next request."""

    def receive(self) -> bool:
        """Read what has arrived; returns whether the response is complete.

        Raises `Refused` for a response other than that of a committed write.
        """


class Client:
    """One closed loop of Kafka's protocol: its connection, its two frames, and the time of the last send."""

    __slots__ = ("connection", "expected", "frames", "sent_at", "turn")

    def __init__(self, address: Address, frames: tuple[bytes, bytes], error_of: Callable[[bytes], Error]) -> None:
        self.frames = frames
        self.connection = connect(address)
        first = ask(self.connection, frames[1])
        if error := error_of(first):
            raise Refused(f"{address} answers {error.name}")
        self.expected = len(first).to_bytes(4, "big") + first
        self.connection.setblocking(False)
        self.turn = 0
        self.sent_at = 0.0

    def send(self) -> None:
        """Send the next of the two frames."""
        self.connection.send(self.frames[self.turn])
        self.turn ^= 1

    def receive(self) -> bool:
        """Read one response; raises `Refused` if it is not like the first one."""
        if self.connection.recv(4096) != self.expected:
            raise Refused("an answer was not that of a committed write")
        return True


def run(
    address: Address, clients: int, seconds: float, *, value_bytes: int = 128, warm_up: float = WARM_UP_SECONDS
) -> Row:
    """Load one node for `seconds` after the warm-up; raises `Refused` if a write is not committed."""
    return load(writers(address, clients, value_bytes), seconds, warm_up=warm_up)


def writers(address: Address, clients: int, value_bytes: int) -> list[Client]:
    """Clients that write to one node, each to a resource of its own."""
    frames = [(frame_of(number, 0, value_bytes), frame_of(number, 1, value_bytes)) for number in range(clients)]
    return [Client(address, each, error_of) for each in frames]


def load(clients: Sequence[LoopClient], seconds: float, *, warm_up: float = WARM_UP_SECONDS) -> Row:
    """Load for `seconds` after the warm-up, then close the clients."""
    try:
        drive(clients, warm_up)
        return timed(clients, seconds)
    finally:
        close(clients)


def timed(clients: Sequence[LoopClient], seconds: float) -> Row:
    """Load for `seconds` with clients that are warm."""
    started = time.perf_counter()
    latencies = sorted(drive(clients, seconds))
    took = time.perf_counter() - started
    percentile = [1000 * latencies[int(part * (len(latencies) - 1))] for part in (0.5, 0.99, 1.0)]
    return Row(len(clients), len(latencies), len(latencies) / took, *percentile)


def close(clients: Sequence[LoopClient]) -> None:
    """Close the connections of clients."""
    for each in clients:
        each.connection.close()


def drive(clients: Sequence[LoopClient], seconds: float) -> list[float]:
    """Run each client's loop for `seconds`, then await the last responses. Returns latencies in seconds."""
    by_fd = {each.connection.fileno(): each for each in clients}
    now = time.perf_counter
    latencies: list[float] = []
    with select.epoll() as poll:
        for fd, client in by_fd.items():
            poll.register(fd, select.EPOLLIN)
            client.sent_at = now()
            client.send()
        end = now() + seconds
        outstanding = len(clients)
        while outstanding:
            ready = poll.poll(ANSWER_SECONDS)
            if not ready:
                raise Refused(f"{outstanding} writes had no answer for {ANSWER_SECONDS} s")
            for fd, _ in ready:
                client = by_fd[fd]
                if not client.receive():
                    continue
                at = now()
                latencies.append(at - client.sent_at)
                if at >= end:
                    outstanding -= 1
                    continue
                client.sent_at = at
                client.send()
    return latencies
