"""A quorum of both makes, each of whose nodes leads in turn."""

from __future__ import annotations

from collections import Counter

from support.interop.mixed_quorum import AdminStream, Make, MixedQuorum, Way, admin_stream, values_in
from support.interop.our_nodes import told
from support.interop.real_kafka import QUORUM_TOOL, KafkaInstallation, QuorumLayout, eventually
from support.wire import active_controller, leader_of

WAYS: tuple[Way, ...] = ("kill", "stop")


def lead_in_turn(
    kafka: KafkaInstallation,
    layout: QuorumLayout,
    of_kafka: tuple[int, ...],
    turns: int,
    ways: tuple[Way, ...] = WAYS,
) -> None:
    """Each node becomes leader so many times after a kill and after a graceful shutdown, while an admin client writes.
    Then nothing is lost, and all logs are the same bytes.
    """
    makes: dict[int, Make] = {node: "kafka" if node in of_kafka else "ours" for node in layout.ports}
    nodes = MixedQuorum(kafka, layout, makes)
    try:
        nodes.start()
        nodes.wait_until_listening()
        with admin_stream(kafka, layout) as stream:
            move_to_each(nodes, stream, turns, ways)
        acknowledged = stream.acknowledged
        for says in ask_both(kafka, layout):
            assert f"LeaderId:               {nodes.quorum().leader_id}\n" in says
        logs = nodes.end_all()
    finally:
        nodes.kill()
    print(f"{len(acknowledged)} changes were acknowledged")
    for node, batches in logs.items():
        written = values_in(batches)
        assert set(acknowledged) <= set(written), f"node {node} lacks {sorted(set(acknowledged) - set(written))}"


def ask_both(kafka: KafkaInstallation, layout: QuorumLayout) -> tuple[str, str]:
    """The output of our command and of Kafka's tool about the quorum."""
    where = ("--bootstrap-controller", layout.bootstrap)
    return told("quorum", "status", *where), kafka.tool(QUORUM_TOOL, *where, "describe", "--status")


def move_to_each(nodes: MixedQuorum, stream: AdminStream, turns: int, ways: tuple[Way, ...]) -> None:
    """Move leadership until each node has gained it so many times in each way."""
    wanted = Counter({(way, node): turns for way in ways for node in nodes.layout.ports})
    leader, moves = leader_of(nodes.layout), 0
    while wanted:
        way, target = next((each for each in wanted if each[1] != leader), (ways[moves % len(ways)], None))
        end_leader(nodes, stream, leader, way, target)
        nodes.start(*(nodes.layout.ports.keys() - nodes.processes.keys()))
        nodes.wait_until_listening()
        before, leader = leader, leader_of(nodes.layout)
        stream.wait_for_progress()
        moves += 1
        print(f"move {moves}: {way} {before}, wanted {target}: {leader} leads")
        assert moves <= 20 * turns, "leadership did not come to each node"
        if leader != before:
            wanted = wanted - Counter([(way, leader)])


def end_leader(nodes: MixedQuorum, stream: AdminStream, leader: int, way: Way, target: int | None) -> None:
    """End the leader; to let one follower lead, the other one stays down meanwhile and falls behind."""
    if target is None:
        nodes.end(leader, way)
        return
    (other,) = nodes.layout.ports.keys() - {leader, target}
    nodes.end(other, "stop")
    stream.wait_for_progress()
    nodes.end(leader, way)
    nodes.start(other)
    eventually(lambda: active_controller(nodes.layout.ports[target]) == target, f"{target} leads after {leader}")
