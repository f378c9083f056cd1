"""One quorum of Apache Kafka's controllers and ours, whose voters stand in the log: each make adds and removes the
other (KIP-853, KIP-1186).
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import trio
from our_nodes import kraft, told
from real_kafka import (
    CLUSTER_ID,
    QUIET,
    QUORUM_TOOL,
    KafkaInstallation,
    Nodes,
    QuorumLayout,
    eventually,
    free_ports,
    kafka_format,
    layout_in,
)

from kraft.admin import QuorumDescription, open_admin
from kraft.cli.administration import parse_bootstrap
from metadata_log.disk import OsDisk
from metadata_log.snapshot import read_snapshot_start
from metadata_log.types import Uuid

pytestmark = pytest.mark.kafka

THEIRS = 1
OURS = 2
JOINING = 3
AUTO_JOIN = "controller.quorum.auto.join.enable=true"


class MixedQuorum(Nodes):
    """Node 1 is Kafka's and the others are ours; the last one joins by itself."""

    def __init__(self, kafka: KafkaInstallation, layout: QuorumLayout) -> None:
        self.where = ("--bootstrap-controller", layout.bootstrap, "--timeout", "30")

        def start(node: int) -> list[str]:
            config = str(layout.properties(node))
            if node == THEIRS:
                return kafka.command("kafka.Kafka", config, log="info")
            more = ("--override", AUTO_JOIN) if node == JOINING else ()
            return [sys.executable, "-m", "kraft", "serve", "-c", config, *more]

        super().__init__(layout, start, name="mixed")

    def quorum(self) -> QuorumDescription:
        """As its leader sees it."""

        async def ask() -> QuorumDescription:
            async with open_admin(parse_bootstrap(self.layout.bootstrap), timeout_ms=30_000) as admin:
                return await admin.describe_quorum()

        return trio.run(ask)

    def voters(self) -> set[int]:
        return {one.id for one in self.quorum().voters}

    def observers(self) -> set[int]:
        return {one.id for one in self.quorum().observers}


def begun_by(node: int, root: Path) -> QuorumLayout:
    """Three formatted directories: one voter, two that will be added."""
    ports = dict(zip((1, 2, 3), free_ports(3), strict=True))
    layout = QuorumLayout(root, CLUSTER_ID, ports, QUIET, is_dynamic=True)
    for each in ports:
        how = "--standalone" if each == node else "--no-initial-controllers"
        told("format", "-c", str(layout.properties(each)), "--cluster-id", CLUSTER_ID, how)
    return layout


def test_each_make_adds_and_removes_the_other(kafka: KafkaInstallation, tmp_path: Path) -> None:
    """Kafka's controller adds ours, on wish and by themselves; ours remove it, and add it again."""
    layout = begun_by(THEIRS, tmp_path)
    nodes = MixedQuorum(kafka, layout)
    try:
        nodes.start()
        nodes.wait_until_listening()
        eventually(lambda: nodes.voters() == {THEIRS, JOINING}, "ours joins Kafka's by itself")
        eventually(lambda: nodes.observers() == {OURS}, "ours observes")
        told("quorum", "add", f"{OURS}@127.0.0.1:{layout.ports[OURS]}", *nodes.where)
        assert nodes.voters() == {THEIRS, OURS, JOINING}
        directory = next(one.directory_id for one in nodes.quorum().voters if one.id == THEIRS)
        kafka.tool(
            QUORUM_TOOL,
            *("--bootstrap-controller", layout.bootstrap, "remove-controller"),
            *("--controller-id", str(THEIRS), "--controller-directory-id", str(directory)),
        )
        eventually(lambda: nodes.quorum().leader_id in (OURS, JOINING), "ours leads")
        eventually(lambda: nodes.observers() == {THEIRS}, "Kafka's observes ours")
        described = kafka.tool(QUORUM_TOOL, "--bootstrap-controller", layout.bootstrap, "describe", "--status")
        assert all(str(one.directory_id) in described for one in nodes.quorum().voters)
        told("quorum", "add", f"{THEIRS}@127.0.0.1:{layout.ports[THEIRS]}", *nodes.where)
        assert nodes.voters() == {THEIRS, OURS, JOINING}
        assert kraft("quorum", "remove", str(OURS), *nodes.where).returncode == 0
        eventually(lambda: nodes.voters() == {THEIRS, JOINING}, "one of ours is removed")
        assert set(nodes.stop().values()) <= {0, 143}
    finally:
        nodes.kill()
    logs = [b"".join(file.read_bytes() for file in sorted(layout.partition(node).glob("*.log"))) for node in (1, 2, 3)]
    shortest = min(map(len, logs))
    assert len({log[:shortest] for log in logs}) == 1
    (start,) = [
        read_snapshot_start(OsDisk(), str(file)) for file in layout.partition(THEIRS).glob("*-0000000000.checkpoint")
    ]
    assert start.kraft_version == 1


@pytest.mark.soak
def test_a_static_quorum_of_both_makes_becomes_dynamic(kafka: KafkaInstallation, tmp_path: Path) -> None:
    """Whoever leads: each voter has told it its directory, and all write down the same voters."""
    layout = layout_in(tmp_path)
    kafka_format(kafka, layout)
    nodes = MixedQuorum(kafka, layout)
    try:
        nodes.start()
        nodes.wait_until_listening()
        for stopped in (0, THEIRS, OURS):
            if stopped:
                nodes.processes.pop(stopped).stop()
                eventually(lambda gone=stopped: nodes.quorum().leader_id != gone, "another one leads")
                nodes.start(stopped)
            eventually(lambda: kraft("quorum", "upgrade", "--dry-run", *nodes.where).returncode == 0, "all have told")
        print("leader", nodes.quorum().leader_id)
        told("quorum", "upgrade", *nodes.where)
        eventually(lambda: all(one.directory_id != Uuid.ZERO for one in nodes.quorum().voters), "directories are known")
        assert kraft("quorum", "remove", str(OURS), *nodes.where).returncode == 0
        eventually(lambda: nodes.voters() == {THEIRS, JOINING}, "one of ours is removed")
        assert set(nodes.stop().values()) <= {0, 143}
    finally:
        nodes.kill()
