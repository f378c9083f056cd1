"""One dynamic quorum of Apache Kafka's controllers and ours: each make adds and removes voters of the other (KIP-853,
KIP-1186), and a static quorum becomes dynamic while it runs.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random, SystemRandom

import pytest

from kraft.admin.voters import missing_without
from metadata_log.types import Uuid
from support.interop.kafka_or_skip import found_or_skipped
from support.interop.mixed_quorum import Make, MixedQuorum, admin_stream, values_in
from support.interop.our_nodes import kraft, told
from support.interop.real_kafka import (
    CLUSTER_ID,
    QUIET,
    QUORUM_TOOL,
    STORAGE_TOOL,
    Process,
    QuorumLayout,
    eventually,
    free_ports,
    kafka_format,
    layout_in,
)
from support.kafka_jars import KAFKA_VERSION, NEWER_VERSION, OLDER_VERSION, VERSIONS
from support.wire import leader_of

pytestmark = pytest.mark.kafka

FIRST, ADDED, JOINING = NODES = (1, 2, 3)
FEATURES_TOOL = "org.apache.kafka.tools.FeatureCommand"
CHANGES = 20
WEDGED_SECONDS = 10
OTHER: dict[Make, Make] = {"ours": "kafka", "kafka": "ours"}
LATER = pytest.mark.parametrize("version", [KAFKA_VERSION, pytest.param(NEWER_VERSION, marks=pytest.mark.soak)])
ALL = pytest.mark.parametrize("version", VERSIONS)


@contextmanager
def begun_by(
    version: str,
    root: Path,
    make: Make,
    *,
    others: Make | None = None,
    auto_join: tuple[int, ...] = (JOINING,),
) -> Iterator[MixedQuorum]:
    """One voter of this make, formatted by its own tool, and two nodes to be added, of the other make if not given.

    Kafka's are of this version, and the cluster begins at its level.
    """
    kafka = found_or_skipped(version)
    layout = QuorumLayout(root, CLUSTER_ID, dict(zip(NODES, free_ports(3), strict=True)), QUIET, is_dynamic=True)
    others = others or OTHER[make]
    makes: dict[int, Make] = {FIRST: make, ADDED: others, JOINING: others}
    for node in NODES:
        how = "--standalone" if node == FIRST else "--no-initial-controllers"
        options = (
            "format",
            "-c",
            str(layout.properties(node)),
            "--cluster-id",
            CLUSTER_ID,
            "--release-version",
            version,
            how,
        )
        if makes[node] == "ours":
            told(*options)
        else:
            kafka.tool(STORAGE_TOOL, *options)
    nodes = MixedQuorum(kafka, layout, makes, auto_join)
    try:
        nodes.start()
        nodes.wait_until_listening()
        yield nodes
    finally:
        nodes.kill()


def add_with_ours(nodes: MixedQuorum, node: int) -> None:
    told("quorum", "add", str(node), *nodes.where)


def remove_with_ours(nodes: MixedQuorum, node: int) -> None:
    told("quorum", "remove", str(node), *nodes.where)


def directory_of(nodes: MixedQuorum, node: int) -> Uuid:
    quorum = nodes.quorum()
    return next(one.directory_id for one in (*quorum.voters, *quorum.observers) if one.id == node)


def add_with_kafkas(nodes: MixedQuorum, node: int) -> None:
    config = str(nodes.layout.properties(node))
    nodes.kafka.tool(QUORUM_TOOL, *nodes.where, "--command-config", config, "add-controller")


def remove_with_kafkas(nodes: MixedQuorum, node: int) -> None:
    which = ("--controller-id", str(node), "--controller-directory-id", str(directory_of(nodes, node)))
    nodes.kafka.tool(QUORUM_TOOL, *nodes.where, "remove-controller", *which)


def wait_for(nodes: MixedQuorum, voters: set[int], observers: set[int]) -> None:
    """Wait until these voters and observers are those of the leader's description and of all files."""
    eventually(lambda: nodes.voters() == voters, f"{voters} vote")
    eventually(lambda: nodes.observers() == observers, f"{observers} observe")
    nodes.wait_until_agreed()


@LATER
def test_our_nodes_are_added_as_voters_to_kafkas_quorum(version: str, tmp_path: Path) -> None:
    """By command and by auto-join; Kafka's leader is removed, and comes back as a follower of ours."""
    with begun_by(version, tmp_path, "kafka") as nodes:
        wait_for(nodes, {FIRST, JOINING}, {ADDED})
        add_with_ours(nodes, ADDED)
        wait_for(nodes, set(NODES), set())
        remove_with_kafkas(nodes, FIRST)
        wait_for(nodes, {ADDED, JOINING}, {FIRST})
        described = nodes.kafka.tool(QUORUM_TOOL, *nodes.where, "describe", "--status")
        assert all(str(one.directory_id) in described for one in nodes.quorum().voters)
        add_with_ours(nodes, FIRST)
        wait_for(nodes, set(NODES), set())
        remove_with_ours(nodes, ADDED)
        wait_for(nodes, {FIRST, JOINING}, {ADDED})
        nodes.end_all()


@pytest.mark.soak
@LATER
def test_kafkas_nodes_are_added_as_voters_to_our_quorum(version: str, tmp_path: Path) -> None:
    """By Kafka's tool and by auto-join; our leader is removed, and comes back as a follower of Kafka's."""
    with begun_by(version, tmp_path, "ours") as nodes:
        wait_for(nodes, {FIRST, JOINING}, {ADDED})
        add_with_kafkas(nodes, ADDED)
        wait_for(nodes, set(NODES), set())
        remove_with_ours(nodes, FIRST)
        wait_for(nodes, {ADDED, JOINING}, {FIRST})
        add_with_kafkas(nodes, FIRST)
        wait_for(nodes, set(NODES), set())
        remove_with_kafkas(nodes, ADDED)
        wait_for(nodes, {FIRST, JOINING}, {ADDED})
        nodes.end_all()


@pytest.mark.soak
@pytest.mark.parametrize("make", ["ours", "kafka"])
def test_voters_of_each_make_are_added_with_kafka_3_9(tmp_path: Path, make: Make) -> None:
    """Kafka 3.9 has dynamic quorums, without auto-join."""
    with begun_by(OLDER_VERSION, tmp_path, make, auto_join=()) as nodes:
        for node in (ADDED, JOINING):
            eventually(lambda node=node: node in nodes.observers(), f"{node} observes")
            if make == "ours":
                add_with_kafkas(nodes, node)
            else:
                add_with_ours(nodes, node)
        wait_for(nodes, set(NODES), set())
        remove_with_ours(nodes, FIRST)
        wait_for(nodes, {ADDED, JOINING}, {FIRST})
        add_with_ours(nodes, FIRST)
        wait_for(nodes, set(NODES), set())
        nodes.end_all()


def upgrade_with_ours(nodes: MixedQuorum) -> None:
    told("quorum", "upgrade", *nodes.where)


def upgrade_with_kafkas(nodes: MixedQuorum) -> None:
    nodes.kafka.tool(FEATURES_TOOL, *nodes.where, "upgrade", "--feature", "kraft.version=1")


@pytest.mark.soak
@pytest.mark.parametrize("upgrade", [upgrade_with_ours, upgrade_with_kafkas])
@pytest.mark.parametrize("leading", ["ours", "kafka"])
@LATER
def test_a_static_quorum_of_both_makes_is_upgraded_to_a_dynamic_one(
    version: str, tmp_path: Path, leading: Make, upgrade: Callable[[MixedQuorum], None]
) -> None:
    """Under a leader of either make each voter reports its directory, and all logs hold the same voters."""
    kafka = found_or_skipped(version)
    layout = layout_in(tmp_path)
    kafka_format(kafka, layout)
    nodes = MixedQuorum(kafka, layout, {1: "kafka", 2: "ours", 3: "ours"})
    try:
        nodes.start()
        nodes.wait_until_listening()
        while nodes.makes[leader := leader_of(layout)] != leading:
            nodes.end(leader, "stop")
            nodes.start(leader)
            nodes.wait_until_listening()
        eventually(
            lambda: kraft("quorum", "upgrade", "--dry-run", *nodes.where).returncode == 0,
            "all have told their directories",
        )
        upgrade(nodes)
        wait_for(nodes, set(layout.ports), set())
        remove_with_ours(nodes, 2)
        wait_for(nodes, {1, 3}, {2})
        add_with_ours(nodes, 2)
        wait_for(nodes, set(layout.ports), set())
        nodes.end_all()
    finally:
        nodes.kill()


@pytest.mark.soak
@pytest.mark.parametrize(
    ("make", "version"), [("kafka", KAFKA_VERSION), ("kafka", NEWER_VERSION), ("ours", KAFKA_VERSION)]
)
def test_no_leader_is_elected_until_the_voter_that_a_majority_needs_returns(
    version: str, tmp_path: Path, make: Make
) -> None:
    """A leader of either make removes a voter while another one is down, and then there is no leader until that voter
    is back. Our command refuses the removal, unless it is forced.
    """
    with begun_by(version, tmp_path, make, others=make, auto_join=()) as nodes:
        for node in (ADDED, JOINING):
            eventually(lambda node=node: node in nodes.observers(), f"{node} observes")
            add_with_ours(nodes, node)
        wait_for(nodes, set(NODES), set())
        lost, removed = (node for node in NODES if node != nodes.quorum().leader_id)
        directory = directory_of(nodes, removed)
        nodes.end(lost, "kill")
        eventually(lambda: missing_without(nodes.quorum(), removed, directory) != (), f"{lost} is missed")
        refused = kraft("quorum", "remove", str(removed), *nodes.where)
        assert refused.returncode == 1
        assert f"node {removed} is needed: " in refused.stderr
        assert nodes.voters() == set(NODES)
        forced = kraft("quorum", "remove", str(removed), "--force", "--timeout", "5", *nodes.where)
        assert forced.returncode == 1, forced.stdout
        eventually(lambda: status_of(nodes).returncode == 1, "there is no leader")
        threading.Event().wait(WEDGED_SECONDS)
        assert status_of(nodes).returncode == 1, "there is a leader again"
        nodes.start(lost)
        wait_for(nodes, set(NODES) - {removed}, {removed})
        add_with_ours(nodes, removed)
        wait_for(nodes, set(NODES), set())
        nodes.end_all()


def status_of(nodes: MixedQuorum) -> subprocess.CompletedProcess[str]:
    return kraft("quorum", "status", "--timeout", "3", *nodes.where)


@pytest.mark.soak
@ALL
def test_voters_change_while_nodes_are_killed(version: str, tmp_path: Path) -> None:
    """Two of each make are added and removed while others, or they themselves, are killed, and changes go on."""
    seed = SystemRandom().randrange(1 << 32)
    rng = Random(seed)
    print(f"seed {seed}")
    kafka = found_or_skipped(version)
    layout = QuorumLayout(
        tmp_path, CLUSTER_ID, dict(zip((1, 2, 3, 4), free_ports(4), strict=True)), QUIET, is_dynamic=True
    )
    for node in layout.ports:
        how = "--standalone" if node == 1 else "--no-initial-controllers"
        told("format", "-c", str(layout.properties(node)), "-t", CLUSTER_ID, "--release-version", version, how)
    nodes = MixedQuorum(kafka, layout, {1: "ours", 2: "kafka", 3: "ours", 4: "kafka"})
    try:
        nodes.start()
        nodes.wait_until_listening()
        for node in (2, 3, 4):
            eventually(lambda node=node: node in nodes.observers(), f"{node} observes")
            add_with_ours(nodes, node)
        with admin_stream(kafka, layout) as stream:
            for number in range(CHANGES):
                change_while_one_is_killed(nodes, rng, number)
                stream.wait_for_progress()
        logs = nodes.end_all()
    finally:
        nodes.kill()
    for batches in logs.values():
        assert set(stream.acknowledged) <= set(values_in(batches))


def change_while_one_is_killed(nodes: MixedQuorum, rng: Random, number: int) -> None:
    """Request a change, kill a node meanwhile, and check that all nodes agree on the outcome."""
    voters = nodes.voters()
    changed = rng.choice(sorted(voters)) if len(voters) == 4 else next(iter(nodes.layout.ports.keys() - voters))
    what = "remove" if changed in voters else "add"
    command = [sys.executable, "-m", "kraft", "quorum", what, str(changed), *nodes.where]
    asked = Process(command, nodes.layout.root / f"change{number}.log")
    killed = rng.choice(sorted(nodes.layout.ports))
    threading.Event().wait(rng.uniform(0, 1.5))
    nodes.end(killed, "kill")
    code = asked.wait()
    print(f"{number}: {what} {changed}, {killed} is killed: {code} {asked.text.strip()}")
    assert code in (0, 1)
    nodes.start(killed)
    nodes.wait_until_listening()
    all_nodes = nodes.layout.ports.keys()
    eventually(lambda: nodes.voters() | nodes.observers() == all_nodes, "all nodes are there")
    nodes.wait_until_agreed()
    nodes.check_that_all_live()
