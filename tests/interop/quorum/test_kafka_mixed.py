"""One quorum of both makes: our controllers and Apache Kafka's vote for, follow and lead each other, with either make
in the majority, and also with Kafka's release before pre-votes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from leaders_in_turn import WAYS, lead_in_turn
from support.interop.mixed_quorum import MixedQuorum, Way, admin_stream, values_in
from support.interop.our_nodes import kraft, our_format, told
from support.interop.real_kafka import KafkaInstallation, eventually, layout_in
from support.kafka_jars import KAFKA_VERSION, OLDER_VERSION
from support.wire import leader_of

pytestmark = pytest.mark.kafka

DEFAULTS = ()
SOAK_TURNS = 4
"""By killing the leader, and as many by a graceful shutdown. A turn with both takes about a minute."""


@pytest.mark.each_release
@pytest.mark.parametrize(
    ("of_kafka", "turns"),
    [
        pytest.param((3,), 1, id="two-of-ours"),
        pytest.param((3,), SOAK_TURNS, id="two-of-ours-long", marks=pytest.mark.soak),
        pytest.param((2, 3), SOAK_TURNS, id="two-of-kafkas-long", marks=pytest.mark.soak),
    ],
)
def test_leadership_passes_to_each_node(
    kafka: KafkaInstallation, tmp_path: Path, of_kafka: tuple[int, ...], turns: int
) -> None:
    layout = layout_in(tmp_path, DEFAULTS)
    our_format(layout)
    lead_in_turn(kafka, layout, of_kafka, turns)


@pytest.mark.parametrize(
    ("of_kafka", "turns", "ways"),
    [
        *(pytest.param((3,), 1, (way,), id=f"two-of-ours-{way}") for way in WAYS),
        pytest.param((3,), SOAK_TURNS, WAYS, id="two-of-ours-long", marks=pytest.mark.soak),
        pytest.param((2, 3), SOAK_TURNS, WAYS, id="two-of-kafkas-long", marks=pytest.mark.soak),
    ],
)
def test_leadership_passes_between_releases(
    older_kafka: KafkaInstallation, tmp_path: Path, of_kafka: tuple[int, ...], turns: int, ways: tuple[Way, ...]
) -> None:
    """With Kafka 3.9: our nodes use the versions that 3.9 knows, and request votes without pre-votes."""
    layout = layout_in(tmp_path, DEFAULTS)
    our_format(layout, release=OLDER_VERSION)
    lead_in_turn(older_kafka, layout, of_kafka, turns, ways)
    of_ours = [(tmp_path / f"mixed{node}.log").read_text() for node in layout.ports.keys() - set(of_kafka)]
    # 3.9 says so late, as it first refuses ApiVersions 5: a node of ours may have granted the pre-vote by then.
    if len(of_kafka) > len(of_ours):
        assert any(f"no-pre-vote-at-{node}" in text for text in of_ours for node in of_kafka)


@pytest.mark.soak
def test_an_older_cluster_is_replaced_and_then_upgraded(older_kafka: KafkaInstallation, tmp_path: Path) -> None:
    """Controllers of Kafka 3.9 one by one become ours; until the last is gone, metadata.version stays what it knows."""
    layout = layout_in(tmp_path, DEFAULTS)
    our_format(layout, release=OLDER_VERSION)
    nodes = MixedQuorum(older_kafka, layout, dict.fromkeys(layout.ports, "kafka"))
    try:
        nodes.start()
        nodes.wait_until_listening()
        with admin_stream(older_kafka, layout) as stream:
            for node in layout.ports:
                nodes.end(node, "stop")
                nodes.makes[node] = "ours"
                nodes.start(node)
                nodes.wait_until_listening()
                leader_of(layout)
                stream.wait_for_progress()
                if "kafka" in nodes.makes.values():
                    refused = kraft("features", "upgrade", "--release-version", KAFKA_VERSION, *nodes.where)
                    assert "INVALID_UPDATE_VERSION" in refused.stderr
                    static = kraft("quorum", "upgrade", *nodes.where, "--timeout", "2")
                    assert static.returncode == 1
                    print(static.stderr)
            told("features", "upgrade", "--release-version", KAFKA_VERSION, *nodes.where)
            # The leader knows the directory id of the last voter with the first Fetch that the voter sends.
            eventually(lambda: kraft("quorum", "upgrade", *nodes.where).returncode == 0, "the voters are in the log")
            stream.wait_for_progress()
        logs = nodes.end_all()
    finally:
        nodes.kill()
    for node, batches in logs.items():
        assert set(stream.acknowledged) <= set(values_in(batches)), f"node {node} lacks changes"
