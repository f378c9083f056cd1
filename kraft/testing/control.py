"""The control of a cluster of a test over HTTP, for suites in other languages: each verb of `Kafka` is a request.

`POST /kill` with `{"node_id": 101}` is `kafka.kill(101)`; `GET /` is the state of the cluster. It listens at loopback
alone. A page in a browser of this machine may send requests there as well, so a request has to name this address, and
has to have a body of JSON, which a page of another origin may not send.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import trio
from msgspec import Meta, Struct
from msgspec.structs import asdict

from kraft.admin.errors import SomeRefused
from kraft.http_server import HttpAnswer, HttpLimits, HttpRequest, HttpServer
from kraft.testing.identities import HOST
from kraft.testing.live import NodeDown
from transport.addresses import bind, bound_to
from transport.interface import Listener

if TYPE_CHECKING:
    from kraft.testing.kafka import Kafka

LIMITS: Final = HttpLimits(methods=("GET", "HEAD", "POST"), body_bytes=1 << 16)
AT_ONCE: Final = 8
"""How many verbs run at once; others wait."""
_JSON: Final = "application/json"
_LOCAL: Final = ("127.0.0.1", "localhost", "[::1]")

Id = Annotated[int, Meta(ge=0, lt=1 << 31)]
Milliseconds = Annotated[int, Meta(ge=0, le=86_400_000)]
Name = Annotated[str, Meta(min_length=1, max_length=249)]
Side = Annotated[list[Id | Name], Meta(max_length=1000)]


class Verb(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of a verb, as `Kafka` has them."""


class CreateTopic(Verb, frozen=True):
    """A topic, which every broker knows when the answer comes."""

    name: Name
    partitions: Annotated[int, Meta(ge=1, le=10_000)] = 1
    replication_factor: Annotated[int, Meta(ge=1, le=1000)] | None = None
    config: dict[str, str | int] | None = None


class DeleteTopic(Verb, frozen=True):
    """Topics that no broker knows when the answer comes."""

    names: Annotated[list[Name], Meta(min_length=1, max_length=1000)]


class Nothing(Verb, frozen=True):
    """No arguments."""


class Node(Verb, frozen=True):
    """A node by its id."""

    node_id: Id


class Kill(Verb, frozen=True):
    """A node that ends like `kill -9`."""

    node_id: Id
    loses_power: bool = False


class Cut(Verb, frozen=True):
    """Two sides of the network."""

    one: Side
    other: Side | None = None


class Delay(Verb, frozen=True):
    """Slow messages: how long, or the least and the most."""

    node_id: Id
    milliseconds: Milliseconds | Annotated[list[Milliseconds], Meta(min_length=2, max_length=2)]
    to: Id | None = None


class Throttle(Verb, frozen=True):
    """The throttle time of answers."""

    milliseconds: Milliseconds
    node_id: Id | None = None


class BreakConnection(Verb, frozen=True):
    """An answer that breaks off."""

    after_bytes: Annotated[int, Meta(ge=0, lt=1 << 40)] = 0
    node_id: Id | None = None


class SlowDisk(Verb, frozen=True):
    """A slow disk."""

    node_id: Id
    milliseconds: Milliseconds


class FullDisk(Verb, frozen=True):
    """A full disk."""

    node_id: Id
    free_bytes: Annotated[int, Meta(ge=0, lt=1 << 50)] = 0


class FailNext(Verb, frozen=True):
    """Requests that fail."""

    api: Name
    error: Name
    times: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    topic: Name | None = None
    node_id: Id | None = None


class Place(Verb, frozen=True):
    """A partition."""

    topic: Name
    partition: Id = 0


class MoveLeader(Verb, frozen=True):
    """A partition, and its new leader."""

    topic: Name
    partition: Id = 0
    to: Id | None = None


class Group(Verb, frozen=True):
    """A group."""

    group: Name


class Deliveries(Verb, frozen=True):
    """A share group, and a topic that it consumes."""

    group: Name
    topic: Name


class MoveCoordinator(Verb, frozen=True):
    """A group, and its new coordinator."""

    group: Name
    to: Id | None = None


class Jump(Verb, frozen=True):
    """How far the clock of all nodes goes ahead."""

    seconds: Annotated[float, Meta(ge=0)]


VERBS: Final[Mapping[str, type[Verb]]] = {
    "create_topic": CreateTopic,
    "delete_topic": DeleteTopic,
    "reset": Nothing,
    "kill": Kill,
    "stop": Node,
    "restart": Node,
    "pause": Node,
    "resume": Node,
    "partition": Cut,
    "delay": Delay,
    "throttle": Throttle,
    "break_connection": BreakConnection,
    "heal": Nothing,
    "slow_disk": SlowDisk,
    "full_disk": FullDisk,
    "fail_next": FailNext,
    "leader": Place,
    "isr": Place,
    "move_leader": MoveLeader,
    "coordinator": Group,
    "move_coordinator": MoveCoordinator,
    "rebalance": Group,
    "deliveries": Deliveries,
    "expire_locks": Group,
    "jump": Jump,
}
"""The verbs, by the method of `Kafka` that each is; `jump` is that of its clock."""


class Control:
    """Answers requests about one cluster.

    Args:
        kafka: The cluster, which runs.
    """

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._limiter = trio.CapacityLimiter(AT_ONCE)

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """The answer to one request, whatever a stranger has sent."""
        if not _is_local(request.host):
            return _refused(403, "the header Host names another machine than this one")
        name = request.path.strip("/")
        if not name:
            if request.method == "POST":
                return _refused(405, "GET / is the state, and POST /VERB does something", allow="GET, HEAD")
            return await self._run(self._state)
        if name not in VERBS:
            near = get_close_matches(name[:80], VERBS, n=1)
            advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(VERBS)}"
            return _refused(404, f"there is no verb {name[:80]!r}; {advice}")
        if request.method != "POST":
            return _refused(405, f"POST /{name} with its arguments as JSON", allow="POST")
        if request.content_type.partition(";")[0].strip().lower() != _JSON:
            why = f"the body is an object of JSON, with Content-Type: {_JSON}"
            return _refused(415, f"{why}, as curl --json '{{...}}' sends it")
        try:
            arguments = msgspec.json.decode(request.body or b"{}", type=VERBS[name])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as bad:
            known = ", ".join(VERBS[name].__struct_fields__) or "no arguments"
            return _refused(400, f"{name}: {bad}; it takes {known}")
        return await self._run(partial(self._do, name, arguments))

    async def _run(self, work: Callable[[], Any]) -> HttpAnswer:
        """The answer with what some work returns, in a thread: it waits for the nodes, which have another one."""
        try:
            result = await trio.to_thread.run_sync(work, limiter=self._limiter, abandon_on_cancel=True)
        except (ValueError, TypeError) as bad:
            return _refused(400, str(bad))
        except TimeoutError as late:
            return _refused(504, str(late))
        except (SomeRefused, NodeDown) as refused:
            return _refused(409, str(refused))
        except Exception as failed:
            # A refusal of the cluster, or a node that has ended meanwhile: the suite wants to know why.
            return _refused(409, f"{type(failed).__name__}: {failed}")
        return HttpAnswer(200, msgspec.json.encode(result), _JSON)

    def _do(self, name: str, arguments: Verb) -> dict[str, Any]:
        match arguments:
            case DeleteTopic(names=names):
                self._kafka.delete_topic(*names)
            case Jump(seconds=seconds):
                self._kafka.clock.jump(seconds)
            case _:
                return {"result": getattr(self._kafka, name)(**asdict(arguments))}
        return {"result": None}

    def _state(self) -> dict[str, Any]:
        kafka = self._kafka
        running = kafka.running
        ended = {str(node): str(why) for node in kafka.layout.ids if (why := kafka.failure_of(node)) is not None}
        return {
            "cluster_id": kafka.cluster_id,
            "bootstrap_servers": kafka.bootstrap_servers,
            "brokers": kafka.broker_ids,
            "controllers": kafka.controller_ids,
            "running": running,
            "fenced": [node for node in kafka.broker_ids if running and kafka.is_fenced(node)],
            "ended": ended,
            "active_controller": kafka.active_controller,
            "verbs": {name: verb.__struct_fields__ for name, verb in VERBS.items()},
        }


@asynccontextmanager
async def open_control(kafka: Kafka, port: int) -> AsyncIterator[str]:
    """Serve the control of a cluster at a port of loopback, 0 for any free one; yields its URL. Raises `OSError`."""
    listener = Listener("CONTROL", HOST, port)
    bound = bind(listener)
    listening = trio.SocketListener(trio.socket.from_stdlib_socket(bound))
    async with trio.open_nursery() as nursery:
        await nursery.start(HttpServer(listening, Control(kafka).answer, LIMITS).run)
        yield f"http://{HOST}:{bound_to(listener, bound).port}"
        nursery.cancel_scope.cancel()


def _is_local(host: str) -> bool:
    """Whether the header Host names this machine: a name of a stranger may lead to loopback, too (DNS rebinding)."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).lower() in _LOCAL


def _refused(status: int, why: str, *, allow: str = "") -> HttpAnswer:
    return HttpAnswer(status, msgspec.json.encode({"error": why}), _JSON, allow)
