"""Defects of Apache Kafka's controllers that ours do not have, shown on both with a scripted voter."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from kraft.quorum.values import ReplicaKey, VersionRange
from kraft.quorum.voters import Voter, VoterSet
from metadata_log.log.snapshot import snapshot_name
from metadata_log.records.batch_builder import build_batch, build_control_batch
from metadata_log.records.control import KRaftVersionRecord, LeaderChangeMessage, LeaderChangeMessageVoter, VotersRecord
from metadata_log.records.frame import encode_control, encode_record
from metadata_log.records.metadata import FeatureLevelRecord, NoOpRecord
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch, Uuid
from scripted_voter import HOST, ScriptedVoter, listening_at, scripted_voter
from support.interop.kafka_or_skip import found_or_skipped
from support.interop.mixed_quorum import TOLD_THAT_IT_LEADS, Make, batches_in, controls_in, truncations
from support.interop.our_nodes import our_controller, told
from support.interop.real_kafka import (
    CLUSTER_ID,
    QUIET,
    KafkaInstallation,
    Nodes,
    QuorumLayout,
    eventually,
    free_ports,
    kafka_controller,
)
from support.kafka_jars import KAFKA_VERSION, NEWER_VERSION
from support.wire import ask, request_bytes
from transport.protocol.errors import Error
from transport.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from transport.protocol.messages.update_raft_voter import (
    KRaftVersionFeature,
    Listener,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)

pytestmark = pytest.mark.kafka

METADATA_VERSION: Final = 30
SOON: Final = ("controller.quorum.election.timeout.ms=200", "controller.quorum.fetch.timeout.ms=800")
PATIENT: Final = (
    "controller.quorum.election.timeout.ms=200",
    "controller.quorum.fetch.timeout.ms=120000",
    "controller.quorum.request.timeout.ms=1000",
)
"""A leader stays although nobody fetches, and gives a change of the voters a second."""
LONG_SECONDS: Final = 2.0
"""Longer than several of these timeouts."""
LEADS_ITSELF: Final = rf"with leader OptionalInt\[1\] and epoch 5 {TOLD_THAT_IT_LEADS}"
BOTH: Final = pytest.mark.parametrize("make", ["kafka", "ours"])

REAL, SCRIPTED, ADDED = (ReplicaKey(node, Uuid(bytes([node]) * 16)) for node in (1, 2, 3))


@pytest.mark.parametrize(
    ("make", "believed", "sets"),
    [
        # Kafka's node goes on reading control records at the old end of its truncated log. A new leader of Kafka's
        # writes the voters once more if its own entry has changed.
        pytest.param("kafka", {1, 2}, [{1, 2, 3}, {1, 2}, {1}], id="kafka"),
        pytest.param("ours", {1, 2, 3}, [{1, 2, 3}, {1, 3}], id="ours"),
    ],
)
def test_a_voter_set_replaces_a_truncated_record_at_the_same_offset(
    kafka: KafkaInstallation, tmp_path: Path, make: Make, believed: set[int], sets: list[set[int]]
) -> None:
    """A follower truncates five records and gets two in their place; the second of these adds a third voter. Then the
    follower is elected, and removes one of the others. A leader that has not read the addition loses both voters.
    """
    with stage(kafka, tmp_path, make) as (script, nodes):
        port, log = nodes.layout.ports[REAL.id], nodes.layout.partition(REAL.id)
        nodes.start(REAL.id)
        script.lead(1, [leader_change(0, 1), no_ops(1, 1, 5)])
        eventually(lambda: script.fetched == (1, 6), "six records of epoch 1 are fetched")
        script.lead(2, [leader_change(0, 1), leader_change(1, 2), voters(2, 2, nodes, REAL, SCRIPTED, ADDED)])
        eventually(lambda: script.fetched == (2, 3), "three records are left, up to epoch 2")
        script.resign_to(REAL, port)
        eventually(lambda: epoch_of(log) > 2, "the node leads")
        assert voters_at(log, LeaderChangeMessage)[-1] == believed
        script.follow(port, epoch_of(log))
        with socket.create_connection((HOST, port)) as connection:
            connection.sendall(request_bytes(removal(SCRIPTED), 0))
            eventually(lambda: len(voters_at(log, VotersRecord)) == len(sets), "the voters are changed")
    assert voters_at(log, VotersRecord) == sets
    assert make == "ours" or truncations(nodes, REAL.id) == [1]


@BOTH
def test_a_leader_with_a_lost_disk_is_still_reported_as_leader_by_its_followers(
    kafka: KafkaInstallation, tmp_path: Path, make: Make
) -> None:
    """The leader comes back with an empty disk while the others still follow its old epoch. Kafka's process ends, and
    needs another start; ours waits for the next leader.
    """
    with stage(kafka, tmp_path, make, votes=False) as (script, nodes):
        script.name(5, REAL.id, listening_at(nodes.layout.ports[REAL.id]))
        nodes.start(REAL.id)
        eventually(lambda: script.fetched is not None, "the node asks for the leader")
        if make == "kafka":
            nodes.processes[REAL.id].wait_for(LEADS_ITSELF)
            assert nodes.processes[REAL.id].wait() != 0
        script.lead(6, [leader_change(0, 6), no_ops(1, 6, 5)])
        if make == "kafka":
            nodes.start(REAL.id)
        eventually(lambda: script.fetched == (6, 6), "it follows the next leader")


@BOTH
def test_an_uncommitted_removal_does_not_stop_a_voter_from_campaigning(
    kafka: KafkaInstallation, tmp_path: Path, make: Make
) -> None:
    """Of two voters the leader removes the other, and is lost before the removal is committed. The removed voter has
    the record, and campaigns; Kafka's does not.
    """
    with stage(kafka, tmp_path, make, *SOON) as (script, nodes):
        nodes.start(REAL.id)
        script.lead(1, [leader_change(0, 1), voters(1, 1, nodes, SCRIPTED)])
        eventually(lambda: script.fetched == (1, 2), "it knows that it is removed")
        script.votes.clear()
        assert has_stood_without(script) == (make == "ours")


@BOTH
def test_a_voter_without_the_record_of_its_addition_answers_a_pre_vote(
    kafka: KafkaInstallation, tmp_path: Path, make: Make
) -> None:
    """The voter has heard a leader that is lost now, and is no voter by its own log. Kafka's refuses for ever."""
    with stage(kafka, tmp_path, make, *SOON, votes=False) as (script, nodes):
        nodes.start(REAL.id)
        level = control(1, 1, KRaftVersionRecord(kraft_version=1))
        script.lead(1, [leader_change(0, 1), level, voters(2, 1, nodes, SCRIPTED, ADDED)])
        eventually(lambda: script.fetched == (1, 3), "it has the log")
        voter = ReplicaKey(REAL.id, nodes.layout.directory_id(REAL.id))
        last = OffsetAndEpoch(epoch=1, offset=9)
        since_s = script.give_up()
        granted = [False]

        def is_decided() -> bool:
            granted.append(script.ask_for_pre_vote(voter, nodes.layout.ports[REAL.id], 1, last))
            return granted[-1] or script.fetched_at_s > since_s + LONG_SECONDS

        eventually(is_decided, "it lets another one lead")
        assert granted[-1] == (make == "ours")


@BOTH
def test_voters_of_the_snapshot_count_after_the_first_voters_record_is_truncated(
    kafka: KafkaInstallation, tmp_path: Path, make: Make
) -> None:
    """A snapshot ends at an uncommitted change of the voters, which is then truncated. Kafka's node has forgotten the
    voters before that change, and does not campaign although only this node can be elected.
    """
    with stage(kafka, tmp_path, make, *SOON, "metadata.log.max.record.bytes.between.snapshots=1") as (script, nodes):
        nodes.start(REAL.id)
        committed = [leader_change(0, 1), level_of_metadata(1, 1)]
        script.lead(1, committed, high_watermark=2)
        if make == "kafka":
            nodes.processes[REAL.id].wait_for("initializing SnapshotGenerator")
        committed.append(no_ops(2, 1, 1))
        script.lead(1, [*committed, voters(3, 1, nodes, REAL, SCRIPTED, ADDED)], high_watermark=3)
        snapshot = nodes.layout.partition(REAL.id) / snapshot_name(OffsetAndEpoch(epoch=1, offset=3))
        eventually(snapshot.exists, "the node has a snapshot")
        script.lead(2, [*committed, leader_change(3, 2), no_ops(4, 2, 1)], high_watermark=3)
        eventually(lambda: script.fetched == (2, 5), "the node has truncated its log")
        script.votes.clear()
        script.resign_to(REAL, nodes.layout.ports[REAL.id])
        assert has_stood_without(script) == (make == "ours")


@pytest.mark.parametrize(("make", "version"), [("kafka", KAFKA_VERSION), ("kafka", NEWER_VERSION), ("ours", None)])
def test_a_change_of_the_voters_waits_for_one_whose_request_has_timed_out(
    tmp_path: Path, make: Make, version: str | None
) -> None:
    """KAFKA-20740, tried on a leader of each release: a removal times out, and its record is in the log, uncommitted.

    Kafka's leaders, too, find it in the log. They would write a second one only if the request expired before the
    record has left their accumulator, which no request from outside brings about.
    """
    kafka = found_or_skipped(version or KAFKA_VERSION)
    with stage(kafka, tmp_path, make, *PATIENT) as (script, nodes):
        port, log = nodes.layout.ports[REAL.id], nodes.layout.partition(REAL.id)
        nodes.start(REAL.id)
        script.lead(1, [leader_change(0, 1), voters(1, 1, nodes, REAL, SCRIPTED, ADDED)])
        eventually(lambda: script.fetched == (1, 2), "the voters are fetched")
        script.resign_to(REAL, port)
        eventually(lambda: epoch_of(log) > 1, "the node leads")
        script.follow(port, epoch_of(log))
        before = voters_at(log, VotersRecord)
        assert before[-1] == {REAL.id, SCRIPTED.id, ADDED.id}
        assert ask(port, removal(ADDED), 0, RemoveRaftVoterResponse).error_code == Error.REQUEST_TIMED_OUT
        uncommitted = [*before, {REAL.id, SCRIPTED.id}]
        assert voters_at(log, VotersRecord) == uncommitted
        assert ask(port, removal(SCRIPTED), 0, RemoveRaftVoterResponse).error_code == Error.REQUEST_TIMED_OUT
        update = UpdateRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            current_leader_epoch=epoch_of(log),
            voter_id=SCRIPTED.id,
            voter_directory_id=SCRIPTED.directory_id,
            listeners=[Listener("CONTROLLER", "elsewhere", 9093)],
            kraft_version_feature=KRaftVersionFeature(0, 1),
        )
        assert ask(port, update, 0, UpdateRaftVoterResponse).error_code == Error.REQUEST_TIMED_OUT
        assert voters_at(log, VotersRecord) == uncommitted
        script.follow(port, epoch_of(log))
        with socket.create_connection((HOST, port)) as connection:
            connection.sendall(request_bytes(update, 0))
            eventually(lambda: len(voters_at(log, VotersRecord)) == len(uncommitted) + 1, "the next change begins")


def removal(voter: ReplicaKey) -> RemoveRaftVoterRequest:
    """The request to remove a voter."""
    return RemoveRaftVoterRequest(cluster_id=CLUSTER_ID, voter_id=voter.id, voter_directory_id=voter.directory_id)


@contextmanager
def stage(
    kafka: KafkaInstallation, root: Path, make: Make, *settings: str, votes: bool = True
) -> Iterator[tuple[ScriptedVoter, Nodes]]:
    """The scripted voter, and a formatted node of one make, not started. Without `votes` the node is no first voter."""
    ports = dict(zip((REAL.id, SCRIPTED.id), free_ports(2), strict=True))
    layout = QuorumLayout(root, CLUSTER_ID, ports, (*QUIET, *settings), is_dynamic=True)
    first = ",".join(f"{key.id}@{HOST}:{ports[key.id]}:{key.directory_id}" for key in (REAL, SCRIPTED))
    how = ("--initial-controllers", first) if votes else ("--no-initial-controllers",)
    told("format", "-c", str(layout.properties(REAL.id)), "--cluster-id", CLUSTER_ID, *how)
    start = kafka_controller(kafka, layout) if make == "kafka" else our_controller(layout)
    nodes = Nodes(layout, start, name=make)
    with scripted_voter(SCRIPTED, ports[SCRIPTED.id], CLUSTER_ID) as script:
        try:
            yield script, nodes
        finally:
            nodes.kill()


def has_stood_without(script: ScriptedVoter) -> bool:
    """Whether the node campaigns once there is no leader, instead of only fetching in search of a leader."""
    since_s = script.give_up()
    eventually(lambda: bool(script.votes) or script.fetched_at_s > since_s + LONG_SECONDS, "a campaign")
    return bool(script.votes)


def control(offset: int, epoch: int, record: Message) -> bytes:
    """A batch of one control record."""
    kind, _, value = encode_control(record)
    return build_control_batch(offset, epoch, 0, [(kind, value)])


def leader_change(offset: int, epoch: int) -> bytes:
    """The record that the script writes first in an epoch."""
    ids = tuple(LeaderChangeMessageVoter(voter_id=key.id) for key in (REAL, SCRIPTED))
    return control(offset, epoch, LeaderChangeMessage(leader_id=SCRIPTED.id, voters=ids, granting_voters=ids))


def no_ops(offset: int, epoch: int, count: int) -> bytes:
    """A batch of NoOpRecords."""
    return build_batch(offset, epoch, 0, [encode_record(NoOpRecord(), 0)] * count)


def level_of_metadata(offset: int, epoch: int) -> bytes:
    """The record of metadata.version, which every snapshot of the metadata needs."""
    level = FeatureLevelRecord(name="metadata.version", feature_level=METADATA_VERSION)
    return build_batch(offset, epoch, 0, [encode_record(level, 0)])


def voters(offset: int, epoch: int, nodes: Nodes, *keys: ReplicaKey) -> bytes:
    """A batch with these voters. The third voter's port does not matter, as no process listens there."""
    ports = nodes.layout.ports
    found = VoterSet.of(Voter(key, listening_at(ports.get(key.id, 1)), VersionRange(0, 1)) for key in keys)
    return control(offset, epoch, found.to_record())


def epoch_of(partition: Path) -> int:
    """The last epoch in a log."""
    return batches_in(partition)[-1].epoch


def voters_at(partition: Path, kind: type[LeaderChangeMessage] | type[VotersRecord]) -> Sequence[set[int]]:
    """The ids of the voters in each such record of a log."""
    contents = controls_in(batches_in(partition))
    return [{one.voter_id for one in content.voters} for content in contents if isinstance(content, kind)]
