"""`WireTransport`: Kafka's wire protocol over any sockets (Kafka: `SocketServer` and `NetworkClient` together).

This module tracks the connection and the timeout of each request. A `Sockets` moves bytes;
`server_channel` and `client_channel` interpret them.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

import trio
from msgspec.structs import replace

from metadata_log.serde import Message
from metadata_log.serde.fields import OPEN_END
from metadata_log.software import SOFTWARE_NAME, SOFTWARE_VERSION
from transport.addresses import addresses_of
from transport.channels import Channel, Connector, Gate, LateSockets, Owner, Socket, Sockets
from transport.client_channel import ClientChannel, ClientOptions
from transport.handshakes import Handshakes
from transport.interface import PEERS, Cause, Endpoint, Failed, Inbound, Listener, Reply, Request, no_more
from transport.limits import BUDGET_BYTES, MAX_CONNECTIONS, TURN_REQUESTS
from transport.protocol.apis import APIS, Api
from transport.protocol.limits import MAX_FRAME_BYTES, Limit, answer_limit, request_limit
from transport.sasl import NO_SASL, Sasl, server_of, wall_clock_ms
from transport.server_channel import ServerChannel
from transport.serving import INT_MAX, LARGEST_REQUEST_BYTES, Serving, ServingLimits, address_of
from transport.timer import Timer
from transport.tls import Fault, Tls
from transport.tls_stage import TlsConnector, TlsServing
from transport.traffic import SUCCESS, TLS, Traffic

log = logging.getLogger("transport")

_KEEP_SECONDS: Final = 0.5
"""The interval of reconnecting to the kept peers, if no peer connects."""
_KEEP_APART_SECONDS: Final = 0.05
"""The least interval of reconnecting when a peer connects, which may be the peer that was away."""


T = TypeVar("T")


def _for_kind(table: Mapping[str, T | None], kind: str) -> T | None:
    """The entry that a table has for this kind of peers; a kind that is not named is as `PEERS`."""
    return table[kind] if kind in table else table.get(PEERS)


def _secured_of(tls: Tls) -> dict[str, bool]:
    return {kind: context is not None for kind, context in tls.outgoing.items()}


class WireTransport:
    """A `Transport` in Kafka's wire protocol over any sockets. See `Transport` for the contract.

    Kafka: `SocketServer` and `NetworkClient`.

    Args:
        make_sockets: Makes the sockets' event loop for its owner.
        listeners: The addresses that `run` binds; `listen` binds at once.
        tls: TLS of the listeners and of the connections to peers; by default every connection is in the clear.
        sasl: The logins of peers at the listeners, and of this side at its peers; by default there are none.
        served: The APIs that peers may request, by key. A request for another API closes its connection, as in Kafka.
        limits: The most bytes and values of a request, by API key.
        requested: The APIs that this side requests of peers, by key, ApiVersions among them.
        answer_limits: The most bytes and values of an answer, by API key.
        opens_later: Whether the listeners accept no connection before `open_listeners`.
        for_clients: The names of the listeners to which `served`, `limits` and `opens_later` apply; the other listeners
            are those of a controller. Empty for all listeners.
        max_frame_bytes: Kafka's `socket.request.max.bytes`: the most bytes of one frame.
        largest_request_bytes: The most bytes that any of the `limits` allows.
        max_idle_ms: Kafka's `connections.max.idle.ms`: an idle connection is closed after these milliseconds.
        max_connections: Kafka's `max.connections`: the most connections of peers.
        max_connections_per_ip: Kafka's `max.connections.per.ip`: the most connections of one address.
        max_connections_per_ip_overrides: Kafka's `max.connections.per.ip.overrides`: limits by host name or address.
        max_queued_requests: Kafka's `queued.max.requests`: the most requests that are delivered and not yet processed.
        max_received_bytes: Kafka's `queued.max.request.bytes`: the most bytes of requests without an answer; 0 for
            64 MiB, or twice the largest request.
        max_unsent_bytes: The most bytes of answers that peers have not read.
        stalled_ms: The milliseconds after which a peer without progress is disconnected.
        backoff_ms: Kafka's `reconnect.backoff.ms` of a raft client: the first pause before a new connection.
        backoff_max_ms: The longest pause before a new connection, in milliseconds.
    """

    def __init__(
        self,
        make_sockets: Callable[[Owner], Sockets],
        listeners: Sequence[Listener] = (),
        *,
        tls: Tls | None = None,
        sasl: Sasl = NO_SASL,
        served: Mapping[int, Api] = APIS,
        limits: Callable[[int], Limit] = request_limit,
        requested: Mapping[int, Api] = APIS,
        answer_limits: Callable[[int], Limit] = answer_limit,
        opens_later: bool = False,
        for_clients: Collection[str] = (),
        max_frame_bytes: int = MAX_FRAME_BYTES,
        largest_request_bytes: int = LARGEST_REQUEST_BYTES,
        max_idle_ms: int = 600_000,
        max_connections: int = MAX_CONNECTIONS,
        max_connections_per_ip: int = INT_MAX,
        max_connections_per_ip_overrides: Mapping[str, int] | None = None,
        max_received_bytes: int = 0,
        max_queued_requests: int = TURN_REQUESTS,
        max_unsent_bytes: int = BUDGET_BYTES,
        stalled_ms: int = 30_000,
        backoff_ms: int = 50,
        backoff_max_ms: int = 500,
    ) -> None:
        self.endpoints: dict[str, Endpoint] = {}
        """The bound address of each listener, by name."""
        self._wanted = tuple(listeners)
        self._served = served
        self._limits = limits
        self._for_clients = frozenset(for_clients)
        self.sasl = sasl
        """The logins of this transport."""
        self._max_idle_s = max_idle_ms / 1000
        self.client_traffic = Traffic()
        """The traffic that has passed through the connections to peers."""
        options = ClientOptions(
            software=(SOFTWARE_NAME, SOFTWARE_VERSION),
            apis=requested,
            answer_limits=answer_limits,
            max_frame_bytes=max_frame_bytes,
            backoff_ms=backoff_ms,
            backoff_max_ms=backoff_max_ms,
            traffic=self.client_traffic,
        )
        self.now = trio.current_time
        """Seconds on Trio's clock."""
        self.gate: Gate | None = None
        """The bound of how fast connections are made; None for no bound."""
        self._overrides = dict(max_connections_per_ip_overrides or {})
        self.serving = Serving(
            ServingLimits(
                max_frame_bytes=max_frame_bytes,
                largest_request_bytes=largest_request_bytes,
                max_idle_s=max_idle_ms / 1000,
                max_connections=max_connections,
                max_per_ip=max_connections_per_ip,
                received_bytes=max_received_bytes,
                queued_requests=max_queued_requests,
                unsent_bytes=max_unsent_bytes,
                stalled_s=stalled_ms / 1000,
            ),
            later=self.later,
            now=trio.current_time,
        )
        """The connections of peers, their memory and their turns."""
        self._sockets = make_sockets(self)
        self._late_sockets: LateSockets | None = None
        """The sockets, if the listeners open later."""
        if opens_later:
            assert isinstance(self._sockets, LateSockets), "these sockets listen from the start"
            self._late_sockets = self._sockets
        self._tls = Tls() if tls is None else tls
        self.handshakes = Handshakes(
            timeout_s=self._tls.handshake_timeout_ms / 1000,
            later=self.later,
            now=trio.current_time,
            has_reserve=self.serving.has_reserve,
        )
        """The connections without a finished TLS handshake."""
        self.logins = Handshakes(
            timeout_s=sasl.timeout_ms / 1000,
            later=self.later,
            now=trio.current_time,
            has_reserve=self.serving.has_reserve,
            what="logged in",
        )
        """The connections of peers that have not logged in."""
        self._secured = TlsServing(self, self.handshakes, self.serving.log)
        self.certificates: dict[Endpoint, bytes] = {}
        """The certificate in DER form that each peer showed last."""
        self._ways = {
            kind: (self._connector_to(kind), replace(options, login=_for_kind(sasl.outgoing, kind)))
            for kind in (PEERS, *self._tls.outgoing, *sasl.outgoing)
        }
        """How to connect to each kind of peers."""
        self._started, self._started_ms = 0.0, 0
        self._deliver: Callable[[Inbound], None] | None = None
        self._nursery: trio.Nursery | None = None
        self._peers: dict[tuple[Endpoint, str, int, str], ClientChannel] = {}
        """By endpoint and client id. Each client id has its own connection, because answers leave in request order. By
        the kind of the peer too: a peer that names an address of another kind gets that kind's connections from nobody.
        """
        self._kept: dict[str, tuple[Endpoint, ...]] = {}
        """The peers of `keep`, by client id."""
        self._kept_at = 0.0
        """When the kept connections were last checked, in seconds."""
        self._outstanding: dict[int, ClientChannel] = {}
        """The channel of every request without an outcome, by token."""
        self._timer = Timer(self._outstanding, self._expire, self.batch_delivered)

    def now_ms(self) -> int:
        """Milliseconds since 1970: the wall clock at the start, advanced by the clock of this transport."""
        return self._started_ms + int((self.now() - self._started) * 1000)

    def replace_tls(self, tls: Tls) -> None:
        """Use these contexts for connections that begin from now on; all others keep theirs.

        Kafka: `SslChannelBuilder.reconfigure`. May be called at any time in the thread of `run`.

        Args:
            tls: TLS of the same listeners. The deadline of handshakes stays as it was.

        Raises:
            ValueError: A listener, or the connections to peers, would gain or lose TLS.
        """
        if tls.listeners.keys() != self._tls.listeners.keys() or _secured_of(tls) != _secured_of(self._tls):
            raise ValueError("TLS of a running transport can be replaced, and neither added nor removed")
        self._tls = tls

    def _connector_to(self, kind: str) -> Connector:
        if _for_kind(self._tls.outgoing, kind) is None:
            return self._sockets
        return TlsConnector(
            self,
            self.handshakes,
            self.serving.log,
            self._sockets,
            context=partial(self._context, kind),
            on_certificate=self.certificates.__setitem__,
        )

    def _context(self, kind: str) -> ssl.SSLContext:
        context = _for_kind(self._tls.outgoing, kind)
        assert context is not None, kind
        return context

    def listen(self, listener: Listener) -> Endpoint:
        """Bind now; see `Transport.listen`.

        Raises:
            OSError: The address is unknown or in use; the text names the address.
        """
        sockets = self._late_sockets if self._is_for_clients(listener.name) else None
        endpoint = self._sockets.listen(listener) if sockets is None else sockets.listen_later(listener)
        self.endpoints[listener.name] = endpoint
        return endpoint

    def _is_for_clients(self, listener: str) -> bool:
        return not self._for_clients or listener in self._for_clients

    def open_listeners(self) -> None:
        """Accept connections from now on, with the option `opens_later`; until then the system refuses them."""
        if self._late_sockets is not None:
            self._late_sockets.open_listeners()

    async def run(
        self,
        deliver: Callable[[Inbound], None],
        *,
        batch_delivered: Callable[[], bool] = no_more,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Own every socket until cancelled, then close them all; see `Transport.run`."""
        assert self._deliver is None, "a transport runs once"
        self._deliver = self.serving.deliver = deliver
        self._started, self._started_ms = trio.current_time(), wall_clock_ms()
        self.serving.batch_delivered = batch_delivered
        # `trio.current_time` looks up the clock on each call, which takes three times as long.
        self.now = trio.lowlevel.current_clock().current_time
        for listener in self._wanted:
            self.listen(listener)
        self.later(self._sweep, self._max_idle_s / 4)
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._timer.run)
                if self._overrides:
                    nursery.start_soon(self._override)
                await nursery.start(self._sockets.run)
                task_status.started()
        finally:
            for token in list(self._outstanding):
                self.finish(Failed(token, Cause.CLOSED, "this side ended"))

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
        """Send a request, connecting first where needed; see `Transport.request`."""
        assert token not in self._outstanding, f"token {token} is in use"
        peer = self._peers.get((endpoint, client_id, lane, peers)) or self._peer(endpoint, client_id, lane, peers)
        self._outstanding[token] = peer
        peer.request(token, message, client_id, highest)
        self._timer.start(token, self.now() + timeout_ms / 1000)

    def _peer(self, endpoint: Endpoint, client_id: str, lane: int = 0, peers: str = PEERS) -> ClientChannel:
        peer = self._peers.get((endpoint, client_id, lane, peers))
        if peer is None:
            connector, options = self._ways.get(peers) or self._ways[PEERS]
            peer = ClientChannel(self, connector, endpoint, options)
            self._peers[endpoint, client_id, lane, peers] = peer
        return peer

    def keep_connected(self, endpoints: Collection[Endpoint], client_id: str) -> None:
        """Hold connections to these peers open; see `Transport.keep_connected`."""
        if not self._kept:
            self.later(self._keep_on, _KEEP_SECONDS)
        self._kept[client_id] = tuple(endpoints)
        self.later(self._connect_kept)
        self.later(self._reserve)

    def _reserve(self) -> None:
        """Resolve the addresses of the kept peers, for `Serving.reserve`."""
        assert self._nursery is not None, "the transport is not running"
        self._nursery.start_soon(self._reserve_for_kept)

    async def _reserve_for_kept(self) -> None:
        """Resolve the names again from time to time: a voter may have moved."""
        hosts = {endpoint.host for endpoints in self._kept.values() for endpoint in endpoints}
        self.serving.reserve(frozenset([address for host in hosts for address in await addresses_of(host)]))

    async def _override(self) -> None:
        """Resolve the hosts of `max.connections.per.ip.overrides` once; as in Kafka, a host may be a name."""
        overrides, found = self._overrides, dict[str, int]()
        for host, most in overrides.items():
            for address in await addresses_of(host):
                found[address] = most
        if overrides is self._overrides:
            self.serving.per_ip = found

    def limit_connections(
        self, most: int, most_per_ip: int, overrides: Mapping[str, int], by_listener: Mapping[str, int]
    ) -> None:
        """Use other limits for connections that are made from now on; all others stay.

        Args:
            most: Kafka's `max.connections`.
            most_per_ip: Kafka's `max.connections.per.ip`.
            overrides: Kafka's `max.connections.per.ip.overrides`, by host name or address.
            by_listener: The most connections of a listener, by its name, where it has a limit of its own.
        """
        serving = self.serving
        serving.limits = replace(serving.limits, max_connections=most, max_per_ip=most_per_ip)
        serving.per_listener = by_listener
        if overrides != self._overrides:
            self._overrides = dict(overrides)
            assert self._nursery is not None, "the transport is not running"
            self._nursery.start_soon(self._override)

    def _keep_on(self) -> None:
        self._connect_kept()
        self.later(self._keep_on, _KEEP_SECONDS)

    def _connect_kept(self) -> None:
        self._kept_at = self.now()
        for client_id, endpoints in self._kept.items():
            for endpoint in endpoints:
                self._peer(endpoint, client_id).keep_connected(client_id)

    def answer(self, request: Request, message: Message) -> None:
        """Answer a request; see `Transport.answer`. Does nothing if its connection is closed."""
        channel = request.handle
        assert isinstance(channel, ServerChannel), channel
        channel.answer(request, message)

    def leave_unanswered(self, request: Request, mute_ms: int = 0) -> None:
        """Finish a request without an answer, such as Produce with acks=0; its connection goes on.

        Nothing more is read from the connection for `mute_ms` milliseconds.
        """
        channel = request.handle
        assert isinstance(channel, ServerChannel), channel
        channel.leave_unanswered(request, mute_ms)

    def drop(self, request: Request) -> None:
        """Close the connection of this request without an answer."""
        channel = request.handle
        assert isinstance(channel, ServerChannel), channel
        channel.drop(request)

    def poll_nowait(self) -> None:
        """Deliver what has arrived; see `Transport.poll_nowait`."""
        self._sockets.poll_nowait()

    def wake(self) -> None:
        """Schedule a call of `batch_delivered`, from any thread."""
        self._sockets.wake()

    def close_peer(self, endpoint: Endpoint) -> None:
        """Close the connections to a peer. Requests that wait for the peer end with `Cause.CLOSED`."""
        for (at, *_), peer in self._peers.items():
            if at == endpoint:
                for outcome in peer.end(Cause.CLOSED, f"the connection to {endpoint} was closed by this side"):
                    self.finish_later(outcome)

    def accepted(self, socket: Socket, listener: Listener, peer: str) -> Channel | None:
        """A peer has connected. Returns None to refuse the connection."""
        tls = self._tls.listeners.get(listener.name)
        address = address_of(peer)
        why = self.serving.refusal(address, listener.name)
        if why is not None:
            self.serving.log.write(logging.WARNING, "refused", "turning away %s: %s", peer, why)
            return None
        why = None if tls is None else self.handshakes.make_room(address)
        if listener.name in self.sasl.listeners:
            why = self.logins.make_room(address) or why
        if why is not None:
            text = "closing a connection that has sent nothing, or the oldest one, for one of %s: %s"
            self.serving.log.write(logging.WARNING, "refused", text, peer, why)
        if tls is not None:
            return self._secured.accept(
                socket,
                tls,
                peer,
                partial(self._serve, listener=listener, peer=peer),
                on_failed=partial(self._refused_by_tls, listener.name),
                on_succeeded=partial(self._secured_by_tls, listener.name),
            )
        return self._serve(socket, listener=listener, peer=peer)

    def _refused_by_tls(self, listener: str, fault: Fault) -> None:
        self.serving.authentications.note(listener, TLS, f"tls-{fault}")

    def _secured_by_tls(self, listener: str) -> None:
        """With a login after TLS, only the login is a success."""
        if listener not in self.sasl.listeners:
            self.serving.authentications.note(listener, TLS, SUCCESS)

    def _serve(self, socket: Socket, *, listener: Listener, peer: str) -> ServerChannel:
        channel = ServerChannel(
            self.serving,
            socket,
            now=self.now,
            listener=listener.name,
            peer=peer,
            served=self._served if self._is_for_clients(listener.name) else APIS,
            limits=self._limits if self._is_for_clients(listener.name) else request_limit,
            sasl=server_of(self.sasl, listener.name, self.now_ms),
        )
        self.serving.enter(channel)
        if listener.name in self.sasl.listeners:
            channel.log_in(self.logins)
        if self._kept and channel.last_active - self._kept_at >= _KEEP_APART_SECONDS:
            self._kept_at = channel.last_active
            self.later(self._connect_kept)
        return channel

    def wait_s(self, listener: Listener) -> float:
        """For how many seconds a listener accepts neither this connection nor another."""
        return 0.0 if self.gate is None else self.gate.wait_s(listener.name)

    def hold_s(self, listener: Listener, peer: str) -> float:
        """For how many seconds to hold the connection of a peer, to close it then; 0 to accept it."""
        return 0.0 if self.gate is None else self.gate.hold_s(listener.name, address_of(peer))

    def has_reserve(self, peer: str) -> bool:
        """Whether to spend a spare descriptor on this peer's connection when no other descriptor is left."""
        return self.serving.has_reserve(address_of(peer))

    def finish(self, outcome: Reply | Failed) -> None:
        """Deliver the outcome of a request, unless the request timed out before."""
        assert self._deliver is not None
        if self._outstanding.pop(outcome.token, None) is not None:
            self._deliver(outcome)

    def finish_later(self, outcome: Reply | Failed) -> None:
        """As `finish`, but after the method of the transport's user that calls this has returned."""
        self.later(partial(self.finish, outcome))

    @property
    def batch_delivered(self) -> Callable[[], bool]:
        """The batch of deliveries is complete: the user processes it, and waiting connections get their turn."""
        return self.serving.settle

    def later(self, action: Callable[[], None], delay_s: float = 0.0) -> None:
        """Run an action in the transport's own task, after `delay_s` seconds."""
        self._timer.later(action, delay_s)

    def _expire(self, token: int) -> None:
        """A request timed out: fail it and close its connection, because every later answer waits behind it."""
        peer = self._outstanding[token]
        self.finish(Failed(token, Cause.TIMEOUT, f"{peer.endpoint}: no answer in time{peer.stage}"))
        for outcome in peer.end(Cause.TIMEOUT, f"{peer.endpoint}: an earlier request was not answered in time"):
            self.finish(outcome)

    def _sweep(self) -> None:
        """Close idle connections, a few times per `max_idle_ms`."""
        longest = self._max_idle_s
        active_since = self.now() - longest
        self.serving.close_idle()
        if self._kept:
            self._reserve()
        for key, peer in list(self._peers.items()):
            if peer.last_active < active_since and peer.is_idle:
                peer.end(Cause.CLOSED, "idle")
                if peer.is_blank:
                    del self._peers[key]
                    self.certificates.pop(key[0], None)
        self.later(self._sweep, longest / 4)
