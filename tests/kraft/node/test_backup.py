"""Snapshots on request, backups, and quorums that begin with them, over TCP and files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from random import Random

import pytest
import trio
import trio.testing

import kraft
import kraft.sync
from kraft.node.backup import copy_snapshot
from kraft.process.hosting import host_silent_raw_log
from kraft.state_machine.raw_log import RAW_LOG
from kraft.testing import Cluster
from metadata_log.disk import OsDisk, OsFile, make_directory, replace_file
from metadata_log.errors import CorruptBatch, DirectoryError
from metadata_log.log.log import MetadataLog
from metadata_log.log.log_dir import read_meta_properties, take_lock
from metadata_log.log.snapshot import encode_snapshot, read_snapshot
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import RecordBatch
from metadata_log.records.record import records
from metadata_log.types import OffsetAndEpoch
from support.kraft.sum_machine import Add, Sum

FAST = {
    "controller.quorum.election.timeout.ms": "150",
    "controller.quorum.election.backoff.max.ms": "100",
    "controller.quorum.fetch.timeout.ms": "500",
}


async def test_a_quorum_begins_with_the_backup_of_another(tmp_path: Path) -> None:
    backups = str(tmp_path / "backups")
    os.mkdir(backups)
    with trio.fail_after(60):
        async with kraft.create_store(f"{tmp_path}/1", settings=FAST) as one:
            with pytest.raises(kraft.NodeError, match="nothing to back up"):
                await one.node.backup(backups)
            async with kraft.join_store(str(one.node.endpoints[0]), f"{tmp_path}/2", settings=FAST) as two:
                for number in range(30):
                    await one.put(f"k/{number}", b"%d" % number)
                # A follower may lag, and what was acknowledged is in its backup all the same.
                path = await two.node.backup(backups)
                assert await two.node.backup(backups) == path
                former = await one.get("k/7")
                await one.put("later", b"")
        kraft.restore(path, f"{tmp_path}/new", node_id=7)
        with pytest.raises(DirectoryError, match="already formatted") as refused:
            kraft.restore(path, f"{tmp_path}/new")
        assert refused.value.hint == "Restore into another directory: this one has a node."
        for _ in range(2):
            async with kraft.create_store(f"{tmp_path}/new", settings=FAST) as restored:
                assert restored.node.status().cluster_id != one.node.status().cluster_id
                assert [voter.id for voter in restored.node.voters] == [7]
                assert await restored.get("k/7") == former
                assert await restored.get("later") is None
                assert await restored.put("k/7", b"new") > restored.revision - 1 >= 30
                former = await restored.get("k/7")
                server = str(restored.node.endpoints[0])
                async with kraft.connect_store(server, settings=FAST) as client:
                    assert await client.get("k/7") == former
        async with (
            kraft.create_store(f"{tmp_path}/new", settings=FAST) as restored,
            kraft.join_store(str(restored.node.endpoints[0]), f"{tmp_path}/new2", settings=FAST) as joined,
        ):
            assert len((await joined.scan("k/")).entries) == 30


def test_a_damaged_backup_is_refused_and_makes_nothing(tmp_path: Path) -> None:
    with kraft.sync.create_store(f"{tmp_path}/1", settings=FAST) as one:
        one.put("a", b"1" * 1000)
        path = Path(one.node.backup(str(tmp_path)))
    whole = path.read_bytes()
    path.chmod(0o600)
    for damaged in (whole[:-10], whole[:200], b"", whole.replace(b"1" * 100, b"2" * 100)):
        path.write_bytes(damaged)
        with pytest.raises(CorruptBatch) as refused:
            kraft.restore(str(path), f"{tmp_path}/new")
        assert str(path) in str(refused.value)
    with pytest.raises(DirectoryError, match="not the name of a backup"):
        kraft.restore(str(tmp_path / "backup"), f"{tmp_path}/new")
    with pytest.raises(FileNotFoundError):
        kraft.restore(str(tmp_path / "00000000000000000009-0000000009.checkpoint"), f"{tmp_path}/new")
    assert not (tmp_path / "new").exists()


def test_a_restored_quorum_has_nothing_of_what_was_in_its_directory(tmp_path: Path) -> None:
    """A directory whose meta.properties is lost, or that an interrupted restore of another backup has left."""
    with kraft.sync.create_store(f"{tmp_path}/1", settings=FAST) as one:
        one.put("a", b"old")
        path = one.node.backup(str(tmp_path))
        one.put("a", b"new")
    (tmp_path / "1" / "meta.properties").unlink()
    before = sorted(os.listdir(tmp_path / "1" / "__cluster_metadata-0"))
    with pytest.raises(DirectoryError, match="there is a metadata log"):
        kraft.restore(path, f"{tmp_path}/1")
    with (
        pytest.raises(DirectoryError, match="there is a metadata log"),
        kraft.sync.create_store(f"{tmp_path}/1", settings=FAST),
    ):
        pytest.fail("a new quorum began with the log of another")
    assert sorted(os.listdir(tmp_path / "1" / "__cluster_metadata-0")) == before
    assert not (tmp_path / "1" / "meta.properties").exists()


def test_two_processes_do_not_make_a_node_of_one_directory(tmp_path: Path) -> None:
    with kraft.sync.create_store(f"{tmp_path}/1", settings=FAST) as one:
        one.put("a", b"1")
        path = one.node.backup(str(tmp_path))
    os.mkdir(tmp_path / "new")
    lock = take_lock(OsDisk(), f"{tmp_path}/new")
    with (
        pytest.raises(DirectoryError, match="locked by another process"),
        kraft.sync.create(f"{tmp_path}/new", settings=FAST),
    ):
        pytest.fail("it began with a directory that another process formats")
    with pytest.raises(DirectoryError, match="locked by another process"):
        kraft.restore(path, f"{tmp_path}/new")
    assert os.listdir(tmp_path / "new") == [".lock"]
    lock.release()
    # A restore that ended while it wrote has left this.
    os.mkdir(tmp_path / "new" / "__cluster_metadata-0")
    (tmp_path / "new" / "__cluster_metadata-0" / f"{Path(path).name}.part").touch()
    kraft.restore(path, f"{tmp_path}/new")


def test_a_power_failure_leaves_the_copy_of_a_snapshot_whole_or_without_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And whole for good once the call has returned."""
    content = encode_snapshot([b"v" * 3_000_000], epoch=1, timestamp_ms=1)
    snapshot = OffsetAndEpoch(epoch=1, offset=1)
    for operations in count():
        was_cut = False
        for seed in range(3):
            disk = MemoryDisk()
            make_directory(disk, "/backups")
            replace_file(disk, "/", "source", content)
            monkeypatch.setattr("kraft.node.backup.OsDisk", lambda disk=disk: disk)
            left = iter(range(operations - 1, -2, -1))

            def die_in_time(_operation: str, _path: str, left: Iterator[int] = left) -> None:
                if next(left, -1) < 0:
                    raise KeyboardInterrupt

            source = disk.open("/source", writable=False)
            disk.on_operation = die_in_time
            try:
                path = copy_snapshot(source, snapshot, "/backups")
                was_cut = False
            except KeyboardInterrupt:
                was_cut = True
            disk.on_operation = None
            disk.crash(Random(100 * operations + seed) if seed else None)
            there = [name for name in disk.list("/backups") if not name.endswith(".part")]
            if not was_cut:
                assert [f"/backups/{name}" for name in there] == [path]
            for name in there:
                assert disk.read(f"/backups/{name}") == content, (operations, seed)
        if not was_cut:
            break
    assert operations > 5


def test_backups_into_one_folder_at_a_time_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(3 << 20))
    disk, snapshot = OsDisk(), OffsetAndEpoch(epoch=1, offset=9)
    fsync = OsFile.fsync

    def overtaken(file: OsFile) -> None:
        """Another call writes the same backup meanwhile, from its begin to its end."""
        monkeypatch.undo()
        fsync(file)
        copy_snapshot(disk.open(str(source), writable=False), snapshot, str(tmp_path))

    monkeypatch.setattr(OsFile, "fsync", overtaken)
    path = copy_snapshot(disk.open(str(source), writable=False), snapshot, str(tmp_path))
    assert Path(path).read_bytes() == source.read_bytes()
    assert sorted(os.listdir(tmp_path)) == [Path(path).name, "source"]


async def test_cancelled_reads_of_a_snapshot_leave_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[OsFile] = []
    os_open = OsDisk.open

    def noted(disk: OsDisk, path: str, *, create: bool = False, writable: bool = True) -> OsFile:
        opened.append(os_open(disk, path, create=create, writable=writable))
        return opened[-1]

    with trio.fail_after(60):
        async with kraft.create(f"{tmp_path}/1", settings=FAST) as one:
            await one.snapshot(b"state", offset=await one.append([b"value"]) + 1)
            monkeypatch.setattr(OsDisk, "open", noted)
            for read in (one.load_snapshot, partial(one.backup, str(tmp_path))):
                with trio.CancelScope() as scope:
                    scope.cancel()
                    await read()
                assert scope.cancelled_caught
            assert [file.path for file in opened if file._fd >= 0] == []
            assert len(opened) == 2


async def values_of(node: kraft.Node, end: int) -> list[tuple[int, tuple[bytes, ...]]]:
    """What a raw log has below an offset."""
    found = []
    async for batch in node.committed(node.status().log_start_offset):
        if batch.base_offset >= end:
            break
        found.append((batch.base_offset, batch.values))
        if batch.next_offset >= end:
            break
    return found


@pytest.mark.parametrize("has_snapshot", [False, True], ids=["log-alone", "snapshot-and-log"])
async def test_a_raw_log_begins_anew_with_a_backup(tmp_path: Path, has_snapshot: bool) -> None:
    """With the same values at the same offsets, though the former log names other voters; others join it."""
    os.mkdir(backups := f"{tmp_path}/backups")
    settings = {**FAST, "metadata.log.segment.bytes": "8388608", "internal.metadata.log.segment.bytes": "1024"}
    with trio.fail_after(30):
        async with (
            kraft.create(f"{tmp_path}/1", settings=settings) as one,
            kraft.join(str(one.endpoints[0]), f"{tmp_path}/2", settings=settings) as two,
        ):
            offsets = [await one.append([b"%d" % number, bytes(100)]) for number in range(30)]
            if has_snapshot:
                await one.snapshot(b"ten", offset=offsets[10])
            large = await one.append([bytes(700_000)] * 3)
            end = large + 3
            path = await one.backup(backups)
            assert await one.backup(backups) == path
            assert os.listdir(backups) == [Path(path).name]
            former = await values_of(one, end)
            assert (await values_of(two, end))[-1:] == former[-1:]
            await one.append([b"later"])
        kraft.restore(path, f"{tmp_path}/new", node_id=7)
        with pytest.raises(DirectoryError, match="has the log of a raw log, and not of a store"):
            async with kraft.create_store(f"{tmp_path}/new", settings=settings):
                pytest.fail("a store began with a raw log")
        for turn in range(2):
            async with kraft.create(f"{tmp_path}/new", settings=settings) as new:
                assert new.status().cluster_id != one.status().cluster_id
                assert [voter.id for voter in new.voters] == [7]
                assert await values_of(new, end) == former
                kept = await new.load_snapshot()
                assert kept == (kraft.LogSnapshot(offsets[10], 1, b"ten") if has_snapshot else None)
                assert await new.append([b"new"]) > end
                async with kraft.join(str(new.endpoints[0]), f"{tmp_path}/other{turn}", settings=settings) as other:
                    # A node that joins gets the snapshot and what comes after it.
                    begin = offsets[10] if has_snapshot else 0
                    joined = await values_of(other, end)
                    assert joined == [one for one in former if one[0] >= begin]
                    await new.remove_voter(other.status().node_id)
        with pytest.raises(kraft.NodeStopped):
            await other.backup(backups)
        with pytest.raises(kraft.NodeStopped):
            await other.describe_quorum()


def test_a_damaged_backup_of_a_raw_log_is_refused_and_makes_nothing(tmp_path: Path) -> None:
    with kraft.sync.create(f"{tmp_path}/1", settings=FAST) as one:
        for number in range(3):
            one.append([b"%d" % number * 500])
        path = Path(one.backup(str(tmp_path)))
    whole = path.read_bytes()
    path.chmod(0o600)
    values = [record.value for batch in read_snapshot(OsDisk(), str(path)) for record in records(batch)][1:-1]
    tag, head, log = (value or b"" for value in values)

    def remade(*values: bytes) -> bytes:
        return encode_snapshot(values, epoch=1, timestamp_ms=0)

    for damaged in (
        whole[:-10],
        whole.replace(b"1" * 100, b"2" * 100),
        # Sound as a snapshot, and no log.
        remade(tag),
        remade(tag, b"head", log),
        remade(tag, head),
        remade(tag, head, log[:-1]),
        remade(tag, head, log, log),
        remade(tag, head.replace(b"\x00", b"\x05"), log),
    ):
        path.write_bytes(damaged)
        with pytest.raises(CorruptBatch) as refused:
            kraft.restore(str(path), f"{tmp_path}/new")
        assert str(path) in str(refused.value)
    assert not (tmp_path / "new").exists()


class Killed(BaseException):
    """The process has ended."""


class KilledDisk(OsDisk):
    """A disk whose process is killed before one of the changes of names; what was changed before stays."""

    left = 0

    def _change(self) -> None:
        type(self).left -= 1
        if self.left < 0:
            raise Killed

    def mkdir(self, path: str) -> None:
        self._change()
        super().mkdir(path)

    def rename(self, source: str, target: str) -> None:
        self._change()
        super().rename(source, target)

    def fsync_dir(self, path: str) -> None:
        self._change()
        super().fsync_dir(path)


def test_a_restore_that_is_killed_leaves_no_directory_that_does_not_say_what_its_log_is_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kraft.sync.create(f"{tmp_path}/1", settings=FAST) as one:
        one.append([b"x"])
        path = one.backup(str(tmp_path))
    monkeypatch.setattr("kraft.node.backup.OsDisk", KilledDisk)
    for steps in count():
        KilledDisk.left = steps
        directory = f"{tmp_path}/new{steps}"
        try:
            kraft.restore(path, directory)
        except Killed:
            meta = read_meta_properties(OsDisk(), directory)
            assert meta is None or meta.hosts == RAW_LOG, steps
            continue
        break
    assert steps > 10
    meta = read_meta_properties(OsDisk(), directory)
    assert meta is not None
    assert meta.hosts == RAW_LOG


async def test_a_directory_says_what_its_log_is_of_before_the_log_has_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed at its first record leaves a directory that no program of another kind opens."""
    said: list[str | None] = []
    append = MetadataLog.append

    def watched(log: MetadataLog, data: bytes, batches: Sequence[RecordBatch] | None = None) -> None:
        meta = read_meta_properties(OsDisk(), f"{tmp_path}/1")
        assert meta is not None
        said.append(meta.hosts)
        append(log, data, batches)

    monkeypatch.setattr(MetadataLog, "append", watched)
    async with kraft.create(f"{tmp_path}/1", settings=FAST):
        pass
    assert said
    assert set(said) == {RAW_LOG}


async def test_what_is_no_state_of_the_log_is_refused(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with kraft.create(f"{tmp_path}/1", settings=FAST) as node:
            offset = await node.append([b"a", b"b", b"c"])
            for wrong, why in ((offset + 1, "inside of a batch, which ends at offset"), (10**9, "and not yet what is")):
                with pytest.raises(kraft.NodeError, match=why):
                    await node.snapshot(b"", offset=wrong)
            # The newest one reaches further, and is the answer.
            made = await node.snapshot(b"three", offset=offset + 3)
            assert await node.snapshot(b"none", offset=offset) == made
            assert await node.snapshot(b"other", offset=offset + 3) == made
            assert await node.load_snapshot() == kraft.LogSnapshot(offset + 3, 1, b"three")
        async with kraft.create_store(f"{tmp_path}/2", settings=FAST) as store:
            with pytest.raises(TypeError, match="there is no state to give"):
                await store.node.snapshot(b"", offset=1)
            with pytest.raises(TypeError, match="only a raw log"):
                await store.node.load_snapshot()


async def test_a_late_node_of_a_raw_log_gets_the_snapshot(autojump_clock: trio.testing.MockClock) -> None:
    """In virtual time: the log before the snapshot is removed."""
    settings = {
        "metadata.log.segment.bytes": "8388608",
        "internal.metadata.log.segment.bytes": "1024",
        "metadata.max.retention.bytes": "1000",
    }
    async with Cluster(controllers=3, seed=6, application=host_silent_raw_log, settings=settings) as cluster:
        leader = await cluster.leader()
        late = cluster.others(leader)[0]
        cluster.network.partition({late}, cluster.others(late))
        state = 0
        for number in range(100):
            offset = await cluster.node(leader).append([b"%d" % number, bytes(100)])
            state += number
            if number % 10 == 9:
                async with trio.open_nursery() as nursery:
                    # Two at a time are written one after the other.
                    for _ in range(2):
                        nursery.start_soon(partial(cluster.node(leader).snapshot, b"%d" % state, offset=offset + 2))
        await trio.sleep(70)
        assert cluster.node(leader).status().log_start_offset > 0
        cluster.network.heal()
        node = cluster.node(late)
        while (found := await node.load_snapshot()) is None:
            await node.wait_for_change()
        assert found.state == b"%d" % sum(range(100))
        with pytest.raises(kraft.OffsetOutOfRange):
            await anext(node.committed(0))
        await cluster.stop(late)
        await cluster.restart(late)
        assert await cluster.node(late).load_snapshot() == found
        await cluster.append([b"end"])
        assert (await anext(cluster.node(late).committed(found.offset))).values == (b"end",)


async def test_a_snapshot_holds_what_was_applied_at_the_call(autojump_clock: trio.testing.MockClock) -> None:
    """In virtual time: snapshots that are asked for while others are written, and after a start from one."""
    async with Cluster(controllers=3, seed=5, state_machine=Sum) as cluster:
        leader = await cluster.leader()
        node = cluster.machine(leader)
        await node.submit(Add(1))
        first = await node.snapshot()
        assert first is not None
        assert await node.snapshot() == first
        ends: list[tuple[int, int]] = []

        async def ask() -> None:
            applied = node.status().applied_offset
            made = await node.snapshot()
            assert made is not None
            ends.append((applied, made.offset))

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(ask)
                await node.submit(Add(1))
                nursery.start_soon(ask)
        assert len(ends) == 40
        assert all(applied <= end for applied, end in ends)
        await cluster.stop(leader)
        await cluster.restart(leader)
        again = cluster.machine(leader)
        assert await again.read() == 21
        made = await again.snapshot()
        assert made is not None
        assert made.offset >= max(end for _, end in ends)
        cluster.check()
