"""Samples for tests of the model and of the layout."""

from __future__ import annotations

from typing import Any

from kraft.operate.top.samples import (
    BrokerSample,
    ControllerAnswer,
    MetadataSample,
    NoLeader,
    PartitionSample,
    QuorumSample,
    ReplicaSample,
    Sample,
    Trouble,
)

NOW_MS = 1_700_000_000_000
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


def replica(
    node_id: int, *, behind: int = 0, ago_ms: int = 300, is_voter: bool = True, end: int = 5_315
) -> ReplicaSample:
    """A replica that has fetched and had everything some time ago; -1 for one that never did."""
    at_ms = -1 if ago_ms < 0 else NOW_MS - ago_ms
    return ReplicaSample(
        id=node_id,
        directory_id="AAAAAAAAAAAAAAAAAAAAAA",
        is_voter=is_voter,
        end_offset=end - behind if ago_ms >= 0 else -1,
        fetched_ms=at_ms,
        caught_up_ms=at_ms,
    )


def quorum(*replicas: ReplicaSample, leader: int = 1, epoch: int = 13, high_watermark: int = 5_313) -> QuorumSample:
    return QuorumSample(leader_id=leader, epoch=epoch, high_watermark=high_watermark, replicas=replicas)


HEALTHY = quorum(replica(1, ago_ms=0), replica(2), replica(3), replica(101, is_voter=False))


def broker(broker_id: int, state: str = "active", *, in_sync: int = 4) -> BrokerSample:
    return BrokerSample(
        id=broker_id,
        state=state,
        rack="r1",
        endpoint=f"10.0.0.{broker_id % 100}:9092",
        replicas=4,
        in_sync=in_sync,
        leads=2,
    )


def trouble(topic: str, kind: Trouble, *isr: int) -> PartitionSample:
    return PartitionSample(topic=topic, partition=0, trouble=kind, replicas=(101, 102), isr=isr, elr=(), min_isr=2)


METADATA = MetadataSample(
    offset=5_313,
    topics=2,
    partitions=12,
    leaderless=1,
    below_min_isr=1,
    brokers=(broker(101), broker(102, "fenced", in_sync=0)),
    troubled=(trouble("orders", Trouble.NO_LEADER), trouble("payments", Trouble.BELOW_MIN_ISR, 101)),
)
SILENT = NoLeader(
    problem="no active controller answered within 2 s: 10.0.0.1:9093: Connection refused",
    answers=(
        ControllerAnswer(id=1, address="10.0.0.1:9093", problem="Connection refused"),
        ControllerAnswer(id=2, address="10.0.0.2:9093", epoch=14),
        ControllerAnswer(id=None, address="10.0.0.3:9093", epoch=13, leader_id=1),
    ),
)


def sample(at_s: float = 0.0, what: QuorumSample | NoLeader = HEALTHY, **more: Any) -> Sample:
    """A sample some seconds after the first one."""
    facts: dict[str, Any] = {
        "metadata": METADATA,
        "metadata_at_ms": NOW_MS + int(at_s * 1000),
        "cluster_id": CLUSTER_ID,
        "requests": 2,
        **more,
    }
    return Sample(at_ms=NOW_MS + int(at_s * 1000), quorum=what, **facts)
