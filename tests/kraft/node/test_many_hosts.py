"""Nodes on several addresses of this machine, IPv4 and IPv6, each bound to its own."""

from __future__ import annotations

import json
import socket
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from embedded_quorum import UNHURRIED, configs, serve
from kraft.node.node import Node
from support.kraft.command_line import run
from support.loopback import free_ports
from transport.interface import Endpoint

HOSTS = ("127.0.0.2", "127.0.0.3", "127.0.0.4", "::1")


def has_these_addresses() -> bool:
    """Only Linux has all of 127.0.0.0/8, and IPv6 may be switched off."""
    for host in HOSTS:
        try:
            with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
                pass
        except OSError:
            return False
    return True


pytestmark = pytest.mark.skipif(not has_these_addresses(), reason=f"this machine does not have all of {HOSTS}")


async def test_four_hosts_elect_commit_and_fail_over(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    places = [Endpoint(host, port) for host, port in zip(HOSTS, free_ports(len(HOSTS)), strict=True)]
    voters = ",".join(f"{node_id}@{place}" for node_id, place in enumerate(places, 1))

    async def look(*more: str) -> dict[str, Any]:
        where = ("--bootstrap-controller", f"{places[3]},{places[1]}", "--timeout", "30")
        done = await trio.to_thread.run_sync(partial(run, capsys, "quorum", "status", "--json", *more, *where))
        assert done.code == 0, done.err
        found: dict[str, Any] = json.loads(done.out)
        return found

    with trio.fail_after(90):
        async with trio.open_nursery() as nursery:
            lives: dict[int, trio.CancelScope] = {}
            nodes: dict[int, Node] = {}
            known = {"controller.quorum.voters": voters, **UNHURRIED}
            for node_id, place in enumerate(places, 1):
                listening = {"listeners": f"CONTROLLER://{place}"}
                config = configs(tmp_path, [one.port for one in places], **known, **listening)[node_id - 1]
                nodes[node_id], lives[node_id] = await nursery.start(serve, config)
            assert [node.endpoints for node in nodes.values()] == [(place,) for place in places]
            before = await look("--why")
            while {one.get("leaderId") for one in before["why"]} != {before["leaderId"]}:
                before = await look("--why")
            assert [one["endpoints"] for one in before["currentVoters"]] == [[f"CONTROLLER://{one}"] for one in places]
            assert [one["endpoint"] for one in before["why"]] == [str(one) for one in places]
            lives[before["leaderId"]].cancel()
            while (after := await look())["highWatermark"] <= before["highWatermark"]:
                pass  # the new leader has not committed yet
            assert after["leaderId"] != before["leaderId"]
            nursery.cancel_scope.cancel()
