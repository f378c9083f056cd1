"""Moves between the log directories of a broker: under load, stopped in the middle, with directories that fail."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from kraft.broker.directories import Directories
from kraft.broker.requests import Requests
from kraft.config import Config
from kraft.handling.settings import RequestSettings
from kraft.node.broker import locked_directories
from kraft.partitions.log.outcomes import Appended
from kraft.partitions.replicas import DataDirectory, DataSettings, ReplicaManager, moves
from kraft.wire import Answer
from metadata_log.errors import DirectoryError
from metadata_log.log.clean_shutdown import take_clean_shutdown, write_clean_shutdown
from metadata_log.log.partition_names import PartitionName
from metadata_log.memory_disk import MemoryDisk, MemoryLock
from metadata_log.records import metadata as records
from metadata_log.types import Uuid
from random_replicas import run_until
from support.broker.data_brokers import (
    KEY,
    NOW_MS,
    TOPIC,
    append,
    part_of,
    publish,
    replayed,
    values_of,
)
from support.broker.moving_brokers import FIRST, SECOND, assigned, image_of, moved, started, two_directories
from support.broker.request_brokers import wire_request
from support.power import failing_after
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.messages import alter_replica_log_dirs as alter
from transport.protocol.messages import describe_log_dirs as describe


def fill(manager: ReplicaManager, count: int) -> None:
    for _ in range(count):
        append(manager, b"%06d" % part_of(manager).log.end_offset, b"x" * 90)


def directories_of(disk: MemoryDisk) -> list[str]:
    return [f"{path}/{name.partition('.')[0]}{name[-7:]}" for path in "de" for name in disk.list(path) if "t-0" in name]


def test_a_move_back_to_its_own_directory_ends_a_move_and_another_target_begins_anew() -> None:
    disk = MemoryDisk()
    image = image_of()
    manager = started(disk, image)
    fill(manager, 30)
    values = values_of(manager)
    assert manager.moves.alter(KEY, "d", NOW_MS) is Error.NONE
    assert part_of(manager).copy is None
    manager.moves.alter(KEY, "e", NOW_MS)
    run_until(manager, NOW_MS + 1000)
    assert manager.moves.take_wanted() == {KEY: SECOND}
    assert manager.moves.alter(KEY, "d/", NOW_MS + 1000) is Error.NONE
    # The controller learned of the other directory, and has to learn of this one.
    assert manager.moves.take_wanted() == {KEY: FIRST}
    assert (part_of(manager).copy, manager.directory_of(KEY)) == (None, FIRST)
    run_until(manager, NOW_MS + 120_000, NOW_MS + 1000)
    assert (directories_of(disk), values_of(manager)) == (["d/t-0t-0"], values)
    manager.moves.alter(KEY, "e", NOW_MS)
    moved(manager, image)
    assert (part_of(manager).directory, values_of(manager)) == (SECOND, values)


def test_errors_of_a_move_are_those_of_kafka() -> None:
    disk = MemoryDisk()
    manager = started(disk, image_of())
    assert manager.moves.alter(KEY, "/nowhere", NOW_MS) is Error.LOG_DIR_NOT_FOUND
    assert manager.moves.alter((TOPIC, 7), "e", NOW_MS) is Error.REPLICA_NOT_AVAILABLE
    fail_directory(disk, manager, "e")
    assert manager.moves.alter(KEY, "e", NOW_MS) is Error.KAFKA_STORAGE_ERROR
    assert not part_of(manager).is_offline


def fail_directory(disk: MemoryDisk, manager: ReplicaManager, path: str) -> None:
    """Let the next change below a path fail, and make one by a move."""

    def fail(_: str, changed: str) -> None:
        if changed.startswith(f"{path}/"):
            raise OSError(5, "broken", changed)

    disk.on_operation = fail
    manager.moves.alter(KEY, path, NOW_MS)
    disk.on_operation = None
    assert len(manager.failed_directories) == 1


@pytest.mark.parametrize("is_told", [False, True])
def test_a_target_that_fails_leaves_the_replica_where_it_is(is_told: bool) -> None:
    disk = MemoryDisk()
    image = image_of()
    manager = started(disk, image)
    fill(manager, 50)
    manager.moves.alter(KEY, "e", NOW_MS)
    if is_told:
        run_until(manager, NOW_MS + 1000)
        assert manager.moves.take_wanted() == {KEY: SECOND}
        image = assigned(image, SECOND)
        manager.on_image(image)

    def fail(_: str, changed: str) -> None:
        if changed.startswith("e/"):
            raise OSError(5, "broken", changed)

    disk.on_operation = fail
    fill(manager, 1)
    values = values_of(manager)
    run_until(manager, NOW_MS + 3000, NOW_MS + 1000)
    part = part_of(manager)
    assert (list(manager.failed_directories), part.directory, part.copy) == ([SECOND], FIRST, None)
    assert manager.moves.take_wanted() == ({KEY: FIRST} if is_told else {})
    # The agent says that the directory of the metadata has failed; the log is in the other one.
    manager.on_partition(KEY, None, NOW_MS)
    assert not part.is_offline
    assert values_of(manager) == values
    assert any("stays in its log directory" in each for each in manager.findings)


def test_a_source_that_fails_takes_the_replica_offline_and_the_copy_is_there_after_a_restart() -> None:
    disk = MemoryDisk()
    image = image_of()
    manager = started(disk, image)
    fill(manager, 50)
    values = values_of(manager)
    manager.moves.alter(KEY, "e", NOW_MS)
    run_until(manager, NOW_MS + 1000)

    def fail(_: str, changed: str) -> None:
        if changed.startswith("d/"):
            raise OSError(5, "broken", changed)

    disk.on_operation = fail
    run_until(manager, NOW_MS + 10_000, NOW_MS + 1000)
    assert part_of(manager).is_offline
    assert list(manager.failed_directories) == [FIRST]
    disk.on_operation = None
    # The metadata names the copy's directory, and the other one has failed again.
    disk.on_operation = fail
    again = started(disk, assigned(image, SECOND))
    disk.on_operation = None
    assert (part_of(again).directory, values_of(again)) == (SECOND, values)


def test_a_copy_follows_a_log_that_is_truncated_and_begins_later() -> None:
    disk = MemoryDisk()
    image = image_of({"retention.bytes": "1500"})
    manager = started(disk, image)
    fill(manager, 60)
    manager.moves.alter(KEY, "e", NOW_MS)
    run_until(manager, NOW_MS + 1000)
    part = part_of(manager)
    copy = part.copy
    assert copy is not None
    assert copy.log.end_offset == part.log.end_offset == 120
    # A new leader has another history: this log loses its end, and takes other records in a later epoch.
    part.log.truncate(100, now_ms=NOW_MS)
    part.leader_epoch = 5
    part.log.assign_epoch(5)
    fill(manager, 3)
    assert manager.leaders.delete_records(manager.partitions[KEY], 90) == 90
    run_until(manager, NOW_MS + 1500, NOW_MS + 1000)
    assert (copy.log.end_offset, copy.log.start_offset) == (106, 90)
    values = values_of(manager)
    moved(manager, image)
    assert values_of(manager)[-10:] == values[-10:]
    assert (part.directory, part.log.epochs.last_epoch, part.log.start_offset) == (SECOND, 5, 90)


def test_a_deleted_topic_takes_its_copy_along() -> None:
    disk = MemoryDisk()
    image = image_of()
    manager = started(disk, image)
    fill(manager, 50)
    manager.moves.alter(KEY, "e", NOW_MS)
    manager.shrink(manager.deadline_ms())
    publish(manager, replayed(image, records.RemoveTopicRecord(topic_id=TOPIC)))
    run_until(manager, NOW_MS + 120_000)
    assert directories_of(disk) == []
    assert manager.failed_directories == {}


def test_a_move_of_a_damaged_log_ends_and_the_log_serves_on() -> None:
    disk = MemoryDisk()
    manager = started(disk, image_of())
    fill(manager, 50)
    disk.overwrite("d/t-0/00000000000000000000.log", 100, b"\xff\xff\xff")
    manager.moves.alter(KEY, "e", NOW_MS)
    run_until(manager, NOW_MS + 1000)
    assert part_of(manager).copy is None
    assert any("t-0 does not move" in each for each in manager.findings)
    fill(manager, 1)


def test_a_bound_of_bytes_in_a_second_slows_a_move() -> None:
    disk = MemoryDisk()
    manager = two_directories(disk)
    manager.settings = manager.hosting.settings = DataSettings(
        broker_id=1, directories=manager.settings.directories, move_bytes_per_second=1000
    )
    publish(manager, image_of())
    fill(manager, 100)
    manager.moves.alter(KEY, "e", NOW_MS)
    size = part_of(manager).log.size_bytes
    run_until(manager, NOW_MS + size - 3000)
    assert manager.moves.take_wanted() == {}
    run_until(manager, NOW_MS + size + 1000, NOW_MS + size - 3000)
    assert manager.moves.take_wanted() == {KEY: SECOND}


def test_the_bound_of_a_move_changes_while_it_goes_on() -> None:
    disk = MemoryDisk()
    manager = two_directories(disk)
    image = replayed(image_of(), rate_of_moves("", "1000"), rate_of_moves("1", "1"))
    publish(manager, image)
    fill(manager, 100)
    manager.moves.alter(KEY, "e", NOW_MS)
    size = part_of(manager).log.size_bytes
    run_until(manager, NOW_MS + 2 * size)
    assert manager.moves.take_wanted() == {}
    publish(manager, replayed(image, rate_of_moves("1", None)), NOW_MS + 2 * size)
    run_until(manager, NOW_MS + 3 * size + 3000, NOW_MS + 2 * size)
    assert manager.moves.take_wanted() == {KEY: SECOND}


def rate_of_moves(broker: str, value: str | None) -> records.ConfigRecord:
    name = "replica.alter.log.dirs.io.max.bytes.per.second"
    return records.ConfigRecord(resource_type=4, resource_name=broker, name=name, value=value)


def test_a_power_failure_at_any_moment_of_a_move_leaves_one_owner_with_every_record() -> None:
    """Before each disk operation of the move: after a start there is one log, and the metadata and the log agree."""
    operations = 0
    owners = set[Uuid]()
    while True:
        was_cut = False
        for seed in (0, operations + 1):
            disk = MemoryDisk()
            image = image_of()
            manager = started(disk, image)
            fill(manager, 12)
            part_of(manager).log.flush()
            values = values_of(manager)
            seen = [image]
            with failing_after(disk, operations) as power:
                manager.moves.alter(KEY, "e", NOW_MS)
                moved(manager, image, seen)
            image, was_cut = seen[-1], power.failed
            disk.crash(Random(seed) if seed else None)
            where = f"operation {operations}, seed {seed}"
            again = started(disk, image)
            assert values_of(again) == values, where
            part = part_of(again)
            owners.add(part.directory or Uuid.ZERO)
            plain = [name for name in directories_of(disk) if name.endswith("t-0t-0")]
            assert len(plain) == 1, (where, directories_of(disk))
            # The move goes on, or begins anew, and ends.
            assert again.moves.alter(KEY, "e", NOW_MS) is Error.NONE
            moved(again, image)
            assert (part.directory, values_of(again)) == (SECOND, values), where
        if not was_cut:
            break
        operations += 1
    assert operations > 20
    assert owners == {FIRST, SECOND}


def test_the_requests_of_kafkas_tool_move_and_describe_a_replica() -> None:
    disk = MemoryDisk()
    image = image_of()
    manager = started(disk, image)
    fill(manager, 50)
    requests = Requests(manager, RequestSettings(broker_id=1), Random(1))
    wanted = alter.AlterReplicaLogDirsRequest(
        dirs=[
            alter.AlterReplicaLogDir(path="/nowhere", topics=[alter.AlterReplicaLogDirTopic("t", [0])]),
            alter.AlterReplicaLogDir(path="e", topics=[alter.AlterReplicaLogDirTopic("t", [0, 44])]),
        ]
    )
    answer = requests.on_request(wire_request(1, ApiKey.ALTER_REPLICA_LOG_DIRS, 2, wanted), image, NOW_MS)
    assert isinstance(answer, Answer)
    assert isinstance(answer.message, alter.AlterReplicaLogDirsResponse)
    (topic,) = answer.message.results
    assert [(part.partition_index, part.error_code) for part in topic.partitions] == [
        (0, Error.NONE),
        (44, Error.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    run_until(manager, NOW_MS + 1000)
    fill(manager, 1)
    everything = wire_request(2, ApiKey.DESCRIBE_LOG_DIRS, 4, describe.DescribeLogDirsRequest(topics=None))
    shown = requests.on_request(everything, image, NOW_MS)
    assert isinstance(shown, Answer)
    assert isinstance(shown.message, describe.DescribeLogDirsResponse)
    found = {
        result.log_dir: [(part.is_future_key, part.offset_lag) for topic in result.topics for part in topic.partitions]
        for result in shown.message.results
    }
    assert found == {"d": [(False, 0)], "e": [(True, 2)]}


class Bounded(MemoryDisk):
    """A disk that says how large it is, and where a path begins."""

    def absolute(self, path: str) -> str:
        return f"/data/{path}"

    def space(self, path: str) -> tuple[int, int]:
        if path == "e":
            raise OSError("input/output error")
        return 1000, 300


def test_directories_are_named_from_the_root_with_the_space_that_they_have() -> None:
    """KIP-827. A relative `log.dirs` is the same directory by either path."""
    disk, image = Bounded(), image_of()
    directories = tuple(
        DataDirectory(one, path, is_clean=False, shown=disk.absolute(path))
        for one, path in ((FIRST, "d"), (SECOND, "e"))
    )
    manager = ReplicaManager(disk, replace(two_directories(disk).settings, directories=directories))
    publish(manager, image)
    requests = Requests(manager, RequestSettings(broker_id=1), Random(1))
    asked = wire_request(2, ApiKey.DESCRIBE_LOG_DIRS, 4, describe.DescribeLogDirsRequest(topics=None))
    told: Any = requests.on_request(asked, image, NOW_MS)
    found = [(one.log_dir, one.total_bytes, one.usable_bytes) for one in told.message.results]
    assert found == [("/data/d", 1000, 300), ("/data/e", -1, -1)]
    for path in ("/data/e", "e", "/data/d/", "d"):
        assert manager.moves.alter(KEY, path, NOW_MS) is Error.NONE, path
    assert manager.moves.alter(KEY, "data/d", NOW_MS) is Error.LOG_DIR_NOT_FOUND
    manager.hosting.fail_directory(FIRST, OSError("gone"))
    told = requests.on_request(asked, image, NOW_MS)
    assert [(one.error_code, one.total_bytes) for one in told.message.results] == [
        (Error.KAFKA_STORAGE_ERROR, -1),
        (Error.NONE, -1),
    ]


def test_of_replicas_that_are_not_here_the_oldest_wishes_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "MOST_PREFERRED", 2)
    manager = started(MemoryDisk(), image_of())
    for number in (1, 2, 1, 3):
        manager.moves.prefer(PartitionName("t", number), "e")
    manager.moves.prefer(PartitionName("t", 4), "/nowhere")
    assert list(manager.moves.preferred) == [PartitionName("t", 1), PartitionName("t", 3)]


def test_an_assignment_is_told_to_the_controller() -> None:
    directories = Directories(1, (FIRST, SECOND))
    directories.place(KEY, FIRST, is_told=True)
    assert directories.request_due(7, NOW_MS) is None
    directories.move(KEY, SECOND)
    request = directories.request_due(7, NOW_MS)
    assert request is not None
    assert [each.id for each in request.directories] == [SECOND]


def test_an_append_during_the_whole_move_keeps_its_place() -> None:
    disk = MemoryDisk()
    image = image_of()
    manager = started(disk, image)
    manager.moves.alter(KEY, "e", NOW_MS)
    sent = 0
    now_ms = NOW_MS
    while part_of(manager).copy is not None:
        now_ms = max(now_ms + 1, manager.deadline_ms())
        if sent < 200:
            done = append(manager, b"%d" % sent)
            assert isinstance(done, Appended)
            sent += 1
        manager.shrink(now_ms)
        for directory in manager.moves.take_wanted().values():
            image = assigned(image, directory)
            publish(manager, image, now_ms)
    assert part_of(manager).directory == SECOND
    assert values_of(manager) == [b"%d" % number for number in range(sent)]


BROKER = (
    "process.roles=broker\nnode.id=1\ncontroller.quorum.voters=9@127.0.0.1:9\n"
    "controller.listener.names=CONTROLLER\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs=d,e\n"
    "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
)
LAST = Config.parse(BROKER)
"""A broker with the metadata log in `d`, so that `locked_directories` locks `e`."""
TWO = Config.parse(f"{BROKER}metadata.log.dir=m\n")


def test_a_second_broker_on_one_of_the_directories_is_refused() -> None:
    """The lock of the metadata log guards one directory; each other one has its own."""
    disk = MemoryDisk()
    for path in "de":
        disk.mkdir(path)
    with locked_directories(LAST, disk):
        with pytest.raises(DirectoryError, match="locked by another process"), locked_directories(LAST, disk):
            raise AssertionError("two brokers hold one directory")
        disk.lock("d/.lock").release()
    with locked_directories(LAST, disk):
        pass


class ReadOnly(MemoryDisk):
    """A disk on which one directory cannot be written."""

    error = errno.EACCES

    def _refuse(self, path: str) -> None:
        if path.startswith("e/"):
            raise OSError(self.error, "not to be written", path)

    def lock(self, path: str) -> MemoryLock:
        self._refuse(path)
        return super().lock(path)

    def remove(self, path: str) -> None:
        self._refuse(path)
        super().remove(path)


@pytest.mark.parametrize("error", [errno.EACCES, errno.EROFS, errno.EIO])
def test_a_directory_that_cannot_be_written_keeps_no_broker_from_its_start(error: int) -> None:
    """The load of the directory takes it offline; an error of another kind ends the start."""
    disk = ReadOnly()
    for path in "de":
        disk.mkdir(path)
        write_clean_shutdown(disk, path, 7)
    disk.error = error
    if error == errno.EIO:
        with pytest.raises(OSError, match="not to be written"), locked_directories(TWO, disk):
            raise AssertionError("a broken disk was locked")
        with pytest.raises(OSError, match="not to be written"):
            take_clean_shutdown(disk, "de")
        return
    with locked_directories(TWO, disk):
        with pytest.raises(BlockingIOError):
            disk.lock("d/.lock")
        assert take_clean_shutdown(disk, "de") == -1
    assert not disk.exists("d/.kafka_cleanshutdown")


def test_a_cluster_without_directories_in_its_metadata_is_told_nothing() -> None:
    """Before KIP-858 the metadata names no directory: the copy takes the place of the log as soon as it has all."""
    disk = MemoryDisk()
    image = image_of()
    manager = started(disk, image)
    fill(manager, 20)
    values = values_of(manager)
    manager.on_image(assigned(image, Uuid.ZERO))
    manager.moves.alter(KEY, "e", NOW_MS)
    run_until(manager, NOW_MS + 1000)
    assert manager.moves.take_wanted() == {}
    assert (part_of(manager).directory, values_of(manager)) == (SECOND, values)


def test_cordoned_directories_are_told_and_take_no_moves() -> None:
    disk, image = MemoryDisk(), image_of()
    manager = started(disk, image)
    image = replayed(image, records.ConfigRecord(4, "1", "cordoned.log.dirs", "e"))
    requests = Requests(manager, RequestSettings(broker_id=1), Random(1))
    topic = alter.AlterReplicaLogDirTopic("t", [0])
    for path, error in (("e", Error.INVALID_REPLICA_ASSIGNMENT), ("d", Error.NONE)):
        wanted = alter.AlterReplicaLogDirsRequest(dirs=[alter.AlterReplicaLogDir(path=path, topics=[topic])])
        answer: Any = requests.on_request(wire_request(1, ApiKey.ALTER_REPLICA_LOG_DIRS, 2, wanted), image, NOW_MS)
        assert [one.error_code for one in answer.message.results[0].partitions] == [error]
    asked = wire_request(2, ApiKey.DESCRIBE_LOG_DIRS, 5, describe.DescribeLogDirsRequest(topics=None))
    told: Any = requests.on_request(asked, image, NOW_MS)
    assert {one.log_dir: one.is_cordoned for one in told.message.results} == {"d": False, "e": True}
