"""Kafka 4.4.0 beside ours: first records by whoever formatted and whoever started first, quorums at its level, and
controllers that are unregistered.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from leaders_in_turn import lead_in_turn
from metadata_log import replay
from metadata_log.disk import OsDisk
from metadata_log.log.log_dir import read_bootstrap
from metadata_log.records.batch import scan
from metadata_log.records.frame import decode_record
from metadata_log.records.metadata import FeatureLevelRecord, UserScramCredentialRecord
from metadata_log.records.record import records
from support.interop.our_nodes import kraft, our_controller, our_format, told
from support.interop.real_kafka import (
    CLUSTER_ID,
    QUIET,
    STORAGE_TOOL,
    KafkaInstallation,
    QuorumLayout,
    eventually,
    free_ports,
    kafka_controller,
    layout_in,
    running,
)
from support.kafka_jars import KAFKA_VERSION, NEWER_VERSION
from support.wire import leader_of

pytestmark = pytest.mark.kafka

CLUSTER_TOOL = "org.apache.kafka.tools.ClusterTool"
ALICE = ("--add-scram", "SCRAM-SHA-256=[name=alice,password=secret]")
BY_DEFAULT = {
    "ours": {"metadata.version": 33},
    KAFKA_VERSION: {"metadata.version": 30},
}
"""What a node begins with that finds no first records."""
LEVELS = {
    "4.2": {
        "metadata.version": 29,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": 2,
    },
    "4.4": {
        "metadata.version": 33,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "share.version": 2,
        "streams.version": 1,
        "transaction.version": 2,
    },
}


@pytest.fixture(scope="module")
def installations(kafka: KafkaInstallation, newer_kafka: KafkaInstallation) -> dict[str, KafkaInstallation]:
    return {KAFKA_VERSION: kafka, NEWER_VERSION: newer_kafka}


def first_records(partition: Path) -> list[object]:
    """The records with which a log begins, of the kinds that a format writes."""
    found = []
    for file in sorted(partition.glob("*.log")):
        for batch in scan(file.read_bytes()):
            if not batch.is_control:
                found += [decode_record(record.value or b"").record for record in records(batch)]
    return [one for one in found if isinstance(one, (FeatureLevelRecord, UserScramCredentialRecord))]


@pytest.mark.parametrize(
    ("release", "started_by", "formatted_by"),
    [
        *product(["4.2"], ["ours", KAFKA_VERSION, NEWER_VERSION], ["ours", KAFKA_VERSION, NEWER_VERSION]),
        *product(["4.4"], ["ours", NEWER_VERSION], ["ours", NEWER_VERSION]),
    ],
)
def test_the_first_records_are_those_of_the_format(
    installations: dict[str, KafkaInstallation], tmp_path: Path, release: str, formatted_by: str, started_by: str
) -> None:
    """The snapshot of 4.4 and the file of 4.3 are read by ours; 4.3.1 ignores what stands in the snapshot alone.

    It does not know 4.4-IV2, so that it neither formats for that nor starts it.
    """
    layout = QuorumLayout(tmp_path, CLUSTER_ID, {1: free_ports(1)[0]}, QUIET)
    words = ("-t", CLUSTER_ID, "-c", str(layout.properties(1)), "--release-version", release, *ALICE)
    if formatted_by == "ours":
        told("format", *words)
    else:
        installations[formatted_by].tool(STORAGE_TOOL, "format", *words)
    wanted = read_bootstrap(OsDisk(), str(layout.log_dir(1)))
    expected = [decode_record(value).record for _, value in wanted]
    start = our_controller(layout)
    if started_by != "ours":
        start = kafka_controller(installations[started_by], layout)
    with running(layout, start, name="first") as nodes:
        eventually(lambda: len(first_records(layout.partition(1))) > 0, "the first records are written")
        nodes.stop()
    written = first_records(layout.partition(1))
    if (formatted_by, started_by) == (NEWER_VERSION, KAFKA_VERSION):
        assert written == [FeatureLevelRecord(name="metadata.version", feature_level=30)], "as 4.3.1 does"
        return
    assert written == expected
    levels = {one.name: one.feature_level for one in written if isinstance(one, FeatureLevelRecord)}
    assert levels == LEVELS[release]
    assert [one.name for one in written if isinstance(one, UserScramCredentialRecord)] == ["alice"]


@pytest.mark.parametrize(
    ("of_kafka", "turns"),
    [
        pytest.param((3,), 1, id="two-of-ours"),
        pytest.param((2, 3), 2, id="two-of-kafkas-long", marks=pytest.mark.soak),
    ],
)
def test_leadership_passes_to_each_node_at_4_4(
    newer_kafka: KafkaInstallation, tmp_path: Path, of_kafka: tuple[int, ...], turns: int
) -> None:
    layout = layout_in(tmp_path, ())
    our_format(layout, release="4.4")
    lead_in_turn(newer_kafka, layout, of_kafka, turns)
    assert replay(str(layout.log_dir(1))).features.metadata_version == 33


def test_a_level_is_raised_on_a_quorum_of_ours_and_a_live_controller_registers_again(
    newer_kafka: KafkaInstallation, tmp_path: Path
) -> None:
    """With the tools of 4.4.0: 30 to 33, a controller unregistered twice, down to 32 refused."""
    layout = layout_in(tmp_path, QUIET)
    our_format(layout, release="4.3")
    where = ("--bootstrap-controller", layout.bootstrap)
    with running(layout, our_controller(layout), name="ours") as nodes:

        def registered(node: int) -> set[int]:
            found = json.loads(told("replay", str(layout.log_dir(node)), "--json"))
            return {one["id"] for one in found["controllers"]}

        eventually(lambda: registered(1) == {1, 2, 3}, "all have registered")
        leader = leader_of(layout)
        other, at = (node for node in (1, 2, 3) if node != leader)
        early = newer_kafka.run(CLUSTER_TOOL, "unregister-controller", *where, "--id", str(other))
        assert "too old to support controller unregistration" in early.stdout + early.stderr
        told("features", "upgrade", *where, "--feature", "metadata.version=33")
        nodes.processes.pop(other).stop()
        done = newer_kafka.tool(CLUSTER_TOOL, "unregister-controller", *where, "--id", str(other))
        assert f"Controller {other} is no longer registered." in done
        again = newer_kafka.run(CLUSTER_TOOL, "unregister-controller", *where, "--id", str(other))
        assert f"Controller ID {other} is not currently registered." in again.stdout + again.stderr
        nodes.start(other)
        eventually(
            lambda: (
                other
                in {one["id"] for one in json.loads(told("replay", str(layout.log_dir(at)), "--json"))["controllers"]}
            ),
            "it has registered again",
        )
        refused = kraft("features", "downgrade", *where, "--feature", "metadata.version=32")
        assert refused.returncode != 0
        assert "might delete metadata information" in refused.stderr
