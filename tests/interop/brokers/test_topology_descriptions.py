"""A broker of each make without a plug-in for topologies answers StreamsGroupTopologyDescriptionUpdate alike.

This file, run by itself with `PYTHONPATH=tests`, records what a broker of
Kafka answers, for `tests/kraft/coordinators/groups/test_group_probes.py`.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path

import pytest

from kraft.config.keys import STANDARD_AUTHORIZER
from one_node import one_node
from support.broker.topology_answers import OFF, ON, RECORDED, Exchange, recorded
from support.interop.kafka_or_skip import found_or_skipped
from support.interop.our_nodes import told
from support.interop.real_kafka import KafkaInstallation
from support.kafka_jars import NEWER_VERSION
from support.wire import reaction, request_bytes
from transport.protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
    TopologyDescriptionGlobalStore,
    TopologyDescriptionNode,
    TopologyDescriptionSubtopology,
)

pytestmark = pytest.mark.kafka

SECURED = (
    f"authorizer.class.name={STANDARD_AUTHORIZER}",
    "allow.everyone.if.no.acl.found=true",
)
HIDDEN = "hidden"
"""The group that a rule keeps from everybody."""
SOURCE = TopologyDescriptionNode(name="in", node_type=0, source_topics=["orders"], successors=["sum"])
SUM = TopologyDescriptionNode(name="sum", node_type=1, stores=["totals"], successors=["out"])
SINK = TopologyDescriptionNode(name="out", node_type=2, sink_topic="totals")
TOPOLOGY = TopologyDescription(
    subtopologies=[TopologyDescriptionSubtopology(subtopology_id="0", nodes=[SOURCE, SUM, SINK])],
    global_stores=[TopologyDescriptionGlobalStore(source=SOURCE, processor=SUM)],
)


def exchanges(kafka: KafkaInstallation, root: Path, make: str, *settings: str) -> list[Exchange]:
    """The answers of a node with both roles about a group, a hidden one, and one without a name."""
    with one_node(kafka, root, make, *SECURED, *settings) as (controller, port):
        rule = ("--principal", "User:ANONYMOUS", "--operation", "read", "--deny", "--group", HIDDEN)
        told("acls", "add", *rule, "--bootstrap-controller", f"127.0.0.1:{controller}")
        found = []
        for group, topology in (("g", TOPOLOGY), (HIDDEN, TOPOLOGY), ("", TopologyDescription())):
            request = StreamsGroupTopologyDescriptionUpdateRequest(group, "m", 1, topology)
            sent = request_bytes(request, 0)
            [answer], _ = reaction(port, sent)
            found.append(Exchange(group, sent[4:].hex(), answer.hex()))
        return found


@pytest.mark.parametrize(("name", "settings"), [(ON, ()), (OFF, (OFF,))])
def test_a_topology_has_nowhere_to_go(
    newer_kafka: KafkaInstallation, tmp_path: Path, name: str, settings: tuple[str, ...]
) -> None:
    theirs, ours = (exchanges(newer_kafka, tmp_path / make, make, *settings) for make in ("kafka", "ours"))
    assert ours == theirs == recorded()[name]


def record() -> None:
    """Write what a broker of Kafka answers."""
    with tempfile.TemporaryDirectory() as scratch:
        kafka = found_or_skipped(NEWER_VERSION)
        found = {
            name: exchanges(kafka, Path(scratch) / str(len(settings)), "kafka", *settings)
            for name, settings in ((ON, ()), (OFF, (OFF,)))
        }
    with gzip.GzipFile(RECORDED, "wb", mtime=0) as file:
        file.write(json.dumps(found).encode())


if __name__ == "__main__":
    record()
