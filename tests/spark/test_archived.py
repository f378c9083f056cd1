"""Logs in tar and zip archives: the same rows as those of the plain directory, within a limit."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import shutil
import struct
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import zstandard
from pyspark.sql.streaming.datasource import ReadAllAvailable

from metadata_log import scan
from metadata_log.disk import OsDisk
from metadata_log.errors import DirectoryError
from metadata_log.spark.archived import archive_disk
from metadata_log.spark.directories import find_directories
from metadata_log.spark.materialize import find_fleet, make_job, run_here
from metadata_log.spark.options import parse_options
from metadata_log.spark.rows import spark_schema
from metadata_log.spark.storage import disk_at
from metadata_log.spark.stream import KraftStreamReader
from metadata_log.tables.cluster import Status
from metadata_log.types import PARTITION_DIRECTORY
from support import real_data
from support.spark.counted_store import PROTOCOL, CountedStore
from support.spark.fleets import table_rows
from support.spark.in_process import read

NODE = "failover/nodes/b101"
LOG = f"{PARTITION_DIRECTORY}/00000000000000000000.log"
META = "meta.properties"


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    """The log of a node and its meta.properties, and files of other things."""
    found = {name.removeprefix(f"{NODE}/"): data for name, data in real_data.archive("clusters").items()}
    return {name: data for name, data in found.items() if not name.startswith("failover/")} | {"other.bin": b"\0" * 100}


def tarred(files: dict[str, bytes], mode: Literal["w", "w:gz", "w:bz2", "w:xz"], folder: str = "./") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(f"{folder}{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return packed.getvalue()


def zipped(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(f"backup/b101/{name}", data)
    return packed.getvalue()


@pytest.fixture(scope="module")
def node(files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plain directory, and beside it archives of it."""
    home = tmp_path_factory.mktemp("archived")
    small = {name: data for name, data in files.items() if name == LOG or "/" not in name}
    for name, data in small.items():
        path = home / "plain" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    for name, content in {
        "a.tar": tarred(small, "w"),
        "a.tar.gz": tarred(small, "w:gz"),
        "a.tgz": tarred(small, "w:gz", "backup/b101/"),
        "a.tar.bz2": tarred(small, "w:bz2"),
        "a.tar.xz": tarred(small, "w:xz"),
        "a.tar.zst": zstandard.compress(tarred(small, "w")),
        "a.zip": zipped(small),
    }.items():
        (home / name).write_bytes(content)
    return home


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.tgz", "a.tar.bz2", "a.tar.xz", "a.tar.zst", "a.zip"])
def test_an_archive_has_the_log_of_the_directory(node: Path, name: str) -> None:
    (plain,) = find_directories([str(node / "plain")])
    (found,) = find_directories([str(node / name)])
    assert (found.path, found.cluster) == (f"{node / name}/{PARTITION_DIRECTORY}", plain.cluster)
    disk = disk_at(found.path)
    assert disk.list(found.path) == ["00000000000000000000.log"]
    assert disk.read(f"{found.path}/00000000000000000000.log") == (node / "plain" / LOG).read_bytes()


def test_tables_of_an_archive_have_the_rows_of_the_log(node: Path, tmp_path: Path) -> None:
    job = make_job(str(tmp_path / "tables"), run="r", views=["topic_history"])
    other = make_job(str(tmp_path / "others"), run="r", views=["topic_history"])
    (packed,) = run_here(find_fleet([f"{node}/*.tar.zst"], {}), job).outcomes
    run_here(find_fleet([str(node / "plain")], {}), other)
    assert packed.status is Status.NEW
    assert table_rows(tmp_path / "tables", "topic_history") == table_rows(tmp_path / "others", "topic_history") != {}
    (again,) = run_here(find_fleet([str(node / "plain")], {}), job).outcomes
    assert again.status is Status.NOTHING


@pytest.mark.parametrize("view", ["records", "leader_history"])
def test_the_source_gives_the_rows_of_the_log(node: Path, view: str) -> None:
    """Several small logs share a task, and each is on a disk of its own."""
    options: dict[str, Any] = {"view": view} | ({"copies": "all"} if view == "records" else {})
    plain = read(node / "plain", **options)
    assert plain
    places = {"path", "file", "directory"}
    wanted = [{name: value for name, value in row.items() if name not in places} for row in plain]
    pattern, times = (node / "a.t*", 6) if view == "records" else (node / "a.zip", 1)
    found = [{name: value for name, value in row.items() if name not in places} for row in read(pattern, **options)]
    assert found == wanted * times


def refused(path: Path) -> str:
    (found,) = find_directories([str(path)])
    assert found.problem is not None
    return str(found.problem)


def test_a_bomb_and_what_holds_no_one_log_are_refused_with_a_remedy(node: Path, tmp_path: Path) -> None:
    for name in ("a.tar.gz", "a.zip"):
        with pytest.raises(DirectoryError, match=r"more than 1000 bytes: unpack it") as refusal:
            archive_disk(OsDisk(), str(node / name), None, 1000)
        assert refusal.value.where == str(node / name)
    for name, content, told in (
        ("none.tar", tarred({"other": b""}, "w"), "holds no metadata log"),
        ("two.tar", tarred({f"{one}/{LOG}": b"" for one in "ab"}, "w"), "holds 2 metadata logs: a/__cluster"),
        ("cut.tar.gz", (node / "a.tar.gz").read_bytes()[:-999], "cannot be unpacked"),
        ("cut.zip", (node / "a.zip").read_bytes()[:-999], "cannot be unpacked"),
        ("noise.tar.zst", b"noise" * 99, "cannot be unpacked"),
        ("cut.tar.zst", (node / "a.tar.zst").read_bytes()[:-99], "cannot be unpacked"),
    ):
        (tmp_path / name).write_bytes(content)
        assert told in refused(tmp_path / name)


@pytest.fixture
def most_traced() -> Iterator[Callable[[], tuple[int, int]]]:
    """Returns the bytes that are allocated since the test began, and the most that ever were."""
    tracemalloc.start()
    yield tracemalloc.get_traced_memory
    tracemalloc.stop()


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tar.zst", "a.zip"])
def test_a_large_member_is_in_memory_once(
    tmp_path: Path, most_traced: Callable[[], tuple[int, int]], name: str
) -> None:
    """It was three times: in parts, as a whole, and on the disk in memory."""
    pack: dict[str, Callable[[dict[str, bytes]], bytes]] = {
        "a.tar.gz": lambda content: tarred(content, "w:gz"),
        "a.tar.zst": lambda content: zstandard.compress(tarred(content, "w")),
        "a.zip": zipped,
    }
    (tmp_path / name).write_bytes(pack[name]({LOG: bytes(32 << 20)}))
    before = most_traced()[0]
    tracemalloc.reset_peak()
    unpacked = archive_disk(OsDisk(), str(tmp_path / name), None)
    assert unpacked.content_bytes() == 32 << 20
    assert most_traced()[1] - before < 48 << 20


@pytest.mark.parametrize("name", ["a.tar", "a.zip"])
def test_a_member_that_is_announced_beyond_the_limit_is_not_unpacked(
    tmp_path: Path, most_traced: Callable[[], tuple[int, int]], name: str
) -> None:
    """The limit was reached first, in ten seconds and in a gigabyte of memory."""
    content = {LOG: bytes(8 << 20)}
    (tmp_path / name).write_bytes(zipped(content) if name == "a.zip" else tarred(content, "w"))
    content.clear()
    before = most_traced()[0]
    tracemalloc.reset_peak()
    with pytest.raises(DirectoryError, match=r"more than 8388607 bytes: unpack it"):
        archive_disk(OsDisk(), str(tmp_path / name), None, (8 << 20) - 1)
    assert most_traced()[1] - before < 4 << 20


def test_the_newest_of_large_logs_stay_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_traced: Callable[[], tuple[int, int]]
) -> None:
    """Four logs of 1 GiB stayed in the memory of a task."""
    monkeypatch.setattr("metadata_log.spark.archived._KEPT_BYTES", 10 << 20)
    for number in range(4):
        (tmp_path / f"{number}.tar.gz").write_bytes(tarred({LOG: bytes(8 << 20)}, "w:gz"))
    before = most_traced()[0]
    for number in range(4):
        archive_disk(OsDisk(), str(tmp_path / f"{number}.tar.gz"), None)
    assert most_traced()[0] - before < 20 << 20
    newest = archive_disk(OsDisk(), str(tmp_path / "3.tar.gz"), None)
    (tmp_path / "3.tar.gz").unlink()
    assert archive_disk(OsDisk(), str(tmp_path / "3.tar.gz"), None) is newest


@pytest.mark.parametrize("folder", ["../../", "/../", "/etc/", "a/../../b/"])
def test_no_name_of_a_member_leaves_the_archive(tmp_path: Path, folder: str) -> None:
    (tmp_path / "a.tar").write_bytes(tarred({LOG: b"log", META: b"meta"}, "w", folder))
    found = archive_disk(OsDisk(), str(tmp_path / "a.tar"), None)
    assert found.files() == (f"{tmp_path}/a.tar/{LOG}", f"{tmp_path}/a.tar/{META}")


def test_a_tar_that_is_cut_or_damaged_anywhere_is_refused(tmp_path: Path) -> None:
    """Python's reader takes a bad header for the end, and what follows would be missing without a word."""
    later = f"{PARTITION_DIRECTORY}/00000000000000000010.log"
    whole = tarred({LOG: b"1" * 1024, later: b"2" * 512}, "w")
    behind = 512 + 1024
    flipped = whole[: behind + 2] + b"x" + whole[behind + 3 :]
    for number, content in enumerate([*(whole[:size] for size in range(0, behind + 1024 + 1, 256)), flipped]):
        archive = tmp_path / f"{number}.tar"
        archive.write_bytes(content)
        with pytest.raises(DirectoryError, match=r"cannot be unpacked .*: copy it again") as refusal:
            archive_disk(OsDisk(), str(archive), None)
        assert refusal.value.where == str(archive)
    (tmp_path / "a.tar").write_bytes(whole)
    assert len(archive_disk(OsDisk(), str(tmp_path / "a.tar"), None).files()) == 2


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_of_megabytes_is_refused_before_it_is_read(tmp_path: Path, kind: bytes) -> None:
    """It is read and copied as a whole: 500 MB of zeros, packed into half a megabyte, took 3 GB of memory."""
    header = tarfile.TarInfo("long")
    header.type, header.size = kind, 2 << 20
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(header.tobuf() + bytes(2 << 20) + tarred({LOG: b""}, "w")))
    with pytest.raises(DirectoryError, match=r"a header of 2097152 bytes, not 1048576 at most.*: copy it again"):
        archive_disk(OsDisk(), str(tmp_path / "a.tar.gz"), None)


@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.SYMTYPE])
def test_a_link_in_place_of_a_segment_is_refused(tmp_path: Path, kind: bytes) -> None:
    """A backup of links has the bytes elsewhere: the segment would be missing without a word."""
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        info = tarfile.TarInfo(LOG)
        info.size = 3
        tar.addfile(info, io.BytesIO(b"log"))
        link = tarfile.TarInfo(f"{PARTITION_DIRECTORY}/00000000000000000010.log")
        link.type, link.linkname = kind, "../before/10.log"
        tar.addfile(link)
    with pytest.raises(DirectoryError, match=r"10\.log is a link to \.\./before/10\.log: pack it .*--dereference"):
        archive_disk(OsDisk(), str(tmp_path / "a.tar"), None)


def test_an_archive_of_too_many_entries_is_refused(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metadata_log.spark.archived.MOST_ENTRIES", 1)
    for name in ("a.tar.gz", "a.zip"):
        with pytest.raises(DirectoryError, match=r"more than 1 entries: unpack it"):
            archive_disk(OsDisk(), str(node / name), "few")


def test_a_zip_with_a_long_list_of_entries_is_refused_before_the_list_is_read(tmp_path: Path) -> None:
    """A megabyte of such a list takes half a second and eight times its memory."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a", b"")
    begin = packed.getvalue().index(b"PK\1\2")
    one, end = packed.getvalue()[begin:-22], struct.Struct("<4s4H2IH")
    times = 13_000_000 // len(one)
    listed = end.pack(b"PK\5\6", 0, 0, times & 0xFFFF, times & 0xFFFF, times * len(one), begin, 0)
    (tmp_path / "a.zip").write_bytes(packed.getvalue()[:begin] + one * times + listed)
    with pytest.raises(DirectoryError, match=r"list of its entries has 12999\d\d\d bytes, .*: unpack it") as refusal:
        archive_disk(OsDisk(), str(tmp_path / "a.zip"), None)
    assert refusal.value.where == str(tmp_path / "a.zip")


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".zst": zstandard.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}


@pytest.fixture(params=PACKERS)
def lone(node: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The directory of a node whose segment is packed by itself."""
    target = tmp_path / "lone"
    shutil.copytree(node / "plain", target)
    segment = target / LOG
    (target / f"{LOG}{request.param}").write_bytes(PACKERS[request.param](segment.read_bytes()))
    segment.unlink()
    return target


def rows_of(path: Path | str, **options: Any) -> list[dict[str, Any]]:
    places = {"path", "file", "directory"}
    return [{name: value for name, value in row.items() if name not in places} for row in read(path, **options)]


@pytest.mark.parametrize("view", ["records", "leader_history"])
def test_a_file_of_the_log_may_be_packed_by_itself(node: Path, lone: Path, view: str) -> None:
    wanted = rows_of(node / "plain", view=view)
    (packed,) = lone.glob("__*/*.log.*")
    assert rows_of(lone, view=view) == rows_of(packed.parent, view=view) == rows_of(packed, view=view) == wanted != []
    (found,) = find_directories([str(packed)])
    assert (found.is_file, found.cluster) == (True, find_directories([str(lone)])[0].cluster)


@pytest.fixture
def store(node: Path) -> Iterator[str]:
    """A simulated object store with the plain directory, archives, and a directory of packed files."""
    CountedStore.clear()
    files = CountedStore()
    for path in node.rglob("*"):
        if path.is_file():
            files.pipe_file(f"/fleet/{path.relative_to(node)}", path.read_bytes())
    files.pipe_file(f"/fleet/lone/{LOG}.gz", gzip.compress((node / "plain" / LOG).read_bytes()))
    files.pipe_file("/fleet/lone/meta.properties", (node / "plain" / "meta.properties").read_bytes())
    CountedStore.reset()
    yield f"{PROTOCOL}://fleet"
    CountedStore.clear()


@pytest.mark.parametrize("name", ["a.tar.zst", "a.zip", "lone", f"lone/{LOG}.gz", "l*", "a.tar.g*"])
@pytest.mark.parametrize("view", ["records", "leader_history"])
def test_what_is_packed_in_an_object_store_is_read_without_a_copy(node: Path, store: str, name: str, view: str) -> None:
    wanted = rows_of(node / "plain", view=view)
    assert rows_of(f"{store}/{name}", view=view) == wanted
    assert CountedStore.total() <= 16, CountedStore.requests


def stream(path: Path | str) -> KraftStreamReader:
    options = parse_options({"path": str(path)})
    return KraftStreamReader(options, spark_schema(options))


def new_rows(source: KraftStreamReader, begin: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """How many rows a trigger reads, and where it ends."""
    end = source.latestOffset(begin, ReadAllAvailable())
    tasks = source.partitions(begin, end)
    return sum(batch.num_rows for task in tasks for batch in source.read(task)), end


def test_a_stream_reads_what_is_packed_and_goes_on_as_it_grows(
    files: dict[str, bytes], node: Path, store: str, tmp_path: Path
) -> None:
    wanted = len(rows_of(node / "plain"))
    for path in (node / "a.tar.gz", f"{store}/a.zip", f"{store}/lone", f"{store}/a.tar.x*"):
        source = stream(path)
        assert new_rows(source, source.initialOffset())[0] == wanted, path
    half = [batch.end_position for batch in scan(files[LOG])][2]
    for kind in ("tar", "gz"):
        grows = tmp_path / kind / ("a.tar" if kind == "tar" else "")
        grows.parent.mkdir(exist_ok=True)
        source, begin, total = stream(grows), None, 0
        for size in (half, len(files[LOG])):
            if kind == "tar":
                grows.write_bytes(tarred({LOG: files[LOG][:size], META: files[META]}, "w"))
            else:
                (grows / LOG).parent.mkdir(parents=True, exist_ok=True)
                (grows / META).write_bytes(files[META])
                (grows / f"{LOG}.gz").write_bytes(gzip.compress(files[LOG][:size]))
            begin = source.initialOffset() if begin is None else begin
            count, begin = new_rows(source, begin)
            assert 0 < count < wanted
            total += count
        assert total == wanted


def test_a_bomb_and_damage_of_a_packed_file_are_told_with_a_remedy(
    lone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (packed,) = lone.glob("__*/*.log.*")
    job = make_job(str(tmp_path / "tables"), run="r", views=["topic_history"])
    with monkeypatch.context() as patched:
        patched.setattr("metadata_log.spark.archived.MOST_BYTES", 1000)
        (bomb,) = run_here(find_fleet([str(lone)], {}), job).outcomes
    packed.write_bytes(packed.read_bytes()[:-9])
    (cut,) = run_here(find_fleet([str(lone)], {}), job).outcomes
    packed.write_bytes(b"")
    (empty,) = run_here(find_fleet([str(lone)], {}), job).outcomes
    assert f"it has no bytes: copy it again ({packed})" in str(empty.damage)
    assert f"it unpacks to more than 1000 bytes: unpack it, and give the directory ({packed})" in str(bomb.damage)
    assert "it cannot be unpacked" in str(cut.damage)
    assert f"copy it again ({packed})" in str(cut.damage)
