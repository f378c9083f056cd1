"""A broker takes large batches and snapshots a portion at a time, and tells its replicas of them in the same way."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from counted_turns import Counted
from kraft.broker import BrokerAgent
from kraft.committed import CommittedBatch
from kraft.limits import PARTITIONS_PER_TURN, REPLAYED_RECORDS_PER_TURN
from kraft.sim.nodes.broker_without_data import BrokerWithoutData
from kraft.sim.state.fingerprints import FactsOf
from kraft.sim.state.forking import forked
from metadata_log.image import MetadataDelta
from metadata_log.image.record_values import encode_image
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import PartitionChangeRecord, PartitionRecord, TopicRecord
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch
from support.kraft.broker_agents import ONE, TOPIC, TWO, led_by, new_agent, started

PARTITIONS = 6_000


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Records that are replayed."""
    counter = Counted()
    monkeypatch.setattr(MetadataDelta, "replay", counter.counting(MetadataDelta.replay))
    return counter


@pytest.fixture
def publications(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Partitions that are reported to the replicas of a broker."""
    counter = Counted()
    counted = counter.counting(BrokerAgent._publish_partition)
    monkeypatch.setattr(BrokerAgent, "_publish_partition", counted)
    return counter


def batch(base_offset: int, contents: Sequence[tuple[Message, int]]) -> CommittedBatch:
    values = tuple(encode_record(record, version) for record, version in contents)
    return CommittedBatch(base_offset, base_offset + len(values), 1, 0, values, sum(map(len, values)))


def created(base_offset: int) -> CommittedBatch:
    """A topic with all partitions led by broker 101."""
    topic = (TopicRecord(name="large", topic_id=TOPIC), 0)
    partitions = [
        PartitionRecord(
            partition_id=number,
            topic_id=TOPIC,
            replicas=(101, 102),
            isr=(101, 102),
            leader=101,
            leader_epoch=0,
            partition_epoch=0,
            directories=(ONE, TWO),
        )
        for number in range(PARTITIONS)
    ]
    return batch(base_offset, [topic, *((one, 1) for one in partitions)])


def publish(agent: BrokerAgent, now_ms: int) -> int:
    """Poll an agent a millisecond apart until it has told its replicas of everything; returns how often."""
    polls = 1
    agent.poll(now_ms)
    while agent._changed or agent._gathering is not None or agent._is_everything_changed:
        assert agent.deadline_ms() == now_ms + 1
        now_ms += 1
        polls += 1
        agent.poll(now_ms)
    return polls


def test_a_broker_applies_and_publishes_a_large_batch_in_turns(replays: Counted, publications: Counted) -> None:
    host = BrokerWithoutData(started())
    agent = host.agent
    base_offset = agent.image.end.offset
    host.on_committed(created(base_offset))
    replays.step_over()
    now_ms = 1001
    while host.is_applying:
        # What is due meanwhile goes on with the image from before, and loses nothing of what comes.
        agent.poll(now_ms)
        now_ms += 1
        assert "large" not in agent.image.topics
        host.apply_more()
        replays.step_over()
    assert replays.most <= REPLAYED_RECORDS_PER_TURN
    assert len(agent.image.topics["large"].partitions) == PARTITIONS
    publications.begin()
    polls = 0
    while agent._changed:
        agent.poll(now_ms)
        now_ms += 1
        polls += 1
        publications.step_over()
    assert polls == PARTITIONS // PARTITIONS_PER_TURN
    assert publications.most == PARTITIONS_PER_TURN
    assert len(led_by(agent)) == PARTITIONS


def test_a_broker_begins_with_a_large_snapshot_in_turns(replays: Counted) -> None:
    source = BrokerWithoutData(new_agent())
    source.on_committed(created(0))
    while source.is_applying:
        source.apply_more()
    values = list(encode_image(source.agent.image))
    host = BrokerWithoutData(started())
    replays.begin()
    host.on_snapshot(values, OffsetAndEpoch(epoch=1, offset=9000))
    replays.step_over()
    while host.is_applying:
        assert "large" not in host.agent.image.topics
        host.apply_more()
        replays.step_over()
    assert replays.most <= REPLAYED_RECORDS_PER_TURN
    assert len(host.agent.image.topics["large"].partitions) == PARTITIONS
    assert publish(host.agent, 1001) >= 2 * PARTITIONS // PARTITIONS_PER_TURN
    assert len(led_by(host.agent)) == PARTITIONS


def test_a_fork_continues_to_apply_a_batch() -> None:
    host = BrokerWithoutData(started())
    host.on_committed(created(host.agent.image.end.offset))
    host.apply_more()
    copy, facts_of = forked(host), FactsOf()
    assert facts_of(copy) == facts_of(host)
    for one in (host, copy):
        while one.is_applying:
            one.apply_more()
        publish(one.agent, 1001)
    assert facts_of(copy) == facts_of(host)
    assert copy.agent.image.topics["large"] == host.agent.image.topics["large"]
    assert len(led_by(copy.agent)) == PARTITIONS


def test_a_batch_arriving_during_replica_updates_is_applied_to_replicas_too() -> None:
    host = BrokerWithoutData(started())
    agent = host.agent
    host.on_committed(created(agent.image.end.offset))
    while host.is_applying:
        host.apply_more()
    agent.poll(1001)
    assert agent._changed
    away = PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=102)
    host.on_committed(batch(agent.image.end.offset, [(away, 0)]))
    publish(agent, 1002)
    assert len(led_by(agent)) == PARTITIONS - 1
