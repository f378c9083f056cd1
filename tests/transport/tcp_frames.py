"""A server of frames on a loopback socket, and clients that send it theirs."""

from __future__ import annotations

import os
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import trio

from conversation import LISTENER, Node, numbered
from transport import Endpoint
from transport.protocol.apis import ApiKey
from transport.protocol.frames import FrameReader
from transport.protocol.headers import encode_request


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def vote(number: int) -> bytes:
    return framed(encode_request(ApiKey.VOTE, 2, number, "raw", numbered(number)))


@asynccontextmanager
async def serving(node: Node) -> AsyncIterator[Endpoint]:
    endpoint = node.transport.listen(LISTENER)
    async with node.running():
        yield endpoint


async def connect(endpoint: Endpoint) -> trio.SocketStream:
    return await trio.open_tcp_stream(endpoint.host, endpoint.port)


async def read_frames(stream: trio.SocketStream, count: int) -> list[bytes]:
    """The next frames, without their lengths; fewer if the connection ends before."""
    reader, frames = FrameReader(), list[Any]()
    while len(frames) < count and (data := await stream.receive_some()):
        frames += reader.feed(data)
    return frames


async def read_to_end(stream: trio.SocketStream) -> bytes:
    """Everything until the peer closes or resets."""
    read = b""
    with suppress(trio.BrokenResourceError):
        while data := await stream.receive_some():
            read += data
    return read


@contextmanager
def no_free_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    fillers: list[Any] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(int(name) for name in os.listdir("/proc/self/fd")) + 2, hard))
    try:
        with suppress(OSError):
            while True:
                fillers.append(open(os.devnull))  # noqa: SIM115
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for filler in fillers:
            filler.close()
