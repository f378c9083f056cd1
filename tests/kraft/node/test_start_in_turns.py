"""A start recovers the log, loads the snapshot and checks the records in steps, so that a program that embeds the node
goes on meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import kraft.node.turns
from embedded_quorum import CLUSTER_ID, configs
from kraft.config import Config
from kraft.controller.server import ControllerServer
from kraft.limits import START_RECORDS_PER_STEP, TURN_MS
from kraft.node.embed import open_node
from kraft.node.logging import NodeLog
from kraft.node.turns import START_ROOM_S, start_in_turns
from kraft.process.hosting import host_controller
from kraft.process.opening import opening_process
from kraft.process.options import ProcessOptions
from kraft.process.process import Process
from kraft.quorum.values import Endpoints, ListenerAddress, QuorumConfig
from kraft.quorum.voters import VoterSet
from kraft.replica.interface.events import Output
from kraft.replica.interface.options import ReplicaOptions
from metadata_log.disk import Disk, OsDisk
from metadata_log.errors import DirectoryError
from metadata_log.image import MetadataDelta, memberships
from metadata_log.log.log import MetadataLog
from metadata_log.log.log_dir import format_directory
from metadata_log.log.quorum_state_file import StoredElection, write_quorum_state
from metadata_log.log.segment import Segment
from metadata_log.log.snapshot_writer import SnapshotWriter
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records import metadata
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.serde import Message
from metadata_log.serde.codec import finished
from metadata_log.types import OffsetAndEpoch, Uuid
from support.loopback import free_ports

END = OffsetAndEpoch(epoch=1, offset=20_000)
PARTITIONS = 6_000
RECORDS = 5_000
BATCHES = 3_000
BROKER = 7
TOPIC = Uuid(b"t" * 16)
Opened = tuple[Process, list[Output]]


def fill(disk: Disk, directory: str) -> None:
    """Put a snapshot into a formatted directory, and a log after it: one large batch and many small ones."""
    partition = f"{directory}/__cluster_metadata-0"
    MetadataLog.open(disk, partition).close()
    writer = SnapshotWriter(disk, partition, END, timestamp_ms=0, last_contained_log_timestamp=0)
    records: list[tuple[Message, int]] = [
        (metadata.FeatureLevelRecord(name="metadata.version", feature_level=30), 0),
        (metadata.TopicRecord(name="large", topic_id=TOPIC), 0),
    ]
    replicas = (BROKER,)
    records += [
        (
            metadata.PartitionRecord(
                partition_id=number,
                topic_id=TOPIC,
                replicas=replicas,
                isr=replicas,
                leader=BROKER,
                leader_epoch=0,
                partition_epoch=0,
                directories=(Uuid(b"d" * 16),),
            ),
            2,
        )
        for number in range(PARTITIONS)
    ]
    writer.append([encode_record(record, version) for record, version in records], 0)
    writer.freeze(0)
    log = MetadataLog.open(disk, partition)
    log.reset_to(END.offset)
    change = encode_record(metadata.PartitionChangeRecord(partition_id=7, topic_id=TOPIC, isr=(BROKER,)), 2)
    log.append(build_batch(log.end_offset, END.epoch, 0, [change] * RECORDS))
    for _ in range(BATCHES):
        log.append(build_batch(log.end_offset, END.epoch, 0, [change]))
    log.close()
    stored = StoredElection(
        leader_epoch=END.epoch, leader_id=-1, voted_id=-1, voted_directory_id=Uuid.ZERO, current_voters=(1,)
    )
    write_quorum_state(disk, partition, stored)


class Work:
    """The work of the steps of a start, by kind."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: dict[str, int] = {"replayed": 0, "recovered": 0, "checked": 0}
        self._count(monkeypatch, MetadataDelta, "replay", "replayed", lambda *_: 1)
        self._count(monkeypatch, Segment, "note", "recovered", lambda *_: 1)
        self._count(monkeypatch, ControllerServer, "check", "checked", lambda _, values: len(values))

    def _count(
        self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, kind: str, weight: Callable[..., int]
    ) -> None:
        function = getattr(owner, name)

        def call(*args: Any, **named: Any) -> Any:
            self.done[kind] += weight(*args)
            return function(*args, **named)

        monkeypatch.setattr(owner, name, call)


def opening(disk: MemoryDisk) -> Generator[None, None, Opened]:
    replica = ReplicaOptions(
        directory="/data",
        node_id=1,
        cluster_id=CLUSTER_ID,
        voters=VoterSet.parse("1@n1:9093"),
        endpoints=Endpoints((ListenerAddress("CONTROLLER", "n1", 9093),)),
        quorum=QuorumConfig(append_linger_ms=0),
    )
    options = ProcessOptions(replica=replica)
    return opening_process(options=options, disk=disk, rng=Random(1), application=host_controller, now_ms=1)


@pytest.fixture(scope="module")
def filled() -> MemoryDisk:
    """A disk with a directory of a node that has been at work for a while."""
    disk = MemoryDisk()
    format_directory(disk, "/data", node_id=1, cluster_id=CLUSTER_ID, rng=Random(1), now_ms=1)
    fill(disk, "/data")
    return disk


def image_of(process: Process) -> Any:
    assert isinstance(process.application, ControllerServer)
    return process.application.controller.history.committed


def test_no_step_of_a_start_does_much(filled: MemoryDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(monkeypatch)
    steps = opening(filled.fork())
    before, most = dict(work.done), dict.fromkeys(work.done, 0)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            process, _ = done.value
            break
        most = {kind: max(most[kind], work.done[kind] - before[kind]) for kind in most}
        before = dict(work.done)
    own_first = 1
    assert work.done == {
        "replayed": PARTITIONS + 2,
        "recovered": 1 + BATCHES + own_first,
        "checked": RECORDS + BATCHES,
    }
    assert most["replayed"] <= START_RECORDS_PER_STEP
    assert most["checked"] <= START_RECORDS_PER_STEP
    assert most["recovered"] <= 256, "a mebibyte of batches, where the header of each counts as four kibibytes"
    assert len(list(memberships(image_of(process).topics, BROKER))) == PARTITIONS
    assert process.replica.log.end_offset == END.offset + RECORDS + BATCHES + own_first
    process.close()


def test_a_start_that_is_given_up_releases_the_directory(filled: MemoryDisk) -> None:
    disk = filled.fork()
    whole = 0
    for _ in opening(disk.fork()):
        whole += 1
    assert whole > PARTITIONS // START_RECORDS_PER_STEP + RECORDS // START_RECORDS_PER_STEP
    for count in (1, 2, whole // 4, whole // 2, whole - 1):
        steps = opening(disk)
        for _ in range(count):
            next(steps)
        with pytest.raises(DirectoryError, match="runs already"):
            next(opening(disk))
        steps.close()
    assert not disk._locks
    process, _ = finished(opening(disk))
    assert len(list(memberships(image_of(process).topics, BROKER))) == PARTITIONS
    process.close()


async def test_other_tasks_run_while_an_embedded_node_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The room of a turn is nothing here, so that each step is a turn, however quick this machine is."""
    monkeypatch.setattr(kraft.node.turns, "START_ROOM_S", 0.0)
    config = _filled_config(tmp_path)
    turns = 0
    replayed_in: set[int] = set()
    replay = MetadataDelta.replay

    def noted(*args: Any) -> Any:
        replayed_in.add(turns)
        return replay(*args)

    monkeypatch.setattr(MetadataDelta, "replay", noted)

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        async with open_node(config, application=host_controller) as node:
            # Of two tasks that can run, Trio may run either first.
            assert len(replayed_in) >= PARTITIONS // START_RECORDS_PER_STEP // 2
            assert isinstance(node.application, ControllerServer)
            image = node.application.controller.history.committed
            assert len(list(memberships(image.topics, BROKER))) == PARTITIONS
        nursery.cancel_scope.cancel()


async def test_a_start_can_be_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kraft.node.turns, "START_ROOM_S", 0.0)
    config = _filled_config(tmp_path)
    scope = trio.CancelScope()
    replay = MetadataDelta.replay

    def cancelling(*args: Any) -> Any:
        scope.cancel()
        return replay(*args)

    with monkeypatch.context() as patched:
        patched.setattr(MetadataDelta, "replay", cancelling)
        with scope:
            async with open_node(config, application=host_controller):
                raise AssertionError("the node has started")
    assert scope.cancelled_caught
    async with open_node(config, application=host_controller) as node:
        assert node.status().log_end_offset >= END.offset + RECORDS + BATCHES


async def test_a_long_step_of_a_start_is_reported(mock_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    def steps() -> Generator[None, None, str]:
        mock_clock.jump(START_ROOM_S / 2)
        yield
        mock_clock.jump((TURN_MS + 1) / 1000)
        yield
        mock_clock.jump(START_ROOM_S)
        yield
        return "done"

    assert await start_in_turns(steps(), NodeLog(1, lambda: 0)) == "done"
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("long-turn node=1 ms=51 bound_ms=50 turn_of=start")


def _filled_config(tmp_path: Path) -> Config:
    [config] = configs(tmp_path, free_ports(1))
    fill(OsDisk(), str(tmp_path / "node-1"))
    return config
