"""The metrics listener of a node: `/metrics`, `/livez`, `/readyz` and `/startupz`.

All answers come from the loop of the node itself: a loop that stands still answers nothing. Nothing that this listener
answers changes the node.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, TypeVar

import msgspec
import trio
from msgspec import Struct
from prometheus_client import GCCollector, Metric, ProcessCollector
from prometheus_client.registry import CollectorRegistry

from kraft.access.connection_rates import ConnectionRates
from kraft.config import Config
from kraft.config.metrics_settings import MetricsSettings
from kraft.http_server import HttpAnswer, HttpRequest, HttpServer
from kraft.metrics import own_names
from kraft.metrics.cluster import image_of
from kraft.metrics.coordinators import NO_GROUPS, counting
from kraft.metrics.exposition import CONTENT_TYPE, families_of, texts_of
from kraft.metrics.names import Dialect, Reading
from kraft.metrics.readiness import Check, is_ready, readiness
from kraft.metrics.samples import readings_of
from kraft.metrics.telemetry import client_families
from kraft.metrics.topic_counts import TopicCounter
from kraft.metrics.view import NodeView
from kraft.node.clock import NodeClock
from kraft.node.connection_gate import ConnectionGate
from kraft.node.logging import NodeLog
from kraft.node.metrics.certificates import certificates_of
from kraft.node.metrics.measured_disk import MeasuredDisk
from kraft.node.metrics.meters import Meters
from kraft.node.monitoring import MonitoredNode
from kraft.process.hosting import broker_of
from kraft.process.process import Process
from kraft.security.contexts import TlsFacts
from metadata_log.disk import DirectoryDisk
from metadata_log.releases import NEWEST_RELEASE
from metadata_log.software import SOFTWARE_VERSION
from transport.addresses import bind, bound_to
from transport.interface import Endpoint, Listener, Transport
from transport.wire import WireTransport

R = TypeVar("R")
BEAT_SECONDS: Final = 0.25
"""How often the monitor looks at the node between scrapes."""
LIVE_SECONDS: Final = 10.0
"""A loop that has not turned, or an owner that has not woken up for its deadline, for so long is not alive."""
UNREADY_AFTER_SECONDS: Final = 3.0
"""How long a check has to fail before a ready node becomes unready; a node that stops is unready at once."""
KEEP_SECONDS: Final = 0.25
"""How long a collected text is given to further scrapes."""
COUNT_SECONDS: Final = 2.0
"""The longest time of counting partitions at a scrape."""
_JSON: Final = "application/json"
_STARTING: Final = Check("started", False, "starting", "started", "The node is recovering its log.")


class _Running(Struct, frozen=True, eq=False):
    """A node that has recovered its log."""

    node: MonitoredNode
    process: Process
    transport: Transport


def _rates_of(transport: Transport) -> tuple[ConnectionRates, ...]:
    gate = transport.gate if isinstance(transport, WireTransport) else None
    return gate.rates if isinstance(gate, ConnectionGate) else ()


class Monitor:
    """Serves the metrics and the health of one node, from before its start to its end.

    Args:
        config: The configuration of the node, with a metrics listener.
        clock: The clock of the node.
        tls: Returns the certificates of a node with TLS.
    """

    def __init__(self, config: Config, clock: NodeClock, tls: Callable[[], TlsFacts] | None = None) -> None:
        self.meter = Meters()
        """The counts of the node while it runs."""
        self._config = config
        self._clock = clock
        self._tls = tls
        self._settings = config.of(MetricsSettings)
        self._dialects = (Dialect(self._settings.dialect),)
        self._node: _Running | None = None
        self._counter = TopicCounter()
        self._groups = NO_GROUPS
        self._lock = trio.Lock()
        self._kept: dict[tuple[Dialect, ...], tuple[float, bytes]] = {}
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._beat_at = trio.current_time()
        self._stalled_s = 0.0
        """The length of the last standstill of the loop."""
        self._stall_ended_at = float("-inf")
        self._was_ready = False
        self._failing_since: float | None = None

    def measured(self, disk: DirectoryDisk) -> DirectoryDisk:
        """The same disk with measured fsyncs."""
        return MeasuredDisk(disk, self.meter.fsync_clock)

    def attach(self, node: MonitoredNode, process: Process, transport: Transport) -> None:
        """Take the parts of the node, which has recovered its log."""
        self._node = _Running(node, process, transport)

    async def run(self, log: NodeLog, task_status: trio.TaskStatus[Endpoint | None] = trio.TASK_STATUS_IGNORED) -> None:
        """Bind, and serve until cancelled; `task_status` gets the bound address.

        Raises `OSError` if the port is in use.
        """
        assert self._settings.listener is not None, "the metrics listener is off"
        listener = Listener("METRICS", *self._settings.listener)
        bound = bind(listener)
        endpoint = bound_to(listener, bound)
        listening = trio.SocketListener(trio.socket.from_stdlib_socket(bound))
        facts: dict[str, object] = {"on": endpoint}
        log.write("metrics", facts)
        async with trio.open_nursery() as nursery:
            await nursery.start(HttpServer(listening, self._answer).run)
            nursery.start_soon(self.beat)
            task_status.started(endpoint)

    # What is looked at between scrapes

    async def beat(self) -> None:
        """Look at the node some times a second, and notice a loop that stood still."""
        while True:
            self._note_turn(trio.current_time())
            node = self._node
            if node is not None:
                self.meter.look(node.process.replica, self._clock.now_ms())
                self._look_at_readiness(readiness(self._view(node)))
            await trio.sleep(BEAT_SECONDS)

    def _note_turn(self, now: float) -> None:
        late = now - self._beat_at - BEAT_SECONDS
        if late > 0:
            self.meter.gap(late)
        if late >= LIVE_SECONDS:
            self._stalled_s, self._stall_ended_at = late, now
        self._beat_at = now

    def _look_at_readiness(self, checks: Iterable[Check]) -> None:
        """A failing check counts after some seconds, a passing one at once."""
        now = trio.current_time()
        if is_ready(checks):
            self._was_ready, self._failing_since = True, None
        elif self._failing_since is None:
            self._failing_since = now

    def _view(self, node: _Running) -> NodeView:
        config = self._config
        image = image_of(node.process)
        return NodeView(
            process=node.process,
            now_ms=self._clock.now_ms(),
            is_broker=config.is_broker,
            is_stopping=node.node.is_stopping,
            has_static_voters=bool(config.voters),
            listener=config.listeners[0].name if config.listeners else "",
            counted=self.meter.counted(node.transport),
            certificates=None if self._tls is None else certificates_of(self._tls()),
            groups=self._groups,
            connection_rates=_rates_of(node.transport),
            topics=self._counter.counts if image is None else self._counter.latest(image.topics),
        )

    # The answers

    async def _answer(self, request: HttpRequest) -> HttpAnswer:
        match request.path:
            case "/metrics":
                return await self._metrics(request.query)
            case "/livez":
                return self._livez()
            case "/readyz":
                return self._readyz(request.query)
            case "/startupz":
                return _json(200 if self._node is not None else 503, {"started": self._node is not None})
        return HttpAnswer(404, b"The paths are /metrics, /livez, /readyz and /startupz.\n")

    def _livez(self) -> HttpAnswer:
        """Whether the loop turns and the owner of the log wakes up. Never depends on peers, disks or a quorum."""
        now = trio.current_time()
        self_late = now - self._beat_at - BEAT_SECONDS
        stalled_s = self_late if self_late >= LIVE_SECONDS else self._stalled_s
        has_stalled = self_late >= LIVE_SECONDS or now - self._stall_ended_at < BEAT_SECONDS
        overdue_s = 0.0 if self._node is None else max(0, self._node.node.overdue_ms) / 1000
        loop = f"The loop stood still for {stalled_s:.1f} s." if has_stalled else "The loop turns."
        is_late = overdue_s >= LIVE_SECONDS
        owner = "The owner of the log does not wake up." if is_late else "The owner of the log wakes up in time."
        checks = [
            Check("loop", not has_stalled, stalled_s if has_stalled else 0.0, LIVE_SECONDS, loop),
            Check("owner", not is_late, overdue_s, LIVE_SECONDS, owner),
        ]
        return _checks_answer(all(one.ok for one in checks), "alive", checks)

    def _readyz(self, query: dict[str, str]) -> HttpAnswer:
        unknown = sorted(set(query) - {"exclude"})
        if unknown or query.get("exclude", "quorum") != "quorum":
            return HttpAnswer(400, b"The one field of the query is exclude=quorum.\n")
        node = self._node
        if node is None:
            return _checks_answer(False, "ready", [_STARTING])
        view = self._view(node)
        checks = readiness(view)
        self._look_at_readiness(checks)
        without_quorum = "exclude" in query
        ok = is_ready(checks, without_quorum=without_quorum)
        if not ok and not without_quorum and not (view.is_stopping or view.is_resigned):
            ok = self._is_excused()
        return _checks_answer(ok, "ready", checks)

    def _is_excused(self) -> bool:
        """Whether the node was ready, and the failure is too young to count."""
        if not self._was_ready or self._failing_since is None:
            return False
        if trio.current_time() - self._failing_since < UNREADY_AFTER_SECONDS:
            return True
        self._was_ready = False
        return False

    async def _metrics(self, query: dict[str, str]) -> HttpAnswer:
        try:
            wanted = query.pop("dialect", "")
            dialects = tuple(Dialect(word) for word in wanted.split(",")) if wanted else self._dialects
            if query:
                raise ValueError
        except ValueError:
            names = " or ".join(one.value for one in Dialect)
            return HttpAnswer(400, f"The one field of the query is dialect={names}, or both by a comma.\n".encode())
        dialects = tuple(dict.fromkeys(dialects))
        async with self._lock:
            kept = self._kept.get(dialects)
            if kept is None or trio.current_time() - kept[0] >= KEEP_SECONDS:
                kept = self._kept[dialects] = (trio.current_time(), await self._text(dialects))
        return HttpAnswer(200, kept[1], CONTENT_TYPE)

    async def _text(self, dialects: tuple[Dialect, ...]) -> bytes:
        """Collect all values in one turn of the loop, and write them in several."""
        parts = []
        for part in texts_of(await self.families(dialects)):
            parts.append(part)
            await trio.lowlevel.checkpoint()
        return b"".join(parts)

    async def families(self, dialects: tuple[Dialect, ...]) -> list[Metric]:
        """Collect all values in one turn of the loop."""
        node = self._node
        readings: list[Reading] = [_build_info()]
        if node is None:
            readings.append(Reading(own_names.READY, 0))
        else:
            await self._count(node)
            self.meter.look(node.process.replica, self._clock.now_ms())
            readings += readings_of(self._view(node))
        own = [*families_of(readings, dialects), *self.meter.families(), *self._registry.collect()]
        return own if node is None else own + await self._of_clients(node)

    async def _of_clients(self, node: _Running) -> list[Metric]:
        """The metrics that clients have pushed to this broker, in portions."""
        broker = broker_of(node.process.application)
        if broker is None or broker.requests.telemetry is None:
            return []
        return await _in_turns(client_families(broker.requests.telemetry.pushed, self._clock.now_ms()))

    async def _count(self, node: _Running) -> None:
        """Count partitions and groups, unless that takes too long: then the former counts stand, and say so."""
        with trio.move_on_after(COUNT_SECONDS):
            image = image_of(node.process)
            if image is not None:
                await _in_turns(self._counter.counting(image.topics))
            broker = broker_of(node.process.application)
            if broker is not None:
                self._groups = await _in_turns(counting(broker.requests.groups))


async def _in_turns(steps: Generator[object, None, R]) -> R:
    """The result of some steps, between which others have their turns."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: R = done.value
            return result
        await trio.lowlevel.checkpoint()


def _build_info() -> Reading:
    labels = (("version", SOFTWARE_VERSION), ("kafka", NEWEST_RELEASE), ("python", platform.python_version()))
    return Reading(own_names.BUILD_INFO, 1, labels)


def _checks_answer(ok: bool, what: str, checks: Iterable[Check]) -> HttpAnswer:
    return _json(200 if ok else 503, {what: ok, "checks": [_finite(one) for one in checks]})


def _finite(check: Check) -> dict[str, Any]:
    value = check.value
    if isinstance(value, float):
        value = round(value, 3)
    return {"name": check.name, "ok": check.ok, "value": value, "limit": check.limit, "text": check.text}


def _json(status: int, content: object) -> HttpAnswer:
    return HttpAnswer(status, msgspec.json.encode(content) + b"\n", _JSON)
