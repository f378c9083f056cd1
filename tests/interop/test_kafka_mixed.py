"""One quorum of both makes: our controllers and Apache Kafka's vote for, follow and lead each other."""

from __future__ import annotations

from pathlib import Path

import pytest
from dumps import logs_of, read_by_kafka, read_by_us
from our_nodes import our_controller, our_format, told
from real_kafka import QUORUM_TOOL, KafkaInstallation, QuorumLayout, eventually, kafka_controller, layout_in, running
from wire import active_controller, leader_of, set_client_metrics

from metadata_log.batch import scan
from transport.protocol.errors import Error

pytestmark = pytest.mark.kafka

LINGER_0 = ("controller.quorum.append.linger.ms=0",)


def write(layout: QuorumLayout, leader: int, name: str, count: int = 10) -> None:
    for number in range(count):
        assert set_client_metrics(layout.ports[leader], name, metrics=f"value-{number}") is Error.NONE


def batches_in(partition: Path) -> list[bytes]:
    """Every batch of a node's log, as it stands there."""
    return [bytes(batch.data) for file in sorted(partition.glob("*.log")) for batch in scan(file.read_bytes())]


def holds(partition: Path, *texts: str) -> bool:
    """Whether one batch of a node's log has all of these in it."""
    return any(all(text.encode() in batch for text in texts) for batch in batches_in(partition))


@pytest.mark.parametrize(
    "of_kafka", [pytest.param((3,), id="two-of-ours"), pytest.param((2, 3), id="two-of-kafkas", marks=pytest.mark.soak)]
)
def test_leadership_passes_between_the_makes(
    kafka: KafkaInstallation, tmp_path: Path, of_kafka: tuple[int, ...]
) -> None:
    """Stop whoever leads until both makes have led; what was acknowledged is in all logs, which are the same bytes."""
    layout = layout_in(tmp_path, LINGER_0)
    our_format(layout)
    ours, theirs = our_controller(layout), kafka_controller(kafka, layout)
    written: list[str] = []
    led: set[bool] = set()
    with running(layout, lambda node: (theirs if node in of_kafka else ours)(node), name="mixed") as nodes:
        while len(led) < 2 or len(written) < 3:
            assert len(written) < 25, f"leadership never passed to the other make: {written}"
            leader = leader_of(layout)
            led.add(leader in of_kafka)
            written.append(f"turn-{len(written)}-led-by-{leader}")
            write(layout, leader, written[-1])
            where = ("--bootstrap-controller", layout.bootstrap)
            if len(written) == 1:
                assert f"LeaderId:               {leader}\n" in told("quorum", "status", *where)
                assert f"LeaderId:               {leader}\n" in kafka.tool(QUORUM_TOOL, *where, "describe", "--status")
            if len(written) % 2:
                nodes.processes[leader].stop()
            else:
                nodes.processes[leader].kill()
            survivor = next(node for node in layout.ports if node != leader)
            eventually(
                lambda survivor=survivor, leader=leader: active_controller(layout.ports[survivor]) not in (-1, leader),
                f"a leader after {leader}",
            )
            nodes.start(leader)
        for node in layout.ports:
            eventually(
                lambda node=node: holds(layout.partition(node), written[-1], "value-9"), f"node {node} catches up"
            )
        nodes.stop()
    logs = [batches_in(layout.partition(node)) for node in layout.ports]
    shortest = min(map(len, logs))
    assert logs[0][:shortest] == logs[1][:shortest] == logs[2][:shortest]
    files = logs_of(layout.partition(node) for node in layout.ports)
    found = read_by_us(*files)
    assert read_by_kafka(kafka, *files) == found
    for records in found.values():
        last = {
            record.content["resourceName"]: record.content["value"]
            for record in records
            if record.name == "ConfigRecord"
        }
        assert {name: last.get(name) for name in written} == dict.fromkeys(written, "value-9")
