"""B32: damaged files of partitions, found at the start after a kill. One bad partition stops no broker and no other."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from support.interop.real_kafka import eventually
from support.scenarios.scenario_client import batch
from support.scenarios.scenario_cluster import SECONDS, Cluster, Topic
from support.scenarios.scenario_list import scenario
from transport.protocol.errors import Error

STEP_MS: Final = 60_000
BATCHES: Final = 9
SEGMENT_MS: Final = 3 * STEP_MS - 1
"""With batches a step apart, three of them are in each segment."""
SEED: Final = 32


def files(directory: Path, suffix: str) -> list[Path]:
    """The files of a kind in a partition, in the order of their offsets."""
    return sorted(directory.glob(f"*{suffix}"))


def flip(path: Path, at: int) -> None:
    """Change one bit."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def cut(path: Path, count: int) -> None:
    """Remove the last bytes."""
    path.write_bytes(path.read_bytes()[:-count])


def append(path: Path, data: bytes) -> None:
    """Put bytes after the end."""
    path.write_bytes(path.read_bytes() + data)


def remove(*paths: Path) -> None:
    """Remove files; there must be some."""
    assert paths
    for path in paths:
        path.unlink()


RECOVERED: Final[dict[str, Callable[[Path], object]]] = {
    "torn-end": lambda one: cut(files(one, ".log")[-1], 7),
    "bit-in-the-active-segment": lambda one: flip(files(one, ".log")[-1], 70),
    "bit-in-an-old-segment": lambda one: flip(files(one, ".log")[0], 70),
    "foreign-bytes": lambda one: append(files(one, ".log")[-1], Random(SEED).randbytes(100)),
    "zeros": lambda one: append(files(one, ".log")[-1], bytes(4096)),
    "no-offset-index": lambda one: remove(files(one, ".index")[0]),
    "odd-offset-index": lambda one: append(files(one, ".index")[0], bytes(14)),
    "wrong-offset-index": lambda one: append(files(one, ".index")[0], Random(SEED).randbytes(16)),
    "no-time-index": lambda one: remove(files(one, ".timeindex")[0]),
    "bad-snapshot": lambda one: flip(files(one, ".snapshot")[-1], 5),
    "no-snapshots": lambda one: remove(*files(one, ".snapshot")),
    "no-epochs": lambda one: remove(one / "leader-epoch-checkpoint"),
    "no-topic-id": lambda one: remove(one / "partition.metadata"),
    "empty-active-segment": lambda one: files(one, ".log")[-1].write_bytes(b""),
    "left-over-files": lambda one: (one / "00000000000000000001.log.cleaned").write_bytes(b"x"),
}
"""Damages that the start mends: what is lost comes again from the leader. Kafka's recovery has the same end."""

FATAL_TO_KAFKA: Final = frozenset(("bit-in-the-active-segment", "bit-in-an-old-segment"))
"""A changed base offset ends Kafka at each start: `LocalLog.splitOverflowedSegment` refuses the segment."""

UNLOADABLE: Final[dict[str, Callable[[Path], object]]] = {
    "epochs-without-a-number": lambda one: (one / "leader-epoch-checkpoint").write_text("0\n1\nx 0\n"),
    "too-few-epochs": lambda one: (one / "leader-epoch-checkpoint").write_text("0\n5\n0 0\n"),
    "empty-topic-id": lambda one: (one / "partition.metadata").write_text(""),
    "bad-topic-id": lambda one: (one / "partition.metadata").write_text("version: 0\ntopic_id: ???\n"),
    "later-version": lambda one: append(one / "partition.metadata", b"\nversion: 9\n"),
}
"""Damages for which a broker of Kafka ends or loses its log directory. A broker of ours loses one partition at most."""

CHECKPOINTS: Final = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


def filled(cluster: Cluster, name: str) -> Topic:
    """A topic with three segments of batches of an idempotent producer, equal on all replicas."""
    topic = cluster.create(f"b32-{name}", segment_ms=str(SEGMENT_MS))
    leader = cluster.leader(topic)
    producer = cluster.producer_id(leader)
    now = int(time.time() * 1000) - 2 * BATCHES * STEP_MS
    for number in range(BATCHES):
        data = batch(b"%d" % number, timestamp_ms=now + number * STEP_MS, producer=producer, sequence=number)
        assert cluster.append(leader, topic, data) == number
    cluster.wait_for_equal_logs(topic, BATCHES)
    assert len(files(cluster.directory(topic.replicas[-1], topic), ".log")) == 3
    return topic


@scenario("B32", by_default=False)
def damaged_partitions_are_mended_at_the_start_beside_one_another(cluster: Cluster) -> None:
    victim = cluster.order[2]
    is_ours = cluster.makes[victim] == "ours"
    damages = {what: damage for what, damage in RECOVERED.items() if is_ours or what not in FATAL_TO_KAFKA}
    topics = {what: filled(cluster, what) for what in damages}
    cluster.kill(victim)
    for what, damage in damages.items():
        damage(cluster.directory(victim, topics[what]))
    cluster.start(victim)
    for what, topic in topics.items():
        cluster.wait_for_isr(topic, *topic.replicas)
        assert cluster.send(partial(cluster.leader, topic), topic, batch(b"after")) == BATCHES, what
        cluster.wait_for_equal_logs(topic, BATCHES + 1)


@scenario("B32", by_default=False, makes=("ours", "mixed"))
def partitions_that_cannot_be_loaded_stop_no_other(cluster: Cluster) -> None:
    """The third broker of the order is one of ours in the mixed cluster, too."""
    topics = {what: filled(cluster, what) for what in UNLOADABLE}
    whole = filled(cluster, "whole")
    victim = cluster.order[2]
    assert cluster.makes[victim] == "ours"
    cluster.kill(victim)
    for what, damage in UNLOADABLE.items():
        damage(cluster.directory(victim, topics[what]))
    for name in CHECKPOINTS:
        (cluster.log_dir(victim) / name).write_text("0\nmany\nof these\n")
    cluster.start(victim)
    cluster.wait_for_isr(whole, *whole.replicas)
    assert cluster.send(lambda: cluster.leader(whole), whole, batch(b"after")) == BATCHES
    cluster.wait_for_equal_logs(whole, BATCHES + 1)
    for what, topic in topics.items():
        # The partition goes on with the replicas that can be loaded, and the damaged one says that its storage fails.
        assert cluster.send(partial(cluster.leader, topic), topic, batch(b"after")) == BATCHES, what

        def knows(topic: Topic = topic) -> bool:
            return Error.of(cluster.fetch(victim, topic, 0).error_code) in {Error.NONE, Error.KAFKA_STORAGE_ERROR}

        eventually(knows, f"{victim} knows {topic.name}", SECONDS)
    assert cluster.processes[victim].popen.poll() is None
