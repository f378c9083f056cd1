"""What both loops of sockets keep of their contract where several sockets have news at the same moment."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from transport.addresses import set_options
from transport.channels import Channel, Owner, Socket, Sockets
from transport.epoll import EpollSockets
from transport.interface import Cause, Endpoint, Failed, Listener, Reply
from transport.streams import StreamSockets

LOOPS: dict[str, Callable[[Owner], Sockets]] = {
    "epoll": lambda owner: EpollSockets(owner, 0),
    "streams": StreamSockets,
}
LISTENER = Listener("LOOPBACK", "127.0.0.1", 0)


class Owning:
    """The owner of the sockets of these tests: accepts every peer as a channel that closes all sockets when it hears
    something.
    """

    def __init__(self, sockets: Callable[[Owner], Sockets]) -> None:
        self.sockets = sockets(self)
        self.open: list[Socket] = []
        self.heard: list[str] = []

    def hears(self, what: str) -> None:
        """A channel has heard something."""
        self.heard.append(what)
        for one in self.open:
            one.close()

    def accepted(self, socket: Socket, listener: Listener, peer: str) -> Channel | None:
        self.open.append(socket)
        return Closing(self)

    def wait_s(self, listener: Listener) -> float:
        return 0.0

    def hold_s(self, listener: Listener, peer: str) -> float:
        return 0.0

    def has_reserve(self, peer: str) -> bool:
        return False

    def finish(self, outcome: Reply | Failed) -> None:
        raise AssertionError(outcome)

    finish_later = finish

    def batch_delivered(self) -> bool:
        return True

    def later(self, action: Callable[[], None], delay_s: float = 0.0) -> None:
        trio.lowlevel.current_trio_token().run_sync_soon(action)

    def now(self) -> float:
        return trio.current_time()


class Closing:
    """A channel that tells its owner what it hears."""

    def __init__(self, owner: Owning) -> None:
        self._owner = owner

    def on_connected(self) -> None:
        self._owner.hears("connected")

    def on_data(self, data: bytes) -> int:
        self._owner.hears("data")
        return 0

    def on_drained(self) -> None:
        self._owner.hears("drained")

    def on_closed(self, cause: Cause, detail: str) -> None:
        self._owner.hears(f"closed: {detail}")


@asynccontextmanager
async def running(kind: str) -> AsyncIterator[tuple[Owning, Endpoint]]:
    """The sockets of a loop that runs, and the address at which they accept."""
    owner = Owning(LOOPS[kind])
    endpoint = owner.sockets.listen(LISTENER)
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: owner.sockets.run(task_status=task_status))
        yield owner, endpoint
        await trio.testing.wait_all_tasks_blocked(0.02)
        nursery.cancel_scope.cancel()


async def connected(owner: Owning, endpoint: Endpoint, count: int) -> list[socket.socket]:
    """So many peers that have connected."""
    peers = []
    for number in range(1, count + 1):
        peers.append(socket.create_connection((endpoint.host, endpoint.port)))
        while len(owner.open) < number:
            await trio.lowlevel.checkpoint()
    await trio.testing.wait_all_tasks_blocked()
    return peers


@pytest.mark.parametrize("kind", LOOPS)
class TestAClosedSocketReportsNothing:
    """The system has news of several sockets, and what the first one reports closes all of them."""

    async def test_of_bytes_that_came_at_the_same_moment(self, kind: str) -> None:
        async with running(kind) as (owner, endpoint):
            peers = await connected(owner, endpoint, 4)
            for one in peers:
                one.sendall(b"hello")
        assert owner.heard == ["data"]
        for one in peers:
            one.close()

    async def test_of_ends_that_came_at_the_same_moment(self, kind: str) -> None:
        async with running(kind) as (owner, endpoint):
            for one in await connected(owner, endpoint, 4):
                one.close()
        assert owner.heard == ["closed: the peer closed the connection"]

    async def test_of_connections_that_were_established_at_the_same_moment(self, kind: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            async with running(kind) as (owner, _):
                at = Endpoint(*server.getsockname())
                owner.open += [owner.sockets.connect(at, Closing(owner), 0) for _ in range(4)]
        assert owner.heard == ["connected"]

    async def test_of_refusals_at_the_same_moment(self, kind: str) -> None:
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            at = Endpoint(*bound.getsockname())
            async with running(kind) as (owner, _):
                owner.open += [owner.sockets.connect(at, Closing(owner), 0) for _ in range(4)]
        assert len(owner.heard) == 1
        assert "refused" in owner.heard[0]


@pytest.mark.parametrize("kind", LOOPS)
@pytest.mark.parametrize("answer", [errno.EINVAL, errno.ECONNRESET])
async def test_a_system_that_refuses_the_options_of_a_closed_connection_ends_nothing(
    kind: str, answer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS does so; the connection is served until its end is read."""

    def refused(self: socket.socket, level: int, option: int, value: int) -> None:
        raise OSError(answer, os.strerror(answer))

    async with running(kind) as (owner, endpoint):
        monkeypatch.setattr(socket.socket, "setsockopt", refused)
        for one in await connected(owner, endpoint, 1):
            one.close()
    assert owner.heard == ["closed: the peer closed the connection"]


def test_another_refusal_of_an_option_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: socket.socket, level: int, option: int, value: int) -> None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    monkeypatch.setattr(socket.socket, "setsockopt", refused)
    with socket.socket() as one, pytest.raises(OSError, match="Bad file"):
        set_options(one)
