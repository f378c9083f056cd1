"""Samples a live quorum again and again, at a small price for its leader.

A refresh takes one DescribeQuorum and one Fetch of the log that the leader answers at once. Only while no leader
answers, each known controller gets two small requests. The leader keeps no state about this reader. Brokers and
partitions come from the log (KIP-595), other figures from the metrics listeners, within bounds of time and size.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import Final

import h11
import trio

from kraft.admin.client import AdminClient
from kraft.admin.conditions import Condition, EpochReport, conditions_without_leader
from kraft.admin.descriptions import QuorumDescription, ReplicaDescription
from kraft.admin.errors import AdminError, CannotConnect, NoController, RequestRefused
from kraft.observer import Committed, Follower, HistoryLost, Jumped
from kraft.operate.top.metadata import WHERE, MetadataReplay
from kraft.operate.top.samples import (
    ControllerAnswer,
    Election,
    Fsyncs,
    MetadataSample,
    NodeFigures,
    NoLeader,
    QuorumSample,
    ReplicaSample,
    Sample,
    figures_of,
)
from metadata_log.errors import MetadataLogError
from metadata_log.records.batch import scan
from metadata_log.types import NO_NODE
from transport.interface import Endpoint
from transport.protocol.errors import Error

SCRAPE_SECONDS: Final = 2.0
MAX_BYTES: Final = 16 << 20
_READ_BYTES: Final = 1 << 16


class ScrapeFailed(MetadataLogError):
    """A metrics listener gave no answer that can be read. The message says why."""


async def scrape(endpoint: Endpoint) -> str:
    """The text of `/metrics`; raises `ScrapeFailed`, after `SCRAPE_SECONDS` at the latest."""
    with trio.move_on_after(SCRAPE_SECONDS):
        try:
            return await _get(endpoint)
        except OSError as failed:
            raise ScrapeFailed(_cause(failed)) from failed
        except (h11.RemoteProtocolError, UnicodeDecodeError) as failed:
            raise ScrapeFailed(f"the answer is not HTTP with text: {failed}") from failed
    raise ScrapeFailed(f"no answer within {SCRAPE_SECONDS:g} s")


async def _get(endpoint: Endpoint) -> str:
    stream = await trio.open_tcp_stream(endpoint.host, endpoint.port)
    async with stream:
        http = h11.Connection(h11.CLIENT)
        request = h11.Request(
            method="GET", target="/metrics", headers=[("Host", str(endpoint)), ("Connection", "close")]
        )
        await stream.send_all((http.send(request) or b"") + (http.send(h11.EndOfMessage()) or b""))
        body = bytearray()
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await stream.receive_some(_READ_BYTES))
            elif isinstance(event, h11.Response) and event.status_code != 200:
                raise ScrapeFailed(f"the answer is HTTP {event.status_code}")
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > MAX_BYTES:
                    raise ScrapeFailed(f"the answer has more than {MAX_BYTES >> 20} MiB")
            elif isinstance(event, h11.EndOfMessage):
                return body.decode()
            elif isinstance(event, h11.ConnectionClosed):
                raise ScrapeFailed("the connection was closed before the end of the answer")


def _cause(failed: BaseException) -> str:
    """The words of the system: Trio wraps the failures of all addresses of a name."""
    match failed.__cause__:
        case OSError() as cause:
            return _cause(cause)
        case BaseExceptionGroup(exceptions=(first, *_)):
            return _cause(first)
    return os.strerror(failed.errno) if isinstance(failed, OSError) and failed.errno else str(failed)


ELECTIONS_KEPT: Final = 100


class LogPasses:
    """Passes over the log. Each reads what was committed since the pass before."""

    def __init__(self, admin: AdminClient, clock_ms: Callable[[], int]) -> None:
        self._admin = admin
        self._clock_ms = clock_ms
        self._follower: Follower | None = None
        self._replay = MetadataReplay()
        self._has_given_up = False
        self.cluster_id: str | None = None
        self.metadata: MetadataSample | None = None
        self.at_ms: int | None = None
        """The time of the last whole pass."""
        self.note: str | None = None

    @property
    def elections(self) -> tuple[Election, ...]:
        """The latest elections in the log."""
        return tuple(self._replay.elections[-ELECTIONS_KEPT:])

    async def go(self) -> None:
        """One pass: one Fetch, and one more for each further MiB. Failures become `note`."""
        if self._has_given_up:
            return
        try:
            await self._go()
        except NoController:
            return  # the quorum's own answer says so
        except HistoryLost as lost:
            self._follower, self._replay = None, MetadataReplay()
            self.note = f"the metadata is read again from the beginning: {lost}"
        except RequestRefused as refused:
            if refused.error is not Error.SNAPSHOT_NOT_FOUND:
                self._give_up(f"{refused}. Reading the log needs CLUSTER_ACTION on the cluster")
        except (AdminError, MetadataLogError) as failed:
            self._give_up(str(failed))

    def _give_up(self, why: str) -> None:
        self._has_given_up = True
        self.note = f"brokers and partitions cannot be read from the metadata log: {why}"

    async def _go(self) -> None:
        if self._follower is None:
            self.cluster_id = (await self._admin.describe_cluster()).cluster_id
            follower = Follower(self._admin, self.cluster_id)
            await follower.begin()
            self._follower = follower
        follower, before = self._follower, self._replay.image
        while True:
            match await follower.poll():
                case None:
                    break
                case Committed(batches):
                    self._replay.take(batches)
                case Jumped(snapshot, data, _):
                    begin = self._replay.begin_with
                    # A snapshot may take seconds, in which the answers of the leader are not to wait.
                    await trio.to_thread.run_sync(begin, scan(data, where=WHERE), snapshot, abandon_on_cancel=True)
            if follower.end.offset >= follower.high_watermark:
                break
        if self.metadata is None or self._replay.image is not before:
            self.metadata = self._replay.summary()
            self.note = None
        self.at_ms = self._clock_ms()


LIVE_TIMEOUT_MS: Final = 2_000
"""The limit of a request of a repeated refresh: later, the screen says that no leader answers."""
SHORTEST_SCRAPE_SECONDS: Final = 5.0
"""A scrape costs a node some milliseconds, so that no refresh repeats one earlier."""
_WAIT_SECONDS: Final = 0.5
"""How long a refresh waits for the log and the scrapes; what comes later is shown with the next refresh."""


class Control:
    """Pauses the refreshes, and asks for one at once. The methods belong into the loop of the poller."""

    def __init__(self) -> None:
        self.is_paused = False
        self._is_wanted = False
        self._wake = trio.Event()

    def pause(self, is_paused: bool) -> None:
        """Stop refreshing, or go on at once."""
        self.is_paused = is_paused
        self._is_wanted = not is_paused
        self._wake.set()

    def refresh(self) -> None:
        """Refresh now, also during a pause."""
        self._is_wanted = True
        self._wake.set()

    async def wait(self, seconds: float) -> None:
        """Return when the next refresh is due."""
        due = trio.current_time() + seconds
        while not self._is_wanted:
            self._wake = trio.Event()
            with trio.move_on_at(inf if self.is_paused else due) as waiting:
                await self._wake.wait()
            if waiting.cancelled_caught:
                break
        self._is_wanted = False


class _Work:
    """Some work in a task of its own, one run at a time."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._start, self._starts = trio.open_memory_channel[None](1)
        self._idle = trio.Event()
        self._idle.set()

    def begin(self) -> None:
        """Begin a run, unless one is under way."""
        if self._idle.is_set():
            self._idle = trio.Event()
            self._start.send_nowait(None)

    async def wait(self) -> None:
        """Return when no run is under way."""
        await self._idle.wait()

    async def run(self) -> None:
        """Run until cancelled."""
        async for _ in self._starts:
            await self._work()
            self._idle.set()


class Poller:
    """Samples one cluster.

    Args:
        admin: A client of the cluster. Its timeout bounds each request with its retries.
        show: Called with each sample, in the loop of the poller.
        clock_ms: The clock of this host, in milliseconds since 1970.
        listeners: The metrics listeners of some nodes.
    """

    def __init__(
        self,
        admin: AdminClient,
        show: Callable[[Sample], None],
        *,
        clock_ms: Callable[[], int],
        listeners: Sequence[Endpoint] = (),
    ) -> None:
        self.control = Control()
        self._admin = admin
        self._show = show
        self._clock_ms = clock_ms
        self._log = LogPasses(admin, clock_ms)
        self._listeners = tuple(listeners)
        self._figures: dict[Endpoint, NodeFigures] = {}
        self._fsyncs: dict[Endpoint, Fsyncs] = {}
        self._scraped_at = -inf
        self._answers: tuple[ControllerAnswer, ...] = ()
        self._has_answered = False
        self._requests_before = 0

    async def once(self) -> None:
        """Take one sample with everything in it.

        Raises `AdminError` if a controller refuses the question, or time does not cure that none can be asked.
        """
        quorum = await self._ask()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._scrape)
            if isinstance(quorum, QuorumSample):
                nursery.start_soon(self._log.go)
        self._tell(quorum)

    async def run(self, interval_s: float) -> None:
        """Take samples until cancelled; a leader that vanishes does not end this.

        Raises `AdminError` if the first leader that answers refuses the question, or is no controller.
        """
        log, scrapes = _Work(self._log.go), _Work(self._scrape)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.run)
            nursery.start_soon(scrapes.run)
            while True:
                await self._refresh(log, scrapes)
                await self.control.wait(interval_s)

    async def _refresh(self, log: _Work, scrapes: _Work) -> None:
        quorum = await self._ask()
        if isinstance(quorum, QuorumSample):
            log.begin()
        now = trio.current_time()
        if self._listeners and now - self._scraped_at >= SHORTEST_SCRAPE_SECONDS:
            self._scraped_at = now
            scrapes.begin()
        with trio.move_on_after(_WAIT_SECONDS):
            await log.wait()
            await scrapes.wait()
        self._tell(quorum)

    def _tell(self, quorum: QuorumSample | NoLeader) -> None:
        sent = self._admin.requests_sent
        log = self._log
        sample = Sample(
            at_ms=self._clock_ms(),
            cluster_id=log.cluster_id,
            quorum=quorum,
            metadata=log.metadata,
            metadata_at_ms=log.at_ms,
            metadata_note=log.note,
            elections=log.elections,
            figures=tuple(self._figures[one] for one in self._listeners if one in self._figures),
            requests=sent - self._requests_before,
        )
        self._requests_before = sent
        self._show(sample)

    # The quorum

    async def _ask(self) -> QuorumSample | NoLeader:
        try:
            quorum = await self._admin.describe_quorum()
        except NoController as silent:
            if isinstance(silent, CannotConnect) and not self._has_answered:
                raise
            problem = str(silent)
        except AdminError as failed:
            if not self._has_answered:
                raise
            problem = str(failed)
        else:
            self._has_answered, self._answers = True, ()
            return _quorum_sample(quorum)
        # The controllers may take seconds to answer, and the screen is to say at once what has happened.
        self._tell(NoLeader(problem=problem, answers=self._answers))
        conditions = await conditions_without_leader(self._admin)
        self._admin.assume_active(_leader_among(conditions))
        self._answers = tuple(_answer(one) for one in conditions)
        return NoLeader(problem=problem, answers=self._answers)

    # The metrics

    async def _scrape(self) -> None:
        async with trio.open_nursery() as nursery:
            for endpoint in self._listeners:
                nursery.start_soon(self._scrape_one, endpoint)

    async def _scrape_one(self, endpoint: Endpoint) -> None:
        before = self._figures.get(endpoint)
        try:
            figures, fsyncs = figures_of(str(endpoint), await scrape(endpoint), self._fsyncs.get(endpoint))
        except (ScrapeFailed, ValueError) as failed:
            node_id = None if before is None else before.node_id
            self._figures[endpoint] = NodeFigures(address=str(endpoint), node_id=node_id, problem=str(failed))
        else:
            self._figures[endpoint], self._fsyncs[endpoint] = figures, fsyncs


def _quorum_sample(quorum: QuorumDescription) -> QuorumSample:
    voters = (_replica(one, is_voter=True) for one in quorum.voters)
    observers = (_replica(one, is_voter=False) for one in quorum.observers)
    return QuorumSample(
        leader_id=quorum.leader_id,
        epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        replicas=(*voters, *observers),
    )


def _replica(one: ReplicaDescription, *, is_voter: bool) -> ReplicaSample:
    return ReplicaSample(
        id=one.id,
        directory_id=str(one.directory_id),
        is_voter=is_voter,
        end_offset=one.log_end_offset,
        fetched_ms=one.last_fetch_ms,
        caught_up_ms=one.last_caught_up_ms,
    )


def _leader_among(conditions: Sequence[Condition]) -> Endpoint | None:
    """The address of the controller that says of itself that it leads, in the latest epoch."""
    leading = [
        (one.report.epoch, one.endpoint)
        for one in conditions
        if isinstance(one.report, EpochReport) and one.id != NO_NODE and one.report.leader_id == one.id
    ]
    return max(leading, key=lambda found: found[0], default=(0, None))[1]


def _answer(condition: Condition) -> ControllerAnswer:
    address = "an unknown address" if condition.endpoint is None else str(condition.endpoint)
    node_id = None if condition.id == NO_NODE else condition.id
    match condition.report:
        case EpochReport(epoch=epoch, leader_id=leader_id):
            return ControllerAnswer(
                id=node_id, address=address, epoch=epoch, leader_id=None if leader_id == NO_NODE else leader_id
            )
        case str(problem):
            return ControllerAnswer(id=node_id, address=address, problem=problem.removeprefix(f"{address}: "))
