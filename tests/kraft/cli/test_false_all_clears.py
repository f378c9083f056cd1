"""No command reports success, or an empty history, for missing or invalid input: every command on every bad input."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from metadata_log.arrow import Filters, Mode, read_records
from metadata_log.disk import OsDisk
from metadata_log.errors import MetadataLogError
from metadata_log.reading.damage import DamagedFile
from metadata_log.reading.log_end import LogEnd, find_log_end
from metadata_log.reading.missing import end_of, missing_parts
from metadata_log.records.batch_builder import build_batch
from metadata_log.types import Uuid
from support.kraft.command_line import Done, run
from support.kraft.damaged import damaged
from support.real_data import unpack

PARTITION = "__cluster_metadata-0"
TIB = 1 << 40
ON_A_PATH: dict[str, list[str]] = {
    "dump": ["dump", "PATH"],
    "dump records": ["dump", "--records", "--json", "PATH"],
    "dump type": ["dump", "--type", "TopicRecord", "PATH"],
    "dump hex": ["dump", "--hex", "PATH"],
    "dump verify": ["dump", "--verify", "PATH"],
    "history": ["history", "PATH"],
    "history json": ["history", "PATH", "--json"],
    "history elections": ["history", "PATH", "--elections"],
    "history gaps": ["history", "PATH", "--gaps"],
    "history html": ["history", "PATH", "--html", "OUT.html"],
    "history parquet": ["history", "PATH", "--parquet", "OUT"],
    "replay": ["replay", "PATH"],
    "replay json": ["replay", "PATH", "--json"],
    "shell": ["shell", "PATH", "ls", "/"],
    "diff": ["diff", "PATH", "PATH"],
    "whatif": ["whatif", "PATH", "--elect", "preferred"],
    "check": ["check", "PATH"],
    "archive": ["archive", "--from", "PATH", "--to", "OUT"],
    "archive verify": ["archive", "--to", "PATH", "--verify"],
}
"""Every command that reads a path, in its forms of output."""
DIRECTORIES_ONLY = ("check", "archive")


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    """A command that waits for the other end of a FIFO, or walks a terabyte, fails and does not hang."""

    def late(number: int, frame: FrameType | None) -> None:
        raise AssertionError("this takes far too long")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("static3", "nodes/c1", tmp_path_factory.mktemp("c1"))


def on(capsys: pytest.CaptureFixture[str], words: list[str], path: Path, out: Path) -> Done:
    names = {"PATH": str(path), "OUT.html": f"{out}.html", "OUT": str(out)}
    return run(capsys, *(names.get(word, word) for word in words))


# ---------------------------------------------------------------------------------------------- what is no metadata log


def empty(path: Path) -> None:
    path.mkdir()


def of_another_kind(path: Path) -> None:
    path.mkdir()
    (path / "server.properties").write_text("node.id=1\n")
    (path / "notes.txt").write_text("nothing\n")


def of_another_topic(path: Path) -> None:
    path.mkdir()
    (path / "partition.metadata").write_text(f"version: 0\ntopic_id: {Uuid.parse('AAAAAAAAAAAAAAAAAAAAZA')}")
    (path / f"{0:020}.log").write_bytes(build_batch(0, 0, 1000, [b"an order"]))


def garbage(path: Path) -> None:
    path.write_bytes(bytes(range(3, 256)) * 40)


def nothing_in_it(path: Path) -> None:
    path.write_bytes(b"")


def an_empty_log(path: Path) -> None:
    path.mkdir()
    (path / f"{0:020}.log").write_bytes(b"")


def garbage_as_a_log(path: Path) -> None:
    path.mkdir()
    garbage(path / f"{0:020}.log")


def a_fifo_as_a_log(path: Path) -> None:
    path.mkdir()
    os.mkfifo(path / f"{0:020}.log")


def a_device_as_a_log(path: Path) -> None:
    path.mkdir()
    (path / f"{0:020}.log").symlink_to("/dev/zero")


def a_fifo(path: Path) -> None:
    os.mkfifo(path)


def a_hole_of_a_terabyte(path: Path) -> None:
    path.mkdir()
    with (path / f"{0:020}.log").open("wb") as file:
        file.truncate(TIB)


NO_LOGS: dict[Callable[[Path], None], str] = {
    empty: "empty|neither a log nor a snapshot|no metadata log|names of other files|no archive",
    of_another_kind: "no metadata log|neither a log nor a snapshot|no archive",
    of_another_topic: "partition of the topic with id AAAAAAAAAAAAAAAAAAAAZA|no archive",
    garbage: "file of a metadata log|neither a directory, nor a segment|is a file|this is a file|no archive",
    nothing_in_it: "file of a metadata log|neither a directory, nor a segment|is a file|this is a file|no archive",
    garbage_as_a_log: "cannot be read|unknown batch format|no archive|no batch|bytes",
    a_fifo_as_a_log: "FIFO|no archive",
    a_device_as_a_log: "device|no archive",
    a_fifo: "FIFO|Not a directory|is a file|this is a file|no archive|file",
    a_hole_of_a_terabyte: "no batch has a length of 0|no archive",
}
"""What is no metadata log, and words of which one must be in what a command says of it."""
SHOWN = {(of_another_topic, words) for words in ("dump", "dump records", "dump verify")}
"""What a command shows although it is no metadata log: `kraft dump` knows the partitions of topics."""


@pytest.mark.parametrize(
    ("make", "words"),
    [
        pytest.param(make, words, id=f"{make.__name__}-{name}")
        for make in NO_LOGS
        for name, words in ON_A_PATH.items()
        if (make, name) not in SHOWN
    ],
)
def test_commands_fail_on_paths_without_a_log(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, make: Callable[[Path], None], words: list[str]
) -> None:
    make(tmp_path / "x")
    done = on(capsys, words, tmp_path / "x", tmp_path / "out")
    assert done.code in ((1, 2) if words[0] in DIRECTORIES_ONLY and (tmp_path / "x").exists() else (1,)), done
    said = done.err + (done.out if words[0] == "check" else "")
    assert any(word in said for word in NO_LOGS[make].split("|")), said
    assert "No change matches" not in said
    assert "no such gap" not in done.out
    assert "Traceback" not in said


@pytest.mark.parametrize("name", ["history", "history json", "history gaps"])
def test_history_of_an_empty_log_is_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    an_empty_log(tmp_path / "x")
    done = on(capsys, ON_A_PATH[name], tmp_path / "x", tmp_path / "out")
    assert (done.code, done.out) == (1, "")
    assert "there is no record yet" in done.err


# ---------------------------------------------------------------------------------------------------- what is missing


def without_the_middle(target: Path) -> Path:
    return damaged("segment-missing", target)


def without_a_segment(target: Path) -> Path:
    return damaged("log-missing-snapshot-present", target)


def without_a_beginning(target: Path) -> Path:
    return damaged("snapshot-all-missing-log-starts-late", target)


def without_the_last(target: Path) -> Path:
    """The newest snapshot stands for more than the log holds."""
    unpack("static3", "nodes/c1", target)
    for file in (target / PARTITION).glob("00000000000000004847.*"):
        file.unlink()
    return target


def with_an_index_only(target: Path) -> Path:
    """Nothing but an index shows that the log went on."""
    unpack("static3", "nodes/c1", target)
    for file in (target / PARTITION).glob("*.checkpoint"):
        file.unlink()
    (target / PARTITION / "00000000000000004847.log").unlink()
    (target / PARTITION / "00000000000000004847.index").touch()
    return target


MISSING: dict[Callable[[Path], Path], str] = {
    without_the_middle: "2908",
    without_a_segment: "there is no segment of the log",
    without_a_beginning: "4072",
    without_the_last: "the log ends at offset 4847",
    with_an_index_only: "the segment that begins at offset 4847 is missing",
}
"""Directories that lack something, and words that tell what."""


@pytest.mark.parametrize(
    "words", [words for name, words in ON_A_PATH.items() if name != "archive verify"],
    ids=[name for name in ON_A_PATH if name != "archive verify"],
)  # fmt: skip
@pytest.mark.parametrize("make", MISSING, ids=[make.__name__ for make in MISSING])
def test_missing_files_of_a_log_are_reported(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, make: Callable[[Path], Path], words: list[str]
) -> None:
    path = make(tmp_path / "x")
    done = on(capsys, words, path, tmp_path / "out")
    assert done.code == 1, done
    said = done.err + (done.out if words[0] == "check" else "")
    if words[0] == "archive" and make is without_a_segment:
        assert "there is no metadata log here" in said
    else:
        assert MISSING[make] in said


@pytest.mark.parametrize("make", MISSING, ids=[make.__name__ for make in MISSING])
def test_arrow_views_fail_on_missing_files(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    path = str(make(tmp_path / "x"))
    words = MISSING[make].replace("2908", "where 2908 comes next")
    if make is without_a_segment:
        with pytest.raises(MetadataLogError, match=words):
            read_records(path, mode=Mode.PERMISSIVE)
        return
    with pytest.raises(DamagedFile, match=words):
        read_records(path).read_all()
    told = [text for text in read_records(path, mode=Mode.PERMISSIVE).read_all()["damage"].to_pylist() if text]
    assert len(told) == 1
    assert words in told[0]
    assert not any(read_records(path, mode=Mode.DROPMALFORMED).read_all()["damage"].to_pylist())


def test_a_complete_log_has_no_missing_parts(node: Path) -> None:
    assert list(missing_parts(OsDisk(), str(node / PARTITION))) == []
    assert find_log_end(OsDisk(), str(node)) == LogEnd(5316, 1795249078733)
    assert find_log_end(OsDisk(), str(node / PARTITION / "00000000000000002908.log")).offset == 4071


def test_the_log_end_is_right_despite_a_wrong_index(tmp_path: Path) -> None:
    """An index shortens the way to the end of a segment, and a wrong one only makes it longer."""
    unpack("static3", "nodes/c1", tmp_path)
    disk, directory = OsDisk(), str(tmp_path / PARTITION)
    index = tmp_path / PARTITION / "00000000000000002908.index"
    assert end_of(disk, directory, 2908) == 4072
    for wrong in (b"", b"\x00\x00\x00\x09\x00\x00\x00\x50", b"\x00\x00\x00\x09\x7f\x00\x00\x00", os.urandom(64)):
        index.write_bytes(wrong)
        assert end_of(disk, directory, 2908) == 4072


# ------------------------------------------------------------------------------------------------- what is not there

NOT_THERE: dict[str, tuple[list[str], str, str]] = {
    "history strange topic": (["history", "NODE", "--topic", "zzz"], "there is no topic zzz", "kraft replay"),
    "history topic": (["history", "NODE", "--topic", "ordres"], "there is no topic ordres", "Did you mean orders"),
    "history topic json": (["history", "NODE", "--topic", "ordres", "--json"], "there is no topic ordres", "orders"),
    "history topic elections": (["history", "NODE", "--topic", "Orders", "--elections"], "no topic Orders", "orders"),
    "history topic html": (["history", "NODE", "--topic", "ordres", "--html", "OUT"], "no topic ordres", "orders"),
    "history topic parquet": (["history", "NODE", "--topic", "ordres", "--parquet", "OUT"], "no topic", "orders"),
    "history partition": (["history", "NODE", "--topic", "orders-99"], "there is no partition orders-99", "orders"),
    "history broker": (["history", "NODE", "--broker", "10"], "broker 10 never was registered", "101, 102"),
    "history both": (["history", "NODE", "--topic", "orders", "--broker", "10"], "broker 10", "101"),
    "history since": (["history", "NODE", "--since", "99999"], "--since offset 99999 is beyond the end", ""),
    "history since time": (["history", "NODE", "--since", "2030-01-01T00:00:00Z"], "is beyond the end", ""),
    "history until": (["history", "NODE", "--until", "99999"], "--until offset 99999 is beyond the end", ""),
    "history until time": (["history", "NODE", "--until", "2030-01-01T00:00:00Z"], "is beyond the end", ""),
    "history until before": (["history", "NODE", "--until", "2020-01-01T00:00:00Z"], "no record here is as old", "0"),
    "history since gaps": (["history", "NODE", "--gaps", "--since", "99999"], "is beyond the end", ""),
    "history before a snapshot": (["history", "LATE", "--since", "5"], "the history begins after offset", ""),
    "replay": (["replay", "NODE", "--at", "99999"], "offset 99999 is beyond the end", "--at"),
    "replay time": (["replay", "NODE", "--at", "2030-01-01T00:00:00Z"], "is beyond the end", "--at"),
    "replay before": (["replay", "NODE", "--at", "2020-01-01T00:00:00Z"], "no record here is as old", "offset 0"),
    "shell at": (["shell", "NODE", "--at", "99999", "ls", "/"], "is beyond the end", ""),
    "shell cat": (["shell", "NODE", "cat", "/image/topics/byName/ordres/0"], "No such file", "Did you mean orders"),
    "shell ls": (["shell", "NODE", "ls", "/image/cluster/brokerz"], "no such file", "Did you mean brokers"),
    "shell find": (["shell", "NODE", "find", "/imgae"], "no such file", "Did you mean image"),
    "shell tree": (["shell", "NODE", "tree", "/nothing/at/all"], "No such file", ""),
    "diff": (["diff", "NODE@1", "NODE@99999"], "offset 99999 is beyond the end", "Leave @MOMENT out"),
    "diff time": (["diff", "NODE", "NODE@2030-01-01T00:00:00Z"], "is beyond the end", "Leave @MOMENT out"),
    "whatif fail": (["whatif", "NODE", "--fail", "9"], "broker 9 is not registered", "101"),
    "whatif shutdown": (["whatif", "NODE", "--shutdown", "9"], "broker 9 is not registered", "101"),
    "whatif rack": (["whatif", "NODE", "--fail-rack", "nowhere"], "no broker is registered in rack nowhere", "rack"),
    "whatif reassign": (["whatif", "NODE", "--reassign", "PLAN"], "there is no partition ordres-0", "orders"),
    "whatif at": (["whatif", "NODE", "--at", "99999", "--elect", "preferred"], "is beyond the end", ""),
    "dump from": (["dump", "--since", "99999", "SEGMENT"], "no record has offset 99999 or a later one", ""),
    "dump until": (["dump", "NODE", "--until", "99999"], "--until offset 99999 is beyond the end", ""),
    "dump until time": (["dump", "NODE", "--until", "2030-01-01T00:00:00Z"], "is beyond the end: the last record", ""),
    "history unavailable": (["history", "NODE", "--unavailable", "--topic", "order"], "there is no topic order", ""),
    "replay partition": (["replay", "NODE", "--topic", "orders-77"], "there is no partition orders-77", "0 to 5"),
    "replay topic": (["replay", "NODE", "--topic", "order-1"], "there is no topic order", "orders"),
    "dump to": (["dump", "--records", "--until", "4", "SEGMENT"], "no record has an offset from 0 to 4", ""),
    "dump times": (
        ["dump", "--until", "2001-01-01T00:00:00Z", "SEGMENT"],
        "no record has a time in the requested range",
        "",
    ),
}


@pytest.mark.parametrize(("words", "error", "hint"), NOT_THERE.values(), ids=list(NOT_THERE))
def test_names_that_never_existed_are_errors(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, node: Path, words: list[str], error: str, hint: str
) -> None:
    """With what was probably meant, and with exit code 1."""
    plan = tmp_path / "plan.json"
    plan.write_text('{"version": 1, "partitions": [{"topic": "ordres", "partition": 0, "replicas": [101]}]}')
    if "LATE" in words:
        unpack("static3", "nodes/c1", tmp_path / "late")
        (tmp_path / "late" / PARTITION / "00000000000000000000.log").unlink()
    names = {
        "OUT": str(tmp_path / "out"),
        "PLAN": str(plan),
        "LATE": str(tmp_path / "late"),
        "SEGMENT": str(node / PARTITION / "00000000000000002908.log"),
    }
    done = run(capsys, *(names.get(word, word.replace("NODE", str(node))) for word in words))
    assert done.code == 1, done
    assert error in done.err
    assert hint in done.err.partition("hint: ")[2]
    assert "No change matches" not in done.err
    assert not (tmp_path / "out").exists()


def test_names_of_deleted_entries_have_a_history(capsys: pytest.CaptureFixture[str], node: Path) -> None:
    """Topics that were deleted and a broker that was unregistered have their stories."""
    story = run(capsys, "history", str(node)).out
    [deleted, *_] = [line.split("topic ")[1].partition(":")[0] for line in story.splitlines() if ": deleted" in line]
    for words in (["--topic", deleted], ["--topic", f"{deleted}-0"], ["--broker", "104"]):
        done = run(capsys, "history", str(node), *words)
        assert (done.code, done.err) == (0, "")
        assert done.out


def test_unknown_record_types_are_an_error(node: Path) -> None:
    with pytest.raises(ValueError, match="there is no record type 'TopicRecrd'"):
        read_records(str(node), filters=Filters(types=("TopicRecrd",)))
