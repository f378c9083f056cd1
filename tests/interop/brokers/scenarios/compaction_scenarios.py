"""B35: compaction through processes: each make keeps the same records, with their offsets and keys."""

from __future__ import annotations

import time
from typing import Final

from metadata_log.records.batch import RecordBatch, scan
from metadata_log.records.record import records
from support.interop.real_kafka import eventually
from support.scenarios.scenario_client import batch
from support.scenarios.scenario_cluster import SECONDS, Cluster, Topic
from support.scenarios.scenario_list import scenario

Survivor = tuple[int, bytes | None, bytes | None]
"""Offset, key, value."""
KEYS: Final = 5
ROUNDS: Final = 8
STEP_MS: Final = 60_000
"""The time between two batches, by their timestamps; the segments are as long as a few of these."""
COMPACTED: Final = {
    "cleanup_policy": "compact",
    "segment_ms": str(4 * STEP_MS),
    "min_cleanable_dirty_ratio": "0.01",
    "delete_retention_ms": "1",
}


def segments(cluster: Cluster, broker: int, topic: Topic) -> list[list[RecordBatch]]:
    """The batches of each segment of a replica, but for the active one; nothing while the cleaner replaces files."""
    paths = sorted(cluster.directory(broker, topic).glob("*.log"))
    try:
        return [list(scan(path.read_bytes())) for path in paths[:-1]]
    except FileNotFoundError:
        return []


def surviving(cluster: Cluster, broker: int, topic: Topic) -> list[Survivor]:
    """The records in the closed segments of a replica."""
    return [
        (one.offset, one.key, one.value)
        for segment in segments(cluster, broker, topic)
        for each in segment
        if not each.is_control
        for one in records(each)
    ]


def active_base(cluster: Cluster, broker: int, topic: Topic) -> int:
    """The first offset of the active segment, which no cleaner touches."""
    return max(int(path.stem) for path in cluster.directory(broker, topic).glob("*.log"))


def expected(written: list[Survivor], end: int, *, tombstones: bool) -> list[Survivor]:
    """The records below an offset that a cleaner leaves: the last one of each key."""
    last = {key: offset for offset, key, _ in written if offset < end}
    return [
        (offset, key, value)
        for offset, key, value in written
        if offset < end and last[key] == offset and (value is not None or tombstones)
    ]


@scenario("B35", by_default=False)
def compaction_leaves_the_same_records_on_every_replica(cluster: Cluster) -> None:
    topic = cluster.create("b35", 3, **COMPACTED)
    leader = cluster.leader(topic)
    producer = cluster.producer_id(leader)
    written: list[Survivor] = []
    now = int(time.time() * 1000) - 1000 * STEP_MS

    def write(key: bytes, value: bytes | None) -> None:
        # A record without a producer in between: an idempotent producer's last batch is kept empty.
        at = len(written)
        sequence = sum(1 for _, other, _ in written if other == b"idempotent") if key == b"idempotent" else -1
        data = batch(
            value,
            key=key,
            timestamp_ms=now + at * STEP_MS,
            producer=producer if sequence >= 0 else (-1, -1),
            sequence=sequence,
        )
        assert cluster.send(lambda: cluster.leader(topic), topic, data) == at
        written.append((at, key, value))

    def wait_until_cleaned(*, tombstones: bool) -> None:
        """Wait until each replica has, below its active segment, what a cleaner leaves."""
        for broker in topic.replicas:
            base = active_base(cluster, broker, topic)
            assert base > 0

            def is_cleaned(broker: int = broker, base: int = base) -> bool:
                return surviving(cluster, broker, topic) == expected(written, base, tombstones=tombstones)

            eventually(is_cleaned, f"the replica of {broker} is cleaned", SECONDS)

    for number in range(ROUNDS):
        for key in range(KEYS):
            write(b"key-%d" % key, b"%d-%d" % (key, number))
        write(b"idempotent", b"%d" % number)
    write(b"key-0", None)
    write(b"key-1", None)
    for number in range(8):
        write(b"filler", b"%d" % number)
    eventually(
        lambda: len({active_base(cluster, one, topic) for one in topic.replicas}) == 1,
        "equal segments",
        SECONDS,
    )
    # A tombstone stays at first: the cleaner that meets it sets the time from which it may go.
    for broker in topic.replicas:
        base = active_base(cluster, broker, topic)

        def has_values_and_tombstones(broker: int = broker, base: int = base) -> bool:
            values = {one for one in surviving(cluster, broker, topic) if one[2] is not None}
            return values == set(expected(written, base, tombstones=False))

        eventually(has_values_and_tombstones, f"the replica of {broker} is cleaned", SECONDS)
    # With another cleaning the tombstones are gone.
    for number in range(8):
        write(b"filler", b"again %d" % number)
    wait_until_cleaned(tombstones=False)
    logs = [surviving(cluster, broker, topic) for broker in topic.replicas]
    assert logs[0] == logs[1] == logs[2]
    # A follower that begins from nothing gets the same records, with the holes between their offsets.
    follower = next(one for one in topic.replicas if one != cluster.leader(topic))
    cluster.stop(follower)
    for path in cluster.directory(follower, topic).iterdir():
        path.unlink()
    cluster.directory(follower, topic).rmdir()
    cluster.start(follower)
    cluster.wait_for_isr(topic, *topic.replicas)
    write(b"key-2", b"last")
    wait_until_cleaned(tombstones=False)
