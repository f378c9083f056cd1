"""`kraft archive`: what it keeps is what the cluster committed, whatever its sources, the disk and the power do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata_log.archive import Archive, ArchiveError, open_archive, open_source, read_manifest, verify_archive
from metadata_log.disk import Disk, OsDisk
from metadata_log.errors import MetadataLogError
from metadata_log.log.log import MetadataLog
from metadata_log.log.log_dir import META_PROPERTIES, MetaProperties, format_meta_properties
from metadata_log.log.snapshot import encode_snapshot, snapshot_name
from metadata_log.memory_disk import MemoryDisk, MemoryFile
from metadata_log.reading.damage import OnDamage
from metadata_log.reading.reader import read_log
from metadata_log.reading.verify_directory import verify_directory
from metadata_log.records.batch import RecordBatch
from metadata_log.records.batch_builder import build_batch
from metadata_log.types import OffsetAndEpoch
from support.power import failing_after
from support.real_data import archive as real_archive
from support.real_data import unpack

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
SEGMENT_BYTES = 600
TO = "archive"
NODE = "node/__cluster_metadata-0"


# ------------------------------------------------------------------------------------------------- a node that writes


class Writer:
    """A node's log with its snapshots, and what of it can no longer change."""

    def __init__(self, disk: MemoryDisk, directory: str = NODE, cluster_id: str | None = CLUSTER) -> None:
        self.disk = disk
        self.directory = directory
        disk.mkdir(directory)
        if cluster_id is not None:
            meta = format_meta_properties(MetaProperties(cluster_id=cluster_id, node_id=1), 0)
            disk.open(f"{directory.rpartition('/')[0]}/{META_PROPERTIES}", create=True).append(meta)
        self.log = MetadataLog.open(disk, directory, segment_bytes=SEGMENT_BYTES, segment_ms=10**12)
        self.epoch = 1
        self.committed = 0

    def append(self, batches: int = 1, size: int = 20) -> None:
        for _ in range(batches):
            values = [b"%d of %d" % (self.log.end_offset, self.epoch), b"x" * size]
            self.log.append(build_batch(self.log.end_offset, self.epoch, 1000 + self.log.end_offset, values))

    def commit(self) -> None:
        self.log.flush()
        self.committed = self.log.end_offset

    def new_leader(self, cut_to: int | None = None) -> None:
        """A later epoch begins, perhaps on a log that ends earlier."""
        if cut_to is not None:
            assert cut_to >= self.committed
            self.log.truncate(cut_to)
        self.epoch += 1

    def snapshot(self) -> None:
        """One of everything that is committed."""
        if self.committed > self.log.start_offset:
            epoch = self.log.epochs.epoch_at(self.committed - 1)
            assert epoch is not None
            content = encode_snapshot([b"%d" % self.committed], epoch=epoch, timestamp_ms=7)
            path = f"{self.directory}/{snapshot_name(OffsetAndEpoch(epoch=epoch, offset=self.committed))}"
            if not self.disk.exists(path):
                self.disk.open(path, create=True).append(content)

    def forget(self) -> None:
        """Retention: the log begins at the newest snapshot."""
        self.snapshot()
        if self.committed > self.log.start_offset:
            for path in self.log.raise_start(self.committed):
                self.disk.remove(path)

    def batches(self) -> list[bytes]:
        return [item.data for item in read_log(self.disk, self.directory) if isinstance(item, RecordBatch)]


def archive_end(disk: Disk) -> int:
    """Where the archive ends by its manifest."""
    manifest = read_manifest(disk, TO)
    assert manifest is not None
    assert manifest.end_offset is not None
    return manifest.end_offset


def archived(disk: MemoryDisk | OsDisk, directory: str = TO) -> list[bytes]:
    """The batches of an archive as any reader finds them, without the manifest."""
    return [item.data for item in read_log(disk, directory, on_damage=OnDamage.STRICT) if isinstance(item, RecordBatch)]


def by_offset(disk: MemoryDisk | OsDisk, directory: str) -> dict[int, bytes]:
    return {item.base_offset: item.data for item in read_log(disk, directory) if isinstance(item, RecordBatch)}


def add(disk: MemoryDisk, directory: str = NODE, to: str = TO):
    archive = open_archive(disk, to)
    try:
        return archive.add(open_source(disk, directory), now_ms=99)
    finally:
        archive.close()


def check_sound(disk: MemoryDisk | OsDisk, to: str = TO) -> None:
    assert verify_archive(disk, to).damages == ()
    assert verify_directory(disk, to) == ()


# ------------------------------------------------------------------------------------------------------ real clusters


@pytest.mark.parametrize("cluster", ["static3", "dynamic3", "failover", "old39"])
def test_logs_of_all_nodes_merge_into_one_archive(cluster: str, tmp_path: Path) -> None:
    """The logs merge, as controllers and brokers hold one log; the archive equals the longest log."""
    name, prefix = ("static3", "nodes") if cluster == "static3" else ("clusters", f"{cluster}/nodes")
    nodes = sorted(unpack(name, prefix, tmp_path / "nodes").iterdir())
    before = {path: path.read_bytes() for path in (tmp_path / "nodes").rglob("*") if path.is_file()}
    disk = OsDisk()
    archive = open_archive(disk, str(tmp_path / "archive"))
    union: dict[int, bytes] = {}
    for node in nodes:
        added = archive.add(open_source(disk, str(node)), now_ms=0)
        assert (added.damage, added.superseded) == (None, None)
        log = by_offset(disk, f"{node}/__cluster_metadata-0")
        assert {offset: union[offset] for offset in log if offset in union}.items() <= log.items()
        union |= log
    archive.close()
    assert by_offset(disk, str(tmp_path / "archive")) == union
    found = verify_archive(disk, str(tmp_path / "archive"))
    assert (found.damages, found.start_offset) == ((), 0)
    ids = {path.name for path in tmp_path.glob("nodes/*/*/*.checkpoint")} - {"bootstrap.checkpoint"}
    kept = {path.name for path in (tmp_path / "archive").glob("*.checkpoint")}
    assert kept <= ids
    assert verify_directory(disk, str(tmp_path / "archive")) == ()
    assert {path: path.read_bytes() for path in (tmp_path / "nodes").rglob("*") if path.is_file()} == before


DAMAGED_LOGS = ["bitflip-middle-batch", "bitflip-old-segment", "epoch-backwards", "offset-gap"]


@pytest.mark.parametrize("case", DAMAGED_LOGS)
def test_damage_in_a_source_ends_the_archive_before_it(case: str, tmp_path: Path) -> None:
    """Everything before the damage is kept, nothing after it, and a sound controller's log completes it later."""
    damaged = unpack("static3", "nodes/c1", tmp_path / "c1")
    for path, content in real_archive("damaged").items():
        if path.startswith(f"cases/{case}/"):
            (damaged / path.removeprefix(f"cases/{case}/")).write_bytes(content)
    disk, to = OsDisk(), str(tmp_path / "archive")
    archive = open_archive(disk, to)
    added = archive.add(open_source(disk, str(damaged)), now_ms=0)
    assert added.damage is not None
    assert added.end_offset < 5317
    check_sound(disk, to)
    again = archive.add(open_source(disk, str(unpack("static3", "nodes/c1", tmp_path / "sound"))), now_ms=0)
    assert (again.damage, again.end_offset) == (None, 5317)
    archive.close()
    check_sound(disk, to)


# ------------------------------------------------------------------------------------------------------ running nodes


@settings(max_examples=150)
@given(st.lists(st.sampled_from(["append", "commit", "leader", "cut", "snapshot", "forget", "look"]), max_size=40))
def test_an_archive_follows_appends_truncations_and_retention(actions: list[str]) -> None:
    """The archive is always a prefix of the node's former log; overwritten records are reported and kept aside."""
    disk = MemoryDisk()
    writer = Writer(disk)
    truth: dict[int, bytes] = {}  # also what retention took
    archive = open_archive(disk, TO)
    source = open_source(disk, "node")
    for action in [*actions, "append", "look"]:
        if action == "append":
            writer.append()
        elif action == "commit":
            writer.commit()
        elif action == "leader":
            writer.new_leader()
        elif action == "cut" and writer.log.end_offset > writer.committed:
            writer.new_leader(cut_to=max(writer.committed, writer.log.end_offset - 4))
        elif action == "snapshot":
            writer.snapshot()
        elif action == "forget":
            writer.forget()
        truth = {offset: data for offset, data in truth.items() if offset < writer.log.end_offset}
        truth |= by_offset(disk, NODE)
        if action == "look":
            if archive.manifest.segments and source.start_offset() > (archive.manifest.end_offset or 0):
                with pytest.raises(ArchiveError, match="are lost"):
                    archive.add(source, now_ms=1)
                return
            added = archive.add(source, now_ms=1)
            kept = by_offset(disk, TO)
            assert added.end_offset >= writer.committed
            assert added.warnings or added.end_offset == writer.log.end_offset
            assert {
                offset: data for offset, data in kept.items() if offset < writer.log.end_offset
            }.items() <= truth.items()
            check_sound(disk)


def test_the_archive_drops_a_tail_that_a_later_leader_overwrote() -> None:
    disk = MemoryDisk()
    writer = Writer(disk)
    writer.append(10)
    writer.commit()
    writer.snapshot()
    writer.append(15)
    assert add(disk).end_offset == 50
    lost = archived(disk)[12:]
    writer.new_leader(cut_to=24)
    assert add(disk).warnings[0].startswith("the source ends at offset 24, the archive at 50")
    assert archive_end(disk) == 50
    writer.append(3)
    added = add(disk)
    assert added.superseded is not None
    assert (added.superseded.base_offset, added.superseded.end_offset, added.end_offset) == (24, 50, 30)
    assert (added.superseded.epoch, added.superseded.by_epoch, added.superseded.noticed_ms) == (1, 2, 99)
    assert archived(disk) == writer.batches()
    assert archived(disk, f"{TO}/superseded/0001") == lost
    check_sound(disk)
    assert add(disk).superseded is None


def test_a_log_that_overwrites_committed_records_is_refused() -> None:
    """A log that overwrites records below a snapshot is not this cluster's, or damaged."""
    disk = MemoryDisk()
    writer = Writer(disk)
    writer.append(10)
    writer.commit()
    writer.snapshot()
    add(disk)
    before = archived(disk)
    writer.committed = 0
    writer.new_leader(cut_to=18)
    writer.append(5)
    with pytest.raises(ArchiveError, match=r"disagree from offset 18 on .* no change of leader explains it"):
        add(disk)
    assert archived(disk) == before


def test_the_uncommitted_tail_of_a_deposed_leader_is_not_archived() -> None:
    """Two nodes: one holds what the leader of the later epoch wrote, the other still what was overwritten by it."""
    disk = MemoryDisk()
    writers = [Writer(disk, "c1/log"), Writer(disk, "c2/log")]
    for writer in writers:
        writer.append(5)
    writers[1].append(4)
    writers[0].new_leader()
    writers[0].append(2)
    add(disk, "c1/log")
    before = archived(disk)
    added = add(disk, "c2/log")
    assert "a later leader has overwritten" in added.warnings[0]
    assert (archived(disk), added.batches) == (before, 0)


def test_different_records_of_one_epoch_are_refused() -> None:
    disk = MemoryDisk()
    Writer(disk, "c1/log").append(5)
    Writer(disk, "c2/log").append(5, size=21)
    add(disk, "c1/log")
    with pytest.raises(ArchiveError, match="disagree from offset 0 on"):
        add(disk, "c2/log")


def test_a_gap_is_refused_and_filled_by_another_source() -> None:
    disk = MemoryDisk()
    first, second = Writer(disk, "c1/log"), Writer(disk, "c2/log")
    for writer in (first, second):
        writer.append(5)
    add(disk, "c1/log")
    for writer in (first, second):
        writer.append(20)
        writer.commit()
    first.forget()
    first.append(1)
    second.append(1)
    with pytest.raises(ArchiveError, match=r"offsets 10 to \d+ are lost") as refused:
        add(disk, "c1/log")
    assert "another controller" in (refused.value.hint or "")
    assert archive_end(disk) == 10
    add(disk, "c2/log")
    add(disk, "c1/log")
    assert archived(disk) == second.batches()
    check_sound(disk)


def test_older_records_of_another_source_are_prepended() -> None:
    disk = MemoryDisk()
    first, second = Writer(disk, "c1/log"), Writer(disk, "c2/log")
    for writer in (first, second):
        writer.append(20)
        writer.commit()
        writer.snapshot()
        writer.append(4)
    first.forget()
    assert first.log.start_offset > 0
    assert add(disk, "c1/log").start_offset > 0
    check_sound(disk)
    added = add(disk, "c2/log")
    assert added.start_offset == 0
    assert archived(disk) == second.batches()
    check_sound(disk)


def test_a_log_that_begins_above_0_needs_a_checkpoint() -> None:
    disk = MemoryDisk()
    writer = Writer(disk)
    writer.append(20)
    writer.commit()
    writer.forget()
    for name in disk.list(NODE):
        if name.endswith(".checkpoint"):
            disk.remove(f"{NODE}/{name}")
    with pytest.raises(ArchiveError, match="no snapshot holds what came before"):
        add(disk)


def test_a_source_without_new_records_is_accepted() -> None:
    """A voter that was just formatted; and a log that goes on exactly where the archive ends."""
    disk = MemoryDisk()
    first = Writer(disk, "c1/log")
    Writer(disk, "c2/log")
    first.append(6)
    add(disk, "c1/log")
    assert "nothing was taken" in add(disk, "c2/log").warnings[0]
    first.commit()
    first.snapshot()
    for name in disk.list("c1/log"):
        if name.endswith(".log"):
            disk.remove(f"c1/log/{name}")
    disk.open(f"c1/log/{12:020d}.log", create=True).append(build_batch(12, 1, 5, [b"next"]))
    assert add(disk, "c1/log").end_offset == 13
    disk.remove("c1/meta.properties")
    disk.remove(f"c1/log/{12:020d}.log")
    disk.open(f"c1/log/{13:020d}.log", create=True).append(build_batch(13, 1, 5, [b"next"]))
    with pytest.raises(ArchiveError, match="nothing shows that they are one history"):
        add(disk, "c1/log")


def test_clusters_are_not_mixed() -> None:
    disk = MemoryDisk()
    Writer(disk, "a/log").append(3)
    Writer(disk, "b/log", "AAAAAAAAAAAAAAAAAAAAAQ").append(3)
    add(disk, "a/log")
    with pytest.raises(ArchiveError, match="the archive is of cluster 4L6g3nShT-eMCtK--X86sw, the source"):
        add(disk, "b/log")


def test_snapshots_of_two_nodes_must_hold_the_same_records() -> None:
    """Their times may differ: every controller writes its own."""
    disk = MemoryDisk()
    for name in ("c1/log", "c2/log", "c3/log"):
        writer = Writer(disk, name)
        writer.append(5)
    path = snapshot_name(OffsetAndEpoch(epoch=1, offset=10))
    for name, value, time in (("c1/log", b"v", 1), ("c2/log", b"v", 2), ("c3/log", b"other", 3)):
        disk.open(f"{name}/{path}", create=True).append(encode_snapshot([value], epoch=1, timestamp_ms=time))
    assert add(disk, "c1/log").checkpoints == (OffsetAndEpoch(epoch=1, offset=10),)
    assert add(disk, "c2/log").checkpoints == ()
    with pytest.raises(ArchiveError, match="holds other records"):
        add(disk, "c3/log")
    check_sound(disk)


@pytest.mark.parametrize("byte", [11, 16, 70], ids=["length", "magic", "record"])
def test_another_nodes_damaged_snapshot_is_reported_and_not_compared(byte: int) -> None:
    disk = MemoryDisk()
    path = snapshot_name(OffsetAndEpoch(epoch=1, offset=10))
    for name, flipped, time in (("c1/log", 0, 1), ("c2/log", 2, 2)):
        Writer(disk, name).append(5)
        content = bytearray(encode_snapshot([b"v"], epoch=1, timestamp_ms=time))
        content[byte] ^= flipped
        disk.open(f"{name}/{path}", create=True).append(bytes(content))
    assert add(disk, "c1/log").damage is None
    added = add(disk, "c2/log")
    assert added.damage is not None
    assert (added.damage.where, added.damage.expected) == (f"c2/log/{path}", "a whole snapshot")
    check_sound(disk)


def test_a_flipped_bit_in_the_epoch_of_a_batch_is_found_by_the_epoch_checkpoint() -> None:
    """A flipped bit in the epoch of a batch leaves its CRC right; the node's own list of epochs gives it away."""
    disk = MemoryDisk()
    writer = Writer(disk)
    writer.append(3)
    for _ in range(3):
        writer.new_leader()
        writer.append(3)
    path = next(f"{NODE}/{name}" for name in disk.list(NODE) if name.endswith(".log"))
    content = bytearray(disk.read(path))
    second = int.from_bytes(content[8:12], "big") + 12
    content[second + 15] = 2
    disk.remove(path)
    disk.open(path, create=True).append(bytes(content))
    added = add(disk)
    assert added.damage is not None
    assert "leader-epoch-checkpoint says 1" in added.damage.what
    assert added.end_offset == 2


# -------------------------------------------------------------------------------------------------- races and crashes


class Interrupted(MemoryFile):
    """A file that changes under its reader."""

    before_read: Callable[[], None]

    def pread(self, size: int, position: int) -> bytes:
        self.before_read()
        return super().pread(size, position)


class BusyDisk(MemoryDisk):
    """A disk on which a node does something while its log is read: before read number `at` of its files."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at
        self.action: Callable[[], None] | None = None

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> MemoryFile:
        file = super().open(path, create=create, writable=writable)
        if not writable and path.startswith("node") and self.action is not None:
            file.__class__ = Interrupted
            assert isinstance(file, Interrupted)
            file.before_read = self._tick
        return file

    def _tick(self) -> None:
        self.left -= 1
        if self.left == 0 and self.action is not None:
            action, self.action = self.action, None
            action()


@pytest.mark.parametrize("cut_to", [4, 10, 16])
@pytest.mark.parametrize("forget", [False, True])
def test_records_from_before_and_after_a_truncation_are_never_mixed(cut_to: int, forget: bool) -> None:
    """Before each single read the node cuts its log and writes other batches of the same sizes."""
    outcomes = set()
    for at in range(1, 40):
        disk = BusyDisk(at)
        writer = Writer(disk)
        writer.append(2)
        writer.commit()
        add(disk)
        writer.append(10)
        old = writer.batches()

        def change(writer: Writer = writer) -> None:
            writer.new_leader(cut_to=cut_to)
            writer.append((24 - cut_to) // 2 + 2)
            if forget:
                writer.commit()
                writer.forget()

        disk.action = change
        try:
            add(disk)
        except ArchiveError as refused:
            # Retention was faster than the second reading: that is said, and nothing is added.
            if not (forget and "are lost" in refused.what):
                raise
        disk.action = None
        found, new = archived(disk), writer.batches()
        epochs = [int.from_bytes(batch[12:16], "big") for batch in found]
        assert epochs == sorted(epochs)
        assert found[: cut_to // 2] == old[: cut_to // 2][: len(found)]
        assert len(set(epochs[cut_to // 2 :])) <= 1, f"read {at}: mixed"
        if not forget:
            assert found in (old[: len(found)], new[: len(found)]), f"read {at}: mixed"
            outcomes.add(found == old)
        check_sound(disk)
    assert forget or outcomes == {False, True}


def story(disk: MemoryDisk, writer: Writer, archive: Archive) -> Iterator[None]:
    """Everything that writes: growth, rolls, checkpoints, an overwritten tail."""
    source = open_source(writer.disk, "node")
    for _ in range(2):
        archive.add(source, now_ms=1)
        yield
        writer.append(9)
        writer.commit()
        writer.snapshot()
        writer.append(2)
    archive.add(source, now_ms=1)
    yield
    writer.new_leader(cut_to=writer.committed)
    writer.append(3)
    archive.add(source, now_ms=2)
    yield


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_power_failure_at_any_operation_loses_no_archived_record(seed: int) -> None:
    """After each disk operation: what was acknowledged is there, all of it is sound, and the next run completes it."""
    operations = 0
    crashed = True
    while crashed:
        disk, writer = MemoryDisk(), Writer(MemoryDisk())
        writer.append(5)
        done = [0]
        with failing_after(disk, operations) as power:
            for _ in story(disk, writer, open_archive(disk, TO)):
                done.append(archive_end(disk))  # noqa: PERF401 (kept also where the power fails)
        crashed = power.failed
        disk.crash(Random(seed) if seed else None)
        where = f"operation {operations}, seed {seed}"
        archive = open_archive(disk, TO)
        assert (archive.manifest.end_offset or 0) >= min(done[-1], writer.committed), where
        if archive.manifest.segments:
            check_sound(disk)
        archive.add(open_source(writer.disk, "node"), now_ms=3)
        assert archived(disk) == writer.batches(), where
        check_sound(disk)
        operations += 1
    assert operations > 40


def test_two_writers_exclude_each_other() -> None:
    disk = MemoryDisk()
    Writer(disk).append(2)
    held = open_archive(disk, TO)
    with pytest.raises(ArchiveError, match="another process writes"):
        open_archive(disk, TO)
    held.close()
    open_archive(disk, TO).close()


def test_nothing_outside_the_archive_is_written() -> None:
    """No write, no lock, no rename in the source, whatever is done."""
    disk = MemoryDisk()
    writer = Writer(disk)
    writer.append(30)
    writer.commit()
    writer.snapshot()
    touched = []
    disk.on_operation = lambda operation, path: touched.append((operation, path))
    add(disk)
    add(disk)
    assert touched
    assert {path for _, path in touched if not path.startswith(TO)} == {"."}  # where the archive was made


# ------------------------------------------------------------------------------------------------------- verification


def sound_archive() -> MemoryDisk:
    disk = MemoryDisk()
    writer = Writer(disk)
    writer.append(30)
    writer.commit()
    writer.snapshot()
    add(disk)
    return disk


def test_verify_reports_each_flipped_byte() -> None:
    disk = sound_archive()
    rng = Random(3)
    for name in disk.list(TO):
        if not name.endswith((".log", ".checkpoint")):
            continue
        content = disk.read(f"{TO}/{name}")
        for position in rng.sample(range(len(content)), 20):
            other = disk.fork()
            other.remove(f"{TO}/{name}")
            changed = content[:position] + bytes([content[position] ^ 1 << rng.randrange(8)]) + content[position + 1 :]
            other.open(f"{TO}/{name}", create=True).append(changed)
            damages = verify_archive(other, TO).damages
            assert [damage.where for damage in damages] == [f"{TO}/{name}"], position


@pytest.mark.parametrize("suffix", [".log", ".checkpoint"])
def test_verify_reports_a_missing_file(suffix: str) -> None:
    disk = sound_archive()
    name = next(name for name in disk.list(TO) if name.endswith(suffix))
    disk.remove(f"{TO}/{name}")
    assert "the file is missing" in {damage.what for damage in verify_archive(disk, TO).damages}
    with pytest.raises(ArchiveError, match="a file of the archive is missing"):
        open_archive(disk, TO)


def test_a_damaged_last_segment_is_not_extended() -> None:
    """The last segment of an archive is read before anything is written after that segment."""
    disk = sound_archive()
    name = next(name for name in reversed(disk.list(TO)) if name.endswith(".log"))
    content = disk.read(f"{TO}/{name}")
    disk.remove(f"{TO}/{name}")
    disk.open(f"{TO}/{name}", create=True).append(content[:15] + b"\x00" + content[16:])
    writer = MetadataLog.open(disk, NODE, segment_bytes=SEGMENT_BYTES, segment_ms=10**12)
    writer.append(build_batch(writer.end_offset, 1, 5, [b"more"]))
    with pytest.raises(MetadataLogError, match="the file is not what the manifest says"):
        add(disk)


def test_verify_reports_unknown_files_and_invalid_manifests() -> None:
    disk = sound_archive()
    disk.open(f"{TO}/{777:020d}.log", create=True).append(b"")
    (damage,) = verify_archive(disk, TO).damages
    assert damage.what == "the manifest does not name this file"
    disk.remove(f"{TO}/manifest.json")
    disk.open(f"{TO}/manifest.json", create=True).append(b"{]")
    with pytest.raises(ArchiveError, match="the manifest cannot be read"):
        verify_archive(disk, TO)


# -------------------------------------------------------------------------------------------------------- the command


def test_archive_follow_ends_cleanly_on_sigterm(tmp_path: Path) -> None:
    """A process follows a log that grows; SIGTERM ends it with everything on the disk."""
    log = MetadataLog.open(OsDisk(), str(tmp_path / "node"), segment_bytes=SEGMENT_BYTES, segment_ms=10**12)
    log.append(build_batch(0, 1, 1, [b"first"]))
    command = ["-m", "kraft", "archive", "--from", "node", "--to", "kept", "--follow", "--interval", "0.05", "--json"]
    with subprocess.Popen(
        [sys.executable, *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        stdout=subprocess.PIPE,
        text=True,
    ) as follower:
        assert follower.stdout is not None
        assert '"endOffset": 1' in follower.stdout.readline()
        for _ in range(20):
            end = log.end_offset
            log.append(build_batch(end, 1, 1, [b"more" * 30]))
            while f'"endOffset": {end + 1},' not in follower.stdout.readline():
                pass
        follower.send_signal(signal.SIGTERM)
        assert follower.wait(timeout=30) == 0
    assert len(archived(OsDisk(), str(tmp_path / "kept"))) == 21
    check_sound(OsDisk(), str(tmp_path / "kept"))
