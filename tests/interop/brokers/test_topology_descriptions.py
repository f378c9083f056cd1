"""A broker of each make without a plug-in for topologies answers StreamsGroupTopologyDescriptionUpdate alike."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from our_nodes import told
from real_kafka import KafkaInstallation, Process, free_ports
from test_our_client_on_kafka import CLUSTER_ID, HEAP, STARTED, node_lines
from wire import ask

from kraft.config.keys import STANDARD_AUTHORIZER
from transport.protocol import messages as m
from transport.protocol.errors import Error

pytestmark = pytest.mark.kafka

SECURED = (
    f"authorizer.class.name={STANDARD_AUTHORIZER}",
    "allow.everyone.if.no.acl.found=true",
)
HIDDEN = "hidden"
"""The group that a rule keeps from everybody."""


def answers(kafka: KafkaInstallation, root: Path, make: str, *settings: str) -> list[tuple[int, str | None]]:
    """What a node with both roles says about a group, about one that is hidden, and about one without a name."""
    root.mkdir()
    path = root / "node.properties"
    controller, port = free_ports(2)
    lines = (*node_lines(root, controller, port), *SECURED, *settings)
    path.write_text("".join(f"{line}\n" for line in lines))
    told("format", "-c", str(path), "--cluster-id", CLUSTER_ID, "--release-version", kafka.release)
    command, started = kafka.command("kafka.Kafka", str(path), log="info", heap=HEAP), STARTED
    if make == "ours":
        command, started = [sys.executable, "-m", "kraft", "serve", "-c", str(path)], "serving node="
    process = Process(command, root / "node.log")
    try:
        process.wait_for(started)
        rule = ("--principal", "User:ANONYMOUS", "--operation", "read", "--deny", "--group", HIDDEN)
        told("acls", "add", *rule, "--bootstrap-controller", f"127.0.0.1:{controller}")
        found = []
        for group in ("g", HIDDEN, ""):
            request = m.StreamsGroupTopologyDescriptionUpdateRequest(group_id=group, member_id="m", topology_epoch=1)
            answer = ask(port, request, 0, m.StreamsGroupTopologyDescriptionUpdateResponse)
            found.append((answer.error_code, answer.error_message))
        return found
    finally:
        process.kill()


@pytest.mark.parametrize(
    ("settings", "codes"),
    [
        ((), (Error.UNSUPPORTED_VERSION, Error.GROUP_AUTHORIZATION_FAILED, Error.UNSUPPORTED_VERSION)),
        (("group.coordinator.rebalance.protocols=classic,consumer",), (Error.UNSUPPORTED_VERSION,) * 3),
    ],
)
def test_a_topology_has_nowhere_to_go(
    newer_kafka: KafkaInstallation, tmp_path: Path, settings: tuple[str, ...], codes: tuple[Error, ...]
) -> None:
    theirs, ours = (answers(newer_kafka, tmp_path / make, make, *settings) for make in ("kafka", "ours"))
    assert ours == theirs
    assert tuple(code for code, _ in ours) == codes
