"""The checkpoint files of a broker are written in a thread: a slow disk holds up no request. Real files and threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import pytest
import trio

from kraft.node.checkpoint_thread import CheckpointThread
from kraft.partitions.log.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, read_offsets
from metadata_log.disk import OsDisk, OsFile
from metadata_log.log.partition_names import PartitionName
from metadata_log.records.batch_builder import build_batch
from metadata_log.types import Uuid, random_uuid
from support.eventually import eventually
from support.hostile.broker_attacks import request
from support.kraft.data_cluster import FIRST_BROKER, data_cluster_on
from transport.interface import Endpoint
from transport.protocol.apis import ApiKey
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.errors import Error
from transport.protocol.frames import FrameReader
from transport.protocol.headers import decode_response
from transport.protocol.messages import ProduceRequest, ProduceResponse
from transport.protocol.messages.produce import PartitionProduceData, TopicProduceData

PATIENCE_SECONDS: Final = 30
HANGING: Final = 6
"""So many fsyncs hang, one after the other."""
HERE, THERE = random_uuid(Random(1)), random_uuid(Random(2))


class HookedDisk(OsDisk):
    """A disk that calls a function before each fsync, with the path."""

    def __init__(self, on_fsync: Callable[[str], None]) -> None:
        self._on_fsync = on_fsync

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> OsFile:
        """Open a file that calls the function."""
        on_fsync = self._on_fsync

        class File(OsFile):
            def fsync(self) -> None:
                on_fsync(path)
                super().fsync()

        flags = (os.O_RDWR if writable else os.O_RDONLY) | (os.O_CREAT if create else 0) | os.O_CLOEXEC
        return File(path, os.open(path, flags, 0o600))

    def fsync_dir(self, path: str) -> None:
        """Call the function, and then fsync the directory."""
        self._on_fsync(path)
        super().fsync_dir(path)


class Gate:
    """Each fsync of a file waits for the gate; below the directories of `broken` it fails then."""

    def __init__(self) -> None:
        self.is_open = threading.Event()
        self.reached = threading.Semaphore(0)
        self.paths: list[str] = []
        self.broken: tuple[str, ...] = ()

    def pass_through(self, path: str) -> None:
        """Wait for the gate."""
        if not path.endswith(".tmp"):
            return
        self.paths.append(path.removesuffix(".tmp"))
        self.reached.release()
        assert self.is_open.wait(PATIENCE_SECONDS)
        if path.startswith(self.broken):
            raise OSError(5, "Input/output error", path)


def directories(tmp_path: Path) -> tuple[str, str]:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    return str(tmp_path / "a"), str(tmp_path / "b")


def test_files_are_written_in_order_with_their_newest_content(tmp_path: Path) -> None:
    a, b = directories(tmp_path)
    gate = Gate()
    thread = CheckpointThread(HookedDisk(gate.pass_through))
    assert thread.is_idle
    thread.put(HERE, a, "first", b"1")
    assert gate.reached.acquire(timeout=PATIENCE_SECONDS)
    for number in (2, 3):
        thread.put(HERE, a, "second", b"%d" % number)
        thread.put(THERE, b, "third", b"%d" % number)
        thread.put(HERE, a, "first", b"%d" % number)
    assert not thread.is_idle
    assert os.listdir(b) == []
    gate.is_open.set()
    thread.settle()
    assert thread.is_idle
    assert gate.paths == [f"{a}/first", f"{a}/second", f"{b}/third", f"{a}/first"]
    contents = {path: Path(path).read_bytes() for path in set(gate.paths)}
    assert contents == dict.fromkeys(gate.paths, b"3")
    assert list(thread.take_failures()) == []
    thread.end()


def test_a_failure_is_told_once_and_nothing_more_is_written_in_its_directory(tmp_path: Path) -> None:
    a, b = directories(tmp_path)
    gate = Gate()
    gate.broken = (a,)
    thread = CheckpointThread(HookedDisk(gate.pass_through))
    thread.put(HERE, a, "first", b"1")
    assert gate.reached.acquire(timeout=PATIENCE_SECONDS)
    thread.put(HERE, a, "second", b"1")
    thread.put(THERE, b, "third", b"1")
    gate.is_open.set()
    thread.settle()
    thread.put(HERE, a, "first", b"2")
    assert thread.is_idle
    [(directory, failure)] = thread.take_failures()
    assert (directory, failure.errno) == (HERE, 5)
    assert list(thread.take_failures()) == []
    assert gate.paths == [f"{a}/first", f"{b}/third"]
    assert Path(b, "third").read_bytes() == b"1"
    thread.end()


def test_the_end_waits_for_the_file_under_way_and_for_no_other(tmp_path: Path) -> None:
    a, _ = directories(tmp_path)
    gate = Gate()
    thread = CheckpointThread(HookedDisk(gate.pass_through))
    thread.put(HERE, a, "first", b"1")
    assert gate.reached.acquire(timeout=PATIENCE_SECONDS)
    thread.put(HERE, a, "second", b"1")
    ended = threading.Thread(target=thread.end)
    ended.start()
    eventually(lambda: thread.is_idle or not thread.has_waiting, "the end drops what waits")
    gate.is_open.set()
    ended.join(PATIENCE_SECONDS)
    assert not ended.is_alive()
    assert os.listdir(a) == ["first"]
    thread.put(HERE, a, "second", b"2")
    thread.settle()
    assert os.listdir(a) == ["first"]


def test_an_error_that_is_none_of_the_disk_is_raised_in_the_owner(tmp_path: Path) -> None:
    a, _ = directories(tmp_path)

    def fail(_path: str) -> None:
        raise ZeroDivisionError

    thread = CheckpointThread(HookedDisk(fail))
    thread.put(HERE, a, "first", b"1")
    thread.settle()
    with pytest.raises(ZeroDivisionError):
        thread.take_failures()
    thread.end()


class StuckDisk(HookedDisk):
    """A disk on which each fsync waits for a permit from some moment on, but in the metadata log."""

    def __init__(self) -> None:
        super().__init__(self._wait)
        self.is_stuck = False
        self.permits = threading.Semaphore(0)
        self.waiting: list[tuple[str, str]] = []
        """The names of thread and file of each fsync that has had to wait."""

    def _wait(self, path: str) -> None:
        if self.is_stuck and "__cluster_metadata" not in path:
            self.waiting.append((threading.current_thread().name, path.rpartition("/")[2]))
            assert self.permits.acquire(timeout=PATIENCE_SECONDS), path

    def free(self) -> None:
        """Let everything through, what waits and what comes."""
        self.is_stuck = False
        self.permits.release(len(self.waiting))


async def produce(at: Endpoint, topic_id: Uuid, values: int) -> list[int]:
    """Write values one after the other, with acks=all; returns their offsets."""
    offsets, reader = list[int](), FrameReader()
    async with await trio.open_tcp_stream(at.host, at.port) as stream:
        for _ in range(values):
            part = PartitionProduceData(index=0, records=build_batch(0, -1, 1, [b"value"]))
            message = ProduceRequest(
                acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(topic_id=topic_id, partition_data=[part])]
            )
            error = Error.UNKNOWN_TOPIC_ID
            # A broker learns of a new topic from the log: until then, clients ask again.
            while error == Error.UNKNOWN_TOPIC_ID:
                await stream.send_all(request(message, 13))
                answers: list[bytes] = []
                while not answers:
                    answers = list(reader.feed(await stream.receive_some(1 << 16)))
                _, answer = decode_response(ApiKey.PRODUCE, 13, answers[0], apis=ALL_APIS)
                assert isinstance(answer, ProduceResponse)
                [done] = answer.responses[0].partition_responses
                error = Error(done.error_code)
            assert error is Error.NONE
            offsets.append(done.base_offset)
    return offsets


def test_no_request_waits_for_the_checkpoints_of_a_slow_disk(tmp_path: Path) -> None:
    """While an fsync of a checkpoint hangs, all requests are answered; only a clean stop waits for the last one."""
    disk = StuckDisk()
    settings = {
        "replica_high_watermark_checkpoint_interval_ms": "100",
        "log_flush_offset_checkpoint_interval_ms": "100",
        "log_initial_task_delay_ms": "0",
    }
    with data_cluster_on(disk, tmp_path, **settings) as cluster:
        cluster.create_topic("orders")
        topic_id = cluster.until(lambda image: "orders" in image.topics).topics["orders"].id
        [at] = cluster.endpoints
        cluster.leader_of("orders")
        assert cluster.do(produce, at, topic_id, 1) == [0]
        disk.is_stuck = True
        end = 1
        try:
            for number in range(1, HANGING + 1):
                assert cluster.do(produce, at, topic_id, 10) == list(range(end, end + 10))
                end += 10
                eventually(lambda number=number: len(disk.waiting) == number, "an fsync hangs")
                assert cluster.do(produce, at, topic_id, 10) == list(range(end, end + 10))
                end += 10
                assert len(disk.waiting) == number
                disk.permits.release()
        finally:
            disk.free()
        cluster.stop(FIRST_BROKER)
        assert {thread for thread, _ in disk.waiting} == {"kraft-checkpoints"}
        directory = str(tmp_path / str(FIRST_BROKER))
        for name in (HIGH_WATERMARKS, RECOVERY_POINTS):
            assert read_offsets(disk, directory, name) == ({PartitionName("orders", 0): end}, None)
