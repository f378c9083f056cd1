"""Kafka's wire over Unix sockets: a third transport, which docs/howto/transport.md explains."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import trio

from transport import Cause, Endpoint, Listener, WireTransport
from transport.channels import Channel, Owner
from transport.limits import READ_BYTES


class UnixSockets:
    """`Sockets` in a directory: the address `host:port` is the file of that name."""

    def __init__(self, owner: Owner, directory: Path) -> None:
        self._owner, self._directory = owner, directory
        self._servers: list[Callable[[], Awaitable[None]]] = []
        self._nursery: trio.Nursery | None = None

    def listen(self, listener: Listener) -> Endpoint:
        free = (port for port in count(1) if not self._path(Endpoint(listener.host, port)).exists())
        endpoint = Endpoint(listener.host, listener.port or next(free))
        bound = socket.socket(socket.AF_UNIX)
        try:
            bound.bind(str(self._path(endpoint)))
        except OSError as failed:
            bound.close()
            raise OSError(failed.errno, f"cannot listen on {endpoint}: {failed.strerror}") from None
        bound.listen()
        server = partial(self._serve, bound, self._path(endpoint), listener)
        self._servers.append(server) if self._nursery is None else self._nursery.start_soon(server)
        return endpoint

    def _path(self, endpoint: Endpoint) -> Path:
        return self._directory / str(endpoint)

    async def _serve(self, bound: socket.socket, path: Path, listener: Listener) -> None:
        async def welcome(stream: trio.SocketStream) -> None:
            connection = Connection(self._owner)
            channel = self._owner.accepted(connection, listener, "a neighbour")
            if channel is not None:
                with connection.scope:
                    await connection.run(stream, channel)

        try:
            await trio.serve_listeners(welcome, [trio.SocketListener(trio.socket.from_stdlib_socket(bound))])
        finally:
            os.unlink(path)

    def connect(self, endpoint: Endpoint, channel: Channel, failures: int) -> Connection:
        connection = Connection(self._owner)
        assert self._nursery is not None
        self._nursery.start_soon(self._connect, endpoint, channel, connection)
        return connection

    async def _connect(self, endpoint: Endpoint, channel: Channel, connection: Connection) -> None:
        with connection.scope:
            try:
                stream = await trio.open_unix_socket(self._path(endpoint))
            except OSError as failed:
                is_there = not isinstance(failed, FileNotFoundError | ConnectionRefusedError)
                channel.on_closed(Cause.TIMEOUT if is_there else Cause.REFUSED, str(failed.strerror))
                self._owner.batch_delivered()
            else:
                channel.on_connected()
                await connection.run(stream, channel)

    def poll_nowait(self) -> None:
        """Only the task of a connection can read it."""

    def wake(self) -> None:
        self._token.run_sync_soon(self._owner.batch_delivered, idempotent=True)

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as self._nursery:
            for server in self._servers:
                self._nursery.start_soon(server)
            task_status.started()
            await trio.sleep_forever()


class Connection:
    """A `Socket`: a task reads while it may, another one writes what waits, and the end of `scope` is theirs."""

    def __init__(self, owner: Owner) -> None:
        self.unsent, self.scope = 0, trio.CancelScope()
        self._owner, self._may_read = owner, trio.Event()
        self._out, self._waiting = trio.open_memory_channel(math.inf)
        self.resume()

    async def run(self, stream: trio.SocketStream, channel: Channel) -> None:
        try:
            async with stream, trio.open_nursery() as nursery:
                nursery.start_soon(self._write_all, stream, channel)
                while data := await stream.receive_some(READ_BYTES):
                    channel.on_data(data)
                    self._owner.batch_delivered()
                    await self._may_read.wait()
                nursery.cancel_scope.cancel()
        except* trio.BrokenResourceError:
            pass  # the peer has closed without reading everything
        channel.on_closed(Cause.RESET, "the peer closed the connection")
        self._owner.batch_delivered()

    async def _write_all(self, stream: trio.SocketStream, channel: Channel) -> None:
        async for data in self._waiting:
            await stream.send_all(data)
            self.unsent -= len(data)
            channel.on_drained()

    def write(self, data: bytes) -> None:
        self.unsent += len(data)
        self._out.send_nowait(data)

    def write_pieces(self, pieces: Sequence[bytes]) -> None:
        for piece in pieces:
            self.write(piece)

    def pause(self) -> None:
        self._may_read = trio.Event()

    def resume(self) -> None:
        self._may_read.set()

    def close(self) -> None:
        self.scope.cancel()


def unix_transport(directory: Path, **options: Any) -> WireTransport:
    return WireTransport(partial(UnixSockets, directory=directory), **options)
