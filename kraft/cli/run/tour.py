"""The scripted tour of `kraft quickstart --for`: elect, register, create a topic, write records, share them in a group,
commit, kill the leader, fail over, restart, kill the coordinator, let it return, read every record, verify, stop.

Each step returns its observation, or fails. The nodes are processes. The tour sends requests to their ports, like any
client, and reads their logs from disk.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from typing import Any, Final

import trio
from msgspec import Struct

from kraft.admin import AdminClient, AdminError, ConfigChange, QuorumDescription, ResourceType
from kraft.cli.run.record_tour import BrokerTour, RecordTour, Seen, StepFailed
from kraft.config import Config
from kraft.config.errors import CommandFailed
from kraft.local.local_cluster import LocalCluster, NodeProcess
from kraft.quorum.values import QuorumConfig
from metadata_log.disk import OsDisk
from metadata_log.reading.damage import Damage
from metadata_log.reading.entries import read_entries
from metadata_log.reading.reader import read_log
from metadata_log.records.batch import RecordBatch
from metadata_log.records.metadata import ConfigRecord

CHANGES: Final = 1000
CHANGES_DURING_FAILOVER: Final = 200
CHANGES_WHILE_ONE_IS_DOWN: Final = 100
WRITERS: Final = 16
"""The number of concurrent changes during the failover."""
KILL_AFTER: Final = 20
"""The number of acknowledged changes after which the leader is killed."""
CONFIG_KEY: Final = "interval.ms"
POLL_SECONDS: Final = 0.01
WATCH_SECONDS: Final = 0.05

Acknowledged = tuple[str, str]
"""The resource and the value of one acknowledged change."""


Step = tuple[str, Callable[[], Awaitable[Seen]]]
"""The name of a step, and what it does."""


class StepDone(Struct, frozen=True):
    """One step of the tour: its name, its success, and its observation as text and as JSON fields."""

    step: str
    held: bool
    text: str
    seconds: float
    facts: dict[str, Any]


class Tour:
    """The shared state of the steps: the cluster, a client, and each acknowledged change."""

    def __init__(self, cluster: LocalCluster, admin: AdminClient, prefix: str, records: RecordTour | None) -> None:
        """`prefix` separates this tour from an earlier one in the same directory; without brokers no `records`."""
        self._cluster = cluster
        self._admin = admin
        self._config = Config.load(str(cluster.controllers[0].config_path))
        self._prefix = prefix
        self._records = records
        self._acknowledged: list[Acknowledged] = []
        self._last_acknowledged_at = 0.0
        self._victim: NodeProcess | None = None
        """The killed leader."""

    async def run(self, seconds: float) -> AsyncGenerator[StepDone, None]:
        """Run each step in order until one fails; all but the last must be done within `seconds`."""
        deadline = trio.current_time() + seconds
        before, after = self._steps_with_brokers()
        steps = [
            ("elect", self.elect),
            *before,
            ("commit", self.commit),
            ("fail over", self.fail_over),
            ("go on", self.go_on),
            ("restart", self.restart),
            *after,
            ("verify", self.verify),
            ("stop", self.stop),
        ]
        for name, step in steps:
            done = await self._timed(name, step, float("inf") if name == "stop" else deadline)
            yield done
            if not done.held:
                return

    def _steps_with_brokers(self) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
        """Those before the failure of a controller, and those after it; none without brokers."""
        records = self._records
        if records is None:
            return (), ()
        topic = f"{self._prefix}-topic"
        brokers = BrokerTour(self._cluster, self._admin, topic, lambda: records.coordinator)
        return (
            (
                ("register", brokers.register),
                ("create", brokers.create),
                ("write", records.write),
                ("share", records.share),
            ),
            (("lose", brokers.lose), ("return", brokers.come_back), ("read", records.read)),
        )

    # The steps

    async def elect(self) -> Seen:
        """A leader exists, and its first records are committed."""
        quorum = await self._described(lambda quorum: quorum.high_watermark > 0)
        took_ms = round((time.monotonic() - self._cluster.started_at) * 1000)
        return (
            f"node {quorum.leader_id} leads epoch {quorum.leader_epoch}, high watermark {quorum.high_watermark},"
            f" {took_ms:,} ms after the start of the processes",
            {
                "leader": quorum.leader_id,
                "epoch": quorum.leader_epoch,
                "highWatermark": quorum.high_watermark,
                "ms": took_ms,
            },
        )

    async def commit(self) -> Seen:
        """Many concurrent changes are committed."""
        started = time.monotonic()
        await self._change("commit", CHANGES)
        took = time.monotonic() - started
        quorum = await self._described(lambda quorum: quorum.high_watermark > 0)
        return (
            f"{CHANGES:,} config changes, pipelined, in {took * 1000:,.0f} ms ({CHANGES / took:,.0f}/s);"
            f" high watermark {quorum.high_watermark:,}",
            {"changes": CHANGES, "ms": round(took * 1000), "highWatermark": quorum.high_watermark},
        )

    async def fail_over(self) -> Seen:
        """`kill -9` of the leader during changes; the client completes all of them."""
        numbers = iter(range(CHANGES_DURING_FAILOVER))
        enough = trio.Event()

        async def write() -> None:
            for number in numbers:
                await self._change_one("failover", number)
                if number >= KILL_AFTER:
                    enough.set()

        async with trio.open_nursery() as nursery:
            for _ in range(WRITERS):
                nursery.start_soon(write)
            await enough.wait()
            # With a stalled disk, the current leader may differ from the one elected first.
            quorum = await self._admin.describe_quorum()
            victim = self._victim = self._cluster.node(quorum.leader_id)
            pid = victim.pid
            killed_at = time.monotonic()
            await victim.kill()
            leader_id, epoch = await self._new_leader(quorum)
            elected_ms = round((time.monotonic() - killed_at) * 1000)
        outage_ms = round((self._last_acknowledged_at - killed_at) * 1000)
        bound_ms = self._failover_bound_ms()
        if elected_ms > bound_ms:
            raise StepFailed(f"a new leader took {elected_ms:,} ms; the time-outs allow {bound_ms:,} ms")
        return (
            f"kill -9 of leader {victim.id} (pid {pid}): node {leader_id} leads epoch {epoch} after {elected_ms:,} ms"
            f" (bound {bound_ms:,} ms); all {CHANGES_DURING_FAILOVER} changes under way done after {outage_ms:,} ms",
            {"killed": victim.id, "leader": leader_id, "epoch": epoch, "ms": elected_ms, "outageMs": outage_ms},
        )

    def _failover_bound_ms(self) -> int:
        """Two fetch timeouts and two elections with the longest timer.

        The first candidate may be refused by a voter with a recent fetch, and then waits for another fetch timeout. One
        vote may be split.
        """
        quorum = self._config.of(QuorumConfig)
        return 2 * quorum.fetch_timeout_ms + 2 * (2 * quorum.election_timeout_ms)

    async def go_on(self) -> Seen:
        """The rest of the quorum commits without the killed node."""
        started = time.monotonic()
        await self._change("without", CHANGES_WHILE_ONE_IS_DOWN)
        took_ms = round((time.monotonic() - started) * 1000)
        return (
            f"{CHANGES_WHILE_ONE_IS_DOWN} changes committed by the others in {took_ms:,} ms",
            {"changes": CHANGES_WHILE_ONE_IS_DOWN, "ms": took_ms},
        )

    async def restart(self) -> Seen:
        """The old leader returns, truncates records that the new leader lacks, and catches up."""
        victim = self._victim
        assert victim is not None, "no leader was killed"
        leader = self._cluster.node((await self._admin.describe_quorum()).leader_id)
        kept = {(batch.base_offset, batch.epoch) for batch in _batches(leader)}
        lost = sum(batch.record_count for batch in _batches(victim) if (batch.base_offset, batch.epoch) not in kept)
        started = time.monotonic()
        await victim.start()
        quorum = await self._described(lambda quorum: _end_of(quorum, victim.id) >= quorum.high_watermark > 0)
        took_ms = round((time.monotonic() - started) * 1000)
        dropped = f"dropped {lost} records that were never committed" if lost else "had nothing to drop"
        end = _end_of(quorum, victim.id)
        return (
            f"node {victim.id} {dropped}, and caught up to {end:,} in {took_ms:,} ms",
            {"node": victim.id, "truncated": lost, "logEndOffset": end, "ms": took_ms},
        )

    async def verify(self) -> Seen:
        """Each acknowledged record is in each log, and the logs are equal below the high watermark."""
        high_watermark = (await self._admin.describe_quorum()).high_watermark
        await self._described(
            lambda quorum: all(one.log_end_offset >= high_watermark for one in (*quorum.voters, *quorum.observers))
        )
        reference: list[bytes] | None = None
        for node in self._cluster.nodes:
            committed = [batch for batch in _batches(node) if batch.next_offset <= high_watermark]
            if not committed or committed[-1].next_offset != high_watermark:
                raise StepFailed(f"the log of node {node.id} does not reach high watermark {high_watermark:,}")
            missing = set(self._acknowledged) - _config_values(committed)
            if missing:
                raise StepFailed(f"{len(missing):,} acknowledged records are not in the log of node {node.id}")
            data = [batch.data for batch in committed]
            if reference is not None and data != reference:
                raise StepFailed(f"the log of node {node.id} differs below high watermark {high_watermark:,}")
            reference = data
        count, nodes = len(self._acknowledged), len(self._cluster.nodes)
        return (
            f"all {count:,} acknowledged records are in all {nodes} logs, which are equal below {high_watermark:,}",
            {"acknowledged": count, "logs": nodes, "highWatermark": high_watermark},
        )

    async def stop(self) -> Seen:
        """SIGTERM to all: each process ends by itself."""
        started = time.monotonic()
        self._cluster.check()
        clean = await self._cluster.stop()
        for node in self._cluster.nodes:
            if not clean[node.id]:
                raise StepFailed(f"node {node.id} {node.ending()}: {node.last_words()}")
        took_ms = round((time.monotonic() - started) * 1000)
        return f"all {len(clean)} nodes ended cleanly in {took_ms:,} ms", {"ms": took_ms}

    # Helpers

    async def _described(self, wanted: Callable[[QuorumDescription], bool]) -> QuorumDescription:
        """Describe the quorum until the result meets the condition."""
        while not wanted(quorum := await self._admin.describe_quorum()):  # noqa: ASYNC110  # it is elsewhere
            await trio.sleep(POLL_SECONDS)
        return quorum

    async def _new_leader(self, old: QuorumDescription) -> tuple[int, int]:
        quorum = await self._described(
            lambda quorum: quorum.leader_id != old.leader_id and quorum.leader_epoch > old.leader_epoch
        )
        return quorum.leader_id, quorum.leader_epoch

    async def _change(self, phase: str, count: int) -> None:
        """Make `count` concurrent changes of settings, and note each acknowledgement."""
        async with trio.open_nursery() as nursery:
            for number in range(count):
                nursery.start_soon(self._change_one, phase, number)

    async def _change_one(self, phase: str, number: int) -> None:
        resource, value = f"{self._prefix}-{phase}-{number}", str(1000 + number)
        change = ConfigChange(
            resource_type=ResourceType.CLIENT_METRICS, resource_name=resource, key=CONFIG_KEY, value=value
        )
        await self._admin.alter_configs([change])
        self._acknowledged.append((resource, value))
        self._last_acknowledged_at = time.monotonic()

    async def _timed(self, name: str, step: Callable[[], Awaitable[Seen]], deadline: float) -> StepDone:
        """Run one step to its end or its deadline, and convert each failure to text."""
        started = time.monotonic()
        held, facts = False, dict[str, Any]()
        text = f"not done when the time of --for was over; the last answer: {self._admin.last_failure}"
        try:
            with trio.CancelScope(deadline=deadline):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._watch)
                    text, facts = await step()
                    held = True
                    nursery.cancel_scope.cancel()
        except* (StepFailed, AdminError, CommandFailed, OSError) as failed:
            text = "; ".join(dict.fromkeys(str(cause) for cause in _causes(failed)))
        return StepDone(name, held, text, time.monotonic() - started, facts)

    async def _watch(self) -> None:
        """Fail the step if a node ends unexpectedly."""
        while True:
            self._cluster.check()
            await trio.sleep(WATCH_SECONDS)


def _causes(failed: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    for cause in failed.exceptions:
        if isinstance(cause, BaseExceptionGroup):
            yield from _causes(cause)
        else:
            yield cause


def _end_of(quorum: QuorumDescription, node_id: int) -> int:
    return next(voter.log_end_offset for voter in quorum.voters if voter.id == node_id)


def _batches(node: NodeProcess) -> list[RecordBatch]:
    """The batches on a node's disk; the last one may be incomplete."""
    batches = []
    for batch in read_log(OsDisk(), node.partition):
        if isinstance(batch, RecordBatch):
            batches.append(batch)
        elif not batch.unfinished:
            raise StepFailed(f"the log of node {node.id} is damaged: {batch}")
    return batches


def _config_values(batches: Iterable[RecordBatch]) -> set[Acknowledged]:
    """The tour's settings in the records of these batches."""
    return {
        (entry.record.resource_name, entry.record.value or "")
        for batch in batches
        for entry in read_entries(batch, "log")
        if not isinstance(entry, Damage) and isinstance(entry.record, ConfigRecord) and entry.record.name == CONFIG_KEY
    }
