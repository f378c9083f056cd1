"""Faults at one node of a live cluster: at its connections, with its clock, on its disk.

All of it happens at the boundary of a node, where its messages arrive and leave. The node itself is the one that serves
in production.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Unpack

import trio
from msgspec import Struct, structs

from kraft.broker.server import BrokerServer
from kraft.node.clock import NodeClock
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from metadata_log.serde.fields import OPEN_END
from transport.channels import Channel, Socket
from transport.faults import FaultPlan, Kind
from transport.interface import PEERS, Cause, Endpoint, Failed, Inbound, Listener, Reply, Request, no_more
from transport.protocol.apis import APIS, ApiKey
from transport.protocol.errors import Error
from transport.protocol.messages.fetch import FetchResponse
from transport.tcp import TcpTransport, WireOptions

if TYPE_CHECKING:
    from kraft.testing.deliveries import Deliveries

CLIENTS: Final = "clients"
"""The name of all clients together, where faults between nodes are."""
_APIS: Final = {api.name.lower(): key for key, api in APIS.items()}


def api_key(api: str | int) -> int:
    """The key of an API, which has Kafka's name in any case, such as `Produce`, or its number."""
    if isinstance(api, int):
        return api
    from transport.protocol.broker_apis import ALL_APIS

    known = _APIS | {one.name.lower(): key for key, one in ALL_APIS.items()}
    wanted = api.lower().replace("_", "")
    if wanted not in known:
        names = {one.name for one in (*APIS.values(), *ALL_APIS.values())}
        raise ValueError(f"Kafka has no API {api!r}; {_nearest(api, names)}")
    return known[wanted]


def name_of(key: int) -> str:
    """Kafka's name of an API; its number for one that there is not."""
    from transport.protocol.broker_apis import ALL_APIS

    api = APIS.get(key) or ALL_APIS.get(key)
    return f"API {key}" if api is None else api.name


def sides(nodes: Iterable[int | str]) -> list[int | str]:
    """The nodes of one side of a partition; raises `TypeError` for a single one."""
    if isinstance(nodes, int | str):
        raise TypeError(f"a side of a partition is a list of nodes, and not a single one: [{nodes!r}]?")
    return list(nodes)


def _nearest(name: str, known: Iterable[str]) -> str:
    """The words that somebody may have meant; all that there is, if nothing is near."""
    from difflib import get_close_matches

    by_lower = {one.lower(): one for one in sorted(known)}
    near = [by_lower[one] for one in get_close_matches(name.lower(), by_lower, n=3)]
    return f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(by_lower.values())}"


def error_of(error: str | int | Error) -> Error:
    """An error by Kafka's name, such as `NOT_LEADER_OR_FOLLOWER`, or by its number."""
    try:
        found = Error[error.upper()] if isinstance(error, str) else Error(error)
    except (KeyError, ValueError):
        cure = _nearest(error, Error.__members__) if isinstance(error, str) else "name it, as NOT_LEADER_OR_FOLLOWER"
        raise ValueError(f"Kafka has no error {error!r}; {cure}") from None
    if found is Error.NONE:
        raise ValueError("NONE is no error: name one, as NOT_LEADER_OR_FOLLOWER")
    return found


def from_zero_on(name: str, number: int) -> int:
    """The number, which must not be negative."""
    if not isinstance(number, int) or number < 0:
        raise ValueError(f"{name} is a whole number, 0 or more, and not {number!r}")
    return number


def bounds_of(milliseconds: int | Sequence[int]) -> tuple[int, int]:
    """The least and the most of a delay, which is one number or has two."""
    bounds = (milliseconds, milliseconds) if isinstance(milliseconds, int) else tuple(milliseconds)
    if len(bounds) != 2:
        raise ValueError(f"a delay is a number of milliseconds, or the least and the most, and not {milliseconds!r}")
    least, most = (from_zero_on("a delay", one) for one in bounds)
    if least > most:
        raise ValueError(f"the least delay is above the most: {milliseconds!r}")
    return least, most


class FailNext(Struct, kw_only=True):
    """The next requests of one kind fail: each of them by this answer, and nothing else happens."""

    api: int
    error: Error
    times: int
    """How many more requests fail, at all brokers together."""
    node_id: int | None = None
    """Only requests at this broker."""
    topic: str | None = None
    """Only requests that name this topic, or its id."""
    group: str | None = None
    """Only requests of this group."""
    members: set[str] | None = None
    """Only one request of each of these members."""

    @property
    def is_spent(self) -> bool:
        """Whether no request fails any more."""
        return self.times <= 0 or self.members == set()

    def takes(self, request: Request, node_id: int, image: MetadataImage) -> bool:
        """Whether this request fails; counts it."""
        message: Any = request.message
        if request.api_key != self.api or self.node_id not in (None, node_id):
            return False
        if self.group is not None and getattr(message, "group_id", None) != self.group:
            return False
        if self.topic is not None:
            topic_id = image.topics.by_name.get(self.topic)
            if not _names(message, {self.topic} if topic_id is None else {self.topic, topic_id}):
                return False
        if self.members is not None:
            if message.member_id not in self.members:
                return False
            self.members.discard(message.member_id)
        self.times -= 1
        return True


_APPENDING: Final = frozenset(
    {
        *(ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT, ApiKey.INIT_PRODUCER_ID),
        *(ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN, ApiKey.SYNC_GROUP),
    }
)
"""Requests that a broker answers once it has appended something."""
_NAMES: Final = frozenset({"name", "topic", "topic_name", "topic_id"})


def _names(message: object, wanted: set[object]) -> bool:
    """Whether a request names one of these topics somewhere."""
    if isinstance(message, list):
        return any(_names(one, wanted) for one in message)
    if not isinstance(message, Struct):
        return False
    for field in message.__struct_fields__:
        value = getattr(message, field)
        if field in _NAMES and value in wanted:
            return True
        if isinstance(value, Struct | list) and _names(value, wanted):
            return True
        if field == "topics" and isinstance(value, list) and any(one in wanted for one in value if type(one) is str):
            return True
    return False


class Faults:
    """The faults of one node. They outlive its restarts."""

    def __init__(self) -> None:
        self.heal()

    def heal(self) -> None:
        """No fault any more."""
        self.is_paused = False
        self.request_delay_ms = (0, 0)
        self.disk_delay_ms = 0
        self.throttle_ms = 0
        self.break_after: int | None = None
        """After so many bytes of answers the next connection of a client breaks; None for never."""


_OF_SHARES: Final = (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE)
"""The requests with the deliveries of share groups."""


class Wires:
    """The network between the nodes of one cluster.

    Args:
        plan: Which messages between nodes are lost or late, and the randomness of all faults.
        for_nodes: The listeners of nodes; at all others there are clients.
    """

    def __init__(self, plan: FaultPlan, for_nodes: Iterable[str]) -> None:
        self.plan = plan
        self.failures: list[FailNext] = []
        """The requests that are to fail, at all nodes."""
        self.nodes: dict[int, int] = {}
        """The node at each port."""
        self.for_nodes = frozenset(for_nodes)

    @cached_property
    def shares(self) -> Deliveries:
        """The deliveries of share groups."""
        from kraft.testing.deliveries import Deliveries

        return Deliveries()

    def forget_shares(self) -> None:
        """Forget the deliveries of share groups."""
        self.__dict__.pop("shares", None)


class FaultyTransport(TcpTransport):
    """TCP of one node, with the faults of a test.

    A message that is lost is answered by nobody: the request ends with its time-out, as on a network.
    """

    def __init__(
        self, *, node_id: int, wires: Wires, faults: Faults, patience_ms: int = 0, **options: Unpack[WireOptions]
    ) -> None:
        super().__init__(patience_ms=patience_ms, **options)
        self._node_id = node_id
        self._wires = wires
        self._faults = faults
        self._user: Callable[[Inbound], None] = _nobody
        self._routes: dict[int, tuple[int, float]] = {}
        """Where each request went, and when its time is out."""
        self._held: list[Callable[[], object]] = []
        """The work that a paused node has not done."""
        self.broker: Callable[[], BrokerServer | None] = lambda: None
        self.has_opened = trio.Event()
        """Whether the broker was unfenced."""

    async def run(
        self,
        deliver: Callable[[Inbound], None],
        *,
        batch_delivered: Callable[[], bool] = no_more,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Own every socket until cancelled; see `Transport.run`."""
        self._user = deliver
        await super().run(self._arrive, batch_delivered=batch_delivered, task_status=task_status)

    def open_listeners(self) -> None:
        """Accept connections of clients."""
        super().open_listeners()
        self.has_opened.set()

    # What arrives

    def _arrive(self, thing: Inbound) -> None:
        if self._faults.is_paused:
            self._held.append(partial(self._arrive, thing))
            return
        match thing:
            case Request() if thing.listener not in self._wires.for_nodes:
                self._arrive_of_client(thing)
            case Reply() | Failed():
                self._arrive_of_node(thing)
            case _:
                self._user(thing)

    def _arrive_of_client(self, request: Request) -> None:
        faults = self._faults
        if self._wires.plan.is_cut(CLIENTS, self._node_id, Kind.REQUEST):
            self.drop(request)
            return
        if self._wires.failures and self._fails(request):
            return
        delay_ms = self._wires.plan.drawn_ms(faults.request_delay_ms)
        if request.api_key in _APPENDING:
            delay_ms += faults.disk_delay_ms
        self._late(partial(self._user, request), delay_ms)

    def _arrive_of_node(self, outcome: Reply | Failed) -> None:
        peer, ends = self._routes.pop(outcome.token, (None, 0.0))
        if isinstance(outcome, Failed) or peer is None:
            self._user(outcome)
            return
        arrivals = self._wires.plan.decide(peer, self._node_id, Kind.REPLY)
        if not arrivals:
            self._late(partial(self._lose, outcome.token), max(0.0, ends - self.now()) * 1000)
            return
        delay_ms = min(arrivals)
        if isinstance(outcome.message, FetchResponse):
            delay_ms += self._faults.disk_delay_ms
        self._late(partial(self._user, outcome), delay_ms)

    def _late(self, action: Callable[[], object], delay_ms: float) -> None:
        if delay_ms:
            self.later(lambda: self._do(action), delay_ms / 1000)
        else:
            action()

    def _do(self, action: Callable[[], object]) -> None:
        if self._faults.is_paused:
            self._held.append(action)
        else:
            action()

    def _lose(self, token: int) -> None:
        self._user(Failed(token, Cause.TIMEOUT, "the network lost it"))

    def _fails(self, request: Request) -> bool:
        broker = self.broker()
        if broker is None:
            return False
        rules = self._wires.failures
        for rule in rules:
            if rule.takes(request, self._node_id, broker.agent.image):
                from kraft.testing.refusals import refusal_of

                self.answer(request, refusal_of(broker.requests.table, request, rule.error))
                if rule.is_spent:
                    rules.remove(rule)
                return True
        return False

    # What leaves

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
        """Send a request, if the network lets it through; see `Transport.request`."""
        given: dict[str, Any] = {"timeout_ms": timeout_ms, "client_id": client_id, "lane": lane, "highest": highest}
        given["peers"] = peers
        send: Callable[[], None] = partial(super().request, endpoint, token, message, **given)
        peer = self._wires.nodes.get(endpoint.port)
        if peer is None:
            send()
            return
        if self._faults.is_paused:
            self._held.append(partial(self.request, endpoint, token, message, **given))
            return
        arrivals = self._wires.plan.decide(self._node_id, peer, Kind.REQUEST)
        if not arrivals:
            self._late(partial(self._lose, token), timeout_ms)
            return
        self._routes[token] = peer, self.now() + timeout_ms / 1000
        self._late(send, min(arrivals))

    def answer(self, request: Request, message: Message) -> None:
        """Answer a request; see `Transport.answer`."""
        faults = self._faults
        if faults.is_paused:
            self._held.append(partial(self.answer, request, message))
            return
        if faults.throttle_ms and request.listener not in self._wires.for_nodes and _has_throttle(message):
            message = structs.replace(message, throttle_time_ms=faults.throttle_ms)
        if request.api_key in _OF_SHARES:
            self._wires.shares.note(request.message, message)
        super().answer(request, message)

    def resume(self) -> None:
        """Do what was not done while the node was paused."""
        held, self._held = self._held, []
        for action in held:
            action()
        self.wake()

    # Connections

    def accepted(self, socket: Socket, listener: Listener, peer: str) -> Channel | None:
        """A peer has connected. The connection of a client can break."""
        if listener.name in self._wires.for_nodes:
            return super().accepted(socket, listener, peer)
        if self._wires.plan.is_cut(CLIENTS, self._node_id, Kind.REQUEST):
            return None
        breaking = _BreakingSocket(socket, self._faults)
        channel = super().accepted(breaking, listener, peer)
        if channel is not None:
            breaking.end = lambda: self.later(lambda: channel.on_closed(Cause.RESET, "the test broke it"))
        return channel


class _BreakingSocket:
    """The socket of a client, which breaks in the middle of an answer when the faults say so."""

    def __init__(self, socket: Socket, faults: Faults) -> None:
        self._socket = socket
        self._faults = faults
        self.end: Callable[[], None] = lambda: None
        self.pause, self.resume, self.close = socket.pause, socket.resume, socket.close

    @property
    def unsent(self) -> int:
        return self._socket.unsent

    def write(self, data: bytes) -> None:
        left = self._faults.break_after
        if left is None:
            self._socket.write(data)
        elif left >= len(data):
            self._faults.break_after = left - len(data)
            self._socket.write(data)
        else:
            self._faults.break_after = None
            if left:
                self._socket.write(data[:left])
            self._socket.close()
            self.end()

    def write_pieces(self, pieces: Sequence[bytes]) -> None:
        if self._faults.break_after is None:
            self._socket.write_pieces(pieces)
        else:
            self.write(b"".join(pieces))


def _nobody(thing: Inbound) -> None:
    raise AssertionError("the transport does not run")


def _has_throttle(message: Message) -> bool:
    return "throttle_time_ms" in message.__struct_fields__


class JumpingClock(NodeClock):
    """The clock of all nodes of a cluster, which jumps when a test says so."""

    __slots__ = ("ahead_ms",)

    def __init__(self, start_ms: int | None = None) -> None:
        super().__init__(start_ms)
        self.ahead_ms = 0

    def now_ms(self) -> int:
        """The time now."""
        return super().now_ms() + self.ahead_ms

    def trio_time(self, at_ms: int) -> float:
        """The time on Trio's clock at which `now_ms` becomes `at_ms`."""
        return super().trio_time(at_ms - self.ahead_ms)
