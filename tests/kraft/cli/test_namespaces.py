"""Nodes on machines of their own, known by name: bound to one address, advertised as another, moved and found again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from support.kraft.cli_serving import Serving
from support.kraft.command_line import CLUSTER_ID, run
from support.kraft.namespaces import Machines, machines

KRAFT = (sys.executable, "-m", "kraft")
PORT = 9093
PATIENCE_SECONDS = 180
"""A node that runs for so long is ended, which fails its test."""
NAMES = ("one", "two", "three")
ADDRESSES = {"one": ["10.64.0.1", "fd64::1"], "two": ["10.64.0.2", "fd64::2"], "three": ["10.64.0.3", "fd64::3"]}
"""The first node listens only on the first address of its machine, the third only on the second."""
KNOWN = {**ADDRESSES, "three": ["10.64.0.200", *ADDRESSES["three"]]}
"""The addresses of each name. No machine has the first address of the third."""
MOVED = {"one": ["10.64.0.77", "fd64::77"]}
EVERYWHERE = ",".join(f"{name}.quorum:{PORT}" for name in NAMES)


class Quorum:
    """Nodes by number, each on the machine of its name."""

    def __init__(self, there: Machines, directory: Path) -> None:
        self._there = there
        self._directory = directory

    def configure(self, node_id: int, bind: str, advertised: str | None) -> Path:
        name = NAMES[node_id - 1]
        path = self._directory / f"{name}.properties"
        known = "" if advertised is None else f"advertised.listeners=CONTROLLER://{advertised}:{PORT}\n"
        path.write_text(
            f"process.roles=controller\nnode.id={node_id}\ncontroller.listener.names=CONTROLLER\n"
            f"listeners=CONTROLLER://{bind}:{PORT}\n{known}controller.quorum.bootstrap.servers=one.quorum:{PORT}\n"
            f"log.dirs={self._directory / name}\n"
            "controller.quorum.election.timeout.ms=500\ncontroller.quorum.fetch.timeout.ms=2000\n"
        )
        return path

    @contextmanager
    def serving(self, node_id: int) -> Iterator[Serving]:
        name = NAMES[node_id - 1]
        command = self._there.command((*KRAFT, "serve", "-c", str(self._directory / f"{name}.properties")), on=name)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            patience = Timer(PATIENCE_SECONDS, process.kill)
            patience.start()
            try:
                yield Serving(process)
            finally:
                patience.cancel()
                process.kill()

    def ask(self, *words: str) -> dict[str, Any]:
        """The answer of a command of ours on a machine without a node."""
        where = ("--bootstrap-controller", EVERYWHERE, "--timeout", "40", "--json")
        command = self._there.command((*KRAFT, "quorum", *words, *where))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def led_by(self, leaders: set[int], count: int) -> list[dict[str, Any]]:
        """The reported state of each voter once so many follow one of these leaders."""
        while True:
            voters: list[dict[str, Any]] = self.ask("status", "--why")["why"]
            if sum(one.get("leaderId") in leaders for one in voters) == count:
                return voters


def test_voters_named_by_host_follow_a_node_that_changes_its_address(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with machines(tmp_path / "hosts") as there:
        for name in NAMES:
            there.add(name, *ADDRESSES[name])
        there.name(KNOWN)
        quorum = Quorum(there, tmp_path)
        configs = [
            quorum.configure(1, "10.64.0.1", "one.quorum"),
            quorum.configure(2, "", None),
            quorum.configure(3, "[fd64::3]", "three.quorum"),
        ]
        for config, how in zip(configs, ("--standalone", *["--no-initial-controllers"] * 2), strict=True):
            assert run(capsys, "format", "-c", str(config), "-t", CLUSTER_ID, how).code == 0
        with quorum.serving(2) as second, quorum.serving(3) as third:
            with quorum.serving(1) as first:
                first.said("to=Leader epoch=1")
                assert "host=two.quorum" in second.said("advertised")
                for node in (second, third):
                    node.said("leader=1 epoch=1")
            there.move("one", *MOVED["one"])
            there.name({**KNOWN, **MOVED})
            quorum.configure(1, "10.64.0.77", "one.quorum")
            with quorum.serving(1) as first:
                for node in (second, third):
                    node.said("leader=1 epoch=2")
                added = [quorum.ask("add", str(node_id))["added"]["endpoint"] for node_id in (2, 3)]
                assert added == [f"two.quorum:{PORT}", f"three.quorum:{PORT}"]
                voters = quorum.led_by({1}, 3)
                assert [one["endpoint"] for one in voters] == EVERYWHERE.split(",")
            voters = quorum.led_by({2, 3}, 2)
            assert [one["id"] for one in voters if "failure" in one] == [1]


RESOLVE = """
import trio
from transport import Endpoint
from transport.addresses import resolve

for failures in range(4):
    print(*[address[0] for _, address in trio.run(resolve, Endpoint("three.quorum", 9093), failures)])
"""


def test_connection_attempts_rotate_the_addresses_of_a_name(tmp_path: Path) -> None:
    """Otherwise an address that drops all packets would hide the others for ever."""
    with machines(tmp_path / "hosts") as there:
        there.name(KNOWN)
        command = there.command((sys.executable, "-c", RESOLVE))
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    first, second, third = KNOWN["three"]
    assert [line.split() for line in said] == [
        [first, second, third],
        [second, third, first],
        [third, first, second],
        [first, second, third],
    ]
