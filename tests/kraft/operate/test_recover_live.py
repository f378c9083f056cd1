"""`kraft recover verify --bootstrap-controller`: a recovered quorum of real directories that runs, over TCP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from msgspec import structs

from kraft.admin import open_admin
from kraft.config import Config
from kraft.node.embed import open_node
from kraft.operate.recover.description import AcceptedStray, read_description
from kraft.operate.recover.live.verify import StrayDirectory, check_live, read_live_quorum
from kraft.process.hosting import host_controller
from metadata_log.disk import OsDisk
from support.kraft.command_line import Done, run
from support.kraft.recovery_data import paths, unpack_cluster
from support.loopback import free_ports
from transport.interface import Endpoint

SECONDS = 60


def recovered(capsys: pytest.CaptureFixture[str], folder: Path, port: int, *words: str) -> Path:
    """The result of a recovery from controller 2 and both brokers of a dynamic quorum."""
    brokers = paths(folder, "b101", "b102")
    planned = run(capsys, "recover", "plan", "--json", str(folder / "c2"), *words, "--brokers", *brokers)
    (folder / "plan.json").write_text(planned.out)
    into = folder / "new"
    apply = ("recover", "apply", str(folder / "plan.json"), "--into", str(into), "--execute")
    done = run(capsys, *apply, "--voters", f"2=127.0.0.1:{port}")
    assert done.code == 0, done.err
    return into


@asynccontextmanager
async def started(into: Path, port: int) -> AsyncIterator[None]:
    """Runs the recovered controller, with its directory moved into place."""
    place = (into / "node-2").rename(into.parent / "c2-in-place")
    settings = {
        "process.roles": "controller",
        "node.id": "2",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
        "log.dirs": str(place),
        "broker.session.timeout.ms": "600000",
        "controller.quorum.election.timeout.ms": "150",
    }
    config = Config.parse("".join(f"{key}={value}\n" for key, value in settings.items()))
    async with open_node(config, application=host_controller) as node:
        await node.wait_for_leader()
        yield


@pytest.fixture(name="verify")
def _verify(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    async def verify(into: Path, port: int, *words: str) -> Done:
        command = ("recover", "verify", str(into), "--bootstrap-controller", f"127.0.0.1:{port}", *words)
        return await trio.to_thread.run_sync(partial(run, capsys, *command))

    return verify


def problems(done: Done) -> dict[str, str]:
    """The failed checks."""
    report = json.loads(done.out)
    found = {one["check"]: one["problem"] for one in report["checks"] if one["problem"] is not None}
    assert report["passed"] is not bool(found)
    assert done.code == (1 if found else 0)
    return found


async def test_a_running_recovery_fails_until_its_brokers_are_back(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, verify: Callable[..., Any]
) -> None:
    folder, (port,) = unpack_cluster("dynamic", tmp_path), free_ports(1)
    into = recovered(capsys, folder, port)
    with trio.fail_after(SECONDS):
        async with started(into, port):
            assert problems(await verify(into, port, "--json")) == {
                "brokers": "brokers 101, 102 are not registered since the recovery. A broker may need some 10 s: the "
                "image believes that its former process lives"
            }
            done = await verify(into, port)
            assert done.out.splitlines()[1].startswith("ok    leader epoch (node 2)")
            assert done.out.splitlines()[-1] == "1 check failed."
            (folder / "b101" / f"late-0.{'0' * 32}-stray").mkdir()
            with_strays = problems(await verify(into, port, "--json", "--brokers", str(folder / "b101")))
            assert with_strays["strays"].startswith("1 partition is (late-0 on 101) renamed to -stray")

            file = into / "recovery.json"
            facts = json.loads(file.read_text())
            other = facts | {"epoch": facts["epoch"] + 100, "clusterId": "x" * 22, "logEnd": 10**9}
            other["voters"] = [facts["voters"][0] | {"directoryId": "A" * 22}, facts["voters"][0] | {"id": 9}]
            file.write_text(json.dumps(other))
            wrong = problems(await verify(into, port, "--json"))
            assert wrong.keys() == {"brokers", "cluster", "leader epoch", "log end", "voters"}
            assert "voter 2 has directory" in wrong["voters"]
            assert wrong["voters"].endswith("node 9 is no voter")


async def test_a_recovery_without_brokers_shows_the_partitions_without_a_leader(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, verify: Callable[..., Any]
) -> None:
    folder, (port,) = unpack_cluster("dynamic", tmp_path), free_ports(1)
    into = recovered(capsys, folder, port, "--brokers-gone", "101,102")
    facts = read_description(OsDisk(), str(into))
    with trio.fail_after(SECONDS):
        async with started(into, port):
            found = problems(await verify(into, port, "--json"))
            assert found.keys() == {"partition leaders"}
            assert found["partition leaders"].endswith(" without a leader")
            async with open_admin([Endpoint("127.0.0.1", port)]) as admin:
                live = await read_live_quorum(admin, seconds=SECONDS)
    assert live.committed > 0
    stuck = structs.replace(live, committed=0)
    (commits,) = [one for one in check_live(facts, stuck) if one.name == "commits"]
    assert commits.problem is not None
    assert "a majority of the voters does not follow" in commits.problem
    stray = AcceptedStray(broker=101, dir="late-0", why="unknown topic", log_end=0)
    accepted = structs.replace(facts, accepted_strays=(stray,))
    (strays,) = [one for one in check_live(accepted, live, [StrayDirectory(101, "late-0")]) if one.name == "strays"]
    assert strays.is_passed


def test_a_running_quorum_is_not_started_on_a_copy(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ("recover", "verify", str(tmp_path), "--bootstrap-controller", "127.0.0.1:9093")
    done = run(capsys, *words, "--offline")
    assert done.code == 2
    assert "--bootstrap-controller asks a running quorum" in done.err
    done = run(capsys, *words)
    assert done.code == 1
    assert "this is no finished recovery: it has no recovery.json" in done.err
