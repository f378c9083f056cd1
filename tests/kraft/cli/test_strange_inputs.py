"""The reading commands on what is no log of a node: one sentence with the file and a remedy, and never a bug."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from metadata_log.disk import MOST_SMALL_BYTES, OsDisk
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import ConfigRecord, FeatureLevelRecord, PartitionRecord, TopicRecord
from metadata_log.types import Uuid
from support.kraft.command_line import run
from support.real_data import unpack

LOG = "00000000000000000000.log"
TOPIC_ID = Uuid(b"t" * 16)
DIGITS = "9" * 5000
"""Python refuses to turn so many digits into a number, with an error that nobody expects."""


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A directory with a topic whose min.insync.replicas no number holds."""
    directory = tmp_path / "c1"
    partition = directory / "__cluster_metadata-0"
    partition.mkdir(parents=True)
    values = [
        encode_record(FeatureLevelRecord(name="metadata.version", feature_level=33), 0),
        encode_record(TopicRecord(name="t", topic_id=TOPIC_ID), 0),
        encode_record(
            PartitionRecord(
                partition_id=0, topic_id=TOPIC_ID, replicas=(1, 2), isr=(1, 2), leader=1, directories=(TOPIC_ID,) * 2
            ),
            1,
        ),
        encode_record(ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value=DIGITS), 0),
    ]
    (partition / LOG).write_bytes(build_batch(0, 1, 1_700_000_000_000, values))
    meta = "version=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\nnode.id=1\ndirectory.id=8riq9ydYGGlAB8Q4GKASkg\n"
    (directory / "meta.properties").write_text(meta)
    return directory


READERS = (
    ("dump", "--records"),
    ("dump", "--verify"),
    ("replay",),
    ("history",),
    ("whatif", "--fail", "1"),
    ("check",),
    ("doctor", "--offline"),
    ("recover", "plan"),
)


@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_a_setting_of_thousands_of_digits_ends_no_command(
    capsys: pytest.CaptureFixture[str], node: Path, words: tuple[str, ...]
) -> None:
    done = run(capsys, *words, str(node))
    assert done.code in {0, 1, 2}
    assert "--debug" not in done.err
    assert "digits" not in done.out + done.err


@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_a_node_id_of_thousands_of_digits_ends_no_command(
    capsys: pytest.CaptureFixture[str], node: Path, words: tuple[str, ...]
) -> None:
    (node / "meta.properties").write_text(f"version=1\ncluster.id=c\nnode.id={DIGITS}\n")
    done = run(capsys, *words, str(node))
    assert done.code in {0, 1, 2}
    assert "--debug" not in done.err


def test_check_refuses_a_small_file_that_is_large(capsys: pytest.CaptureFixture[str], node: Path) -> None:
    """It was read as a whole, and with gigabytes the command ended with an error of memory."""
    os.truncate(node / "meta.properties", MOST_SMALL_BYTES + 1)
    done = run(capsys, "check", str(node))
    told = f"kraft: error: a file of this kind cannot have {MOST_SMALL_BYTES + 1} bytes ({node}/meta.properties)"
    assert (done.code, done.err.splitlines()) == (1, [told, "hint: Put the file back from a copy."])


def test_a_link_to_nothing_is_damage(capsys: pytest.CaptureFixture[str], node: Path) -> None:
    """It was a warning, as of a file that a running node deletes, and the exit code 0."""
    segment = node / "__cluster_metadata-0" / LOG
    segment.rename(node / "moved")
    segment.symlink_to("/nonexistent/log")
    done = run(capsys, "dump", str(node))
    assert done.code == 1
    assert f"this is a link to /nonexistent/log, which is not there ({segment}" in done.err


@pytest.mark.parametrize("words", [*READERS, ("archive", "--to", "kept", "--from")], ids=" ".join)
@pytest.mark.parametrize("what", ["fifo", "directory"])
def test_what_is_no_file_is_named_with_a_remedy(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    node: Path,
    words: tuple[str, ...],
    what: str,
) -> None:
    monkeypatch.chdir(node.parent)
    segment = node / "__cluster_metadata-0" / LOG
    segment.unlink()
    if what == "fifo":
        os.mkfifo(segment)
    else:
        segment.mkdir()
    done = run(capsys, *words, str(node))
    assert done.code == (3 if words[0] == "doctor" else 1)
    assert f"({segment}" in done.err
    assert "FIFO" in done.err if what == "fifo" else "directory" in done.err
    if words[0] != "dump":
        assert done.err.splitlines()[-1].startswith("hint: ")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_closed_directory_is_not_taken_for_one_without_files(node: Path) -> None:
    """Its meta.properties was missing, said `recover plan`, and was to be put back from a backup."""
    node.chmod(0)
    child = os.fork()
    if not child:
        os.setuid(65534)
        try:
            OsDisk().exists(str(node / "meta.properties"))
        except PermissionError:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    node.chmod(0o700)


def test_a_path_that_leads_to_no_file_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nothing")
    found = [OsDisk().exists(f"{tmp_path}/{name}") for name in ("file", "file/below", "dangling", "none", "nu\0ll")]
    assert found == [True, False, False, False, False]


def test_the_places_of_a_finding_are_printable(tmp_path: Path) -> None:
    """A name that is no UTF-8 ended the command, and an escape sequence in it reached the terminal."""
    home = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\x1b[31m"))
    [partition] = unpack("damaged", "cases/torn-write", home).rglob("__cluster_metadata-0")
    done = subprocess.run(
        [sys.executable, "-m", "kraft", "doctor", "--offline", partition.parent],
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "utf-8:strict"},
        check=False,
    )
    assert b"  read:  " in done.stdout
    assert b"\x1b" not in done.stdout
    assert b"--debug" not in done.stderr


@pytest.mark.parametrize("how", ["length", "end"])
def test_an_archive_does_not_take_a_log_without_its_end_for_a_growing_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, how: str
) -> None:
    """It kept what was there and said nothing, although a checkpoint or an absurd length show that more was."""
    node = unpack("clusters", "failover/nodes/b101", tmp_path / "from")
    partition = node / "__cluster_metadata-0"
    segment = partition / LOG
    tenth = list(scan(segment.read_bytes()))[10]
    checkpoints = list(partition.glob("*.checkpoint"))
    if how == "length":
        for checkpoint in checkpoints:
            checkpoint.unlink()
        with segment.open("r+b") as file:
            file.seek(tenth.position + 8)
            file.write((0x7FFFFFFF).to_bytes(4, "big"))
    else:
        (partition / "00000000000000099999-0000000001.checkpoint").write_bytes(b"any")
        os.truncate(segment, tenth.position + 70)
    done = run(capsys, "archive", "--from", str(node), "--to", str(tmp_path / "kept"))
    assert done.code == 1
    assert f"({segment}" in done.err or f"{tenth.base_offset:020d}.log" in done.err


def test_a_finding_of_the_metadata_names_node_and_offset(capsys: pytest.CaptureFixture[str], node: Path) -> None:
    level = encode_record(FeatureLevelRecord(name="metadata.version", feature_level=33), 0)
    values = {0: level, 1: b"\x63\x02\x00"}
    batches = (build_batch(offset, 1, 1_700_000_000_000, [value]) for offset, value in values.items())
    (node / "__cluster_metadata-0" / LOG).write_bytes(b"".join(batches))
    done = run(capsys, "check", "--json", str(node))
    [found] = json.loads(done.out)["findings"]
    assert (done.code, found["where"], found["offset"]) == (1, f"node 1 ({node}), offset 1", 1)
    assert found["what"] == "record frame version 99; only 1 is known; no change from here on is checked"


def test_thousands_of_segments_are_read_in_seconds(capsys: pytest.CaptureFixture[str], node: Path) -> None:
    """Each file made the directory be listed again: minutes for some thousands."""
    partition = node / "__cluster_metadata-0"
    for base in range(4, 3004):
        (partition / f"{base:020d}.log").touch()
    began = time.process_time()
    assert run(capsys, "dump", str(node)).code == 1
    assert time.process_time() - began < 10
