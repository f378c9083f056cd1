"""`kraft quickstart`: the tour holds on real processes, and fails where the cluster is really broken."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
import trio

from kraft.broker.metadata.auto_creation import internal_topic
from kraft.cli.main import main
from kraft.client import open_client
from kraft.config import Config
from kraft.handling.coordinators import TOPICS
from kraft.handling.settings import RequestSettings
from kraft.local.local_cluster import prepare_cluster
from metadata_log.disk import OsDisk
from metadata_log.log.quorum_state_file import StoredElection, read_quorum_state, write_quorum_state
from transport.interface import Endpoint

PATIENCE_SECONDS = 120
"""A quickstart that hangs for so long is ended, which fails its test."""


class Quickstart:
    """A quickstart in a process of its own, read line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.seen: list[dict[str, Any]] = []

    def until(self, event: str, **facts: object) -> dict[str, Any]:
        """The next line with this event and these facts."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found: dict[str, Any] = json.loads(line)
            self.seen.append(found)
            if found["event"] == event and facts.items() <= found.items():
                return found
        raise AssertionError(f"it ended with {self.process.wait()} and never said {event} {facts}: {self.seen}")

    def pids(self) -> dict[int, int]:
        """The process of each node."""
        (cluster,) = (line for line in self.seen if line["event"] == "cluster")
        return {node["id"]: node["pid"] for node in cluster["nodes"]}


@contextmanager
def quickstart(*words: str) -> Iterator[Quickstart]:
    command = [sys.executable, "-m", "kraft", "quickstart", "--json", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    patience = Timer(PATIENCE_SECONDS, process.kill)
    patience.start()
    try:
        yield Quickstart(process)
    finally:
        patience.cancel()
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def is_gone(pid: int) -> bool:
    """Whether a process has ended; a zombie has."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


def test_every_step_of_the_tour_holds(tmp_path: Path) -> None:
    with quickstart("--for", "60", "--dir", str(tmp_path)) as tour:
        cluster = tour.until("cluster")
        assert tour.until("verdict")["ok"] is True
        assert tour.process.wait() == 0
    steps = [line["step"] for line in tour.seen if line["event"] == "step"]
    assert steps == [
        *(
            "elect",
            "register",
            "create",
            "write",
            "share",
            "commit",
            "fail over",
            "go on",
            "restart",
            "lose",
            "return",
            "read",
        ),
        *("verify", "stop"),
    ]
    verified = next(line for line in tour.seen if line.get("step") == "verify")
    assert (verified["acknowledged"], verified["logs"]) == (1300, 6)
    written = next(line for line in tour.seen if line.get("step") == "read")
    assert written["acknowledged"] == written["read"] > 100
    assert written["again"] >= 0
    shared = next(line for line in tour.seen if line.get("step") == "share")
    assert sorted(number for numbers in shared["assigned"] for number in numbers) == [0, 1, 2]
    lost = next(line for line in tour.seen if line.get("step") == "lose")
    nodes = {node["id"]: node["endpoint"] for node in cluster["nodes"]}
    assert nodes[lost["killed"]] == shared["coordinator"]
    assert len(cluster["bootstrapController"].split(",")) == 3
    assert len(cluster["bootstrapServer"].split(",")) == 3
    assert sorted(path.name for path in tmp_path.glob("*.properties")) == [
        *(f"broker-{n}.properties" for n in (101, 102, 103)),
        *(f"controller-{n}.properties" for n in (1, 2, 3)),
    ]
    assert all(is_gone(pid) for pid in tour.pids().values())


@pytest.mark.soak
def test_a_tour_without_a_quorum_fails_with_an_error(tmp_path: Path) -> None:
    """Two of three controllers hang, as when their machines are paused: no leader can be elected, nothing commits."""
    with quickstart("--for", "9", "--dir", str(tmp_path), "--brokers", "0") as tour:
        tour.until("cluster")
        leader = tour.until("step", step="elect")["leader"]
        pids = tour.pids()
        paused = [pid for node_id, pid in pids.items() if node_id != leader]
        for pid in paused:
            os.kill(pid, signal.SIGSTOP)
        failed = tour.until("step", ok=False)
        for pid in paused:
            os.kill(pid, signal.SIGCONT)
        assert failed["step"] in ("commit", "fail over")
        assert "--for" in failed["text"]
        assert tour.until("verdict")["ok"] is False
        assert tour.process.wait() == 1
    assert all(is_gone(pid) for pid in pids.values())


def test_a_crashed_node_fails_the_step_at_once(tmp_path: Path) -> None:
    with quickstart("--for", "100", "--dir", str(tmp_path), "--brokers", "0") as tour:
        tour.until("cluster")
        victim = min(tour.pids())
        os.kill(tour.pids()[victim], signal.SIGKILL)
        failed = tour.until("step", ok=False)
        assert f"node {victim} ended by SIGKILL" in failed["text"]
        assert tour.process.wait() == 1


def test_no_process_survives_a_quickstart_that_is_killed(tmp_path: Path) -> None:
    with quickstart("--dir", str(tmp_path), "--controllers", "1", "--brokers", "0") as running:
        running.until("status", leaderId=1)
        node = os.pidfd_open(running.pids()[1])
        running.process.kill()
        ended, _, _ = select.select([node], [], [], PATIENCE_SECONDS)
        os.close(node)
    assert ended
    assert "stopped node=1" in (tmp_path / "controller-1.log").read_text()


@pytest.mark.parametrize("brokers", range(1, 5))
def test_so_many_brokers_can_make_every_internal_topic(brokers: int, tmp_path: Path) -> None:
    cluster = prepare_cluster(tmp_path, controllers=1, brokers=brokers, port_base=19_000)
    for config in [Config.load(str(node.config_path)) for node in cluster.brokers]:
        assert not config.warnings
        settings = config.of(RequestSettings, broker_id=config.node_id)
        topics = [internal_topic(settings, kind) for kind in TOPICS]
        assert {one.name: one.replication_factor for one in topics if one} == dict.fromkeys(
            TOPICS.values(), min(3, brokers)
        )
        assert settings.transactions.topic_min_isr == min(2, brokers)
        assert settings.share_states.topic_min_isr == min(2, brokers)


def test_one_controller_asks_for_votes_at_once_in_a_new_cluster_and_only_there(tmp_path: Path) -> None:
    disk = OsDisk()
    called = StoredElection(leader_epoch=1, voted_id=1, current_voters=(1, 2, 3))
    later = StoredElection(leader_epoch=7, leader_id=2, current_voters=(1, 2, 3))
    first, *others = prepare_cluster(tmp_path, controllers=3, brokers=0, port_base=19_000).controllers
    assert read_quorum_state(disk, first.partition) == called
    assert [read_quorum_state(disk, one.partition) for one in others] == [None, None]
    write_quorum_state(disk, first.partition, later)
    prepare_cluster(tmp_path, controllers=3, brokers=0, port_base=19_000)
    assert read_quorum_state(disk, first.partition) == later


async def _write_in_a_transaction(bootstrap: str) -> int:
    host, _, port = bootstrap.rpartition(":")
    with trio.fail_after(PATIENCE_SECONDS / 2):
        async with open_client([Endpoint(host, int(port))]) as client, client.transactional("cook") as producer:
            async with producer.transaction() as transaction:
                delivery = await transaction.send("orders", b"three apples")
            return (await delivery.wait()).offset


def test_one_broker_runs_transactions(tmp_path: Path) -> None:
    with quickstart("--dir", str(tmp_path), "--controllers", "1", "--brokers", "1") as running:
        cluster = running.until("cluster")
        assert trio.run(_write_in_a_transaction, cluster["bootstrapServer"]) == 0
    assert "cannot be created" not in (tmp_path / "broker-101.log").read_text()


def test_a_quickstart_continues_the_cluster_in_its_folder(tmp_path: Path) -> None:
    """A quickstart runs until Ctrl-C or SIGTERM, and ends its nodes with it."""
    found = []
    unfenced = {"101": {"state": "unfenced", "replicas": 0, "inSync": 0, "leads": 0}}
    for number, brokers, seen in ((signal.SIGINT, "1", unfenced), (signal.SIGTERM, "0", {})):
        with quickstart("--dir", str(tmp_path), "--controllers", "1", "--brokers", brokers) as running:
            cluster = running.until("cluster")
            status = running.until("status", leaderId=1, brokers=seen)
            running.process.send_signal(number)
            assert running.process.wait() == 0
            assert is_gone(running.pids()[1])
            found.append((cluster["clusterId"], status["leaderEpoch"]))
    first, second = found
    assert first[0] == second[0]
    assert second[1] > first[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--brokers", "-1"], "'--brokers'"),
        (["--for", "5", "--controllers", "1"], "the tour needs 3 controllers"),
        (["--dir", "a,b"], "comma"),
    ],
)
def test_quickstart_refuses_invalid_arguments(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["quickstart", *words])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
