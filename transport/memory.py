"""`MemoryTransport`: a network within one process, on Trio's clock (or a `MockClock`), with faults of a `FaultPlan`.

Kafka: `MockNetworkChannel`. By default messages pass through the real codecs, so that a message that the peer's version
cannot carry fails here too.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from random import Random
from typing import Final

import trio
from msgspec import Struct

from metadata_log.errors import DecodeError, EncodeError
from metadata_log.serde import Message
from metadata_log.serde.fields import OPEN_END
from transport.faults import BOTH, NO_FAULTS, FaultPlan, Faults, Kind
from transport.interface import PEERS, Cause, Endpoint, Failed, Gone, Inbound, Listener, Reply, Request, no_more
from transport.protocol.apis import APIS, Api
from transport.protocol.headers import decode_request, decode_response, encode_request, encode_response
from transport.timer import Timer

log = logging.getLogger("transport")

_FIRST_PORT: Final = 9093
_CLIENT_PORTS: Final = 49_151
"""Clients have the ports after this one, each connection another one, however many there are."""
_MAX_CORRELATION_ID: Final = 0x7FFF_FFFF


class MemoryNetwork:
    """Joins instances of `MemoryTransport`. A host is named by a text, or by a node id with the same text.

    Args:
        seed: The seed of the faults.
        faults: The fault rates; none by default.
        use_codec: Whether messages are encoded and decoded on their way. False is faster and checks less.
    """

    def __init__(self, seed: int = 0, faults: Faults = NO_FAULTS, *, use_codec: bool = True) -> None:
        self.plan = FaultPlan(Random(seed), faults)
        self.use_codec = use_codec
        self._serving: dict[Endpoint, _Serving] = {}
        self._hosts: dict[Endpoint, str] = {}
        self._next_port = _FIRST_PORT
        self._last_client_port = _CLIENT_PORTS

    def partition(self, one: Iterable[object], other: Iterable[object]) -> None:
        """Lose every message between two sides, in both directions. Pending requests time out.

        Args:
            one: The hosts of one side.
            other: The hosts of the other side.
        """
        self.plan.partition(one, other)

    def cut(self, sources: Iterable[object], targets: Iterable[object], kinds: Iterable[Kind] = BOTH) -> None:
        """Lose messages from `sources` to `targets`, in this direction only.

        Args:
            sources: The sending hosts.
            targets: The receiving hosts.
            kinds: The messages that are lost: requests, replies or both.
        """
        self.plan.cut(sources, targets, kinds)

    def isolate(self, host: object) -> None:
        """Lose every message to and from one host.

        Args:
            host: The host.
        """
        self.plan.isolate(host)

    def heal(self, *hosts: object) -> None:
        """Undo cuts and isolations.

        Args:
            hosts: The hosts to heal, with all their links; none for all hosts.
        """
        self.plan.heal(*hosts)

    def bind(self, transport: MemoryTransport, listener: Listener) -> Endpoint:
        """Assign an address to a listener.

        Args:
            transport: The transport that serves the listener.
            listener: The wanted address; port 0 takes a free port, and an empty host the transport's own.

        Returns:
            The assigned address.

        Raises:
            OSError: The address is in use.
        """
        port = listener.port
        if port == 0:
            port, self._next_port = self._next_port, self._next_port + 1
        endpoint = Endpoint(listener.host or transport.host, port)
        if endpoint in self._serving:
            raise OSError(errno.EADDRINUSE, f"cannot listen on {endpoint}: Address already in use")
        self._serving[endpoint] = _Serving(transport, listener.name)
        self._hosts[endpoint] = transport.host
        return endpoint

    def unbind(self, transport: MemoryTransport) -> None:
        """Refuse connections to a transport from now on.

        Args:
            transport: The transport, which has ended.
        """
        self._serving = {at: serving for at, serving in self._serving.items() if serving.transport is not transport}

    def client_port(self) -> int:
        """A port that no client has had."""
        self._last_client_port += 1
        return self._last_client_port

    def serving(self, endpoint: Endpoint) -> _Serving | None:
        """The transport that listens at this address, if any."""
        return self._serving.get(endpoint)

    def host_of(self, endpoint: Endpoint) -> str:
        """The host that has this address, even if no transport listens there any more."""
        return self._hosts.get(endpoint, endpoint.host)


class _Serving(Struct, frozen=True, eq=False):
    transport: MemoryTransport
    listener: str


class _Link:
    """One connection. Messages keep their order, as in TCP; answers keep the order of requests, as in Kafka."""

    def __init__(self, client: MemoryTransport, server: MemoryTransport, listener: str, port: int) -> None:
        self.client = client
        self.server = server
        self.listener = listener
        self.peer = f"{client.host}:{port}"
        """The address of the client, which no other connection has."""
        self.closed = False
        self.received = 0
        self.tokens: dict[int, None] = {}
        """Requests without an outcome, oldest first."""
        self.open: dict[int, Request] = {}
        """The delivered and unanswered requests, by sequence."""
        self._answered = 0
        self._early: dict[int, tuple[Request, Message]] = {}
        self._latest: dict[Kind, float] = {Kind.REQUEST: 0.0, Kind.REPLY: 0.0}

    def take_turn(self, request: Request, message: Message) -> list[tuple[Request, Message]]:
        """The answers that may leave now that this one is ready."""
        assert request.sequence >= self._answered, f"request {request.sequence} is answered twice"
        assert request.sequence not in self._early, f"request {request.sequence} is answered twice"
        self.open.pop(request.sequence, None)
        self._early[request.sequence] = (request, message)
        leaving = []
        while (answer := self._early.pop(self._answered, None)) is not None:
            leaving.append(answer)
            self._answered += 1
        return leaving

    def arrivals(self, plan: FaultPlan, kind: Kind, now: float) -> list[float]:
        """The arrival time of each copy of a message that is sent now."""
        ends = self.client.host, self.server.host
        source, target = ends if kind is Kind.REQUEST else ends[::-1]
        times = [now + delay_ms / 1000 for delay_ms in plan.decide(source, target, kind)]
        if not plan.faults.reorder:
            times = [max(at, self._latest[kind]) for at in times]
            self._latest[kind] = max(times, default=self._latest[kind])
        return times


class MemoryTransport:
    """A `Transport` on a `MemoryNetwork` (Kafka: `MockNetworkChannel`). See `Transport` for the contract.

    Args:
        network: The network to join. Without one the transport makes its own from `seed` and `faults`.
        host: The name in cuts and partitions, and the address of listeners with an empty host.
        seed: The seed of the faults; only without `network`.
        faults: The fault rates; only without `network`.
        served: The APIs that peers may request, by key.
        requested: The APIs that this side may request, by key.
    """

    def __init__(
        self,
        network: MemoryNetwork | None = None,
        host: str = "localhost",
        *,
        seed: int = 0,
        faults: Faults = NO_FAULTS,
        served: Mapping[int, Api] = APIS,
        requested: Mapping[int, Api] = APIS,
    ) -> None:
        self.network = network if network is not None else MemoryNetwork(seed, faults)
        self.host = host
        self.served = served
        self.requested = requested
        self._deliver: Callable[[Inbound], None] | None = None
        self._batch_delivered = no_more
        self._token: trio.lowlevel.TrioToken | None = None
        self._ended = False
        self._outgoing: dict[tuple[Endpoint, str, int], _Link] = {}
        """One connection for each client id, as in `WireTransport`."""
        self._incoming: dict[_Link, None] = {}
        self._outstanding: dict[int, tuple[Endpoint, str, int]] = {}
        self._timer = Timer(self._outstanding, self._expire, self._settle)

    def listen(self, listener: Listener) -> Endpoint:
        """Bind now; the transport serves peers once `run` has begun. See `Transport.listen`.

        Raises:
            OSError: The address is in use.
        """
        return self.network.bind(self, listener)

    def wake(self) -> None:
        """Schedule a call of `batch_delivered`, from any thread."""
        assert self._token is not None, "the transport is not running"
        self._token.run_sync_soon(self._settle, idempotent=True)

    def poll_nowait(self) -> None:
        """Nothing to do: messages arrive at their own times, in the timer's task."""

    async def run(
        self,
        deliver: Callable[[Inbound], None],
        *,
        batch_delivered: Callable[[], bool] = no_more,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Move messages until cancelled; then peers see their connections reset and further ones refused."""
        assert self._deliver is None, "a transport runs once"
        self._deliver = deliver
        self._batch_delivered = batch_delivered
        self._token = trio.lowlevel.current_trio_token()
        task_status.started()
        try:
            await self._timer.run()
        finally:
            self._end()

    def _settle(self) -> None:
        self._batch_delivered()

    def _end(self) -> None:
        self._ended = True
        self.network.unbind(self)
        for link in list(self._incoming):
            self._reset(link)
        for link in self._outgoing.values():
            self._hang_up(link)
        for token in list(self._outstanding):
            self._finish(Failed(token, Cause.CLOSED, "this side ended"))

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
        """Send a request; see `Transport.request`."""
        assert self._deliver is not None, "the transport is not running"
        assert token not in self._outstanding, f"token {token} is in use"
        now = trio.current_time()
        self._outstanding[token] = (endpoint, client_id, lane)
        self._timer.start(token, now + timeout_ms / 1000)
        serving = self.network.serving(endpoint)
        if serving is None:
            self._refuse(endpoint, token, now)
            return
        api_key = type(message).__schema__.api_key
        assert api_key is not None, type(message)
        api = self.requested[api_key]
        version = _common_version(api, serving.transport.served.get(api_key))
        try:
            if version is None:
                raise EncodeError(f"the peer has no version of {api.name} that is known here")
            version = min(version, highest)
            correlation_id = token & _MAX_CORRELATION_ID
            sent = _Sent(api_key, version, correlation_id, client_id, message)
            if self.network.use_codec:
                sent.frame = encode_request(api_key, version, correlation_id, client_id, message, apis=self.requested)
        except EncodeError as bad:
            self._finish_later(Failed(token, Cause.UNSUPPORTED_VERSION, f"{endpoint}: {bad}"))
            return
        link = self._link_to((endpoint, client_id, lane), serving)
        link.tokens[token] = None
        for at in link.arrivals(self.network.plan, Kind.REQUEST, now):
            link.server._timer.at(at, partial(link.server._receive, link, token, sent))

    def keep_connected(self, endpoints: Collection[Endpoint], client_id: str) -> None:
        """Nothing to do; see `Transport.keep_connected`."""

    def _refuse(self, endpoint: Endpoint, token: int, now: float) -> None:
        """No transport listens there: the peer's host reports that, if both messages get through."""
        plan, host = self.network.plan, self.network.host_of(endpoint)
        if plan.is_cut(host, self.host, Kind.REPLY):
            return
        for delay_ms in plan.decide(self.host, host, Kind.REQUEST):
            refused = Failed(token, Cause.REFUSED, f"{endpoint}: no listener at this address")
            self._timer.at(now + delay_ms / 1000, partial(self._finish, refused))

    def _link_to(self, key: tuple[Endpoint, str, int], serving: _Serving) -> _Link:
        link = self._outgoing.get(key)
        if link is None or link.closed:
            link = self._outgoing[key] = _Link(self, serving.transport, serving.listener, self.network.client_port())
            serving.transport._incoming[link] = None
        return link

    def _receive(self, link: _Link, token: int, sent: _Sent) -> None:
        """A request arrives."""
        if link.closed:
            return
        assert self._deliver is not None
        try:
            message = sent.message if sent.frame is None else decode_request(sent.frame, apis=self.served)[1]
        except DecodeError as bad:
            log.info("closing the connection of %s: %s", link.client.host, bad)
            self._reset(link)
            return
        request = Request(
            handle=_Handle(link, token),
            sequence=link.received,
            api_key=sent.api_key,
            version=sent.version,
            correlation_id=sent.correlation_id,
            client_id=sent.client_id,
            message=message,
            listener=link.listener,
            peer=link.peer,
            size=len(sent.frame or b""),
        )
        link.received += 1
        link.open[request.sequence] = request
        self._deliver(request)

    def answer(self, request: Request, message: Message) -> None:
        """Answer a request; does nothing if its connection is closed."""
        handle = request.handle
        assert isinstance(handle, _Handle), handle
        if not handle.link.closed:
            for asked, answer in handle.link.take_turn(request, message):
                self._send_answer(asked, answer)

    def _send_answer(self, request: Request, message: Message) -> None:
        handle = request.handle
        assert isinstance(handle, _Handle), handle
        link, frame = handle.link, None
        if self.network.use_codec:
            try:
                frame = encode_response(
                    request.api_key, request.version, request.correlation_id, message, apis=self.served
                )
            except EncodeError as bad:
                log.error("closing the connection of %s: its answer cannot be written: %s", request.peer, bad)
                self._reset(link)
                return
        arrive = partial(link.client._receive_answer, handle, request, message, frame)
        for at in link.arrivals(self.network.plan, Kind.REPLY, trio.current_time()):
            link.client._timer.at(at, arrive)

    def _receive_answer(self, handle: _Handle, request: Request, message: Message, frame: bytes | None) -> None:
        if handle.link.closed:
            return
        outcome: Reply | Failed
        try:
            if frame is not None:
                _, message = decode_response(request.api_key, request.version, frame, apis=self.requested)
            outcome = Reply(handle.token, message)
        except DecodeError as bad:
            outcome = Failed(handle.token, Cause.BAD_BYTES, str(bad))
        handle.link.tokens.pop(handle.token, None)
        self._finish(outcome)

    def drop(self, request: Request) -> None:
        """Close the connection of this request without an answer."""
        handle = request.handle
        assert isinstance(handle, _Handle), handle
        handle.link.open.pop(request.sequence, None)
        self._reset(handle.link)

    def _reset(self, link: _Link) -> None:
        """Close a peer's connection. If the reset is lost on its way, the peer's requests time out."""
        self._incoming.pop(link, None)
        if link.closed:
            return
        self._report_gone(link)
        client, tokens = link.client, list(link.tokens)
        arrivals = link.arrivals(self.network.plan, Kind.REPLY, trio.current_time())
        link.closed = True
        for at in arrivals[:1]:
            for token in tokens:
                failed = Failed(token, Cause.RESET, f"{self.host}: the peer closed the connection")
                client._timer.at(at, partial(client._finish, failed))

    def _report_gone(self, link: _Link) -> None:
        """A peer's connection is closed: report it, and the requests that need no answer any more."""
        if link.received and self._deliver is not None and not self._ended:
            gone = Gone(tuple(link.open.values()), link.listener, link.peer)
            link.open.clear()
            self._timer.later(partial(self._deliver, gone))

    def close_peer(self, endpoint: Endpoint) -> None:
        """Close the connections to a peer. Requests that wait for the peer end with `Cause.CLOSED`."""
        for key in [key for key in self._outgoing if key[0] == endpoint]:
            for token in self._leave(key):
                self._finish_later(Failed(token, Cause.CLOSED, f"the connection to {endpoint} was closed by this side"))

    def _leave(self, key: tuple[Endpoint, str, int]) -> list[int]:
        """Close this host's connection to a peer; returns the tokens that waited on the connection."""
        link = self._outgoing.pop(key, None)
        if link is None or link.closed:
            return []
        self._hang_up(link)
        return list(link.tokens)

    def _hang_up(self, link: _Link) -> None:
        """Close this host's connection. If the close is lost on its way, the peer keeps the requests."""
        link.closed = True
        link.server._incoming.pop(link, None)
        if not self.network.plan.is_cut(self.host, link.server.host, Kind.REQUEST):
            link.server._report_gone(link)

    def _expire(self, token: int) -> None:
        """A request timed out: close its connection, as `WireTransport` does."""
        key = self._outstanding[token]
        endpoint = key[0]
        self._finish(Failed(token, Cause.TIMEOUT, f"{endpoint}: no answer in time"))
        for other in self._leave(key):
            self._finish(Failed(other, Cause.TIMEOUT, f"{endpoint}: an earlier request was not answered in time"))

    def _finish(self, outcome: Reply | Failed) -> None:
        assert self._deliver is not None
        if self._outstanding.pop(outcome.token, None) is not None:
            self._deliver(outcome)

    def _finish_later(self, outcome: Failed) -> None:
        self._timer.later(partial(self._finish, outcome))


class _Handle(Struct, frozen=True, eq=False):
    """The route of a delivered `Request`, for its answer."""

    link: _Link
    token: int


class _Sent(Struct, eq=False):
    """A request that has no outcome yet."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str
    message: Message
    frame: bytes | None = None


def _common_version(ours: Api, theirs: Api | None) -> int | None:
    if theirs is None:
        return None
    common = ours.versions.intersect(theirs.versions)
    return common.highest if common.highest >= common.lowest else None
