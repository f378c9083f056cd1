"""`kraft watch` and `kraft archive --from H:P` on a node of ours over TCP, which writes meanwhile."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest
import trio
from msgspec import Struct

from kraft.admin import ConfigChange, ResourceType, open_admin
from kraft.cli.cluster.administration import parse_bootstrap
from kraft.cli.main import main
from metadata_log.disk import OsDisk
from metadata_log.reading.reader import read_log
from metadata_log.records.batch import RecordBatch
from support.kraft.command_line import CLUSTER_ID, run, write_config
from support.loopback import free_ports

FAST = {"controller.quorum.election.timeout.ms": "100", "metadata.max.idle.interval.ms": "20"}
CLEAR = b"\x1b[2J\x1b[1;1H"
KRAFT = [sys.executable, "-m", "kraft"]


class Served(Struct, frozen=True):
    """A node that runs."""

    address: str
    partition: Path

    def set(self, *values: str) -> None:
        """Write a few records."""
        trio.run(_set, self.address, values)

    def log(self) -> bytes:
        """The bytes of its log so far."""
        return log_of(self.partition)


async def _set(address: str, values: tuple[str, ...]) -> None:
    async with open_admin(parse_bootstrap(address), timeout_ms=60_000) as admin:
        for value in values:
            change = ConfigChange(
                resource_type=ResourceType.CLIENT_METRICS, resource_name=value, key="interval.ms", value="1000"
            )
            await admin.alter_configs([change])


def log_of(directory: Path) -> bytes:
    return b"".join(item.data for item in read_log(OsDisk(), str(directory)) if isinstance(item, RecordBatch))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A controller of ours that is the only voter."""
    port = free_ports(1)[0]
    folder = tmp_path_factory.mktemp("followed")
    config = write_config(folder, port=port, **FAST)
    with pytest.raises(SystemExit):
        main(["format", "-c", str(config), "-t", CLUSTER_ID])
    command = [*KRAFT, "serve", "-c", str(config), "--until-stdin-closes"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as node:
        try:
            served = Served(f"127.0.0.1:{port}", folder / "log" / "__cluster_metadata-0")
            served.set("first")
            yield served
        finally:
            node.kill()


def test_watch_prints_the_lines_of_dump(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    watch = ("watch", "--bootstrap-controller", served.address)
    served.set("second")
    seen = run(capsys, *watch, "--since", "beginning", "--noop", "--count", "30")
    assert (seen.code, seen.err) == (0, "")
    dumped = run(capsys, "dump", "--records", "--json", "--noop", str(served.partition)).out.splitlines()
    lines = [json.loads(line) for line in dumped if '"offset"' in line]
    expected = [line for line in lines if line["file"].endswith(".log")][:30]
    for line in expected:
        del line["file"], line["position"]
    assert [json.loads(line) for line in seen.out.splitlines()] == expected
    typed = run(capsys, *watch, "--since", "3", "--type", "ConfigRecord", "--count", "3")
    assert [json.loads(line)["json"]["resourceName"] for line in typed.out.splitlines()] == ["", "first", "second"]
    assert run(capsys, *watch, "--raw", "--for", "0.1") == (0, "", "")
    wrong = run(capsys, *watch, "--raw", "--since", "100000000")
    assert (wrong.code, "offset 100000000 is not there yet" in wrong.err) == (1, True)
    assert "'soon' is neither an offset nor a time" in run(capsys, *watch, "--since", "soon").err
    lately = run(capsys, *watch, "--since", "-1h", "--type", "ConfigRecord", "--count", "3")
    assert lately.out == typed.out


def test_watch_tells_what_happens_in_sentences(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    watch = ("watch", "--bootstrap-controller", served.address)
    served.set("told")
    seen = run(capsys, *watch, "--since", "beginning", "--count", "1")
    assert (seen.code, seen.err) == (0, "")
    assert re.fullmatch(r"\S+Z 0 controller 1 leads in epoch 1, with the votes of 1\n", seen.out)
    whole = run(capsys, *watch, "--since", "beginning", "--for", "2", "--json")
    events = [json.loads(line) for line in whole.out.splitlines()]
    [told] = [one for one in events if one["text"] == "client_metrics told: interval.ms = 1000"]
    assert (told["cause"], told["partitions"]) == ("ConfigRecord", [])
    later = run(capsys, *watch, "--since", str(told["offset"]), "--count", "1")
    assert later.out.endswith(f" {told['offset']} {told['text']}\n")
    wrong = run(capsys, *watch, "--since", "100000000")
    assert (wrong.code, "offset 100000000 is not there yet" in wrong.err) == (1, True)
    at = run(capsys, *watch, "--since", told["time"], "--count", "1")
    assert at.out.startswith(told["time"])
    raw = run(capsys, *watch, "--raw", "--since", str(told["offset"]), "--count", "1")
    assert json.loads(raw.out)["name"] == "ConfigRecord"


def test_watch_tells_new_events_at_once(served: Served) -> None:
    command = [*KRAFT, "watch", "--bootstrap-controller", served.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watcher:
        assert watcher.stdout is not None
        number = 0
        while not select.select([watcher.stdout], [], [], 1)[0]:  # the first ones may come before the watch has begun
            number += 1
            served.set(f"new-{number}")
        line = watcher.stdout.readline()
        watcher.send_signal(signal.SIGINT)
        watcher.communicate(timeout=60)
    assert re.match(r"\S+Z \d+ client_metrics new-\d+: interval.ms = 1000\n", line)
    assert watcher.returncode == 130


def test_a_watched_quorum_is_printed_in_blocks_with_the_time_or_repainted(served: Served) -> None:
    command = [*KRAFT, "quorum", "status", "--watch", "--bootstrap-controller", served.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as watcher:
        assert watcher.stdout is not None
        blocks = [[watcher.stdout.readline() for _ in range(10)] for _ in range(2)]
        watcher.kill()
    for block in blocks:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z\n", block[0])
        assert block[1].startswith("ClusterId:")
        assert block[-1] == "\n"
    assert blocks[0][0] < blocks[1][0]
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL) as watcher:
        os.close(theirs)
        painted = b""
        while painted.count(CLEAR) < 3:
            painted += os.read(ours, 4096)
        watcher.kill()
    os.close(ours)
    first, second = painted.split(CLEAR)[1:3]
    assert (first.count(b"ClusterId:"), second.count(b"ClusterId:")) == (1, 1)
    assert first[:24] < second[:24]


def test_secrets_are_hidden(served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "password").write_text("hunter2")
    cluster = ("--bootstrap-controller", served.address)
    run(capsys, "users", "set", "alice", "--password-file", str(tmp_path / "password"), *cluster)
    words = ("watch", *cluster, "--since", "0", "--type", "UserScramCredentialRecord", "--count", "1")
    hidden, shown = (json.loads(run(capsys, *words, *more).out)["json"] for more in ((), ("--show-secrets",)))
    assert {name for name in shown if hidden[name] != shown[name]} == {"salt", "storedKey", "serverKey"}


def test_a_followed_archive_equals_the_log_byte_for_byte(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "kept"
    first = run(capsys, "archive", "--from", served.address, "--to", str(to), "--for", "0", "--json")
    assert first.code == 0, first.err
    served.set("later")
    second = run(capsys, "archive", "--from", served.address, "--to", str(to), "--for", "0", "--verify", "--json")
    added, verified = map(json.loads, second.out.splitlines())
    assert added["records"] == added["endOffset"] - json.loads(first.out)["endOffset"] > 0
    assert (verified["ok"], verified["gaps"], verified["clusterId"]) == (True, [], CLUSTER_ID)
    kept = log_of(to)
    assert kept == served.log()[: len(kept)]
    other = msgspec.json.decode((to / "manifest.json").read_bytes())
    other["cluster_id"] = "AAAAAAAAAAAAAAAAAAAAAA"
    (to / "manifest.json").write_bytes(msgspec.json.encode(other))
    refused = run(capsys, "archive", "--from", served.address, "--to", str(to), "--for", "0")
    assert (refused.code, "the archive is of cluster AAAA" in refused.err) == (1, True)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))])
def test_a_killed_archiver_continues_where_it_was(
    served: Served, tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = Random(seed)
    to = tmp_path / "kept"
    command = [*KRAFT, "archive", "--from", served.address, "--to", str(to), "--interval", "0.05"]
    for _ in range(4):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as archiver:
            assert archiver.stdout is not None
            if rng.random() < 0.7:
                archiver.stdout.readline()
            served.set(*(f"{rng.random()}" for _ in range(rng.randrange(5))))
            with pytest.raises(subprocess.TimeoutExpired):
                archiver.wait(rng.random() / 3)
            archiver.kill()
    done = run(capsys, "archive", "--from", served.address, "--to", str(to), "--for", "0", "--verify", "--json")
    assert done.code == 0, done.err
    kept = log_of(to)
    assert kept == served.log()[: len(kept)]
    assert json.loads(done.out.splitlines()[-1])["endOffset"] >= 10


def test_the_program_of_the_page(served: Served, tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "howto" / "watch-a-cluster.md").read_text()
    (tmp_path / "follow.py").write_text(page.partition("```python\n")[2].partition("```")[0])
    command = [sys.executable, str(tmp_path / "follow.py"), *served.address.split(":"), "20"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert re.fullmatch(r"offset 0, epoch 1: \d+ bytes", printed[0])
    assert len(printed) >= 10
