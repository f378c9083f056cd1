"""No turn of a replica's owner is long: each turn's work on decisions, batches and snapshots of any size is counted."""

from __future__ import annotations

import pytest

from counted_turns import FAR, GONE, LEADING, OTHER, PARTITIONS, Counted, Quorum
from kraft.controller import decisions
from kraft.controller.decision.request_context import DecisionSettings
from kraft.controller.topics import elect_leaders, isr, partition_updates
from kraft.limits import DECISION_STEPS_PER_TURN, DECISIONS_WAITING, RECORDS_PER_BATCH, RECORDS_PER_OPERATION
from kraft.replica.interface.options import SnapshotOptions
from metadata_log.image import MetadataDelta, replaying
from metadata_log.image.topics_delta import TopicsDelta
from metadata_log.log.retention import Retention
from metadata_log.records.frame import decode_record
from metadata_log.records.metadata import BrokerRegistrationChangeRecord, PartitionChangeRecord
from metadata_log.records.record import records
from metadata_log.serde import Message
from support.differential.controller_sides import InProcess, registration
from transport.protocol import messages as m
from transport.protocol.errors import Error
from transport.protocol.messages.create_topics import CreatableTopic
from transport.protocol.messages.delete_topics import DeleteTopicState
from transport.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource
from transport.protocol.messages.update_features import FeatureUpdateKey

MEMBERSHIPS = 2 * PARTITIONS
"""More than one batch holds, so that a fence is written in several."""
CHANGES_PER_TURN = DECISION_STEPS_PER_TURN * replaying.CHANGES_PER_RECORD
"""Changes of partitions that are alike take a step together."""
REPLAYED_AHEAD = 1
"""The records of one turn are replayed when it ends, and at most those of one more when a batch is complete."""


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Decisions on partitions, and changes that are made like one that was decided on."""
    counter = Counted()
    counted, alike = counter.counting(partition_updates.partition_change), partition_updates.alike
    for module in (partition_updates, elect_leaders, isr):
        monkeypatch.setattr(module, "partition_change", counted)
    monkeypatch.setattr(partition_updates, "alike", lambda *change: counter.counting(alike(*change)))
    return counter


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Records that are replayed."""
    counter = Counted()
    monkeypatch.setattr(MetadataDelta, "replay", counter.counting(MetadataDelta.replay))
    return counter


def written(quorum: Quorum, since: int) -> list[Message]:
    """The records that the leader has committed from an offset on."""
    log = quorum.net.processes[quorum.leader].replica.log
    found: list[Message] = []
    for batch in log.read_batches(
        since, 1 << 30, end_offset=quorum.net.processes[quorum.leader].replica.core.log.high_watermark
    ):
        if not batch.is_control:
            for record in records(batch):
                message = decode_record(record.value or b"").record
                assert message is not None
                found.append(message)
    return found


# Fencing


def test_a_fence_is_decided_in_turns_and_written_in_kafkas_batches(changes: Counted, replays: Counted) -> None:
    quorum = Quorum(changes, replays, max_idle_interval_ms=0)
    quorum.create("one", "two")
    since = quorum.controller().history.committed.end.offset
    before = len(quorum.batches())
    answer = quorum.net.ask(quorum.leader, quorum.heartbeat(GONE, want_fence=True))
    assert isinstance(answer, m.BrokerHeartbeatResponse)
    assert answer.is_fenced
    assert quorum.batches()[before:] == [RECORDS_PER_BATCH, MEMBERSHIPS + 1 - RECORDS_PER_BATCH]
    records = written(quorum, since)
    assert [type(record) for record in records[:-1]] == [PartitionChangeRecord] * MEMBERSHIPS
    assert records[-1] == BrokerRegistrationChangeRecord(broker_id=GONE, broker_epoch=quorum.epochs[GONE], fenced=1)
    assert changes.total == MEMBERSHIPS + 1, "one decision for all that are alike"
    assert changes.most <= CHANGES_PER_TURN + 1
    assert replays.most <= (1 + REPLAYED_AHEAD) * CHANGES_PER_TURN
    quorum.net.advance(1000)
    assert [quorum.members(GONE, node) for node in quorum.net.processes] == [0, 0, 0]


def test_while_a_broker_is_fenced_others_are_answered(changes: Counted) -> None:
    """Reads at once; what is to be decided afterwards, and a broker that waits for that is not taken for dead."""
    quorum = Quorum(changes)
    quorum.create("one", "two")
    net, epoch = quorum.net, quorum.net.processes[quorum.leader].replica.core.epoch
    fence = net.request(quorum.leader, quorum.heartbeat(GONE, want_fence=True))
    net.settle()
    turns = 0
    waiting = net.request(quorum.leader, quorum.heartbeat(LEADING))
    while quorum.is_busy:
        turns += 1
        asked = net.request(quorum.leader, m.DescribeClusterRequest())
        net.settle()
        assert asked in net.answers, "a read waits for the fence"
        assert fence not in net.answers
        assert waiting not in net.answers
        net.advance(1)
    assert turns >= MEMBERSHIPS // CHANGES_PER_TURN
    net.advance(10)
    assert {fence, waiting} <= net.answers.keys()
    assert net.processes[quorum.leader].replica.core.epoch == epoch
    answer = net.answers[waiting]
    assert isinstance(answer, m.BrokerHeartbeatResponse)
    assert (answer.error_code, answer.is_fenced) == (Error.NONE, False)


def test_the_next_leader_completes_an_interrupted_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first batch is committed while the second one takes its turns.
    monkeypatch.setattr(decisions, "CHANGES_PER_RECORD", 1)
    quorum = Quorum()
    quorum.create("one", "two")
    net = quorum.net
    topics = quorum.controller().history.committed.topics
    quorum.beats_until(lambda: quorum.controller().history.committed.topics is not topics)
    left = quorum.members(GONE)
    assert left == MEMBERSHIPS - RECORDS_PER_BATCH
    assert not quorum.is_fenced(GONE), "the fence comes last: no record names a fenced broker as leader"
    net.kill(quorum.leader)
    quorum.leader = net.elect()
    net.until(lambda: quorum.members(GONE) == left)
    quorum.beats_until(lambda: quorum.is_fenced(GONE))
    assert quorum.members(GONE) == 0
    partitions = [
        one for topic in quorum.controller().history.committed.topics.by_id.values() for one in topic.partitions
    ]
    assert {(one.leader, one.isr, one.partition_epoch) for one in partitions} == {(LEADING, (LEADING, OTHER), 1)}


def test_the_number_of_waiting_requests_is_bounded() -> None:
    quorum = Quorum()
    quorum.create("one", "two")
    net = quorum.net
    net.request(quorum.leader, quorum.heartbeat(GONE, want_fence=True))
    net.settle()
    waiting = [net.request(quorum.leader, quorum.heartbeat(LEADING)) for _ in range(DECISIONS_WAITING)]
    one_more = net.request(quorum.leader, quorum.heartbeat(LEADING))
    while net.queue:
        net.queue.popleft()()
    assert not net.answers.keys() & set(waiting)
    answer = net.answers[one_more]
    assert isinstance(answer, m.BrokerHeartbeatResponse)
    assert answer.error_code == Error.REQUEST_TIMED_OUT


# Other decisions


def test_topics_are_created_and_deleted_in_turns_in_one_batch_each(replays: Counted) -> None:
    quorum = Quorum(replays, max_idle_interval_ms=0)
    before = len(quorum.batches())
    quorum.create("large", partitions=9_999)
    assert quorum.batches()[before:] == [10_000]
    quorum.net.advance(1000)
    assert replays.most <= 1000, "the standbys replay it in one go"
    name = DeleteTopicState(name="large")
    answer = quorum.net.ask(quorum.leader, m.DeleteTopicsRequest(topics=[name]))
    assert isinstance(answer, m.DeleteTopicsResponse)
    assert [one.error_code for one in answer.responses] == [Error.NONE]
    assert quorum.batches()[before:] == [10_000, 1]
    assert not quorum.controller().history.committed.topics.members


def test_all_preferred_leaders_are_elected_in_turns(changes: Counted) -> None:
    quorum = Quorum(changes)
    quorum.create("one", "two")
    net = quorum.net
    net.ask(quorum.leader, quorum.heartbeat(GONE, want_fence=True))
    net.ask(quorum.leader, quorum.heartbeat(GONE))
    grow_isrs(quorum)
    changes.begin()
    answer = net.ask(quorum.leader, m.ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=60_000))
    assert isinstance(answer, m.ElectLeadersResponse)
    outcomes = [one.error_code for topic in answer.replica_election_results for one in topic.partition_result]
    assert outcomes == [Error.NONE] * MEMBERSHIPS
    assert changes.total == MEMBERSHIPS
    assert changes.most <= DECISION_STEPS_PER_TURN
    topics = quorum.controller().history.committed.topics
    assert {one.leader for topic in topics.by_id.values() for one in topic.partitions} == {GONE}


def grow_isrs(quorum: Quorum) -> None:
    """Let `GONE` into all ISRs again, in one request of their leader."""
    isr_module = m.alter_partition
    image = quorum.controller().history.committed
    members = [isr_module.BrokerState(broker_id=one, broker_epoch=epoch) for one, epoch in quorum.epochs.items()]
    topics = [
        isr_module.AlterPartitionRequestTopicData(
            topic_id=topic.id,
            partitions=[
                isr_module.AlterPartitionRequestPartitionData(
                    partition_index=number,
                    leader_epoch=partition.leader_epoch,
                    partition_epoch=partition.partition_epoch,
                    new_isr_with_epochs=members,
                )
                for number, partition in enumerate(topic.partitions)
            ],
        )
        for topic in image.topics.by_id.values()
    ]
    request = m.AlterPartitionRequest(broker_id=LEADING, broker_epoch=quorum.epochs[LEADING], topics=topics)
    answer = quorum.net.ask(quorum.leader, request)
    assert isinstance(answer, m.AlterPartitionResponse)
    assert {one.error_code for topic in answer.topics for one in topic.partitions} == {Error.NONE}


def test_balancing_continues_at_its_last_partition(changes: Counted) -> None:
    """Every partition is looked at once, not once more for every thousand that are elected."""
    quorum = Quorum(changes, decisions=DecisionSettings(leader_rebalance_interval_ms=300_000))
    quorum.create("one")
    net = quorum.net
    net.ask(quorum.leader, quorum.heartbeat(GONE, want_fence=True))
    net.ask(quorum.leader, quorum.heartbeat(GONE))
    grow_isrs(quorum)
    changes.begin()
    for _ in range(400):
        for broker in quorum.epochs:
            net.request(quorum.leader, quorum.heartbeat(broker))
        net.advance(1000)
        if quorum.controller().history.latest.topics["one"].partitions[-1].leader == GONE:
            break
    topic = quorum.controller().history.latest.topics["one"]
    assert {one.leader for one in topic.partitions} == {GONE}
    assert changes.total == PARTITIONS
    assert changes.most <= DECISION_STEPS_PER_TURN


def test_deleting_more_topics_than_one_operation_allows_is_refused() -> None:
    """As by Kafka: all of them, or none."""
    side = InProcess()
    side.ask(registration(GONE), 4)
    epoch = side.controller.history.latest.brokers.by_id[GONE].epoch
    side.ask(m.BrokerHeartbeatRequest(broker_id=GONE, broker_epoch=epoch, current_metadata_offset=FAR), 1)
    names = [f"t{number}" for number in range(RECORDS_PER_OPERATION + 1)]
    for at in range(0, len(names), 4000):
        made = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names[at : at + 4000]]
        side.ask(m.CreateTopicsRequest(topics=made), 7)
    assert len(side.controller.history.latest.topics) == len(names)
    for asked, error in ((names, Error.POLICY_VIOLATION), (names[1:], Error.NONE)):
        answer = side.ask(m.DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in asked]), 6)
        assert isinstance(answer, m.DeleteTopicsResponse)
        assert {one.error_code for one in answer.responses} == {error}
    assert list(side.controller.history.latest.topics) == names[:1]


def test_a_record_about_all_partitions_is_replayed_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of min.insync.replicas for all brokers clears the eligible leaders of all topics."""
    quorum = Quorum()
    enabled = FeatureUpdateKey(feature="eligible.leader.replicas.version", max_version_level=1, upgrade_type=1)
    answer = quorum.net.ask(quorum.leader, m.UpdateFeaturesRequest(feature_updates=[enabled]))
    assert isinstance(answer, m.UpdateFeaturesResponse)
    assert answer.error_code == Error.NONE, answer
    names = [f"t{number}" for number in range(20)]
    quorum.create(*names, partitions=200)
    for module in (replaying, decisions):
        monkeypatch.setattr(module, "PARTITIONS_PER_RECORD", 1)
    cleared = Counted()
    quorum.net.counters = (cleared,)
    monkeypatch.setattr(TopicsDelta, "_clear_elr", cleared.counting(TopicsDelta._clear_elr))
    change = AlterableConfig(name="min.insync.replicas", config_operation=0, value="2")
    resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[change])
    altered = quorum.net.ask(quorum.leader, m.IncrementalAlterConfigsRequest(resources=[resource]))
    assert isinstance(altered, m.IncrementalAlterConfigsResponse)
    assert [one.error_code for one in altered.responses] == [Error.NONE]
    quorum.net.advance(1000)
    assert cleared.total == 3 * len(names), "each node once"
    assert cleared.most <= 1 + DECISION_STEPS_PER_TURN // 200


# Sessions


# Standbys and snapshots


def test_a_standby_replays_a_large_batch_in_turns_and_answers_meanwhile(replays: Counted) -> None:
    quorum = Quorum(replays, max_idle_interval_ms=0)
    standby = next(node for node in quorum.net.processes if node != quorum.leader)
    topic = CreatableTopic(name="large", num_partitions=9_999, replication_factor=3)
    quorum.net.request(quorum.leader, m.CreateTopicsRequest(topics=[topic]))
    quorum.net.until_ms(lambda: quorum.host(standby).is_applying)
    turns = 0
    while quorum.host(standby).is_applying:
        turns += 1
        assert "large" not in quorum.controller(standby).history.committed.topics, "a batch shows as a whole"
        asked = quorum.net.request(standby, m.DescribeClusterRequest())
        quorum.net.settle()
        assert asked in quorum.net.answers
        quorum.net.advance(1)
    assert turns >= 10_000 // DECISION_STEPS_PER_TURN - 1
    assert replays.most <= DECISION_STEPS_PER_TURN
    assert len(quorum.controller(standby).history.committed.topics["large"].partitions) == 9_999
    status = quorum.net.processes[standby].replica.status()
    assert status.applied_offset == status.high_watermark


def test_a_snapshot_from_the_leader_is_loaded_in_turns(replays: Counted) -> None:
    """One node lags behind until the log begins later; what it knows stays until the snapshot is there."""
    options = SnapshotOptions(max_bytes=200_000, retention=Retention(max_bytes=1, max_ms=0), clean_every_ms=100)
    quorum = Quorum(replays, snapshots=options)
    net = quorum.net
    behind = next(node for node in net.processes if node != quorum.leader)
    net.cut.add(behind)
    quorum.create("one", "two")
    net.until_ms(
        lambda: net.processes[quorum.leader].replica.log.start_offset > net.processes[behind].replica.log.end_offset,
        20_000,
    )
    net.cut.clear()
    replays.begin()
    net.until_ms(lambda: quorum.host(behind).is_applying, 20_000)
    assert "one" not in quorum.controller(behind).history.committed.topics
    net.until_ms(lambda: "two" in quorum.controller(behind).history.committed.topics)
    assert replays.most <= DECISION_STEPS_PER_TURN
    assert quorum.members(GONE, behind) == MEMBERSHIPS
