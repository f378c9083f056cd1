"""`WireTransport`: Kafka's wire over any sockets (Kafka: `SocketServer` and `NetworkClient` together).

This module keeps the books: by which connection a request went and when its time is up. A `Sockets` moves bytes,
`channels` and `protocol.connection` know what they mean.
"""

from __future__ import annotations

import importlib.metadata
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

import trio

from metadata_log.serde import Message
from transport.channels import ClientChannel, ClientOptions, Owner, ServerChannel, Socket, Sockets
from transport.interface import Cause, Endpoint, Failed, Inbound, Listener, Reply, Request, no_more
from transport.protocol.apis import APIS, Api
from transport.protocol.limits import MAX_FRAME_BYTES
from transport.timer import Timer

log = logging.getLogger("transport")

SOFTWARE_NAME: Final = "trio-kraft"
_KEEP_SECONDS: Final = 0.5
"""How often lost connections that are to be kept are made again, if nobody comes by."""
_KEEP_APART_SECONDS: Final = 0.05
"""They are made again when a peer connects, who may be the one that was away, but not more often than this."""


class WireTransport:
    """A `Transport` over the sockets that `make_sockets` makes for it.

    `listeners` are bound when `run` begins; `listen` binds at once. `served` are the APIs that peers may ask for, by
    key; a request for another closes its connection, as in Kafka. `max_frame_bytes` is `socket.request.max.bytes`,
    `max_idle_ms` is `connections.max.idle.ms`, after which an idle connection is closed; `max_connections` bounds those
    of peers.
    """

    def __init__(
        self,
        make_sockets: Callable[[Owner], Sockets],
        listeners: Sequence[Listener] = (),
        *,
        served: Mapping[int, Api] = APIS,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        max_idle_ms: int = 600_000,
        max_connections: int = 10_000,
        backoff_ms: int = 50,
        backoff_max_ms: int = 500,
    ) -> None:
        self.endpoints: dict[str, Endpoint] = {}
        """Where each listener, by name, is bound."""
        self._wanted = tuple(listeners)
        self._served = served
        self._max_idle_s = max_idle_ms / 1000
        self._max_connections = max_connections
        self._options = ClientOptions(
            software=(SOFTWARE_NAME, importlib.metadata.version(SOFTWARE_NAME)),
            apis=APIS,
            max_frame_bytes=max_frame_bytes,
            backoff_ms=backoff_ms,
            backoff_max_ms=backoff_max_ms,
        )
        self._sockets = make_sockets(self)
        self._deliver: Callable[[Inbound], None] | None = None
        self._settled = no_more
        self.now = trio.current_time
        """Seconds on Trio's clock."""
        self._peers: dict[tuple[Endpoint, str], ClientChannel] = {}
        """One connection for each client id, because answers leave in the order of their requests."""
        self._kept: dict[str, tuple[Endpoint, ...]] = {}
        """By client id, the peers to have connections to."""
        self._kept_at = 0.0
        """When that was last seen to."""
        self._accepted: dict[ServerChannel, None] = {}
        self._reading: deque[ServerChannel] = deque()
        """Channels with a long frame to decode: one of them does a step in each turn of the task."""
        self._outstanding: dict[int, ClientChannel] = {}
        """The channel of every request, by token, until its outcome was delivered."""
        self._timer = Timer(self._outstanding, self._expire, self.settled)

    def listen(self, listener: Listener) -> Endpoint:
        """Bind now and return where; `OSError`, with the address in its text, if that cannot be had."""
        endpoint = self._sockets.listen(listener)
        self.endpoints[listener.name] = endpoint
        return endpoint

    async def run(
        self,
        deliver: Callable[[Inbound], None],
        *,
        settled: Callable[[], bool] = no_more,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Own every socket until cancelled, then close them all; see `Transport.run`."""
        assert self._deliver is None, "a transport runs once"
        self._deliver = deliver
        self._settled = settled
        # `trio.current_time` looks for the clock every time, which takes three times as long.
        self.now = trio.lowlevel.current_clock().current_time
        for listener in self._wanted:
            self.listen(listener)
        self.later(self._sweep, self._max_idle_s / 4)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._timer.run)
                await nursery.start(self._sockets.run)
                task_status.started()
        finally:
            for token in list(self._outstanding):
                self.finish(Failed(token, Cause.CLOSED, "this side ended"))

    def request(self, endpoint: Endpoint, token: int, message: Message, *, timeout_ms: int, client_id: str) -> None:
        """Send a request, connecting first where needed; see `Transport.request`."""
        assert token not in self._outstanding, f"token {token} is in use"
        peer = self._outstanding[token] = self._peer(endpoint, client_id)
        peer.request(token, message, client_id)
        self._timer.start(token, self.now() + timeout_ms / 1000)

    def _peer(self, endpoint: Endpoint, client_id: str) -> ClientChannel:
        peer = self._peers.get((endpoint, client_id))
        if peer is None:
            peer = self._peers[endpoint, client_id] = ClientChannel(self, self._sockets, endpoint, self._options)
        return peer

    def keep(self, endpoints: Collection[Endpoint], client_id: str) -> None:
        """Have connections to these peers at hand; see `Transport.keep`."""
        if not self._kept:
            self.later(self._keep_on, _KEEP_SECONDS)
        self._kept[client_id] = tuple(endpoints)
        self.later(self._connect_kept)

    def _keep_on(self) -> None:
        self._connect_kept()
        self.later(self._keep_on, _KEEP_SECONDS)

    def _connect_kept(self) -> None:
        self._kept_at = self.now()
        for client_id, endpoints in self._kept.items():
            for endpoint in endpoints:
                self._peer(endpoint, client_id).keep(client_id)

    def answer(self, request: Request, message: Message) -> None:
        """Answer a request; see `Transport.answer`. Nothing happens if its connection is closed by now."""
        channel = request.handle
        assert isinstance(channel, ServerChannel), channel
        channel.answer(request, message)

    def drop(self, request: Request) -> None:
        """Close the connection that this request came by, without an answer."""
        channel = request.handle
        assert isinstance(channel, ServerChannel), channel
        channel.close()

    def look(self) -> None:
        """Deliver now what is at hand; see `Transport.look`."""
        self._sockets.look()

    def wake(self) -> None:
        """Have `settled` called soon, from any thread."""
        self._sockets.wake()

    def close_peer(self, endpoint: Endpoint) -> None:
        """Close the connections to a peer; requests still waiting for it end with `Cause.CLOSED`."""
        for (at, _), peer in self._peers.items():
            if at == endpoint:
                for outcome in peer.end(Cause.CLOSED, f"the connection to {endpoint} was closed by this side"):
                    self.finish_later(outcome)

    def accepted(self, socket: Socket, listener: Listener, peer: str) -> ServerChannel | None:
        """A peer has connected; None turns it away."""
        if len(self._accepted) >= self._max_connections:
            log.warning("turning away %s: there are %d connections already", peer, len(self._accepted))
            return None
        assert self._deliver is not None, "peers are accepted only by a running transport"
        channel = ServerChannel(
            self,
            socket,
            self._deliver,
            listener=listener.name,
            peer=peer,
            served=self._served,
            max_frame_bytes=self._options.max_frame_bytes,
        )
        self._accepted[channel] = None
        if self._kept and channel.last_active - self._kept_at >= _KEEP_APART_SECONDS:
            self._kept_at = channel.last_active
            self.later(self._connect_kept)
        return channel

    def forget(self, channel: ServerChannel) -> None:
        """This connection of a peer is closed."""
        self._accepted.pop(channel, None)

    def finish(self, outcome: Reply | Failed) -> None:
        """Hand the outcome of a request to the user, unless its time was up."""
        assert self._deliver is not None
        if self._outstanding.pop(outcome.token, None) is not None:
            self._deliver(outcome)

    def finish_later(self, outcome: Failed) -> None:
        """The same from inside the user's call."""
        self.later(partial(self.finish, outcome))

    def settled(self) -> bool:
        """Nothing more is at hand: the user may deal with what was delivered."""
        return self._settled()

    def later(self, action: Callable[[], None], delay_s: float = 0.0) -> None:
        """Do something in the transport's own task, soon or after a while."""
        self._timer.later(action, delay_s)

    def read_on_later(self, channel: ServerChannel) -> None:
        """Call `read_on` of a channel when others have had their turn."""
        self._reading.append(channel)
        if len(self._reading) == 1:
            self.later(self._read_on)

    def _read_on(self) -> None:
        self._reading[0].read_on()
        self._reading.popleft()
        if self._reading:
            self.later(self._read_on)

    def _expire(self, token: int) -> None:
        """A request is out of time: fail it and close its connection, where all later answers wait for its own."""
        peer = self._outstanding[token]
        self.finish(Failed(token, Cause.TIMEOUT, f"{peer.endpoint}: no answer in time"))
        for outcome in peer.end(Cause.TIMEOUT, f"{peer.endpoint}: an earlier request was not answered in time"):
            self.finish(outcome)

    def _sweep(self) -> None:
        """Close what has been idle for too long, a few times in that while."""
        longest = self._max_idle_s
        active_since = self.now() - longest
        for channel in list(self._accepted):
            if channel.last_active < active_since and channel.is_idle:
                log.debug("closing the idle connection of %s", channel.peer)
                channel.close()
        for key, peer in list(self._peers.items()):
            if peer.last_active < active_since and peer.is_idle:
                peer.end(Cause.CLOSED, "idle")
                if peer.is_blank:
                    del self._peers[key]
        self.later(self._sweep, longest / 4)
