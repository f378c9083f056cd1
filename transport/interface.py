"""The interface between a node and the network: requests, answers and their outcomes.

Kafka: `NetworkChannel` and `SocketServer`. Every callback and every method below is synchronous and runs in the Trio
thread. `TcpTransport` and `MemoryTransport` pass one contract test. `docs/howto/transport.md` shows how to write a
third transport.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Protocol

import trio
from msgspec import Struct

from metadata_log.serde import Message
from metadata_log.serde.fields import OPEN_END
from transport.protocol.inbound import Cause, Failed, Gone, Reply, Request

__all__ = ["PEERS", "Cause", "Endpoint", "Failed", "Gone", "Inbound", "Listener", "Reply", "Request", "Transport"]


class Endpoint(Struct, frozen=True, gc=False, order=True):
    """The address of a peer's listener (Kafka: `InetSocketAddress`, `Endpoint`).

    Args:
        host: A host name, or a numeric address without brackets.
        port: The port, from 1 to 65535.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Listener(Struct, frozen=True):
    """An address to listen on (Kafka: `EndPoint`).

    Args:
        name: The name of the listener; each request of a peer has the name of its listener.
        host: A host name or a numeric address; empty for every address of this machine.
        port: The port; 0 for a port that the operating system chooses.
    """

    name: str
    host: str
    port: int


PEERS: Final = ""
"""The kind of peers that no other kind names: for a node the controllers, for a client whatever it reaches."""

Inbound = Request | Reply | Failed | Gone
"""The things that a transport delivers."""


def no_more() -> bool:
    """The default of `batch_delivered`, for users that finish each delivery within `deliver`."""
    return True


class Transport(Protocol):
    """Moves messages between nodes. A transport knows Kafka's wire format and nothing of quorums."""

    def listen(self, listener: Listener) -> Endpoint:
        """Bind now; the transport serves peers once `run` has begun.

        Returns:
            The bound address, with the port that the operating system chose for port 0.

        Raises:
            OSError: The address is unknown or in use.
        """

    async def run(
        self,
        deliver: Callable[[Inbound], None],
        *,
        batch_delivered: Callable[[], bool] = no_more,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Own every socket until cancelled, then close them all. Runs once.

        Args:
            deliver: Called for each incoming item.
            batch_delivered: Called once after one or several deliveries, before the transport waits again. Returns
                whether only the network and time can bring more work.
            task_status: `started()` is called as soon as `request` may be called.

        Neither callback may wait or raise. Both may call `request`, `answer` and `drop`.

        Raises:
            OSError: A listener of the constructor cannot be bound.
        """

    def request(
        self,
        endpoint: Endpoint,
        token: int,
        message: Message,
        *,
        timeout_ms: int,
        client_id: str,
        lane: int = 0,
        highest: int = OPEN_END,
        peers: str = PEERS,
    ) -> None:
        """Send a request, connecting first where needed.

        The transport later delivers exactly one `Reply` or `Failed` with this token, never from inside this call. The
        request is in the highest version that both sides know, up to `highest`. During the peer's reconnect backoff
        (50 ms, growing to 500 ms) the request fails at once, with the cause of the last attempt.

        Args:
            endpoint: The address of the peer.
            token: A number that no outstanding request has.
            message: The request.
            timeout_ms: Milliseconds until the request fails with `Cause.TIMEOUT`.
            client_id: The client id of the request header. Each client id has connections of its own.
            lane: Requests of different lanes take different connections, because answers leave a connection in the
                order of their requests. A request with a slow answer, or an answer that depends on a later request,
                needs a lane or a client id of its own.
            highest: The highest version of the API that the request may have.
            peers: The kind of the peer. Each kind has a security protocol and connections of its own.
        """

    def keep_connected(self, endpoints: Collection[Endpoint], client_id: str) -> None:
        """Hold connections to these peers open, so that no request waits for a connection.

        The transport connects now, and again soon after a connection is lost. A failure to connect is not delivered and
        delays no request. A transport without connections does nothing.

        Args:
            endpoints: The peers. They replace the peers of an earlier call with this client id.
            client_id: The client id of the connections.
        """

    def answer(self, request: Request, message: Message) -> None:
        """Answer a request. The calls may come in any order; answers leave in the order of their requests.

        After the connection is closed this does nothing. The transport then delivers a `Gone` that names the request,
        unless the transport itself ends.

        Args:
            request: A delivered request that has no answer yet.
            message: The response of the request's API.
        """

    def drop(self, request: Request) -> None:
        """Close the connection of this request without an answer.

        Args:
            request: A delivered request that has no answer yet.
        """

    def poll_nowait(self) -> None:
        """Deliver what has arrived, if the transport can see that without waiting; does not call `batch_delivered`.

        For a user that is about to occupy the thread. Only the user calls this, from `batch_delivered` or from a task
        of its own.
        """

    def wake(self) -> None:
        """Schedule a call of `batch_delivered`. The only method that any thread may call, once `run` has begun."""

    def close_peer(self, endpoint: Endpoint) -> None:
        """Close the connections to a peer. Requests that wait for the peer end with `Cause.CLOSED`.

        Args:
            endpoint: The address of the peer.
        """
