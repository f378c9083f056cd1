"""`kraft quorum status --why`: each voter's own word beside its leader's, over TCP."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from embedded_quorum import UNHURRIED, configs, serve
from kraft.admin.conditions import Condition, EpochReport, once_each, other_directories
from kraft.admin.descriptions import QuorumDescription, ReplicaDescription
from kraft.cli.cluster.quorum_why import why_facts, why_lines
from metadata_log.types import NO_NODE, Uuid
from support.kraft.command_line import run
from support.loopback import free_ports
from transport.interface import Endpoint

HERE = Endpoint("127.0.0.1", 9093)


def condition(report: EpochReport | str, **more: Any) -> Condition:
    usual: dict[str, Any] = {"id": 2, "endpoint": HERE, "report": report}
    return Condition(**(usual | more))


FOLLOWS = EpochReport(epoch=5, leader_id=1)


def test_a_controller_that_answers_at_two_addresses_counts_once() -> None:
    elsewhere = Endpoint("10.0.0.1", 9093)
    silent, answering = condition("x"), condition(FOLLOWS, endpoint=elsewhere)
    unknown = [condition(FOLLOWS, id=NO_NODE), condition(FOLLOWS, id=NO_NODE, endpoint=elsewhere)]
    assert once_each([silent, answering]) == once_each([answering, silent]) == (answering,)
    assert once_each([*unknown, answering]) == (*unknown, answering)
    assert why_lines(once_each([silent, answering, condition(FOLLOWS, id=3)]), has_leader=False)[-1].startswith(
        "2 of 2"
    )


@pytest.mark.parametrize(("voted_ms", "named"), [(1_000, True), (3_000, False)])
def test_the_directory_that_fetched_last_is_the_one_of_the_node(voted_ms: int, *, named: bool) -> None:
    """After a lost disk was replaced the leader still lists the lost one, as an observer."""
    former, voter = (
        ReplicaDescription(
            id=3, directory_id=Uuid(bytes([n] * 16)), log_end_offset=9, last_fetch_ms=ms, last_caught_up_ms=ms
        )
        for n, ms in ((1, 2_000), (2, voted_ms))
    )
    quorum = QuorumDescription(leader_id=1, leader_epoch=1, high_watermark=9, voters=(voter,), observers=(former,))
    assert other_directories(quorum, voter) == ((former.directory_id,) if named else ())


def test_json_has_either_an_epoch_or_a_failure() -> None:
    asked, silent = why_facts([condition(FOLLOWS), condition("x", id=NO_NODE)])
    assert (asked["epoch"], asked["leaderId"], "failure" in asked) == (5, 1, False)
    assert (silent["failure"], silent["id"], "epoch" in silent) == ("x", None, False)


NEED_A_LEADER: tuple[tuple[str, ...], ...] = (
    ("topics", "list"),
    ("topics", "create", "orders"),
    ("brokers", "unregister", "101"),
    ("configs", "set", "topic", "orders", "retention.ms=1"),
    ("acls", "list"),
    ("users", "delete", "alice"),
    ("quorum", "replication"),
    ("quorum", "remove", "3"),
    ("elect", "preferred", "--all"),
    ("reassign", "list"),
    ("features", "describe"),
    ("watch",),
)
"""A command of each kind that needs a leader."""


async def test_unreachable_voters_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ports = free_ports(3)
    everywhere = ",".join(f"127.0.0.1:{port}" for port in ports)

    async def status(seconds: str) -> tuple[int, list[dict[str, Any]], str]:
        words = ("quorum", "status", "--why", "--json", "--timeout", seconds, "--bootstrap-controller", everywhere)
        done = await trio.to_thread.run_sync(partial(run, capsys, *words))
        return done.code, json.loads(done.out)["why"], done.err

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            lives: dict[int, trio.CancelScope] = {}
            for config in configs(tmp_path, ports, **UNHURRIED):
                _, lives[config.node_id] = await nursery.start(serve, config)
            why: list[dict[str, Any]] = []
            while len({one.get("leaderId") for one in why}) != 1 or why[0].get("leaderId") is None:
                code, why, _ = await status("30")
                assert code == 0
            leader = why[0]["leaderId"]
            first, second = sorted({1, 2, 3} - {leader})
            assert [one["behind"] for one in why if one["id"] == leader] == [0]
            lives[first].cancel()
            place = f"127.0.0.1:{ports[first - 1]}"
            while [one.get("failure") for one in why if one["id"] == first] != [f"{place}: Connection refused"]:
                code, why, _ = await status("30")  # which may come while the node is still closing
                assert code == 0
            assert [one["endpoint"] for one in why if "failure" in one] == [place]
            lives[leader].cancel()
            while {one["id"] for one in why if "failure" in one} != {first, leader}:
                code, why, err = await status("0.5")
            assert code == 1
            assert "no active controller answered within 0.5 s" in err
            assert [one["id"] for one in why if "epoch" in one] == [second]
            silent = ", ".join(f"controller {one} at 127.0.0.1:{ports[one - 1]}" for one in sorted((first, leader)))
            again = f"{everywhere},localhost:{ports[second - 1]}"
            words: tuple[str, ...] = (
                "quorum",
                "status",
                "--why",
                "--json",
                "--timeout",
                "0.5",
                "--bootstrap-controller",
                again,
            )
            done = await trio.to_thread.run_sync(partial(run, capsys, *words))
            assert sorted(one["id"] for one in json.loads(done.out)["why"]) == [1, 2, 3], "it answers at two addresses"
            lacks = f"1 of 3 answer; 2 make a majority: there is no leader until 1 more answers ({silent})."
            for command in NEED_A_LEADER:
                words = (*command, "--bootstrap-controller", everywhere, "--timeout", "0.2")
                done = await trio.to_thread.run_sync(partial(run, capsys, *words))
                assert (done.code, done.out, done.err.count("\n")) == (1, "", 6), (words, done)
                *states, verdict, error, _ = done.err.splitlines()
                assert [line.partition(" at ")[0] for line in states] == [
                    "Controller 1",
                    "Controller 2",
                    "Controller 3",
                ]
                assert "cannot be asked" in states[first - 1], words
                assert "cannot be asked" in states[leader - 1], words
                assert " in epoch " in states[second - 1], words
                assert verdict == lacks, words
                assert error.startswith("kraft: error: no active controller answered within 0.2 s"), words
            nursery.cancel_scope.cancel()


async def next_line(stream: trio.abc.ReceiveStream | None) -> str:
    assert stream is not None
    line = b""
    while not line.endswith(b"\n"):
        piece = await stream.receive_some(1)
        assert piece, "the command ended"
        line += piece
    return line.decode()


async def test_watching_continues_without_a_leader(tmp_path: Path) -> None:
    [config] = configs(tmp_path, free_ports(1))
    where = ("--bootstrap-controller", f"127.0.0.1:{config.listeners[0].port}", "--timeout", "1")
    command = [sys.executable, "-m", "kraft", "quorum", "status", "--watch", "--json", *where]
    with trio.fail_after(90):
        async with trio.open_nursery() as nursery:
            node, life = await nursery.start(serve, config)
            await node.wait_for_leader()
            watch = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            try:
                epoch = json.loads(await next_line(watch.stdout))["leaderEpoch"]
                life.cancel()
                lost = [await next_line(watch.stderr)]
                while "kraft: no active controller answered within 1 s" not in lost[-1]:
                    lost.append(await next_line(watch.stderr))
                assert "answer; whether there is a leader is unknown.\n" in lost[-2]
                await nursery.start(serve, config)
                while json.loads(await next_line(watch.stdout))["leaderEpoch"] == epoch:
                    pass  # said before the node was stopped
                watch.send_signal(signal.SIGINT)
                assert await watch.wait() == 130
            finally:
                watch.kill()
                await watch.wait()
            nursery.cancel_scope.cancel()
