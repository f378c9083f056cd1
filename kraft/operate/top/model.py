"""The state behind the screen: samples go in, rows come out, also as one JSON object, where null means "not known".

The model keeps what one sample alone cannot say: rates, elections since the start, and how long there is no leader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from math import inf
from typing import Any, TypeVar

from msgspec import Struct

from kraft.operate.top.samples import (
    BrokerSample,
    ControllerAnswer,
    Election,
    MetadataSample,
    NodeFigures,
    NoLeader,
    QuorumSample,
    ReplicaSample,
    Sample,
)
from metadata_log.times import iso_time

T = TypeVar("T")
Facts = tuple[int, int | None, int | None]
"""The id, the lag and the age of the last Fetch of a row."""


class Sort(Enum):
    """The order of replicas and brokers."""

    ID = "id"
    LAG = "lag"
    FETCHED = "fetched"


class ReplicaRow(Struct, frozen=True, kw_only=True):
    """One replica of the quorum. None for what is not known; times are milliseconds ago."""

    id: int
    directory_id: str
    role: str
    """`leader`, `follower` or `observer`."""
    epoch: int | None
    """The epoch of the node; for a voter without figures, that of the leader which has answered its Fetch."""
    end_offset: int | None
    lag: int | None
    fetched_ms: int | None
    caught_up_ms: int | None
    fsync_ms: float | None
    turn_ms: float | None


class BrokerRow(Struct, frozen=True, kw_only=True):
    """One broker, with its replica of the metadata log if the leader reports one."""

    broker: BrokerSample
    lag: int | None
    fetched_ms: int | None


class View(Struct, frozen=True, kw_only=True):
    """Everything that a screen shows."""

    at_ms: int
    started_ms: int
    cluster_id: str | None
    leader_id: int | None
    """None without a leader."""
    epoch: int | None
    """The latest known epoch."""
    high_watermark: int | None
    records_per_s: float | None
    without_leader_ms: int | None
    """For how long no leader has answered; None with a leader."""
    last_leader_id: int | None
    problem: str | None
    answers: tuple[ControllerAnswer, ...]
    voters: int | None
    """The number of voters, as the last leader reported it."""
    replicas: tuple[ReplicaRow, ...]
    brokers: tuple[BrokerRow, ...]
    metadata: MetadataSample | None
    metadata_age_ms: int | None
    metadata_note: str | None
    elections: tuple[Election, ...]
    """The elections since the start, the latest last."""
    figures: tuple[NodeFigures, ...]
    requests: int


class Model:
    """The state of one run. `take` is called with each sample in turn."""

    def __init__(self) -> None:
        self._sample: Sample | None = None
        self._started_ms = 0
        self._first_epoch: int | None = None
        self._elections: dict[int, Election] = {}
        self._leader: QuorumSample | None = None
        self._leader_ms: int | None = None
        """The time of the last answer of a leader."""
        self._records_per_s: float | None = None
        self._cluster_id: str | None = None

    def take(self, sample: Sample) -> None:
        """Note a sample."""
        if self._sample is None:
            self._started_ms = sample.at_ms
        self._sample = sample
        self._cluster_id = sample.cluster_id or self._cluster_id
        epoch = _epoch(sample)
        if self._first_epoch is None:
            self._first_epoch = epoch
        if isinstance(sample.quorum, QuorumSample):
            self._take_quorum(sample.quorum, sample.at_ms)
        for election in sample.elections:
            # The log knows the time of an election better than the answer that told of the leader.
            self._note(election)

    def _take_quorum(self, quorum: QuorumSample, at_ms: int) -> None:
        before, before_ms = self._leader, self._leader_ms
        self._records_per_s = None
        if before is not None and before_ms is not None and at_ms > before_ms and before.high_watermark >= 0:
            moved = max(0, quorum.high_watermark - before.high_watermark)
            self._records_per_s = moved / (at_ms - before_ms) * 1000
        if quorum.epoch not in self._elections:
            self._note(Election(epoch=quorum.epoch, leader_id=quorum.leader_id, at_ms=at_ms))
        self._leader, self._leader_ms = quorum, at_ms

    def _note(self, election: Election) -> None:
        if self._first_epoch is not None and election.epoch > self._first_epoch:
            self._elections[election.epoch] = election

    def view(self, sort: Sort = Sort.ID) -> View | None:
        """The rows after the last sample; None before the first one."""
        sample = self._sample
        if sample is None:
            return None
        quorum, metadata = sample.quorum, sample.metadata
        has_leader = isinstance(quorum, QuorumSample)
        brokers = {} if metadata is None else {one.id: one for one in metadata.brokers}
        figures = {one.node_id: one for one in sample.figures if one.node_id is not None}
        replicas = _rows(quorum, figures) if isinstance(quorum, QuorumSample) else []
        of_brokers = {one.id: one for one in replicas if one.role == "observer"}
        since_ms = self._started_ms if self._leader_ms is None else self._leader_ms
        return View(
            at_ms=sample.at_ms,
            started_ms=self._started_ms,
            cluster_id=self._cluster_id,
            leader_id=quorum.leader_id if isinstance(quorum, QuorumSample) else None,
            epoch=_latest(_epoch(sample), None if self._leader is None else self._leader.epoch),
            high_watermark=None if self._leader is None else self._leader.high_watermark,
            records_per_s=self._records_per_s if has_leader else None,
            without_leader_ms=None if has_leader else sample.at_ms - since_ms,
            last_leader_id=None if self._leader is None else self._leader.leader_id,
            problem=quorum.problem if isinstance(quorum, NoLeader) else None,
            answers=quorum.answers if isinstance(quorum, NoLeader) else (),
            voters=None if self._leader is None else sum(one.is_voter for one in self._leader.replicas),
            replicas=tuple(
                _in_order(
                    [one for one in replicas if one.role != "observer" or one.id not in brokers],
                    sort,
                    lambda row: (row.id, row.lag, 0 if row.role == "leader" else row.fetched_ms),
                )
            ),
            brokers=tuple(
                _in_order(
                    [_broker_row(one, of_brokers.get(one.id)) for one in brokers.values()],
                    sort,
                    lambda row: (row.broker.id, row.lag, row.fetched_ms),
                )
            ),
            metadata=metadata,
            metadata_age_ms=None if sample.metadata_at_ms is None else max(0, sample.at_ms - sample.metadata_at_ms),
            metadata_note=sample.metadata_note,
            elections=tuple(self._elections[epoch] for epoch in sorted(self._elections)),
            figures=sample.figures,
            requests=sample.requests,
        )


def _epoch(sample: Sample) -> int | None:
    """The latest epoch in a sample."""
    if isinstance(sample.quorum, QuorumSample):
        return sample.quorum.epoch
    return max((one.epoch for one in sample.quorum.answers if one.epoch is not None), default=None)


def _latest(*epochs: int | None) -> int | None:
    return max((one for one in epochs if one is not None), default=None)


def _rows(quorum: QuorumSample, figures: Mapping[int, NodeFigures]) -> list[ReplicaRow]:
    leader = next((one for one in quorum.replicas if one.is_voter and one.id == quorum.leader_id), None)
    return [_row(one, leader, quorum, figures.get(one.id)) for one in quorum.replicas]


def _row(
    replica: ReplicaSample, leader: ReplicaSample | None, quorum: QuorumSample, figures: NodeFigures | None
) -> ReplicaRow:
    role = "leader" if replica is leader else "follower" if replica.is_voter else "observer"
    # The leader has begun its bookkeeping with its epoch: a replica that has fetched, has fetched in this epoch.
    epoch = quorum.epoch if replica is leader or replica.fetched_ms >= 0 else None
    end = replica.end_offset if replica.end_offset >= 0 else None
    now_ms = -1 if leader is None else leader.caught_up_ms
    return ReplicaRow(
        id=replica.id,
        directory_id=replica.directory_id,
        role=role,
        epoch=figures.epoch if figures is not None and figures.epoch is not None else epoch,
        end_offset=end,
        lag=None if end is None or leader is None else max(0, leader.end_offset - end),
        fetched_ms=None if replica is leader else _ago(now_ms, replica.fetched_ms),
        caught_up_ms=None if replica is leader else _ago(now_ms, replica.caught_up_ms),
        fsync_ms=_ms(figures.fsync_s) if figures is not None else None,
        turn_ms=_ms(figures.longest_turn_s) if figures is not None else None,
    )


def _ago(now_ms: int, then_ms: int) -> int | None:
    """The distance of two times of the leader's clock."""
    return None if min(now_ms, then_ms) < 0 else max(0, now_ms - then_ms)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


def _broker_row(broker: BrokerSample, replica: ReplicaRow | None) -> BrokerRow:
    return BrokerRow(
        broker=broker,
        lag=None if replica is None else replica.lag,
        fetched_ms=None if replica is None else replica.fetched_ms,
    )


def _in_order(rows: Iterable[T], sort: Sort, facts_of: Callable[[T], Facts]) -> list[T]:
    """The rows by id, or with the worst first; what is not known is the worst."""

    def key(row: T) -> tuple[float, int]:
        node_id, lag, fetched_ms = facts_of(row)
        match sort:
            case Sort.ID:
                return 0.0, node_id
            case Sort.LAG:
                return -(inf if lag is None else lag), node_id
            case Sort.FETCHED:
                return -(inf if fetched_ms is None else fetched_ms), node_id

    return sorted(rows, key=key)


def facts(view: View) -> dict[str, Any]:
    """The fields of `kraft top --json`."""
    metadata = view.metadata
    return {
        "time": iso_time(view.at_ms),
        "clusterId": view.cluster_id,
        "leaderId": view.leader_id,
        "leaderEpoch": view.epoch,
        "highWatermark": view.high_watermark,
        "withoutLeaderMs": view.without_leader_ms,
        "problem": view.problem,
        "voters": view.voters,
        "replicas": [_replica(one) for one in view.replicas],
        "answers": [
            {
                "id": one.id,
                "address": one.address,
                "epoch": one.epoch,
                "leaderId": one.leader_id,
                "failure": one.problem,
            }
            for one in view.answers
        ],
        "elections": [
            {"epoch": one.epoch, "leaderId": one.leader_id, "time": iso_time(one.at_ms), "offset": one.offset}
            for one in view.elections
        ],
        "brokers": None if metadata is None else [_broker(one) for one in view.brokers],
        "partitions": None
        if metadata is None
        else {
            "offset": metadata.offset,
            "ageMs": view.metadata_age_ms,
            "topics": metadata.topics,
            "partitions": metadata.partitions,
            "leaderless": metadata.leaderless,
            "belowMinIsr": metadata.below_min_isr,
            "troubled": [
                {
                    "topic": one.topic,
                    "partition": one.partition,
                    "trouble": one.trouble.value,
                    "replicas": one.replicas,
                    "isr": one.isr,
                    "elr": one.elr,
                    "minIsr": one.min_isr,
                }
                for one in metadata.troubled
            ],
        },
        "metadataNote": view.metadata_note,
        "metrics": [
            {
                "address": one.address,
                "nodeId": one.node_id,
                "noLeaderReason": one.no_leader_reason,
                "failure": one.problem,
            }
            for one in view.figures
        ],
        "requests": view.requests,
    }


def _replica(row: ReplicaRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "directoryId": row.directory_id,
        "role": row.role,
        "epoch": row.epoch,
        "logEndOffset": row.end_offset,
        "lag": row.lag,
        "lastFetchMsAgo": row.fetched_ms,
        "lastCaughtUpMsAgo": row.caught_up_ms,
        "fsyncMs": row.fsync_ms,
        "longestTurnMs": row.turn_ms,
    }


def _broker(row: BrokerRow) -> dict[str, Any]:
    one = row.broker
    return {
        "id": one.id,
        "state": one.state,
        "rack": one.rack,
        "endpoint": one.endpoint,
        "replicas": one.replicas,
        "inSync": one.in_sync,
        "leads": one.leads,
        "lag": row.lag,
        "lastFetchMsAgo": row.fetched_ms,
    }
