"""Directories and records of later releases: readers say which and go on, a node ends and says what to run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kraft.cli.cluster.watch import EventFeed
from kraft.observer import Committed, Jumped
from metadata_log.arrow import Mode, read_records, read_view
from metadata_log.disk import OsDisk
from metadata_log.errors import ReplayError, UnsupportedVersion
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.log.log import MetadataLog
from metadata_log.reading.damage import DamagedFile
from metadata_log.reading.replay_log import replay_batch
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import ConfigRecord, FeatureLevelRecord, RemoveTopicRecord, TopicRecord
from metadata_log.types import OffsetAndEpoch, Uuid
from support.kraft.command_line import Done, run
from support.real_data import unpack

BEYOND = b"\x01\x63\x00" + b"what it says"
"""A record of type 99 in version 0."""


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Level 99 is finalised at offset 1, unknown records are at 2 and 3, and a known one comes after them."""
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    values = [
        encode_record(FeatureLevelRecord(name="metadata.version", feature_level=30), 0),
        encode_record(FeatureLevelRecord(name="metadata.version", feature_level=99), 0),
        BEYOND,
        BEYOND,
        encode_record(ConfigRecord(resource_type=4, resource_name="", name="a", value="b"), 0),
    ]
    log = MetadataLog.open(OsDisk(), str(directory), segment_bytes=1 << 20)
    data = build_batch(0, 1, 1_700_000_000_000, values)
    log.append(data, list(scan(data)))
    log.flush()
    log.close()
    return directory


SAID = (
    "a record of type 99 in version 0 is not known, nor what it changes: "
    "metadata.version 99 brought it, and this software knows 7 to 33"
)


def test_replay_goes_on_and_names_offset_and_level(capsys: pytest.CaptureFixture[str], partition: Path) -> None:
    done = run(capsys, "replay", str(partition), "--json")
    found = json.loads(done.out)
    assert (done.code, found["offset"]) == (1, 4)
    assert [one["damage"] for one in found["damage"]] == [SAID]
    assert [one["offset"] for one in found["damage"]] == [2]
    assert len(found["configs"]) == 1, "the known record behind them is there"
    strict = run(capsys, "replay", str(partition), "--on-damage", "strict")
    assert (strict.code, strict.out, SAID in strict.err) == (1, "", True), strict.err


def test_history_goes_on_too(capsys: pytest.CaptureFixture[str], partition: Path) -> None:
    done = run(capsys, "history", str(partition))
    assert (done.code, done.err.count(SAID)) == (1, 1)
    assert "broker <default>: a = (redacted)" in done.out


def test_dump_keeps_the_bytes(capsys: pytest.CaptureFixture[str], partition: Path) -> None:
    done = run(capsys, "dump", "--records", str(partition))
    assert (done.code, done.out.count(BEYOND[3:].hex())) == (0, 2), done.out


def test_doctor_says_the_same(capsys: pytest.CaptureFixture[str], partition: Path) -> None:
    done = run(capsys, "doctor", "--offline", str(partition.parent))
    assert done.out.count(f"found: {SAID.capitalize()} (offset 2, 3)\n") == 1, done.out


def test_check_names_the_record_and_where_its_checks_end(capsys: pytest.CaptureFixture[str], partition: Path) -> None:
    """It reported a bug of its own."""
    done = run(capsys, "check", "--json", str(partition))
    [found] = json.loads(done.out)["findings"]
    assert (done.code, found["rule"], found["offset"]) == (1, "Metadata", 0)
    assert found["what"] == f"{SAID}; no change from here on is checked"
    assert str(partition) in found["where"]
    assert found["where"].endswith(", offset 2")


def test_an_archive_keeps_the_records_and_its_readers_say_the_same(
    capsys: pytest.CaptureFixture[str], partition: Path, tmp_path: Path
) -> None:
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\nnode.id=1\n")
    kept = tmp_path / "archive"
    done = run(capsys, "archive", "--from", str(partition), "--to", str(kept), "--verify")
    assert (done.code, "offsets 0 to 4" in done.out) == (0, True), done.err
    assert (kept / f"{0:020d}.log").read_bytes() == (partition / f"{0:020d}.log").read_bytes()
    assert run(capsys, "history", str(kept)).err.count(SAID) == 1


def test_columns_keep_the_bytes_and_histories_go_on_if_told(partition: Path) -> None:
    """Records are read in any mode; a history may lack what the records changed, so that FAILFAST refuses it."""
    raw = read_records(str(partition)).read_all().to_pylist()
    assert [one["value"] for one in raw if one["type_id"] == 99] == [BEYOND, BEYOND]
    with pytest.raises(DamagedFile, match=rf"^{re.escape(SAID)} .*offset 2"):
        read_view(str(partition), "config_history").read_all()
    assert len(read_view(str(partition), "config_history", mode=Mode.PERMISSIVE).read_all()) == 1
    ranges = read_view(str(partition), "retention", mode=Mode.PERMISSIVE).read_all().to_pylist()
    [unknown] = [one for one in ranges if one["kind"] == "unknown-record"]
    assert (unknown["text"], unknown["known"]) == (SAID, False)
    assert (unknown["from_offset"], unknown["to_offset"], unknown["records"]) == (2, 4, 2)


@pytest.mark.parametrize("as_json", [True, False])
def test_watch_names_each_and_goes_on(capsys: pytest.CaptureFixture[str], partition: Path, *, as_json: bool) -> None:
    [batch] = scan((partition / f"{0:020d}.log").read_bytes())
    later = TopicRecord(name="a", topic_id=Uuid(b"a" * 16)), RemoveTopicRecord(topic_id=Uuid(b"b" * 16))
    [next_one] = scan(build_batch(5, 1, 1_700_000_000_000, [encode_record(one, 0) for one in later]))
    feed = EventFeed(since=0, most=None, as_json=as_json)
    assert feed.show(Committed((batch, next_one), 7))
    told = capsys.readouterr().out.splitlines()
    assert sum(SAID in line for line in told) == 2
    assert "perhaps because a record before it is not known" in told[-1]
    assert "topic a was created" in told[-2]
    assert not feed.is_sound, "the exit code is 1"


def test_watch_says_it_of_a_snapshot_too(capsys: pytest.CaptureFixture[str], partition: Path) -> None:
    [batch] = scan((partition / f"{0:020d}.log").read_bytes())
    feed = EventFeed(since=0, most=None, as_json=False)
    assert feed.show(Jumped(OffsetAndEpoch(epoch=1, offset=5), bytes(batch.data), 5, None))
    assert capsys.readouterr().err.count(SAID) == 1
    assert not feed.is_sound


def test_watch_ends_at_a_contradiction_of_known_records() -> None:
    feed = EventFeed(since=0, most=None, as_json=False)
    [batch] = scan(build_batch(0, 1, 0, [encode_record(RemoveTopicRecord(topic_id=Uuid(b"b" * 16)), 0)]))
    with pytest.raises(ReplayError):
        feed.show(Committed((batch,), 1))


def test_a_client_that_reads_the_leaders_log_says_the_same(partition: Path) -> None:
    delta = MetadataDelta(MetadataImage())
    [batch] = scan((partition / f"{0:020d}.log").read_bytes())
    with pytest.raises(UnsupportedVersion) as caught:
        replay_batch(delta, batch, where="the leader")
    assert caught.value.what == f"{SAID} (offset 2)"
    assert caught.value.hint == "The cluster runs a newer release than this command knows."


# The tools on directories of Apache Kafka 4.4.0: records, levels and files that earlier releases do not have.


C1 = "static3/nodes/c1"
FIRST_RECORDS = f"{C1}/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("release44", "", tmp_path_factory.mktemp("release44"))


def told(capsys: pytest.CaptureFixture[str], *words: str | Path) -> Done:
    return run(capsys, *map(str, words))


def test_a_controller_is_unregistered_by_its_record(capsys: pytest.CaptureFixture[str], nodes: Path) -> None:
    """Controller 2 is gone after record 381 and has registered again at 394."""
    before, after, again = (
        {one["id"] for one in json.loads(told(capsys, "replay", nodes / C1, "--at", at, "--json").out)["controllers"]}
        for at in ("380", "381", "3000")
    )
    assert (before, after, again) == ({1, 2, 3}, {1, 3}, {1, 2, 3})
    lines = told(capsys, "history", nodes / C1, "--until", "430").out.splitlines()
    assert [line.split()[0] for line in lines if line.endswith("controller 2: unregistered")] == ["381", "424"]
    named = told(capsys, "dump", "--records", "--type", "UnregisterControllerRecord", nodes / C1)
    assert (named.code, named.out.count('UnregisterControllerRecord v0 {"controllerId": 2}')) == (0, 2)


def test_the_levels_have_their_names(capsys: pytest.CaptureFixture[str], nodes: Path) -> None:
    done = told(capsys, "replay", nodes / C1, "--at", "300")
    assert (done.code, "metadata.version 33 (4.4-IV2)" in done.out) == (0, True), done.out


@pytest.mark.parametrize("cluster", ["static3", "dynamic3"])
def test_nothing_is_wrong_between_the_controllers(
    capsys: pytest.CaptureFixture[str], nodes: Path, cluster: str
) -> None:
    """The snapshot of offset 0 is no snapshot of the log, and neither record nor file is unknown."""
    found = sorted((nodes / cluster / "nodes").glob("c*"))
    done = told(capsys, "check", *found)
    assert (done.code, done.err, "no invariant is violated" in done.out) == (0, "", True), done.out
    done = told(capsys, "doctor", *found, "--json")
    fatal = [one for one in json.loads(done.out)["findings"] if one["severity"] == "fatal"]
    assert fatal == []
    plan = told(capsys, "recover", "plan", *found)
    assert (plan.code, "No recovery is needed" in plan.out) == (0, True), plan.out


def test_the_other_readers_read_them_too(capsys: pytest.CaptureFixture[str], nodes: Path, tmp_path: Path) -> None:
    listed = told(capsys, "shell", nodes / C1, "ls", "/")
    assert listed.code == 0, listed.err
    assert told(capsys, "diff", f"{nodes / C1}@380", f"{nodes / C1}@381").code in {0, 1}
    parquet = tmp_path / "out"
    assert told(capsys, "history", nodes / C1, "--parquet", parquet).code == 0
    kept = told(capsys, "archive", "--from", nodes / C1, "--to", tmp_path / "kept", "--verify")
    assert kept.code == 0, kept.err


def test_a_directory_that_never_ran_has_its_bootstrap_records(
    capsys: pytest.CaptureFixture[str], nodes: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "__cluster_metadata-0"
    folder.mkdir(parents=True)
    (tmp_path / "new" / "meta.properties").write_bytes((nodes / C1 / "meta.properties").read_bytes())
    (folder / Path(FIRST_RECORDS).name).write_bytes((nodes / FIRST_RECORDS).read_bytes())
    done = told(capsys, "history", tmp_path / "new")
    assert "These are the bootstrap records" in done.err
    assert "4.4-IV2" in told(capsys, "replay", tmp_path / "new").out
    assert told(capsys, "check", tmp_path / "new").code == 0
