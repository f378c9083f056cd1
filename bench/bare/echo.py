"""The transport's cost of a request and its response: a server that answers at once, and a raw client in a closed loop.

Rows: a bare epoll loop that returns each frame (the lower bound), `TcpTransport` on epoll, on streams. All rows are of
one run, because only such rows are comparable. `python bench/bare/echo.py [SECONDS]`.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import resource
import select
import socket
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from spread import spread

from transport import Inbound, Listener, Request, TcpTransport
from transport.protocol.headers import encode_request
from transport.protocol.messages.vote import (
    VoteRequest,
    VoteRequestPartitionData,
    VoteRequestTopicData,
    VoteResponse,
    VoteResponsePartitionData,
    VoteResponseTopicData,
)

Pipe = multiprocessing.connection.Connection
CONNECTIONS = (1, 16, 128)
REPETITIONS = 3

VOTE = VoteRequest(
    cluster_id="AAAAAAAAAAAAAAAAAAAAAA",
    voter_id=1,
    topics=[VoteRequestTopicData(topic_name="__cluster_metadata", partitions=[VoteRequestPartitionData(replica_id=2)])],
)
GRANTED = VoteResponse(
    topics=[VoteResponseTopicData(topic_name="__cluster_metadata", partitions=[VoteResponsePartitionData()])]
)


def serve_with_transport(pipe: Pipe, use_epoll: bool) -> None:
    """Answer each request at once until the stop message; then send the processor time used."""

    async def main() -> None:
        transport = TcpTransport(use_epoll=use_epoll)
        pipe.send(transport.listen(Listener("CONTROLLER", "127.0.0.1", 0)).port)

        def deliver(inbound: Inbound) -> None:
            assert isinstance(inbound, Request)
            transport.answer(inbound, GRANTED)

        async with trio.open_nursery() as nursery:
            await nursery.start(transport.run, deliver)
            await trio.lowlevel.wait_readable(pipe.fileno())
            nursery.cancel_scope.cancel()

    trio.run(main)
    pipe.send(resource.getrusage(resource.RUSAGE_SELF).ru_utime + resource.getrusage(resource.RUSAGE_SELF).ru_stime)


def serve_bare(pipe: Pipe) -> None:
    """Return each frame: the cost of the operating system itself."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=512)
    pipe.send(listening.getsockname()[1])
    epoll = select.epoll()
    epoll.register(listening.fileno(), select.EPOLLIN)
    epoll.register(pipe.fileno(), select.EPOLLIN)
    members: dict[int, socket.socket] = {}
    while True:
        for descriptor, _ in epoll.poll():
            if descriptor == pipe.fileno():
                usage = resource.getrusage(resource.RUSAGE_SELF)
                pipe.send(usage.ru_utime + usage.ru_stime)
                return
            if descriptor == listening.fileno():
                accepted, _ = listening.accept()
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                members[accepted.fileno()] = accepted
                epoll.register(accepted.fileno(), select.EPOLLIN)
            elif data := members[descriptor].recv(65536):
                members[descriptor].send(data)
            else:
                epoll.unregister(descriptor)
                members.pop(descriptor).close()


def ask(port: int, connections: int, seconds: float) -> tuple[int, float]:
    """Keep one request in flight on each connection; returns the number of responses, and the median latency in ms."""
    content = encode_request(52, 2, 1, "raft-client-1", VOTE)
    frame = len(content).to_bytes(4, "big") + content
    epoll, members, sent_at = select.epoll(), {}, {}
    for _ in range(connections):
        member = socket.create_connection(("127.0.0.1", port))
        member.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        members[member.fileno()] = member
        epoll.register(member.fileno(), select.EPOLLIN)
        sent_at[member.fileno()] = time.perf_counter()
        member.send(frame)
    answered, latencies = 0, []
    end = time.perf_counter() + seconds
    while (now := time.perf_counter()) < end:
        for descriptor, _ in epoll.poll():
            members[descriptor].recv(65536)
            if answered % 16 == 0:
                latencies.append(now - sent_at[descriptor])
            answered += 1
            sent_at[descriptor] = now
            members[descriptor].send(frame)
    for member in members.values():
        member.setblocking(True)
        member.recv(65536)
        member.close()
    return answered, statistics.median(latencies) * 1000


def measure(
    serve: Callable[..., None], arguments: tuple[object, ...], connections: int, seconds: float
) -> tuple[float, float, float]:
    """Responses per second, median ms, and the server's processor time for each response in microseconds."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(theirs, *arguments))
    process.start()
    port = ours.recv()
    warmed, _ = ask(port, connections, seconds / 5)
    answered, median_ms = ask(port, connections, seconds)
    ours.send("stop")
    processor_s = ours.recv()
    process.join()
    return answered / seconds, median_ms, processor_s / (warmed + answered) * 1e6


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    multiprocessing.set_start_method("fork")
    rows: list[tuple[str, Callable[..., None], tuple[object, ...]]] = [
        ("bare epoll, no codec", serve_bare, ()),
        ("TcpTransport, epoll", serve_with_transport, (True,)),
        ("TcpTransport, streams", serve_with_transport, (False,)),
    ]
    print(f"median (least-most) of {REPETITIONS} runs")
    columns = [f"{count} conn: {what}" for count in CONNECTIONS for what in ("/s", "p50 ms", "µs/answer")]
    print(f"{'':24}" + "".join(f"{column:>26}" for column in columns))
    for name, serve, arguments in rows:
        line = f"{name:24}"
        for connections in CONNECTIONS:
            runs = [measure(serve, arguments, connections, seconds) for _ in range(REPETITIONS)]
            line += "".join(f"{spread(column)!s:>26}" for column in zip(*runs, strict=True))
        print(line, flush=True)


if __name__ == "__main__":
    main()
