"""`/readyz` tells a wedged node from a ready one: six wedges, each on a running node."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from random import Random
from threading import Event
from typing import cast

import pytest
import trio
from trio.testing import MockClock

import kraft.metrics.readiness
from kraft.config import Config
from kraft.metrics.own import no_leader_reason
from kraft.metrics.readiness import is_ready, readiness
from kraft.node.clock import NodeClock
from kraft.node.logging import NodeLog
from kraft.node.metrics.monitor import LIVE_SECONDS, Monitor
from kraft.node.node import Node
from kraft.node.run import run_node
from kraft.quorum.events import Resign
from kraft.testing import Cluster
from metadata_log.disk import DirectoryDisk, File, OsDisk
from metadata_log.log.log_dir import format_directory
from scraped_metrics import Got, get
from support.kraft.command_line import CLUSTER_ID, write_config
from support.loopback import free_ports
from transport.tcp import TcpTransport
from views_of_readiness import failing, ready, until, view_of


async def test_a_leader_that_no_follower_reaches_is_not_ready(autojump_clock: MockClock) -> None:
    """Wedge 1: the leader is cut off, and still leads until its check of the quorum ends."""
    async with Cluster(controllers=3, seed=5) as cluster:
        leader = await cluster.leader()
        await ready(cluster, *cluster.ids)
        cluster.network.isolate(leader)
        others = cluster.others(leader)
        await cluster.leader(among=others)
        await ready(cluster, *others)
        await until(lambda: "contact" in failing(readiness(view_of(cluster.node(leader)))))
        assert is_ready(readiness(view_of(cluster.node(others[0]))))
        cluster.network.heal(leader)
        await ready(cluster, leader)


async def test_a_follower_without_its_leader_and_a_majority_is_not_ready(autojump_clock: MockClock) -> None:
    """Wedge 2: two of three are dead. Kafka's own state says `follower` of the dead leader."""
    async with Cluster(controllers=3, seed=6) as cluster:
        leader = await cluster.leader()
        await ready(cluster, *cluster.ids)
        last = cluster.others(leader)[0]
        for node_id in cluster.others(last):
            await cluster.kill(node_id)
        await trio.sleep(12)
        view = view_of(cluster.node(last))
        checks = readiness(view)
        assert not is_ready(checks)
        assert is_ready(checks, without_quorum=True)
        assert failing(checks) & {"leader", "contact"}
        assert no_leader_reason(view) is not None
        assert not view.has_quorum


async def test_an_only_voter_is_ready_without_other_nodes(autojump_clock: MockClock) -> None:
    async with Cluster(controllers=1, seed=8) as cluster:
        await cluster.leader()
        await ready(cluster, 1)
        await trio.sleep(60)
        assert is_ready(readiness(view_of(cluster.node(1))))


class SlowDisk:
    """The disk of this machine, with log fsyncs that wait until `flows` is set. All else passes through."""

    def __init__(self) -> None:
        self._disk = OsDisk()
        self.flows = Event()
        self.flows.set()

    def __getattr__(self, name: str) -> object:
        return getattr(self._disk, name)

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        file = self._disk.open(path, create=create, writable=writable)
        if path.endswith(".log"):
            fsync = file.fsync

            def wait_and_fsync() -> None:
                self.flows.wait()
                fsync()

            return cast(File, _Waiting(file, wait_and_fsync))
        return file


class _Waiting:
    def __init__(self, file: File, fsync: object) -> None:
        self._file = file
        self.fsync = fsync

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


@asynccontextmanager
async def monitored(tmp_path: Path, disk: DirectoryDisk, **more: str) -> AsyncIterator[tuple[Node, int]]:
    """A node over TCP with its metrics listener; yields the port of the listener."""
    port, metrics = free_ports(2)
    path = write_config(tmp_path, port=port, kraft_metrics_listener=str(metrics), **more)
    config = Config.load(str(path))
    format_directory(
        OsDisk(),
        config.metadata_log_dir,
        node_id=1,
        cluster_id=CLUSTER_ID,
        rng=Random(1),
        now_ms=1_700_000_000_000,
    )
    clock = NodeClock()
    async with trio.open_nursery() as nursery:

        async def run(task_status: trio.TaskStatus[Node]) -> None:
            await run_node(
                config,
                transport=TcpTransport(),
                disk=disk,
                rng=Random(1),
                clock=clock,
                monitor=Monitor(config, clock),
                task_status=task_status,
            )

        node: Node = await nursery.start(run)
        yield node, metrics
        nursery.cancel_scope.cancel()


async def test_a_leader_that_has_resigned_is_not_ready(tmp_path: Path) -> None:
    """Wedge 3: the node has resigned, and has not entered another epoch. It is not ready at once."""
    async with monitored(tmp_path, OsDisk(), controller_quorum_election_timeout_ms="5000") as (node, port):
        await answers(port, "/readyz", 200)
        node._process.step(Resign(node.status().leader.epoch, "test"), node._clock.now_ms())
        wedged = await asked(port, "/readyz")
    assert wedged.status == 503
    (running,) = [one for one in wedged.json["checks"] if one["name"] == "running"]
    assert (running["ok"], running["value"]) == (False, "resigned")


async def asked(port: int, path: str) -> Got:
    return await trio.to_thread.run_sync(get, port, path)


async def answers(port: int, path: str, status: int) -> Got:
    """Ask until the answer has this status."""
    with trio.fail_after(30):
        for _ in count():
            got = await asked(port, path)
            if got.status == status:
                return got
            await trio.sleep(0.05)
    raise AssertionError("not reached")


async def test_a_node_with_a_stuck_disk_is_alive_and_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wedge 4: an fsync of the log does not return."""
    monkeypatch.setattr(kraft.metrics.readiness, "MAX_FSYNC_S", 0.3)
    monkeypatch.setattr("kraft.node.metrics.monitor.UNREADY_AFTER_SECONDS", 0.2)
    monkeypatch.setattr("kraft.node.background._QUICK_S", 0.0)
    disk = SlowDisk()
    async with monitored(tmp_path, cast(DirectoryDisk, disk)) as (_, port):
        await answers(port, "/readyz", 200)
        disk.flows.clear()
        try:
            wedged = await answers(port, "/readyz", 503)
            assert [one["name"] for one in wedged.json["checks"] if not one["ok"]] == ["disk"]
            assert (await asked(port, "/livez")).status == 200
        finally:
            disk.flows.set()
        await answers(port, "/readyz", 200)


async def test_a_voter_that_finds_no_other_voter_is_never_ready(tmp_path: Path) -> None:
    """Wedge 5: a cold start with addresses that lead nowhere. Its port is bound, as in Strimzi's issue 12760."""
    port, *nowhere = free_ports(3)
    voters = f"1@127.0.0.1:{port},2@127.0.0.1:{nowhere[0]},3@127.0.0.1:{nowhere[1]}"
    node = monitored(
        tmp_path,
        OsDisk(),
        listeners=f"CONTROLLER://127.0.0.1:{port}",
        controller_quorum_voters=voters,
        controller_quorum_election_timeout_ms="100",
        controller_quorum_fetch_timeout_ms="200",
    )
    async with node as (_, metrics):
        with trio.fail_after(60):
            for _ in count():
                if 'reason="no-majority-reachable"' in (await asked(metrics, "/metrics")).body:
                    break
                await trio.sleep(0.05)
        wedged = await asked(metrics, "/readyz")
        assert wedged.status == 503
        assert {"leader", "contact"} <= {one["name"] for one in wedged.json["checks"] if not one["ok"]}
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass
        assert (await asked(metrics, "/readyz?exclude=quorum")).status == 200
        assert (await asked(metrics, "/livez")).status == 200


async def test_a_loop_that_stood_still_is_not_alive_at_once(tmp_path: Path) -> None:
    """Wedge 6: requests that waited while the process was stopped learn of it; the next ones get 200."""
    clock = MockClock(rate=1.0)
    results: list[int] = []

    async def stand_still() -> None:
        config = Config.load(str(write_config(tmp_path, port=free_ports(1)[0], kraft_metrics_listener="0")))
        monitor = Monitor(config, NodeClock())
        async with trio.open_nursery() as nursery:
            endpoint = await nursery.start(monitor.run, NodeLog(1, lambda: 0))
            assert (await asked(endpoint.port, "/startupz")).status == 503, "the node recovers its log"
            assert (await asked(endpoint.port, "/readyz")).status == 503
            assert (await asked(endpoint.port, "/metrics")).status == 200
            assert (await asked(endpoint.port, "/livez")).status == 200
            with socket.create_connection(("127.0.0.1", endpoint.port), timeout=5) as waiting:
                waiting.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
                clock.jump(LIVE_SECONDS + 5)
                said = await trio.to_thread.run_sync(waiting.recv, 100)
                results.append(int(said.split()[1]))
            results.append((await answers(endpoint.port, "/livez", 200)).status)
            nursery.cancel_scope.cancel()

    await trio.to_thread.run_sync(lambda: trio.run(stand_still, clock=clock))
    assert results == [503, 200]
