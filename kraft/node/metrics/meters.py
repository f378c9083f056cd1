"""Counters that a node's shell raises where things happen: fsyncs, elections, commits (Kafka: `KafkaRaftMetrics`).

A node has meters only if its metrics listener is on. Rare events are counted in the types of prometheus-client. Those
of the path of a commit are counted in plain numbers, as a lock and a dictionary for each would cost more than the rest.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from time import perf_counter
from typing import Final

from msgspec import structs
from prometheus_client import Counter, Histogram, Metric

from kraft.metrics.view import Authenticated, Channels, Counted, SnapshotFile, heard_ms
from kraft.metrics.windows import Recent, Sampled
from kraft.node.metrics.measured_disk import FILE_KINDS, FsyncClock
from kraft.quorum.core import RaftCore
from kraft.quorum.effects import HighWatermarkMoved, LeaderChanged, StateChanged
from kraft.replica.interface.events import Trace
from kraft.replica.replica import Replica
from metadata_log.log.snapshot import snapshot_name
from metadata_log.types import BOOTSTRAP_SNAPSHOT, NO_NODE, OffsetAndEpoch
from transport.interface import Transport
from transport.traffic import SUCCESS
from transport.wire import WireTransport

FSYNC_BUCKETS: Final = tuple(0.0001 * 2**at for at in range(16))
"""100 µs to 3.3 s, doubling."""
_MOST_UNCOMMITTED: Final = 4096
_CAMPAIGNS: Final = {"Prospective": "prospective", "Candidate": "candidate"}
_RESIGNATIONS: Final = frozenset({"shutdown", "check-quorum", "removed"})
_MS: Final = 1000


class Meters:
    """The counts of one node. `now_s` of each method is a time of `perf_counter`, the clock of Trio."""

    def __init__(self) -> None:
        now_s = perf_counter()
        self._fsyncs = Histogram(
            "kraft_fsync_seconds",
            "The time of an fsync, by the kind of the file.",
            ["file"],
            registry=None,
            buckets=FSYNC_BUCKETS,
        )
        self._by_file = {kind: self._fsyncs.labels(kind) for kind in FILE_KINDS}
        self._elections = Counter(
            "kraft_elections", "The rounds of votes of this node.", ["role", "outcome"], registry=None
        )
        self._states = Counter("kraft_state_changes", "The states that this node has entered.", ["to"], registry=None)
        self._resigned = Counter("kraft_resigned", "The resignations of this leader.", ["why"], registry=None)
        self.fsync_clock = FsyncClock(self._on_fsync)
        self._flush_ms = Recent()
        self._commit_ms = Sampled(now_s)
        self._election_ms = Sampled(now_s)
        self._appended = Sampled(now_s)
        self._fetched = Sampled(now_s)
        self._turn_s = Sampled(now_s)
        self._gap_s = Sampled(now_s)
        self._events = 0
        self._queue_ms = Recent()
        self._processing_ms = Recent()
        self._uncommitted: deque[tuple[int, float]] = deque(maxlen=_MOST_UNCOMMITTED)
        """The ends of the batches of this leader that are not committed, each with the time of its append."""
        self._end_offset = -1
        self._campaigns_since_s: float | None = None
        self._leads_since_s: float | None = None
        self._led_s = 0.0
        self._leaders_seen = 0
        self._last_leader = (NO_NODE, -1)
        self._lost_election = ""
        self._heard_ms: int | None = None
        self._snapshot: SnapshotFile | None = None
        self._snapshot_id: OffsetAndEpoch | None = None
        self._installed = 0

    # Where it happens

    def _on_fsync(self, kind: str, took_s: float) -> None:
        """Called in any thread."""
        self._by_file[kind].observe(took_s)
        if kind == "log":
            self._flush_ms.record(took_s * _MS)

    def event(self, waited_s: float, took_s: float) -> None:
        """Take the time of an event, handled `waited_s` after its turn began."""
        self._queue_ms.record(waited_s * _MS)
        self._processing_ms.record(took_s * _MS)

    def turn(self, took_s: float, now_s: float, events: int) -> None:
        """Take the time of a turn that has ended; `events` were handled since the start."""
        self._events = events
        self._turn_s.record(took_s, now_s)

    def gap(self, late_s: float) -> None:
        """Note by how much a timer of the loop was late."""
        self._gap_s.record(late_s, perf_counter())

    def log_end(self, core: RaftCore) -> None:
        """Look at the end of the log; called after each write that can matter."""
        end_offset = core.log.end_offset
        known = self._end_offset
        if end_offset == known:
            return
        self._end_offset = end_offset
        if known < 0 or end_offset < known:
            return
        now_s = perf_counter()
        if core.is_leader:
            self._appended.record(end_offset - known, now_s)
            self._uncommitted.append((end_offset, now_s))
        else:
            self._fetched.record(end_offset - known, now_s)

    def trace(self, trace: Trace) -> None:
        """Count what has happened to the quorum."""
        match trace.effect:
            case HighWatermarkMoved(offset=offset):
                uncommitted = self._uncommitted
                now_s = perf_counter()
                while uncommitted and uncommitted[0][0] <= offset:
                    self._commit_ms.record((now_s - uncommitted.popleft()[1]) * _MS, now_s)
            case StateChanged(source=source, target=target, cause=cause):
                self._state_changed(source, target, cause)
            case LeaderChanged(leader=leader) if leader.leader_id != NO_NODE:
                self._lost_election = ""
                if (leader.leader_id, leader.epoch) != self._last_leader:
                    self._last_leader = (leader.leader_id, leader.epoch)
                    self._leaders_seen += 1
            case _:
                pass

    def _state_changed(self, source: str, target: str, cause: str) -> None:
        now_s = perf_counter()
        self._states.labels(target.lower()).inc()
        if source in _CAMPAIGNS:
            wins = "Candidate" if source == "Prospective" else "Leader"
            is_won = target == wins
            self._elections.labels(_CAMPAIGNS[source], "won" if is_won else "lost").inc()
            if not is_won and cause in ("pre-vote-lost", "election-timeout"):
                self._lost_election = cause
        if target in _CAMPAIGNS and self._campaigns_since_s is None:
            self._campaigns_since_s = now_s
        elif target in ("Follower", "Leader") and self._campaigns_since_s is not None:
            self._election_ms.record((now_s - self._campaigns_since_s) * _MS, now_s)
            self._campaigns_since_s = None
        if source == "Leader":
            self._resigned.labels(cause if cause in _RESIGNATIONS else "other").inc()
            self._uncommitted.clear()
            if self._leads_since_s is not None:
                self._led_s += now_s - self._leads_since_s
                self._leads_since_s = None
        if target == "Leader":
            self._leads_since_s = now_s

    def look(self, replica: Replica, now_ms: int) -> None:
        """Look at what no event reports; called some times a second. A `stat` follows each new snapshot."""
        core = replica.core
        heard = heard_ms(core, replica.options.quorum.fetch_timeout_ms, now_ms)
        if heard is not None and (self._heard_ms is None or heard > self._heard_ms):
            self._heard_ms = heard
            self._lost_election = ""
        newest = core.log.snapshots[-1] if core.log.snapshots else None
        if newest is not None and newest != self._snapshot_id:
            if self._snapshot_id is not None and newest.offset == core.log.start_offset:
                self._installed += 1
            self._snapshot_id = newest
            if newest != BOOTSTRAP_SNAPSHOT:  # this node has not taken it: `format` wrote it
                self._snapshot = _snapshot_file(replica, newest)

    # At a scrape

    def counted(self, transport: Transport) -> Counted:
        """Every count up to now."""
        now_s = perf_counter()
        led_s = self._led_s if self._leads_since_s is None else self._led_s + now_s - self._leads_since_s
        client = server = None
        authentications: tuple[Authenticated, ...] = ()
        if isinstance(transport, WireTransport):
            out = transport.client_traffic
            client, server = Channels(open=out.open, **structs.asdict(out)), _served_by(transport)
            authentications = tuple(
                Authenticated(one.listener, one.mechanism, one.result, one.result == SUCCESS, count)
                for one, count in transport.serving.authentications.counts.items()
            )
        return Counted(
            commit_ms_avg=self._commit_ms.average(now_s),
            commit_ms_max=self._commit_ms.maximum(now_s),
            election_ms_avg=self._election_ms.average(now_s),
            election_ms_max=self._election_ms.maximum(now_s),
            appended_per_s=self._appended.rate(now_s),
            fetched_per_s=self._fetched.rate(now_s),
            busy_ratio=self._turn_s.share(now_s),
            events=self._events,
            queue_ms=self._queue_ms.quantiles(),
            processing_ms=self._processing_ms.quantiles(),
            flush_ms=self._flush_ms.quantiles(),
            longest_turn_s=self._turn_s.maximum(now_s),
            longest_gap_s=self._gap_s.maximum(now_s),
            oldest_fsync_s=self.fsync_clock.oldest_s(),
            leaders_seen=self._leaders_seen,
            led_s=led_s,
            snapshots_installed=self._installed,
            snapshot=self._snapshot,
            heard_ms=self._heard_ms,
            lost_election=self._lost_election,
            client_channels=client,
            server_channels=server,
            authentications=authentications,
        )

    def families(self) -> Iterator[Metric]:
        """The families that are counted in the types of prometheus-client, without the times of their creation."""
        for one in (self._fsyncs, self._elections, self._states, self._resigned):
            for family in one.collect():
                family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
                yield family


def _snapshot_file(replica: Replica, snapshot: OffsetAndEpoch) -> SnapshotFile | None:
    with suppress(OSError):
        status = os.stat(f"{replica.log.directory}/{snapshot_name(snapshot)}")
        return SnapshotFile(snapshot.offset, status.st_size, int(status.st_mtime * _MS))
    return None


def _served_by(transport: WireTransport) -> Channels:
    """The connections of peers."""
    serving = transport.serving
    now_open = serving.open_connections
    closed = serving.accepted - now_open
    return Channels(open=now_open, created=serving.accepted, closed=closed, sent_bytes=serving.written_bytes)
