"""Long commands tell their progress, also into pipes, and end at Ctrl-C with one line and nothing half-written."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree
from typing import IO

import pytest

from kraft.sim.search.schedule import Schedule, encode_schedule
from kraft.sim.search.seed_search import SeedSearch
from kraft.sim.world.actions import Action
from metadata_log.archive import open_archive, open_source, verify_archive
from metadata_log.disk import OsDisk
from metadata_log.log.segment import SUFFIX
from metadata_log.reading.log_end import find_log_end
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import ConfigRecord
from metadata_log.types import PARTITION_DIRECTORY
from support.kraft.command_line import run
from support.real_data import unpack

BATCHES = 600_000
"""So many that no command has read them before it is interrupted."""
EPOCH = 13
RECOVERED_EPOCH = EPOCH + 1001
"""Recoveries go on far above every known epoch."""
REPEATS = 1000
"""Of the actions of a run; most of them cannot happen again, but are looked at."""
PATIENCE_SECONDS = 60
LINE = re.compile(r"[A-Z][a-z ]+: (?:.+, )?\d+ s\n")
COMMANDS = tuple(
    line.strip()
    for line in """
    archive --from BIG --to OUT/archive
    doctor collect BIG --records --into OUT/bundle.tar.gz
    dump BIG --verify
    history BIG --html OUT/page.html
    history BIG --parquet OUT/tables
    recover apply LONG/plan.json --into OUT/recovered --force --execute
    recover verify LONG/recovered --offline
    shell BIG find /image
    sim explore --nodes 3
    sim replay LONG/schedule.json
    sim run --seeds 0..9999 --members core --out OUT
    """.splitlines()
    if line.strip()
)


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a real node whose log goes on for long.

    Beside it: an archive of its beginning, the plan of a recovery, a recovered node with a long log, and a schedule.
    """
    root = tmp_path_factory.mktemp("long")
    node = root / "node"
    unpack("static3", "nodes/c1", node)
    archive = open_archive(OsDisk(), str(root / "archive"))
    archive.add(open_source(OsDisk(), str(node)), now_ms=0)
    archive.close()
    plan = root / "plan.json"
    plan.write_bytes(done("recover", "plan", str(node), "--json"))
    done("recover", "apply", str(plan), "--into", str(root / "recovered"), "--force", "--execute")
    search, actions = SeedSearch(members="core", chaos_ms=2000), list[Action]()
    search.run(0, actions)
    schedule = Schedule(scenario=search.scenario(0), actions=tuple(actions) * REPEATS)
    (root / "schedule.json").write_bytes(encode_schedule(schedule))
    lengthen(node, EPOCH)
    lengthen(root / "recovered" / "node-1", RECOVERED_EPOCH)
    return node


def done(*words: str) -> bytes:
    """The output of a command that ends soon."""
    return subprocess.run([sys.executable, "-m", "kraft", *words], stdout=subprocess.PIPE, check=True).stdout


def lengthen(node: Path, epoch: int) -> None:
    """Append batches to the log of a node, in its last epoch."""
    log = node / PARTITION_DIRECTORY
    first = find_log_end(OsDisk(), str(log)).offset + 1
    record = ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="1000")
    batch = build_batch(0, epoch, time.time_ns() // 1_000_000, [encode_record(record, 0)])
    with max(log.glob(f"*{SUFFIX}")).open("ab") as segment:
        # The checksum does not cover the offset.
        segment.writelines(offset.to_bytes(8, "big") + batch[8:] for offset in range(first, first + BATCHES))


@contextmanager
def started(words: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A command whose output is read by pipes; its processes are a group, as on a terminal."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kraft", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "KRAFT_PROGRESS": "yes"},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def first_line(said: IO[str] | None) -> str:
    """The first line about the progress; what comes before it, such as warnings, is skipped."""
    assert said is not None
    skipped = []
    for line in said:
        if LINE.fullmatch(line):
            return line
        skipped.append(line)
    raise AssertionError(f"the command has ended without a word of progress: {''.join(skipped)}")


@pytest.mark.parametrize("line", COMMANDS)
def test_a_long_command_tells_its_progress_and_ends_at_ctrl_c(line: str, big: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    if line.startswith("archive"):
        copytree(big.parent / "archive", archive)
    stands = {"BIG": big, "LONG": big.parent, "OUT": tmp_path}
    words = re.sub("|".join(stands), lambda name: str(stands[name[0]]), line).split()
    with started(words) as process:
        first_line(process.stderr)
        os.killpg(process.pid, signal.SIGINT)
        _, rest = process.communicate(timeout=PATIENCE_SECONDS)
        said = [one for one in rest.splitlines(keepends=True) if not LINE.fullmatch(one)]
        assert (process.returncode, said) == (130, ["kraft: interrupted\n"])
    if archive.exists():
        open_archive(OsDisk(), str(archive)).close()  # as the next run does, which removes what no manifest names
        assert verify_archive(OsDisk(), str(archive)).damages == ()
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.parent != archive] == []


def test_a_short_command_and_one_that_is_asked_to_be_quiet_say_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpack("static3", "nodes/c1", tmp_path / "node")
    monkeypatch.setenv("KRAFT_PROGRESS", "yes")
    monkeypatch.setattr("kraft.cli.progress.FIRST_AFTER_SECONDS", 1e6)
    assert run(capsys, "dump", str(tmp_path / "node")).err == ""
    monkeypatch.setattr("kraft.cli.progress.FIRST_AFTER_SECONDS", 0)
    assert "Reading: " in run(capsys, "dump", str(tmp_path / "node")).err
    assert run(capsys, "dump", "--no-progress", str(tmp_path / "node")).err == ""


def test_a_bundle_that_is_interrupted_is_removed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    unpack("static3", "nodes/c1", tmp_path / "node")
    monkeypatch.setattr(tarfile.TarFile, "addfile", interrupt)
    done = run(capsys, "doctor", "collect", str(tmp_path / "node"), "--into", str(tmp_path / "bundle.tar.gz"))
    assert (done.code, done.err) == (130, "kraft: interrupted\n")
    assert not (tmp_path / "bundle.tar.gz").exists()
