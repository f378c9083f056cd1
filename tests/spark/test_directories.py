"""A fleet is found, named and compared before anything of it is read."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from metadata_log.spark.directories import Directory, choose_copies, find_directories
from metadata_log.spark.errors import SourceError
from metadata_log.spark.log_index import LogIndex, index_log
from metadata_log.spark.storage import disk_at
from metadata_log.types import Uuid
from support.real_data import unpack
from support.spark.fleets import PARTITION, write_log, write_meta


def index_of(directory: Directory) -> LogIndex:
    return index_log(disk_at(directory.path), directory.path)


def names(found: list[Directory]) -> list[tuple[str, str]]:
    return [(directory.cluster, directory.path.rpartition("/fleet/")[2]) for directory in found]


def test_clusters_are_named_by_meta_properties_or_by_the_glob(tmp_path: Path) -> None:
    """Two clusters under one name would become one history."""
    fleet = tmp_path / "fleet"
    write_log(fleet / "a" / "data", [1], cluster="cluster-a")
    write_log(fleet / "b" / "data", [1])
    write_log(fleet / "c" / "data", [1])
    (fleet / "README").write_text("not a log")
    wanted = [
        ("cluster-a", f"a/data/{PARTITION}"),
        ("b/data", f"b/data/{PARTITION}"),
        ("c/data", f"c/data/{PARTITION}"),
    ]
    assert names(find_directories([f"{fleet}/*/data"])) == wanted
    assert names(find_directories([f"file:{fleet}/*/data/{PARTITION}"])) == wanted
    assert names(find_directories([f"file://{fleet}/**/{PARTITION}"])) == wanted
    one, other = find_directories([f"{fleet}/b/data", f"{fleet}/c/data/"])
    assert (one.cluster, other.cluster) == (f"{fleet}/b/data", f"{fleet}/c/data")
    assert names(find_directories([f"{fleet}/b/data"])) == [("data", f"b/data/{PARTITION}")]


def test_the_same_directory_found_twice_is_read_once(tmp_path: Path) -> None:
    write_log(tmp_path / "fleet" / "a", [1])
    found = find_directories([f"{tmp_path}/fleet/*", f"{tmp_path}/fleet/a", f"{tmp_path}/fleet/a/{PARTITION}"])
    assert names(found) == [("a", f"a/{PARTITION}")]


def test_single_files_are_logs_too(tmp_path: Path) -> None:
    partition = write_log(tmp_path / "fleet" / "a", [1, 1], cluster="cluster-a")
    (segment,) = find_directories([f"{partition}/*.log"])
    assert (segment.cluster, segment.is_file, segment.path) == ("cluster-a", True, f"{partition}/{0:020d}.log")
    (problem,) = find_directories([f"{tmp_path}/fleet/a/meta.properties"])
    assert problem.problem is not None
    assert "neither a segment nor a checkpoint" in problem.problem.what


def nothing(folder: Path) -> None:
    folder.mkdir()


def formatted(folder: Path) -> None:
    write_meta(folder, "x")


def empty_partition(folder: Path) -> None:
    (folder / PARTITION).mkdir(parents=True)


def another_topic(folder: Path) -> None:
    partition = write_log(folder, [1])
    (partition / "partition.metadata").write_text(f"version: 0\ntopic_id: {Uuid(bytes(15) + bytes([9]))}")


def two_clusters(folder: Path) -> None:
    write_meta(write_log(folder, [1], cluster="cluster-a"), "cluster-b")


def broken_meta(folder: Path) -> None:
    write_log(folder, [1])
    (folder / "meta.properties").write_text("version=7\n")


def unreadable_meta(folder: Path) -> None:
    write_log(folder, [1])
    (folder / "meta.properties").mkdir()


def fleet_itself(folder: Path) -> None:
    write_log(folder / "inner", [1])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (nothing, "is no metadata log: it has no __cluster_metadata-0"),
        (formatted, "is formatted and holds no metadata log"),
        (empty_partition, "holds neither a segment nor a checkpoint"),
        (another_topic, "is a partition of another topic, AAAAAAAAAAAAAAAAAAAACQ"),
        (two_clusters, "two clusters are in one directory: cluster-b .*cluster-a"),
        (broken_meta, "unknown meta.properties version '7'"),
        (unreadable_meta, "the file cannot be read: Is a directory"),
        (fleet_itself, r"but inner below it are: the glob .*/it/\* finds them"),
    ],
)
def test_a_path_without_a_metadata_log_has_an_explanation(
    tmp_path: Path, make: Callable[[Path], None], words: str
) -> None:
    make(tmp_path / "it")
    (found,) = find_directories([f"{tmp_path}/it"])
    assert found.problem is not None
    assert re.search(words, found.problem.what), found.problem.what
    assert found.problem.where.startswith(f"{tmp_path}/it")
    assert choose_copies([found], index_of).chosen == []


def test_an_empty_glob_is_an_error_for_a_query_and_not_for_a_stream(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"the glob .*/\*/logs matches no metadata log"):
        find_directories([f"{tmp_path}/*/logs"])
    with pytest.raises(SourceError, match=r"nothing is found at .*/absent"):
        find_directories([f"{tmp_path}/absent"])
    assert find_directories([f"{tmp_path}/*/logs"], allow_none=True) == []


def test_of_several_copies_the_most_up_to_date_log_is_read(tmp_path: Path) -> None:
    """A dead leader's longer tail was never committed: reading it would tell of changes that did not happen."""
    write_log(tmp_path / "c1", [1, 1, 1, 1, 1], cluster="x")
    write_log(tmp_path / "c2", [1, 1, 2], cluster="x")
    write_log(tmp_path / "c3", [1, 1], cluster="x")
    write_log(tmp_path / "other", [1], cluster="y")
    copies = choose_copies(find_directories([f"{tmp_path}/*"]), index_of)
    assert [directory.path for directory in copies.chosen] == [
        f"{tmp_path}/c2/{PARTITION}",
        f"{tmp_path}/other/{PARTITION}",
    ]
    ((loser, damage),) = copies.problems
    assert (loser.path, damage.offset) == (f"{tmp_path}/c1/{PARTITION}", 4)
    assert "differ from offset 4 on" in damage.what
    assert "at 6 in epoch 2" in damage.what


def test_copies_of_a_real_quorum_agree(tmp_path: Path) -> None:
    """Three controllers of Apache Kafka and their brokers, each with its own segments and log start."""
    for name, cluster in (("static3", ""), ("clusters", "failover/")):
        home = unpack(name, f"{cluster}nodes", tmp_path / name)
        copies = choose_copies(find_directories([f"{home}/*"]), index_of)
        assert len(copies.chosen) == 1
        assert copies.problems == [], copies.problems


def test_a_disk_on_fsspec_behaves_as_the_local_one(tmp_path: Path) -> None:
    """Whatever fsspec opens; here its own file system in memory. It lists, opens and reads as the local disk does."""
    partition = write_log(tmp_path / "a", [1, 1, 3], cluster="cluster-a")
    memory = fsspec.filesystem("memory")
    memory.put(str(tmp_path / "a"), "/fleet/a", recursive=True)
    try:
        (found,) = find_directories(["memory://fleet/*"])
        assert (found.cluster, found.problem) == ("cluster-a", None)
        assert found.path == f"memory://fleet/a/{PARTITION}"
        disk = disk_at(found.path)
        there, here = index_log(disk, found.path), index_log(disk_at(str(partition)), str(partition))
        assert there.batches == here.batches
        with pytest.raises(PermissionError, match="only reads"):
            disk.open(f"{found.path}/{0:020d}.log")
        with pytest.raises(SourceError, match="matches no metadata log"):
            find_directories(["memory://absent/*"])
    finally:
        memory.rm("/fleet", recursive=True)
