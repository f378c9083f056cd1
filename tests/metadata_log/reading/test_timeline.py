"""One history of a directory, over real logs that are cut, grow and vanish."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from metadata_log import replay
from metadata_log.disk import Disk
from metadata_log.errors import MetadataLogError
from metadata_log.image import MetadataDelta, MetadataImage, ReplayError
from metadata_log.log.snapshot import SUFFIX as SNAPSHOT_SUFFIX
from metadata_log.memory_disk import MemoryDisk, MemoryFile
from metadata_log.reading.damage import Damage, DamagedFile, OnDamage
from metadata_log.reading.timeline import At, Base, From, TimelineBatch, parse_at, read_timeline
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import ConfigRecord, TopicRecord
from metadata_log.types import OffsetAndEpoch, Uuid
from support.real_data import archive

C1 = "/nodes/c1/__cluster_metadata-0"
FIRST_TIME = 1795248832000
"""Some milliseconds before the first record of static3."""


def static3() -> MemoryDisk:
    """A copy of the real directory, to be harmed."""
    disk = MemoryDisk()
    disk.mkdir(C1)
    for path, content in archive("static3").items():
        if f"/{path}".startswith(C1) and path.endswith((".log", ".checkpoint")):
            write(disk, f"/{path}", content)
    return disk


def write(disk: MemoryDisk, path: str, content: bytes) -> None:
    file = disk.open(path, create=True)
    file.append(content)
    file.close()


def read(
    disk: Disk,
    path: str = C1,
    until: At | None = None,
    base: From | None = "earliest",
    mode: OnDamage = OnDamage.STRICT,
) -> list[Base | TimelineBatch | Damage]:
    return list(read_timeline(disk, path, until=until, from_base=base, on_damage=mode))


def offsets(items: list[Base | TimelineBatch | Damage]) -> list[int]:
    return [
        one.offset
        for item in items
        if isinstance(item, TimelineBatch)
        for one in item.entries()
        if not isinstance(one, Damage)
    ]


# Points


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("0", At(offset=0)),
        (" 12345 ", At(offset=12345)),
        ("1970-01-01T00:00:01Z", At(timestamp_ms=1000)),
        ("1970-01-01T00:00:01.2345Z", At(timestamp_ms=1234)),
        ("1970-01-01 02:00:00+02:00", At(timestamp_ms=0)),
        ("2026-11-20T10:00:00Z", At(timestamp_ms=1795168800000)),
        ("1969-12-31T23:59:59.999+00:00", At(timestamp_ms=-1)),
    ],
)
def test_points(text: str, at: At) -> None:
    assert parse_at(text) == at


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "neither an offset"),
        ("-1", "neither an offset"),
        ("yesterday", "neither an offset, such as 12345, nor a time, such as 2026-11-20T10:00:00Z"),
        ("²", "neither an offset"),
        ("2026-11-20T10:00:00", "does not say in which time zone; add Z for UTC"),
    ],
)
def test_an_invalid_point_is_refused_with_an_explanation(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_at(text)


# Where a history begins


def test_the_longest_timeline_begins_with_the_first_record() -> None:
    items = read(static3())
    assert not any(isinstance(item, Base) for item in items)
    assert offsets(items) == list(range(5317))


def test_the_shortest_timeline_begins_with_the_newest_snapshot() -> None:
    base, *rest = read(static3(), base="latest")
    assert isinstance(base, Base)
    assert base.end == OffsetAndEpoch(epoch=8, offset=5210)
    assert base.path == f"{C1}/00000000000000005210-0000000008.checkpoint"
    assert FIRST_TIME < base.timestamp_ms < FIRST_TIME + 600_000
    assert offsets(rest) == list(range(5210, 5317))
    assert len(list(base.entries)) > 700


@pytest.mark.parametrize(("until", "base"), [(5209, 5210), (5208, 4847), (4846, 4847), (317, 317), (315, None)])
def test_a_snapshot_holds_nothing_later_than_the_end(until: int, base: int | None) -> None:
    first, *rest = read(static3(), until=At(offset=until), base="latest")
    assert (first.end.offset if isinstance(first, Base) else None) == base
    assert offsets([first, *rest]) == list(range(base or 0, until + 1))


def test_every_point_gives_the_same_image_from_any_beginning() -> None:
    disk = static3()
    for offset in range(0, 5317, 133):
        latest, earliest = replay(C1, offset, disk), replay_from_earliest(disk, At(offset=offset))
        assert replace(latest, features_offset=0) == replace(earliest, features_offset=0)


def replay_from_earliest(disk: MemoryDisk, until: At) -> MetadataImage:
    delta, end = MetadataDelta(MetadataImage()), OffsetAndEpoch(epoch=0, offset=0)
    for item in read_timeline(disk, C1, until=until):
        assert isinstance(item, TimelineBatch)
        end = item.end
        for entry in item.entries():
            assert not isinstance(entry, Damage)
            if not entry.is_control and entry.record is not None:
                delta.replay(entry.record, entry.offset)
    return delta.apply(end).stable


def without(disk: MemoryDisk, *names: str) -> MemoryDisk:
    for name in disk.list(C1):
        if name.startswith(names):
            disk.remove(f"{C1}/{name}")
    return disk


EARLY = ("00000000000000000", "00000000000000001", "00000000000000002")
"""How the names of files below offset 3000 begin."""


def test_a_truncated_log_begins_with_its_first_connected_snapshot() -> None:
    disk = without(static3(), *EARLY)
    base, *rest = read(disk)
    assert isinstance(base, Base)
    assert base.end.offset == 4271, "the one at 3126 and at 3725 are from before the log begins at 4072"
    assert offsets(rest) == list(range(4271, 5317))


def test_a_point_before_the_first_snapshot_is_refused() -> None:
    disk = without(static3(), *EARLY, "00000000000000003")
    with pytest.raises(MetadataLogError, match="the history here begins at offset 4271; nothing is known") as refused:
        read(disk, until=At(offset=4000))
    assert refused.value.where == C1
    with pytest.raises(MetadataLogError, match="nothing is known of the time before"):
        replay(C1, At(timestamp_ms=FIRST_TIME), disk)


def test_a_truncated_log_without_a_snapshot_is_damage() -> None:
    disk = without(static3(), *EARLY, "0000000000000000312", "0000000000000000372", "00000000000000004271")
    disk = without(disk, "00000000000000004847-", "00000000000000005210-")
    with pytest.raises(DamagedFile, match="goes on at offset 4072, and nothing is known from offset 0 to there"):
        read(disk)
    gap, *rest = read(disk, mode=OnDamage.SKIP)
    assert isinstance(gap, Damage)
    assert gap.where == f"{C1}/00000000000000004072.log"
    assert offsets(rest) == list(range(4072, 5317))
    assert [type(item) for item in read(disk, mode=OnDamage.STOP)] == [Damage]
    assert offsets(read(disk, base=None)) == offsets(rest), "without a base, the history holds what is there"


def test_behind_a_gap_the_next_snapshot_is_the_beginning() -> None:
    disk = without(static3(), "00000000000000002908.log", "00000000000000001893.log")
    items = read(disk, mode=OnDamage.SKIP)
    [gap] = [index for index, item in enumerate(items) if isinstance(item, Damage)]
    base = items[gap + 1]
    assert isinstance(base, Base)
    assert base.end.offset == 4271
    assert offsets(items) == [*range(1893), *range(4271, 5317)]
    with pytest.raises(DamagedFile, match="goes on at offset 4072, and nothing is known from offset 1893 to there"):
        read(disk)


def test_behind_damage_the_next_snapshot_is_the_beginning() -> None:
    """Damage before a snapshot does not matter to a history that begins with that snapshot."""
    disk = static3()
    path = f"{C1}/00000000000000001893.log"
    content = bytearray(disk.read(path))
    damaged = list(scan(bytes(content)))[40]
    content[damaged.position + 70] ^= 1
    disk.remove(path)
    write(disk, path, bytes(content))
    items = read(disk, mode=OnDamage.SKIP)
    [at] = [index for index, item in enumerate(items) if isinstance(item, Damage)]
    base = items[at + 1]
    assert isinstance(base, Base)
    assert base.end.offset == 2363
    assert offsets(items) == [*range(damaged.base_offset), *range(2363, 5317)]
    for until in (2500, 2784):
        sound = read(disk, base="latest", until=At(offset=until), mode=OnDamage.STRICT)
        assert offsets(sound) == [*range(2363, until + 1)]
    everything = read(disk, base=None, mode=OnDamage.SKIP)
    assert offsets(everything) == [*range(damaged.base_offset), *range(damaged.next_offset, 5317)]


# Where it ends


@pytest.mark.parametrize("until", [0, 1, 8, 100, 735, 736, 5316])
def test_a_timeline_may_end_within_a_batch(until: int) -> None:
    items = read(static3(), until=At(offset=until))
    assert offsets(items) == list(range(until + 1))
    last = items[-1]
    assert isinstance(last, TimelineBatch)
    assert last.end.offset == until + 1


def test_a_timeline_ends_before_the_first_batch_with_a_later_timestamp() -> None:
    batches = [item for item in read(static3()) if isinstance(item, TimelineBatch)]
    for item in batches[100:1000:100]:
        at = At(timestamp_ms=item.batch.max_timestamp)
        found = [one for one in read(static3(), until=at) if isinstance(one, TimelineBatch)]
        assert found[-1].batch.max_timestamp == item.batch.max_timestamp
        assert batches[len(found)].batch.max_timestamp > item.batch.max_timestamp
        assert replay(C1, at, static3()).end == found[-1].end


def test_of_two_end_points_the_earlier_counts() -> None:
    assert offsets(read(static3(), until=At(offset=50, timestamp_ms=2**60))) == list(range(51))
    assert offsets(read(static3(), until=At(offset=50, timestamp_ms=0))) == []


# What a running node does to its files


def test_an_unfinished_last_batch_is_reported_and_not_raised() -> None:
    disk = static3()
    last = disk.open(f"{C1}/00000000000000004847.log")
    last.truncate(last.size() - 20)
    *before, torn = read(disk)
    assert isinstance(torn, Damage)
    assert torn.unfinished
    assert offsets(before) == list(range(5316))
    assert replay(C1, disk=disk).end.offset == 5316


def test_segments_removed_during_the_read_leave_a_gap() -> None:
    disk = static3()
    items = read_timeline(disk, C1, on_damage=OnDamage.SKIP)
    seen: list[Base | TimelineBatch | Damage] = [next(items)]
    without(disk, *EARLY)
    seen += items
    kinds = [type(item) for item in seen if not isinstance(item, TimelineBatch)]
    assert kinds == [Damage, Base]
    assert offsets(seen)[-1] == 5316


def test_a_snapshot_may_be_removed_while_it_is_read() -> None:
    disk = static3()
    base = next(read_timeline(disk, C1, from_base="latest"))
    assert isinstance(base, Base)
    without(disk, "00000000000000005210-")
    assert len(list(base.entries)) > 700


class Vanishing(MemoryDisk):
    """The newest snapshot goes away between its being listed and being opened."""

    gone = False

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> MemoryFile:
        if path.endswith(f"5210-0000000008{SNAPSHOT_SUFFIX}") and not create and not self.gone:
            self.gone = True
            self.remove(path)
        return super().open(path, create=create, writable=writable)


def test_a_snapshot_removed_before_the_read_is_skipped() -> None:
    disk = Vanishing()
    disk.mkdir(C1)
    for name in static3().list(C1):
        write(disk, f"{C1}/{name}", static3().read(f"{C1}/{name}"))
    base = next(read_timeline(disk, C1, from_base="latest"))
    assert isinstance(base, Base)
    assert base.end.offset == 4847


# Single files, and what is no history


def test_a_log_directory_means_the_partition_in_it() -> None:
    assert offsets(read(static3(), "/nodes/c1/", until=At(offset=9))) == list(range(10))


def test_one_segment() -> None:
    first, later = f"{C1}/00000000000000000000.log", f"{C1}/00000000000000000736.log"
    assert offsets(read(static3(), first)) == list(range(736))
    assert replay(first, disk=static3()).end.offset == 736
    with pytest.raises(DamagedFile, match="nothing is known from offset 0 to there"):
        read(static3(), later)
    assert offsets(read(static3(), later, base=None)) == list(range(736, 1893))


def test_one_snapshot() -> None:
    path = f"{C1}/00000000000000004271-0000000004.checkpoint"
    [base] = read(static3(), path)
    assert isinstance(base, Base)
    assert base.end == OffsetAndEpoch(epoch=4, offset=4271)
    assert replay(path, disk=static3()).end == base.end
    disk = static3()
    disk.rename(path, f"{path}.deleted")
    [deleted] = read(disk, f"{path}.deleted")
    assert isinstance(deleted, Base)
    assert deleted.end == base.end


def test_a_path_without_a_log_is_refused() -> None:
    disk = static3()
    write(disk, f"{C1}/quorum-state", b"{}")
    with pytest.raises(MetadataLogError, match="neither a directory, nor a segment, nor a snapshot"):
        read(disk, f"{C1}/quorum-state")
    with pytest.raises(FileNotFoundError):
        read(disk, "/nodes/c9")
    disk.mkdir("/empty")
    with pytest.raises(MetadataLogError, match="neither a log nor a snapshot here"):
        read(disk, "/empty")


# Replaying


def log_of(*values: bytes) -> MemoryDisk:
    disk = MemoryDisk()
    disk.mkdir("/log")
    data = b"".join(build_batch(offset, 1, 1000 * offset, [value]) for offset, value in enumerate(values))
    write(disk, "/log/00000000000000000000.log", data)
    return disk


def topic(name: str, number: int) -> bytes:
    return encode_record(TopicRecord(name=name, topic_id=Uuid(bytes([number] * 16))), 0)


def test_a_record_that_contradicts_the_rest_stops_or_is_passed_over() -> None:
    config = encode_record(ConfigRecord(resource_type=2, resource_name="a", name="k", value="v"), 0)
    disk = log_of(topic("a", 1), topic("a", 2), config, b"\x01\x63\x00", topic("b", 3))
    with pytest.raises(ReplayError, match="the TopicRecord at offset 1 contradicts the image: topic a exists already"):
        replay("/log", disk=disk)
    stopped = replay("/log", disk=disk, on_damage=OnDamage.STOP)
    assert list(stopped.topics) == ["a"]
    assert not stopped.configs.by_resource
    skipped = replay("/log", disk=disk, on_damage=OnDamage.SKIP)
    assert list(skipped.topics) == ["a", "b"]
    assert skipped.topics["a"].id == Uuid(bytes([1] * 16))
    assert dict(skipped.configs.of((2, "a"))) == {"k": "v"}


def test_points_are_accepted_as_number_text_or_at() -> None:
    disk = log_of(topic("a", 1), topic("b", 2), topic("c", 3))
    assert list(replay("/log", 1, disk).topics) == ["a", "b"]
    assert list(replay("/log", "1", disk).topics) == ["a", "b"]
    assert list(replay("/log", "1970-01-01T00:00:01.999Z", disk).topics) == ["a", "b"]
    assert list(replay("/log", At(timestamp_ms=0), disk).topics) == ["a"]
    assert list(replay("/log", disk=disk).topics) == ["a", "b", "c"]
    with pytest.raises(MetadataLogError, match="the log ends at offset 2, before 3"):
        replay("/log", 3, disk)


def test_an_open_transaction_is_not_shown() -> None:
    """Offset 5 of a new cluster lies within the transaction that bootstraps it."""
    within = replay(C1, 5, static3())
    assert within.features.metadata_version is None
    after = replay(C1, 9, static3())
    assert after.features.metadata_version == 30
    assert after.features_offset == 9
