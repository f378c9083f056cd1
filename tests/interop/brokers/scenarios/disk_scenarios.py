"""B36: two log directories: moves under load, a crash during a move, a directory that fails, a full disk."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from deletion_scenarios import remove
from metadata_log.disk import OsDisk
from metadata_log.log.log_dir import read_meta_properties
from metadata_log.types import Uuid
from support.interop.kafka_or_skip import skip_here
from support.interop.real_kafka import eventually
from support.scenarios.confluent_load import ConfluentLoad
from support.scenarios.reassignment_scenarios import elect
from support.scenarios.scenario_client import batch
from support.scenarios.scenario_cluster import DISKS, SECONDS, Cluster, Topic
from support.scenarios.scenario_list import scenario
from transport.protocol.errors import Error
from transport.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from transport.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

SMALL_DISK: Final = 24 << 20
"""Bytes of the disk that is to be full: room for the first files of a partition of Kafka, and not for much more."""
BULK: Final = 900_000
LARGE: Final = 60 << 20
"""Bytes of a log: enough that a kill meets the move in the middle."""


def directory_id(path: Path) -> Uuid:
    """The id of a log directory."""
    formatted = read_meta_properties(OsDisk(), str(path))
    assert formatted is not None
    assert formatted.directory_id is not None
    return formatted.directory_id


def move(cluster: Cluster, topic: Topic, broker: int, to: Path) -> Error:
    """Ask a broker to move a replica to one of its log directories."""
    named = AlterReplicaLogDir(str(to), [AlterReplicaLogDirTopic(topic.name, [0])])
    answer = cluster.ask(broker, AlterReplicaLogDirsRequest(dirs=[named]), 2, AlterReplicaLogDirsResponse)
    return Error.of(answer.results[0].partitions[0].error_code)


def described(cluster: Cluster, topic: Topic, broker: int) -> dict[Path, tuple[Error, list[bool]]]:
    """The log directories of a broker: the error of each, and whether the replica of the topic there moves in."""
    request = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic.name, [0])])
    answer = cluster.ask(broker, request, 5, DescribeLogDirsResponse)
    return {
        Path(one.log_dir): (
            Error.of(one.error_code),
            [part.is_future_key for named in one.topics for part in named.partitions],
        )
        for one in answer.results
    }


def wait_until_moved(cluster: Cluster, topic: Topic, broker: int, to: Path) -> None:
    """Wait until a replica is in a log directory only, and the controller knows."""
    others = [path for path in cluster.log_dirs(broker) if path != to]

    def is_there() -> bool:
        found = described(cluster, topic, broker)
        return found[to] == (Error.NONE, [False]) and all(found[one] == (Error.NONE, []) for one in others)

    eventually(is_there, f"{topic.name} of {broker} is in {to}", SECONDS)
    named = directory_id(to)

    def is_known() -> bool:
        partition = cluster.partition(topic)
        return dict(zip(partition.replicas, partition.directories, strict=True))[broker] == named

    eventually(is_known, f"the controller knows that {topic.name} of {broker} is in {to}", SECONDS)
    assert [path for path in cluster.log_dirs(broker) if (path / f"{topic.name}-0").exists()] == [to]


def place(cluster: Cluster, topic: Topic, broker: int, index: int) -> Path:
    """Move a replica to the log directory with an index, if it is not there; returns the directory."""
    wanted = cluster.log_dirs(broker)[index]
    assert move(cluster, topic, broker, wanted) == Error.NONE
    wait_until_moved(cluster, topic, broker, wanted)
    return wanted


@scenario("B36", kind=DISKS)
def replicas_move_between_log_directories_under_load(cluster: Cluster) -> None:
    topic = cluster.create("b36")
    with ConfluentLoad(cluster, topic, per_second=300, size=1000) as load:
        for broker in topic.replicas:
            before = cluster.directory(broker, topic).parent
            other = next(path for path in cluster.log_dirs(broker) if path != before)
            assert move(cluster, topic, broker, cluster.layout.root / "nowhere") == Error.LOG_DIR_NOT_FOUND
            assert move(cluster, topic, broker, other) == Error.NONE
            wait_until_moved(cluster, topic, broker, other)
            load.wait_for_more(50)
    load.check()
    cluster.wait_for_isr(topic, *topic.replicas)
    cluster.wait_for_equal_logs(topic)


@scenario("B36", kind=DISKS, by_default=False)
def a_move_goes_on_after_a_crash(cluster: Cluster) -> None:
    topic = cluster.create("b36-crash", 2)
    leader, follower = topic.replicas
    values = LARGE // BULK
    for number in range(values):
        cluster.append(leader, topic, batch(b"%d" % number * (BULK // len(b"%d" % number))))
    for broker in (follower, leader):
        before = cluster.directory(broker, topic).parent
        other = next(path for path in cluster.log_dirs(broker) if path != before)
        assert move(cluster, topic, broker, other) == Error.NONE
        cluster.kill(broker)
        # The crash has met the move: the copy is there, and the log is not replaced.
        assert list(other.glob(f"{topic.name}-0.*-future"))
        assert (before / f"{topic.name}-0").exists()
        cluster.wait_for_leader(topic, *(one for one in topic.replicas if one != broker))
        cluster.start(broker)
        wait_until_moved(cluster, topic, broker, other)
        cluster.wait_for_isr(topic, leader, follower)
    assert cluster.send(lambda: cluster.leader(topic), topic, batch(b"after")) == values
    cluster.wait_for_equal_logs(topic, values + 1)


def check_that_one_directory_is_lost(cluster: Cluster, broker: int, lost: Path, gone: Topic, kept: Topic) -> None:
    """A broker has lost one log directory: its replicas there are offline, and the broker goes on with the others."""
    lost_id = directory_id(lost) if (lost / "meta.properties").exists() else None
    others = [one for one in gone.replicas if one != broker]
    cluster.wait_for_leader(gone, *others)
    cluster.wait_for_isr(gone, *others)
    assert broker in cluster.processes
    assert cluster.processes[broker].popen.poll() is None
    registered = cluster.image().brokers.by_id[broker]
    assert registered.is_active
    assert lost_id not in registered.directories
    assert len(registered.directories) == len(cluster.log_dirs(broker)) - 1
    errors = {path: error for path, (error, _) in described(cluster, gone, broker).items()}
    assert errors.get(lost, Error.KAFKA_STORAGE_ERROR) == Error.KAFKA_STORAGE_ERROR
    assert all(errors[one] == Error.NONE for one in cluster.log_dirs(broker) if one != lost)
    assert cluster.fetch(broker, gone, 0).error_code == Error.KAFKA_STORAGE_ERROR
    # The other directory serves: the broker leads, follows, and takes new replicas.
    assert cluster.leader(kept) == broker
    before = cluster.watermark(broker, kept)
    assert cluster.append(broker, kept, batch(b"more")) == before
    fresh = cluster.create("b36-new", (broker, *others))
    assert cluster.send(lambda: cluster.leader(fresh), fresh, batch(b"new")) == 0
    assert cluster.directory(broker, fresh).parent != lost
    cluster.wait_for_equal_logs(fresh, 1)


def two_topics(cluster: Cluster, name: str, lost: int) -> tuple[Topic, Topic]:
    """Two topics that the first broker leads, one in the log directory that is to be lost, one in the other."""
    broker = cluster.order[0]
    gone, kept = (cluster.create(f"{name}-{which}") for which in ("gone", "kept"))
    place(cluster, gone, broker, lost)
    place(cluster, kept, broker, 0)
    for topic in (gone, kept):
        cluster.wait_for_isr(topic, *topic.replicas)
        elect(cluster, topic)
        cluster.wait_for_leader(topic, broker)
    return gone, kept


@scenario("B36", kind=DISKS)
def a_log_directory_that_vanishes_takes_its_replicas_offline_only(cluster: Cluster) -> None:
    broker = cluster.order[0]
    gone, kept = two_topics(cluster, "b36-vanished", lost=1)
    lost = cluster.log_dirs(broker)[1]
    aside = lost.with_suffix(".aside")
    with ConfluentLoad(cluster, gone, per_second=100) as load:
        load.wait_for_more(20)
        lost.rename(aside)
        try:
            # The broker notices when it writes the checkpoint of the watermarks.
            check_that_one_directory_is_lost(cluster, broker, lost, gone, kept)
            load.wait_for_more(20)
        finally:
            cluster.kill(broker)
            shutil.rmtree(lost, ignore_errors=True)  # a broker of Kafka may have made files there anew
            aside.rename(lost)
        cluster.start(broker)
        cluster.wait_for_isr(gone, *gone.replicas)
    load.check()
    for topic in (gone, kept):
        cluster.wait_for_isr(topic, *topic.replicas)
        cluster.wait_for_equal_logs(topic)


@contextmanager
def small_disk(path: Path) -> Iterator[None]:
    """A disk of its own under a directory, with what was there; skips the test where that needs more rights."""
    aside = path.with_suffix(".aside")
    shutil.copytree(path, aside)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        skip_here(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    try:
        shutil.copytree(aside, path, dirs_exist_ok=True)
        yield
        shutil.rmtree(aside)
        shutil.copytree(path, aside)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)
    shutil.copytree(aside, path, dirs_exist_ok=True)


@scenario("B36", kind=DISKS)
def a_full_disk_takes_its_own_log_directory_offline_only(cluster: Cluster) -> None:
    broker = cluster.order[0]
    lost = cluster.log_dirs(broker)[1]
    for topic_id, earlier in cluster.image().topics.by_id.items():
        remove(cluster, Topic(earlier.name, topic_id, ()))  # the logs of other scenarios may fill the disk
    cluster.stop(broker)
    for old in lost.glob("*-*"):
        if old.is_dir():
            shutil.rmtree(old)
    with small_disk(lost):
        cluster.start(broker)
        cluster.wait_until_active(broker)
        gone, kept = two_topics(cluster, "b36-full", lost=1)
        free = os.statvfs(lost)
        assert free.f_bavail * free.f_frsize <= SMALL_DISK
        taken = 0
        while cluster.partition(gone).leader == broker:
            answer = cluster.produce(broker, gone, batch(b"x" * BULK))
            if answer.error_code != Error.NONE:
                assert Error.of(answer.error_code) in {Error.KAFKA_STORAGE_ERROR, Error.NOT_LEADER_OR_FOLLOWER}
                break
            taken += 1
            assert taken * BULK < 2 * SMALL_DISK, "the disk is never full"
        check_that_one_directory_is_lost(cluster, broker, lost, gone, kept)
        # What was acknowledged is there, and the others go on.
        leader = cluster.leader(gone)
        eventually(lambda: cluster.watermark(leader, gone) >= taken, "all acknowledged records are there", SECONDS)
        assert cluster.send(lambda: leader, gone, batch(b"after")) >= taken
        cluster.kill(broker)
        for log in lost.glob("*-*/*.log"):
            log.unlink()
        for old in lost.glob("*-*"):
            if old.is_dir():
                shutil.rmtree(old)
    cluster.start(broker)
    for topic in (gone, kept):
        cluster.wait_for_isr(topic, *topic.replicas)
        cluster.wait_for_equal_logs(topic)
