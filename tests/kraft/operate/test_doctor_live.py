"""`kraft doctor --bootstrap-controller` against nodes of ours, over TCP."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio

from kraft.config import Config
from kraft.node.embed import open_node
from kraft.process.hosting import host_controller
from metadata_log.disk import OsDisk
from metadata_log.log.log_dir import format_directory
from metadata_log.records.control import Endpoint, KRaftVersionFeature, VotersRecord, VotersRecordVoter
from metadata_log.types import random_uuid
from support.interop.certificates import Stores, leaf
from support.kraft.command_line import CLUSTER_ID, Done, run
from support.loopback import free_ports

PATIENCE_SECONDS = 90
OTHER_CLUSTER = "bXJKq1A8SQG97oAf89FrDw"
FETCH_MS = 2_000
"""So that a busy machine does not make elections."""


def configs(directory: Path, ports: list[int], *, dynamic: int = 0) -> list[Config]:
    """The configurations of controllers on this machine, formatted; the first `dynamic` ones are voters in the log."""
    static = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in enumerate(ports, 1))
    servers = ",".join(f"127.0.0.1:{port}" for port in ports)
    ids = {node_id: random_uuid(Random(node_id)) for node_id in range(1, len(ports) + 1)}
    voters = VotersRecord(
        voters=tuple(
            VotersRecordVoter(
                voter_id=node_id,
                voter_directory_id=ids[node_id],
                endpoints=(Endpoint("CONTROLLER", "127.0.0.1", port),),
                kraft_version_feature=KRaftVersionFeature(0, 1),
            )
            for node_id, port in list(enumerate(ports, 1))[:dynamic]
        )
    )
    result = []
    for node_id, port in enumerate(ports, 1):
        log_dir = directory / f"node-{node_id}"
        format_directory(
            OsDisk(),
            str(log_dir),
            node_id=node_id,
            cluster_id=CLUSTER_ID,
            rng=Random(node_id),
            now_ms=1_700_000_000_000,
            dynamic=bool(dynamic),
            initial_voters=voters if 0 < node_id <= dynamic else None,
        )
        settings = {
            "process.roles": "controller",
            "node.id": str(node_id),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://127.0.0.1:{port}",
            "log.dirs": str(log_dir),
            "controller.quorum.election.timeout.ms": "500",
            "controller.quorum.fetch.timeout.ms": str(FETCH_MS),
            **({"controller.quorum.bootstrap.servers": servers} if dynamic else {"controller.quorum.voters": static}),
        }
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        (directory / f"node-{node_id}.properties").write_text(text)
        result.append(Config.parse(text))
    return result


async def serve(config: Config, *, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
    with trio.CancelScope() as life:
        async with open_node(config, application=host_controller):
            task_status.started(life)
            await trio.sleep_forever()


class Doctor:
    """Runs `kraft doctor` against the controllers at some ports."""

    def __init__(self, capsys: pytest.CaptureFixture[str], ports: list[int]) -> None:
        self.capsys = capsys
        self.where = ",".join(f"127.0.0.1:{port}" for port in ports)

    async def run(self, *words: str, seconds: str = "30") -> Done:
        command = ("doctor", "--bootstrap-controller", self.where, "--timeout", seconds, *words)
        return await trio.to_thread.run_sync(partial(run, self.capsys, *command))

    async def examine(self, *words: str, seconds: str = "30") -> tuple[int, dict[str, Any]]:
        done = await self.run("--json", *words, seconds=seconds)
        return done.code, json.loads(done.out)

    async def until(self, holds: Callable[[dict[str, Any]], bool], *words: str, seconds: str = "30") -> dict[str, Any]:
        """Examine until something holds; the test's own limit ends this."""
        while True:
            _, report = await self.examine(*words, seconds=seconds)
            if holds(report):
                return report


def severe(report: dict[str, Any]) -> list[str]:
    return [one["id"] for one in report["findings"] if one["severity"] in {"fatal", "error"}]


def finding(report: dict[str, Any], check: str) -> dict[str, Any]:
    return next(one for one in report["findings"] if one["id"] == check)


def ids(report: dict[str, Any]) -> set[str]:
    return {one["id"] for one in report["findings"]}


async def test_a_static_quorum_loses_one_voter_and_then_its_leader(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ports = free_ports(3)
    doctor = Doctor(capsys, ports)
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            lives = [await nursery.start(serve, config) for config in configs(tmp_path, ports)]
            healthy = await doctor.until(lambda report: not severe(report))
            assert healthy["cluster"] == doctor.where
            assert {one["id"] for one in healthy["skipped"]} >= {"log-gap", "meta-missing"}
            assert "no-leader" not in {one["id"] for one in healthy["skipped"]}
            _, planned = await doctor.examine("--before", "restart", "2")
            assert planned["before"] == {"operation": "restart", "node": 2, "safe": True}

            lives[2].cancel()
            lost = await doctor.until(lambda report: "voter-endpoint-unreachable" in ids(report))
            unreachable = finding(lost, "voter-endpoint-unreachable")
            assert unreachable["subject"] == f"127.0.0.1:{ports[2]}"
            assert unreachable["nodes"] == ["node 3"]
            assert "Connection refused" in unreachable["evidence"]
            code, planned = await doctor.examine("--before", "restart", "2")
            assert code == 2
            assert not planned["before"]["safe"]
            assert "voter 3 is behind" in finding(planned, "before-restart")["evidence"]

            lives[1].cancel()
            silent = await doctor.until(lambda report: "no-leader" in ids(report), seconds="0.5")
            gone = finding(silent, "no-leader")
            assert gone["severity"] == "fatal"
            assert f"127.0.0.1:{ports[2]}" in gone["remedy"]
            assert {"id": "offline-partitions", "needs": "a readable metadata log"} in silent["skipped"]
            # The leader resigns by check-quorum; until then a late answer looks like a quorum without a leader.
            while (done := await doctor.run(seconds="0.5")).code != 2:
                pass
            assert "fatal: no-leader" in done.out
            nursery.cancel_scope.cancel()


async def test_a_dynamic_quorum_of_two_voters_and_an_observer(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ports = free_ports(3)
    doctor = Doctor(capsys, ports)
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            for config in configs(tmp_path, ports, dynamic=2):
                await nursery.start(serve, config)
            report = await doctor.until(lambda report: {"voters-even", "observer-controller"} <= ids(report))
            assert finding(report, "voters-even")["subjects"] == ["1", "2"]
            observer = finding(report, "observer-controller")
            assert observer["nodes"] == ["node 3"]
            assert observer["remedy"].startswith("kraft quorum add 3")
            assert severe(report) == []

            # The remedy is carried out, and the findings are gone.
            added = ("quorum", "add", "3", "--bootstrap-controller", doctor.where)
            done = await trio.to_thread.run_sync(partial(run, capsys, *added))
            assert done.code == 0, done.err
            cured = await doctor.until(lambda report: not {"voters-even", "observer-controller"} & ids(report))
            assert severe(cured) == []
            _, planned = await doctor.examine("--before", "remove-voter", "3")
            assert planned["before"]["safe"]
            assert "2 voters remain" in finding(planned, "before-remove-voter")["evidence"]
            nursery.cancel_scope.cancel()


async def test_files_of_running_nodes_are_read_beside_the_live_quorum(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ports = free_ports(1)
    doctor = Doctor(capsys, ports)
    stranger = tmp_path / "stranger"
    format_directory(
        OsDisk(), str(stranger), node_id=9, cluster_id=OTHER_CLUSTER, rng=Random(9), now_ms=1_700_000_000_000
    )
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            (config,) = configs(tmp_path, ports)
            await nursery.start(serve, config)
            own = ("-c", str(tmp_path / "node-1.properties"))
            report = await doctor.until(lambda report: "no-leader" not in ids(report), *own)
            assert [node["id"] for node in report["nodes"]] == [1]
            assert "fatal" not in {one["severity"] for one in report["findings"]}
            code, report = await doctor.examine(*own, str(stranger))
            assert code == 2
            evidence = [one["evidence"] for one in report["findings"] if one["id"] == "cluster-id-mismatch"]
            assert f"cluster.id is {OTHER_CLUSTER}, and the live cluster is {CLUSTER_ID}" in evidence
            nursery.cancel_scope.cancel()


def test_an_address_without_a_controller_is_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    done = run(capsys, "doctor", "--json", "--bootstrap-controller", address, "--timeout", "0.2")
    assert done.code == 2
    report = json.loads(done.out)
    assert "Connection refused" in finding(report, "no-leader")["evidence"]
    assert finding(report, "no-leader")["subject"] == address


async def test_a_controller_with_tls_is_asked_by_the_file_of_command_config(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ports = free_ports(1)
    configs(tmp_path, ports)
    stores = Stores(tmp_path / "stores", leaf("127.0.0.1"), "c1")
    trust = f"ssl.truststore.type=PEM\nssl.truststore.location={stores.trust_pem}\n"
    secured = Config.parse(
        (tmp_path / "node-1.properties").read_text()
        + f"listener.security.protocol.map=CONTROLLER:SSL\nssl.keystore.type=PEM\nssl.keystore.location={stores.pem}\n"
        + trust
    )
    client = tmp_path / "client.properties"
    client.write_text(f"security.protocol=SSL\n{trust}")
    doctor = Doctor(capsys, ports)
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            life = await nursery.start(serve, secured)
            _, in_the_clear = await doctor.examine(seconds="0.5")
            assert "no-leader" in ids(in_the_clear)
            report = await doctor.until(lambda report: not severe(report), "--command-config", str(client))
            assert report["cluster"] == doctor.where
            assert "no-leader" not in {one["id"] for one in report["skipped"]}
            life.cancel()
