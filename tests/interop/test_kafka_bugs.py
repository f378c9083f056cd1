"""What Apache Kafka's controllers do wrong, and ours do not, shown on both with a voter that does as the test says."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from mixed_quorum import Make, batches_in, controls_in, truncations
from our_nodes import our_controller, told
from real_kafka import (
    CLUSTER_ID,
    QUIET,
    STORAGE_TOOL,
    KafkaInstallation,
    Nodes,
    QuorumLayout,
    eventually,
    free_ports,
    kafka_controller,
    running,
)
from scripted_voter import HOST, LISTENER, scripted_voter
from wire import request_bytes

from kraft.quorum.values import Endpoints, ListenerAddress, ReplicaKey, VersionRange
from kraft.quorum.voters import Voter, VoterSet
from metadata_log.batch import build_batch, build_control_batch
from metadata_log.disk import OsDisk
from metadata_log.log_dir import read_meta_properties
from metadata_log.records.control import KRaftVersionRecord, LeaderChangeMessage, LeaderChangeMessageVoter, VotersRecord
from metadata_log.records.frame import encode_control, encode_record
from metadata_log.records.metadata import NoOpRecord
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch, Uuid
from transport.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest

pytestmark = pytest.mark.kafka

REAL, SCRIPTED, ADDED = (ReplicaKey(node, Uuid(bytes([node]) * 16)) for node in (1, 2, 3))


@pytest.mark.parametrize(
    ("make", "believed", "sets"),
    [
        # It goes on reading control records where its log ended before the truncation. A new leader of Kafka's writes
        # the voters down once more if it has something new to say of itself.
        pytest.param("kafka", {1, 2}, [{1, 2, 3}, {1, 2}, {1}], id="kafka"),
        pytest.param("ours", {1, 2, 3}, [{1, 2, 3}, {1, 3}], id="ours"),
    ],
)
def test_a_voter_set_in_the_place_of_what_was_truncated(
    kafka: KafkaInstallation, tmp_path: Path, make: Make, believed: set[int], sets: list[set[int]]
) -> None:
    """A follower truncates five records and gets two in their place, the second of which brings a third voter. Then it
    is elected, and asked to remove one of the others: who does not know of the third loses both.
    """
    ports = dict(zip((REAL.id, SCRIPTED.id), free_ports(2), strict=True))
    layout = QuorumLayout(tmp_path, CLUSTER_ID, ports, QUIET, is_dynamic=True)
    format_as_voters(kafka, make, layout)
    start = kafka_controller(kafka, layout) if make == "kafka" else our_controller(layout)
    partition = layout.partition(REAL.id)
    with (
        scripted_voter(SCRIPTED, ports[SCRIPTED.id], CLUSTER_ID) as script,
        running(layout, start, name=make, only=(REAL.id,)) as nodes,
    ):
        script.lead(1, [leader_change(0, 1), no_ops(1, 1, 5)])
        eventually(lambda: script.fetched == (1, 6), "six records of epoch 1 are fetched")
        script.lead(2, [leader_change(0, 1), leader_change(1, 2), voters(2, 2, ports, REAL, SCRIPTED, ADDED)])
        eventually(lambda: script.fetched == (2, 3), "three records are left, up to epoch 2")
        script.resign_to(REAL, ports[1])
        eventually(lambda: epoch_of(partition) > 2, "it leads")
        assert voters_at(partition, LeaderChangeMessage)[-1] == believed
        script.follow(ports[1], epoch_of(partition))
        remove = RemoveRaftVoterRequest(
            cluster_id=CLUSTER_ID, voter_id=SCRIPTED.id, voter_directory_id=SCRIPTED.directory_id
        )
        with socket.create_connection((HOST, ports[1])) as connection:
            connection.sendall(request_bytes(remove, 0))
            eventually(lambda: len(voters_at(partition, VotersRecord)) == len(sets), "the voters are changed")
    assert voters_at(partition, VotersRecord) == sets
    assert make == "ours" or truncations(nodes, REAL.id) == [1]


LEADS_ITSELF: Final = (
    r"with leader OptionalInt\[1\] and epoch 5 which is inconsistent with current leader OptionalInt.empty"
)


@pytest.mark.parametrize("make", ["kafka", "ours"])
def test_a_leader_whose_disk_was_lost_is_told_that_it_leads(
    kafka: KafkaInstallation, tmp_path: Path, make: Make
) -> None:
    """It comes back with an empty disk while the others still follow who it was. Kafka's process ends; ours waits for
    the next leader.
    """
    ports = dict(zip((REAL.id, SCRIPTED.id), free_ports(2), strict=True))
    layout = QuorumLayout(tmp_path, CLUSTER_ID, ports, QUIET, is_dynamic=True)
    format_with_tool(kafka, make, layout, "--no-initial-controllers")
    start = kafka_controller(kafka, layout) if make == "kafka" else our_controller(layout)
    with scripted_voter(SCRIPTED, ports[SCRIPTED.id], CLUSTER_ID) as script:
        script.name(5, REAL.id, listening_at(ports[REAL.id]))
        nodes = Nodes(layout, start, name=make)
        try:
            nodes.start(REAL.id)
            eventually(lambda: script.fetched is not None, "it asks who leads")
            if make == "kafka":
                nodes.processes[REAL.id].wait_for(LEADS_ITSELF)
                assert nodes.processes[REAL.id].wait() != 0
            else:
                script.lead(6, [leader_change(0, 6), no_ops(1, 6, 5)])
                eventually(lambda: script.fetched == (6, 6), "it follows the next leader")
        finally:
            nodes.kill()


SOON: Final = ("controller.quorum.election.timeout.ms=200", "controller.quorum.fetch.timeout.ms=400")
LONG_SECONDS: Final = 3.0
"""Many of these timeouts."""


@pytest.mark.parametrize("make", ["kafka", "ours"])
def test_a_voter_whose_removal_is_not_committed_is_needed(kafka: KafkaInstallation, tmp_path: Path, make: Make) -> None:
    """Of two voters the leader has removed the other, and is lost before that is committed. Who is left has the record,
    and stands; Kafka's does not.
    """
    ports = dict(zip((REAL.id, SCRIPTED.id), free_ports(2), strict=True))
    layout = QuorumLayout(tmp_path, CLUSTER_ID, ports, (*QUIET, *SOON), is_dynamic=True)
    format_as_voters(kafka, make, layout)
    start = kafka_controller(kafka, layout) if make == "kafka" else our_controller(layout)
    with (
        scripted_voter(SCRIPTED, ports[SCRIPTED.id], CLUSTER_ID) as script,
        running(layout, start, name=make, only=(REAL.id,)),
    ):
        script.lead(1, [leader_change(0, 1), voters(1, 1, ports, SCRIPTED)])
        eventually(lambda: script.fetched == (1, 2), "it knows that it is removed")
        script.votes.clear()
        since_s = script.give_up()
        eventually(lambda: bool(script.votes) or script.fetched_at_s > since_s + LONG_SECONDS, "it is left alone")
        assert bool(script.votes) == (make == "ours")


@pytest.mark.parametrize("make", ["kafka", "ours"])
def test_who_does_not_know_yet_that_it_votes_is_asked_for_a_pre_vote(
    kafka: KafkaInstallation, tmp_path: Path, make: Make
) -> None:
    """It has heard the leader that is lost since, and by its own log it is no voter. Kafka's refuses ever after."""
    ports = dict(zip((REAL.id, SCRIPTED.id), free_ports(2), strict=True))
    layout = QuorumLayout(tmp_path, CLUSTER_ID, ports, (*QUIET, *SOON), is_dynamic=True)
    format_with_tool(kafka, make, layout, "--no-initial-controllers")
    start = kafka_controller(kafka, layout) if make == "kafka" else our_controller(layout)
    with (
        scripted_voter(SCRIPTED, ports[SCRIPTED.id], CLUSTER_ID) as script,
        running(layout, start, name=make, only=(REAL.id,)),
    ):
        level = control(1, 1, KRaftVersionRecord(kraft_version=1))
        script.lead(1, [leader_change(0, 1), level, voters(2, 1, ports, SCRIPTED, ADDED)])
        eventually(lambda: script.fetched == (1, 3), "it has the log")
        formatted = read_meta_properties(OsDisk(), str(layout.log_dir(REAL.id)))
        assert formatted is not None
        assert formatted.directory_id is not None
        voter = ReplicaKey(REAL.id, formatted.directory_id)
        since_s = script.give_up()
        granted: list[bool] = []

        def is_decided() -> bool:
            granted.append(script.ask_for_pre_vote(voter, ports[REAL.id], 1, OffsetAndEpoch(epoch=1, offset=9)))
            return granted[-1] or script.fetched_at_s > since_s + LONG_SECONDS

        eventually(is_decided, "it lets another one lead")
        assert granted[-1] == (make == "ours")


def format_as_voters(kafka: KafkaInstallation, make: Make, layout: QuorumLayout) -> None:
    """Format the directory of node 1; it and the script are the first voters."""
    first = ",".join(f"{key.id}@{HOST}:{layout.ports[key.id]}:{key.directory_id}" for key in (REAL, SCRIPTED))
    format_with_tool(kafka, make, layout, "--initial-controllers", first)


def format_with_tool(kafka: KafkaInstallation, make: Make, layout: QuorumLayout, *how: str) -> None:
    """Format the directory of node 1 with its own tool."""
    words = ("format", "-c", str(layout.properties(REAL.id)), "-t", CLUSTER_ID, *how)
    if make == "kafka":
        kafka.tool(STORAGE_TOOL, *words)
    else:
        told(*words)


def listening_at(port: int) -> Endpoints:
    """Where a controller is reached."""
    return Endpoints((ListenerAddress(LISTENER, HOST, port),))


def control(offset: int, epoch: int, record: Message) -> bytes:
    """A batch of one control record."""
    kind, _, value = encode_control(record)
    return build_control_batch(offset, epoch, 0, [(kind, value)])


def leader_change(offset: int, epoch: int) -> bytes:
    """What the script writes first in an epoch."""
    who = tuple(LeaderChangeMessageVoter(voter_id=key.id) for key in (REAL, SCRIPTED))
    return control(offset, epoch, LeaderChangeMessage(leader_id=SCRIPTED.id, voters=who, granting_voters=who))


def no_ops(offset: int, epoch: int, count: int) -> bytes:
    """Records that say nothing."""
    return build_batch(offset, epoch, 0, [encode_record(NoOpRecord(), 0)] * count)


def voters(offset: int, epoch: int, ports: dict[int, int], *keys: ReplicaKey) -> bytes:
    """These vote. Where the third one is does not matter, as nobody is there."""
    found = VoterSet.of(Voter(key, listening_at(ports.get(key.id, 1)), VersionRange(0, 1)) for key in keys)
    return control(offset, epoch, found.to_record())


def epoch_of(partition: Path) -> int:
    """The last epoch in a log."""
    return batches_in(partition)[-1].epoch


def voters_at(partition: Path, kind: type[LeaderChangeMessage] | type[VotersRecord]) -> Sequence[set[int]]:
    """The ids of the voters in each such record of a log."""
    contents = controls_in(batches_in(partition))
    return [{one.voter_id for one in content.voters} for content in contents if isinstance(content, kind)]
