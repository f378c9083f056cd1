"""The only thing a node sees of the network: requests come in, answers go out, and the other way round.

Kafka: `NetworkChannel` and `SocketServer` behind one door. Every callback and every method below is synchronous, in the
Trio thread; `TcpTransport` and `MemoryTransport` pass one contract test. `docs/howto/transport.md` makes a third one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

import trio
from msgspec import Struct

from metadata_log.serde import Message
from transport.protocol.connection import Cause, Failed, Gone, Reply, Request

__all__ = ["Cause", "Endpoint", "Failed", "Gone", "Inbound", "Listener", "Reply", "Request", "Transport"]


class Endpoint(Struct, frozen=True, order=True):
    """Where a peer listens: a host name or numeric address, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Listener(Struct, frozen=True):
    """Where this node listens; port 0 takes a free one from the operating system. An empty host means every address."""

    name: str
    host: str
    port: int


Inbound = Request | Reply | Failed | Gone
"""What a transport delivers."""


def no_more() -> bool:
    """The `settled` of those who deal with everything as it is delivered."""
    return True


class Transport(Protocol):
    """Moves messages between nodes; knows Kafka's wire and nothing of quorums."""

    def listen(self, listener: Listener) -> Endpoint:
        """Bind now and return where; `OSError` if the address cannot be had. Peers are served once `run` has begun."""

    async def run(
        self,
        deliver: Callable[[Inbound], None],
        *,
        settled: Callable[[], bool] = no_more,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Own every socket until cancelled, then close them all. Runs once.

        `deliver` is called for each thing that comes in, and `settled` once after one or several of them, when nothing
        more is at hand, and before the transport waits again; it returns whether only the network and time can bring
        more to do now. Neither may wait or raise; both may call `request`, `answer` and `drop`. `task_status.started()`
        is called when `request` may be.
        """

    def request(self, endpoint: Endpoint, token: int, message: Message, *, timeout_ms: int, client_id: str) -> None:
        """Send a request, connecting first where needed; `token` must be new.

        Each client id has a connection of its own: on one connection answers leave in the order of their requests, so
        an answer that is long in coming, or waits for what another request brings about, needs another one.

        Exactly one `Reply` or `Failed` with this token is delivered later, never from inside this call. The version is
        the highest that both sides know. While the peer is within its reconnect back-off (50 ms growing to 500 ms) the
        request fails at once with the cause of the last attempt.
        """

    def keep(self, endpoints: Collection[Endpoint], client_id: str) -> None:
        """Have connections to these peers at hand, so that no request waits for one: made now, and again soon after
        they are lost. Takes the place of what was kept for this client id before.

        A failure is delivered to nobody and keeps no request away. Where there are no connections to make, this does
        nothing.
        """

    def answer(self, request: Request, message: Message) -> None:
        """Answer a request, in any order: answers leave in the order of their requests, as Kafka's clients expect.

        Once the connection is closed this does nothing, and a `Gone` that names the request is delivered, unless the
        transport ends.
        """

    def drop(self, request: Request) -> None:
        """Close the connection that this request came by, without an answer."""

    def look(self) -> None:
        """Deliver now what is at hand, if there is a way to see that without waiting; `settled` is not called.

        For who is about to keep the thread to itself. Only the user calls this, from `settled` or a task of its own.
        """

    def wake(self) -> None:
        """Have `settled` called soon. The only method that any thread may call, once `run` has begun."""

    def close_peer(self, endpoint: Endpoint) -> None:
        """Close the connections to a peer; requests still waiting for it end with `Cause.CLOSED`."""
