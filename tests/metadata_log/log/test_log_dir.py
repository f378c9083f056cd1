"""The files and names in a log directory, and the marker of a clean shutdown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from metadata_log.disk import replace_file
from metadata_log.errors import DirectoryError
from metadata_log.log.clean_shutdown import CLEAN_SHUTDOWN_FILE, take_clean_shutdown, write_clean_shutdown
from metadata_log.log.log_dir import (
    LOCK_FILE,
    MetaProperties,
    ensure_partition_metadata,
    format_directory,
    format_meta_properties,
    note_what_it_hosts,
    open_directory,
    parse_meta_properties,
    parse_partition_metadata,
    read_bootstrap,
    read_meta_properties,
)
from metadata_log.log.partition_names import DELETE, FUTURE, STRAY, PartitionName, parse_partition_name
from metadata_log.log.snapshot import snapshot_name
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import scan
from metadata_log.records.control import VotersRecord, VotersRecordVoter
from metadata_log.records.record import records
from metadata_log.types import BOOTSTRAP_SNAPSHOT, PARTITION_DIRECTORY, Uuid
from support.real_data import archive

CLUSTERS = archive("clusters")
CASES: list[dict[str, Any]] = json.loads(CLUSTERS["format/cases.json"])
STATIC = [
    case
    for case in CASES
    if "controller.quorum.voters" in case["config"]
    and not {"--standalone", "--initial-controllers", "--no-initial-controllers", "--add-scram"}
    & set(case["options"] or ())
]
META = "d/meta.properties"


class Killed(Exception):
    """The process has died before an operation of its disk."""


def options(case: dict[str, Any]) -> dict[str, Any]:
    """The arguments that a call of kafka-storage stands for."""
    words = case["options"] or []
    pairs = list(pairwise(words))
    found: dict[str, Any] = {"node_id": int(case["config"]["node.id"]), "cluster_id": case["cluster_id"]}
    found["release"] = "4.3"
    found["features"] = {
        name: int(level) for option, value in pairs if option == "--feature" for name, level in [value.split("=")]
    }
    for option, value in pairs:
        if option == "--release-version":
            found["release"] = value
    if case["kafka_version"].startswith("3.9"):
        found["release"] = "3.9-IV0"
    return found


FORMAT: dict[str, Any] = {"node_id": 1, "cluster_id": "TAVcairvJUMQVE3RmpYAmA", "rng": Random(1), "now_ms": 5}


def formatted(**changes: Any) -> MemoryDisk:
    disk = MemoryDisk()
    assert format_directory(disk, "d", **(FORMAT | {"rng": Random(1)} | changes))
    return disk


@pytest.mark.parametrize("case", STATIC, ids=lambda case: case["case"])
def test_format_as_kafka_does(case: dict[str, Any]) -> None:
    """For the same options we write the same records, or refuse where kafka-storage refuses."""
    if case["exit_code"]:
        with pytest.raises(DirectoryError) as caught:
            formatted(**options(case))
        assert caught.value.hint
        return
    disk = formatted(**options(case))
    theirs = CLUSTERS[f"format/nodes/{case['case']}/bootstrap.checkpoint"]
    ours = disk.read("d/bootstrap.checkpoint")
    assert len(ours) == len(theirs)
    for mine, wanted in zip(scan(ours), scan(theirs), strict=True):
        assert (mine.base_offset, mine.epoch, mine.attributes) == (wanted.base_offset, wanted.epoch, wanted.attributes)
        assert [(r.key, r.value) for r in records(mine)] == [(r.key, r.value) for r in records(wanted)]
    real = parse_meta_properties(CLUSTERS[f"format/nodes/{case['case']}/meta.properties"])
    meta = read_meta_properties(disk, "d")
    assert meta is not None
    assert (meta.cluster_id, meta.node_id) == (real.cluster_id, real.node_id)
    assert meta.directory_id is not None
    assert disk.list("d") == ["bootstrap.checkpoint", "meta.properties"]


def test_the_first_records_of_4_4_are_in_the_snapshot_of_offset_zero() -> None:
    """As in a directory that kafka-storage of 4.4.0 formatted; a node without the controller role has none."""
    name = f"{PARTITION_DIRECTORY}/{snapshot_name(BOOTSTRAP_SNAPSHOT)}"
    disk = formatted(release="4.4")
    theirs, ours = archive("release44")[f"static3/nodes/c1/{name}"], disk.read(f"d/{name}")
    assert len(ours) == len(theirs)
    for mine, wanted in zip(scan(ours), scan(theirs), strict=True):
        assert (mine.base_offset, mine.epoch, mine.attributes) == (wanted.base_offset, wanted.epoch, wanted.attributes)
        if not mine.is_control:
            assert [(r.key, r.value) for r in records(mine)] == [(r.key, r.value) for r in records(wanted)]
    assert not disk.exists("d/bootstrap.checkpoint")
    assert len(read_bootstrap(disk, "d")) == 6
    assert formatted(release="4.4", is_controller=False).list("d") == ["meta.properties"]


def test_the_snapshot_has_precedence_over_the_file_of_earlier_releases() -> None:
    """4.4.0 replaces what it read in bootstrap.checkpoint, if the snapshot holds any record."""
    disk, older = formatted(release="4.4", features={"share.version": 1}), formatted(release="4.2")
    replace_file(disk, "d", "bootstrap.checkpoint", older.read("d/bootstrap.checkpoint"))
    assert [path for path, _ in read_bootstrap(disk, "d")] == [
        f"d/{PARTITION_DIRECTORY}/{snapshot_name(BOOTSTRAP_SNAPSHOT)}"
    ] * 6
    voters = VotersRecord(voters=(VotersRecordVoter(voter_id=1, voter_directory_id=Uuid(b"\x07" * 16)),))
    both = formatted(release="4.2", dynamic=True, initial_voters=voters)
    assert {path for path, _ in read_bootstrap(both, "d")} == {"d/bootstrap.checkpoint"}


@pytest.mark.parametrize("release", ["4.0", "4.0.1", "4.0-IV3"])
def test_a_release_version_may_be_abbreviated(release: str) -> None:
    assert read_bootstrap(formatted(release=release), "d") == read_bootstrap(formatted(release="4.0-IV3"), "d")


def test_feature_levels_out_of_range_are_refused() -> None:
    for release, feature, level in (
        ("4.3", "transaction.version", 3),
        ("4.3", "group.version", -1),
        ("3.9", "eligible.leader.replicas.version", 1),
    ):
        with pytest.raises(DirectoryError, match=feature):
            formatted(release=release, features={feature: level})


def test_formatting_twice() -> None:
    disk = formatted()
    before = disk.read(META)
    again: dict[str, Any] = {"node_id": 1, "cluster_id": "TAVcairvJUMQVE3RmpYAmA", "rng": Random(2), "now_ms": 6}
    with pytest.raises(DirectoryError, match="already formatted"):
        format_directory(disk, "d", **again)
    assert not format_directory(disk, "d", **again, ignore_formatted=True)
    for change, said in (({"node_id": 2}, "belongs to node 1, not to node 2"), ({"cluster_id": "x"}, "not to x")):
        for ignore in (False, True):
            with pytest.raises(DirectoryError, match=said):
                format_directory(disk, "d", **(again | change), ignore_formatted=ignore)
    assert disk.read(META) == before


def test_formatting_survives_a_crash() -> None:
    disk = formatted()
    disk.crash()
    assert read_meta_properties(disk, "d") is not None
    assert read_bootstrap(disk, "d")


def test_a_power_failure_within_formatting_leaves_nothing_or_a_directory_to_format_again() -> None:
    """A directory that counts as formatted has everything: the file that says so is written last."""
    states = set[bool]()
    for operations in range(100):
        was_cut = False
        for seed in range(3):
            disk, left = MemoryDisk(), iter(range(operations - 1, -2, -1))

            def die_in_time(operation: str, path: str, left: Iterator[int] = left) -> None:
                if next(left) < 0:
                    raise Killed(operation)

            disk.on_operation = die_in_time
            try:
                format_directory(disk, "d", **FORMAT)
                was_cut = False
            except Killed:
                was_cut = True
            disk.on_operation = None
            disk.crash(Random(100 * operations + seed) if seed else None)
            is_formatted = disk.exists(META)
            states.add(is_formatted)
            if not is_formatted:
                assert format_directory(disk, "d", **FORMAT)
            where = f"operation {operations}, seed {seed}"
            assert read_bootstrap(disk, "d"), where
            opened(disk, cluster_id=FORMAT["cluster_id"]).release()
        if not was_cut:
            break
    assert operations > 8
    assert states == {False, True}


def test_a_power_failure_while_a_node_notes_its_identity_keeps_what_was_known() -> None:
    """An id for a directory without one, and what its log is of, come into a file that is replaced."""
    for operations in range(100):
        was_cut = False
        for seed in range(3):
            disk = formatted()
            known = read_meta_properties(disk, "d")
            assert known is not None
            replace_file(disk, "d", "meta.properties", format_meta_properties(replace(known, directory_id=None), 5))
            left = iter(range(operations - 1, -2, -1))

            def die_in_time(operation: str, path: str, left: Iterator[int] = left) -> None:
                if next(left) < 0:
                    raise Killed(operation)

            disk.on_operation = die_in_time
            noted = None
            try:
                noted = opened(disk).directory_id
                note_what_it_hosts(disk, "d", "raw", 8)
                was_cut = False
            except Killed:
                was_cut = True
            disk.on_operation = None
            disk.crash(Random(100 * operations + seed) if seed else None)
            meta = read_meta_properties(disk, "d")
            where = f"operation {operations}, seed {seed}"
            assert meta is not None, where
            assert (meta.node_id, meta.cluster_id) == (known.node_id, known.cluster_id), where
            assert meta.hosts in ((None, "raw") if was_cut else ("raw",)), where
            # The node may have told others its id once the directory is open.
            assert noted in (None, meta.directory_id), where
        if not was_cut:
            break
    assert operations > 8


def test_real_meta_properties() -> None:
    """The file of a real node is read, and written again the same but for the time."""
    for path, content in CLUSTERS.items():
        if not path.endswith("meta.properties"):
            continue
        meta = parse_meta_properties(content, where=path)
        ours = format_meta_properties(meta, 0).split(b"\n")
        theirs = content.split(b"\n")
        assert ours[1] == b"#Thu Jan 01 00:00:00 UTC 1970"
        assert (ours[0], sorted(ours[2:])) == (theirs[0], sorted(theirs[2:]))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "version is missing"),
        (b"version=2\ncluster.id=x\nnode.id=1", "unknown meta.properties version '2'"),
        (b"version=0\nbroker.id=1", "a broker in ZooKeeper mode"),
        (b"version=1\nnode.id=1", "cluster.id is missing"),
        (b"version=1\ncluster.id=x", "node.id is missing"),
        (b"version=1\ncluster.id=x\nnode.id=one", "'one' is not a node id"),
        (b"version=1\ncluster.id=x\nnode.id=-1", "'-1' is not a node id"),
        (b"version=1\ncluster.id=x\nnode.id=1 ", "'1 ' is not a node id"),
        (b"version=1\ncluster.id=x\nnode.id=2147483648", "'2147483648' is not a node id"),
        (b"version=1\ncluster.id=x\nnode.id=1\ndirectory.id=FAtJ3q8rQ/6k7y3bJ5h1-A", "not a Kafka uuid"),
        (b"version=1\xa0\ncluster.id=x\nnode.id=1", r"unknown meta.properties version '1\\xa0'"),
        (b"version=1\ncluster.id=x\nnode.id=1\ndirectory.id=short", "not a Kafka uuid"),
        (b"version=1\ncluster.id=x\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ", "reserved"),
        (b"version=1\ncluster.id=\\u12\nnode.id=1", "not a properties file"),
    ],
)
def test_bad_meta_properties(text: bytes, words: str) -> None:
    with pytest.raises(DirectoryError, match=words) as caught:
        parse_meta_properties(text, where=META)
    assert caught.value.where == META


def test_numbers_of_meta_properties_as_java_reads_them() -> None:
    meta = parse_meta_properties(b"version = \x0b+01 \r\ncluster.id : x\rnode.id=+12")
    assert meta == MetaProperties(cluster_id="x", node_id=12)


def opened(disk: MemoryDisk, **changes: Any) -> Any:
    usual: dict[str, Any] = {"node_id": 1, "rng": Random(3), "now_ms": 7}
    return open_directory(disk, "d", **(usual | changes))


def test_opening() -> None:
    disk = formatted()
    directory = opened(disk, cluster_id="TAVcairvJUMQVE3RmpYAmA")
    meta = read_meta_properties(disk, "d")
    assert directory.meta == meta
    assert directory.directory_id == directory.meta.directory_id
    assert directory.partition_path == "d/__cluster_metadata-0"
    assert disk.read("d/__cluster_metadata-0/partition.metadata") == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    with pytest.raises(DirectoryError, match="node 1 of this directory runs already"):
        opened(disk)
    directory.release()
    opened(disk).release()


def test_files_of_a_killed_start_are_durable_after_the_next_start() -> None:
    """A process that dies alone leaves names that can be read and are not durable; the next one must make them so."""
    seen: list[str] = []
    for operations in range(1, 20):
        disk = formatted(release="4.3")
        left = iter(range(operations - 1, -1, -1))

        def die_in_time(operation: str, path: str, left: Iterator[int] = left) -> None:
            if next(left) == 0:
                raise Killed(operation)

        disk.on_operation = die_in_time
        try:
            opened(disk)
            break
        except Killed as killed:
            seen.append(str(killed))
        disk.on_operation = None
        disk.kill()
        path = opened(disk).partition_path
        disk.crash()
        assert disk.exists(path), f"killed before {seen[-1]}"
    assert "mkdir" in seen
    assert "fsync_dir" in seen


def test_opening_a_foreign_directory_is_refused() -> None:
    """Each refusal says what is wrong, and leaves the directory unlocked."""
    disk = formatted()
    with pytest.raises(DirectoryError, match="not formatted"):
        open_directory(disk, "elsewhere", node_id=1, rng=Random(1), now_ms=0)
    assert not disk.exists("elsewhere")
    with pytest.raises(DirectoryError, match="belongs to node 1, not to node 2"):
        opened(disk, node_id=2)
    with pytest.raises(DirectoryError, match="belongs to cluster TAVcairvJUMQVE3RmpYAmA, not to other"):
        opened(disk, cluster_id="other")
    disk.lock(f"d/{LOCK_FILE}").release()


def test_directory_without_id_gets_one() -> None:
    """As Kafka does with directories from before 3.7."""
    disk = formatted()
    disk.remove(META)
    text = format_meta_properties(MetaProperties(cluster_id="c", node_id=1), 0)
    assert b"directory.id" not in text
    disk.open(META, create=True).append(text)
    first = opened(disk)
    first.release()
    meta = read_meta_properties(disk, "d")
    assert meta is not None
    assert first.directory_id is not None
    assert meta.directory_id == first.directory_id
    assert opened(disk).directory_id == first.directory_id


def test_partition_metadata_of_another_topic() -> None:
    disk = MemoryDisk()
    disk.mkdir("p")
    path = "p/partition.metadata"
    for text, words in (
        (b"version: 0\ntopic_id: kzvpwDEBRmuWTZqeuC5LbA", "holds topic kzvpwDEBRmuWTZqeuC5LbA"),
        (b"version: -1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", "unknown version '-1'"),
        (b"nonsense", "a line with the version is missing"),
        (b"version: 0", "a line with the topic_id is missing"),
        (b"topic_id: AAAAAAAAAAAAAAAAAAAAAQ\nversion: 0", "a line with the version is missing"),
        (b"version: 0\x1c\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", r"unknown version '0\\x1c'"),
        (b"version: 0\n\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", "a line with the topic_id is missing"),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\x0b", "not a Kafka uuid"),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "the topic id is zero"),
        (b"version: 0\ntopic_id: x", "not a Kafka uuid"),
    ):
        file = disk.open(path, create=True)
        file.truncate(0)
        file.append(text)
        with pytest.raises(DirectoryError, match=words):
            ensure_partition_metadata(disk, "p")


@pytest.mark.parametrize(
    "text",
    [
        b"version: 0\r\ntopic_id: kzvpwDEBRmuWTZqeuC5LbA\r\n",
        b"version:\t00\ntopic_id:  kzvpwDEBRmuWTZqeuC5LbA==\rmore",
    ],
)
def test_partition_metadata_as_java_reads_it(text: bytes) -> None:
    assert str(parse_partition_metadata(text)) == "kzvpwDEBRmuWTZqeuC5LbA"


# The names of partition directories, as brokers give them.


UUID = "6f1e2d3c4b5a69788796a5b4c3d2e1f0"


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("orders-0", PartitionName("orders", 0)),
        ("a-b.c-17", PartitionName("a-b.c", 17)),
        ("__cluster_metadata-0", PartitionName("__cluster_metadata", 0)),
        (f"orders-3.{UUID}-delete", PartitionName("orders", 3, DELETE)),
        (f"orders-3.{UUID}-future", PartitionName("orders", 3, FUTURE)),
        (f"a.b-3.{UUID}-stray", PartitionName("a.b", 3, STRAY)),
        ("x-1.2-3", PartitionName("x-1.2", 3)),
    ],
)
def test_the_name_of_a_partition_directory_is_parsed(name: str, partition: PartitionName) -> None:
    assert parse_partition_name(name) == partition
    assert str(partition) == f"{partition.topic}-{partition.number}"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-0",
        "orders",
        "orders-",
        "orders-x",
        "orders--1x",
        "orders-\u0661",
        f"orders-3.{UUID}-other",
        ".orders-0",
        "a/b-0",
    ],
)
def test_another_name_is_no_partition(name: str) -> None:
    assert parse_partition_name(name) is None


# The file of a clean shutdown: it proves the end of one run, in every log directory, and only once.


def disk_with(**contents: bytes | None) -> MemoryDisk:
    """Log directories with these files, durably; none in a directory with None."""
    disk = MemoryDisk()
    for name, content in contents.items():
        disk.mkdir(f"/{name}")
        if content is not None:
            file = disk.open(f"/{name}/{CLEAN_SHUTDOWN_FILE}", create=True)
            file.append(content)
            file.fsync()
            file.close()
        disk.fsync_dir(f"/{name}")
    disk.fsync_dir("/")
    return disk


def test_the_file_survives_a_crash_and_has_the_content_of_kafka() -> None:
    disk = disk_with(a=None)
    write_clean_shutdown(disk, "/a", 17)
    disk.crash()
    assert disk.read(f"/a/{CLEAN_SHUTDOWN_FILE}") == b'{"version":0,"brokerEpoch":17}'
    assert take_clean_shutdown(disk, ["/a"]) == 17


SEVEN, EIGHT = b'{"version":0,"brokerEpoch":7}', b'{"version":0,"brokerEpoch":8}'


@pytest.mark.parametrize(
    ("first", "second", "epoch"),
    [
        (SEVEN, SEVEN, 7),
        (SEVEN, EIGHT, -1),
        (None, SEVEN, -1),
        (SEVEN, None, -1),
        (None, None, -1),
        (b"", b"", -1),
        (b"", SEVEN, -1),
        (b'{"version":0', b'{"version":0', -1),
        (b'{"version":0,"brokerEpoch":"7"}', b'{"version":0,"brokerEpoch":"7"}', -1),
    ],
)
def test_the_files_of_all_directories_must_agree(first: bytes | None, second: bytes | None, epoch: int) -> None:
    """Brokers before 3.8 leave an empty file."""
    disk = disk_with(a=first, b=second)
    assert take_clean_shutdown(disk, ["/a", "/b"]) == epoch
    disk.crash()
    assert [disk.list(path) for path in ("/a", "/b")] == [[], []], "they prove nothing about the run that begins"
    assert take_clean_shutdown(disk, ["/a", "/b"]) == -1


def test_no_directory_proves_no_clean_shutdown() -> None:
    assert take_clean_shutdown(MemoryDisk(), []) == -1
