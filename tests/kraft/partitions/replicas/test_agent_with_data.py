"""A broker agent with data opens its logs once it has caught up with the metadata, and is unfenced after that."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from fetch_answers import answer_fetch
from kraft.broker import BrokerAgent, BrokerListener, BrokerOptions, BrokerSettings, LifecycleState, NoLogDirectory
from kraft.broker.agent import FAREWELL_MS
from kraft.broker.opening import CHANGE_WEIGHT, NEW_LOG_WEIGHT
from kraft.handling.reply_keys import Channel
from kraft.partitions.replicas import DataSettings, ReplicaManager
from kraft.wire import Send, Target
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records import metadata as records
from metadata_log.serde import Message
from support.broker.data_brokers import (
    KEY,
    NOW_MS,
    TOPIC,
    append,
    append_to,
    batch,
    directory_id,
    new_topic,
    part_of,
    registration,
    settings,
)
from support.kraft.broker_agents import EPOCH, heartbeat, replay
from transport.protocol.messages.alter_partition import AlterPartitionRequest
from transport.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from transport.protocol.messages.broker_registration import BrokerRegistrationResponse
from transport.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

M = TypeVar("M", bound=Message)


def message_of(send: Send, kind: type[M]) -> M:
    """The message, which is of this kind."""
    assert isinstance(send.message, kind)
    return send.message


def agent_with_data(
    broker_id: int, disk: MemoryDisk, data: DataSettings | None = None
) -> tuple[BrokerAgent, ReplicaManager]:
    manager = ReplicaManager(disk, data or settings(broker_id))
    made = BrokerSettings(
        broker_id=broker_id,
        cluster_id="cluster",
        incarnation_id=registration(broker_id, 0).incarnation_id,
        listeners=(BrokerListener("PLAINTEXT", f"h{broker_id}", 9092),),
        features=(("metadata.version", 7, 30),),
        options=BrokerOptions(directories=(directory_id(broker_id),)),
    )
    return BrokerAgent(made, manager), manager


def commit(agent: BrokerAgent, *committed: Message) -> None:
    base_offset = agent.image.end.offset
    replay(agent, committed, base_offset)


def metadata(*, leader: int) -> list[Message]:
    return [
        records.FeatureLevelRecord(name="metadata.version", feature_level=30),
        registration(1, EPOCH),
        registration(2, 50),
        *new_topic((1, 2), leader=leader),
    ]


def running(agent: BrokerAgent, *committed: Message) -> tuple[int, list[Send]]:
    """Register, catch up with the records, and be unfenced; returns the time and the open fetches."""
    opened: list[Send] = []
    now_ms = NOW_MS
    agent.poll(now_ms)
    agent.on_reply(Channel.HEARTBEATS, BrokerRegistrationResponse(broker_epoch=EPOCH), now_ms)
    heartbeat(agent, now_ms)
    commit(agent, *committed)
    assert list(agent.replicas.partitions) == [], "the metadata may be incomplete"
    assert agent.deadline_ms() > now_ms
    agent.on_reply(Channel.HEARTBEATS, BrokerHeartbeatResponse(is_caught_up=True, is_fenced=True), now_ms)
    while True:
        sends = agent.poll(now_ms)
        opened += fetches(sends)
        beats = [message_of(send, BrokerHeartbeatRequest) for send in sends if send.reply_to.key is Channel.HEARTBEATS]
        if beats:
            is_fenced = beats[0].want_fence
            assert agent.replicas.is_loaded == (not is_fenced)
            agent.on_reply(Channel.HEARTBEATS, BrokerHeartbeatResponse(is_caught_up=True, is_fenced=is_fenced), now_ms)
            if not is_fenced:
                break
        now_ms = max(now_ms + 1, agent.deadline_ms())
    assert agent.lifecycle.state is LifecycleState.RUNNING
    assert list(agent.replicas.partitions) == [KEY]
    return now_ms, opened


def fetches(sends: list[Send]) -> list[Send]:
    return [send for send in sends if isinstance(send.message, FetchRequest)]


def test_logs_are_open_and_metadata_is_published_before_the_broker_asks_to_be_unfenced() -> None:
    agent, manager = agent_with_data(1, MemoryDisk())
    now_ms, _ = running(agent, *metadata(leader=1))
    assert part_of(manager).is_leader
    append(manager, b"a", now_ms=now_ms)
    assert part_of(manager).log.high_watermark == 0


def test_an_agent_fetches_again_at_once_after_an_answer_with_records() -> None:
    leader, leading = agent_with_data(1, MemoryDisk())
    follower, following = agent_with_data(2, MemoryDisk())
    running(leader, *metadata(leader=1))
    now_ms, [send] = running(follower, *metadata(leader=1))
    append(leading, b"a", now_ms=now_ms)
    asked = message_of(send, FetchRequest)
    assert (send.target, asked.max_wait_ms) == (Target(1, "h1", 9092), 500)
    request = replace(asked, replica_state=replace(asked.replica_state, replica_epoch=50))
    follower.on_reply(send.reply_to.key, answer_fetch(leading, request, now_ms), now_ms)
    assert part_of(following).log.end_offset == 1
    [again] = fetches(follower.poll(now_ms))
    assert message_of(again, FetchRequest).topics[0].partitions[0].fetch_offset == 1
    assert fetches(follower.poll(now_ms)) == [], "one request is open"


def test_an_agent_waits_after_a_failed_fetch() -> None:
    follower, _ = agent_with_data(2, MemoryDisk())
    now_ms, [send] = running(follower, *metadata(leader=1))
    follower.on_reply(send.reply_to.key, None, now_ms)
    assert fetches(follower.poll(now_ms + 999)) == []
    assert len(fetches(follower.poll(now_ms + 1500))) == 1


def test_an_agent_with_data_proposes_to_remove_a_slow_follower() -> None:
    agent, manager = agent_with_data(1, MemoryDisk())
    now_ms, _ = running(agent, *metadata(leader=1))
    append(manager, b"a", now_ms=now_ms)
    asked = [
        send
        for later_ms in range(now_ms, now_ms + 60_000, 5_000)
        for send in agent.poll(later_ms)
        if send.reply_to.key is Channel.ISR_CHANGES
    ]
    assert len(asked) == 1
    [topic] = message_of(asked[0], AlterPartitionRequest).topics
    assert topic.topic_id == TOPIC
    assert [one.broker_id for one in topic.partitions[0].new_isr_with_epochs] == [1]


@pytest.mark.parametrize("is_told", [True, False])
def test_the_failure_of_the_only_log_directory_ends_the_broker(*, is_told: bool) -> None:
    """It asks to be fenced before: others lead at once, and not after its session. It does not wait long for that."""
    disk = MemoryDisk()
    agent, manager = agent_with_data(1, disk)
    now_ms, _ = running(agent, *metadata(leader=1))

    def fail(operation: str, path: str) -> None:
        if operation == "append":
            raise OSError(5, "Input/output error", path)

    disk.on_operation = fail
    append_to(manager, KEY, batch(b"a"), acks=1, now_ms=now_ms)
    assert part_of(manager).is_offline
    agent.poll(now_ms)
    [send] = [one for one in agent.poll(now_ms) if one.reply_to.key is Channel.HEARTBEATS]
    request = message_of(send, BrokerHeartbeatRequest)
    assert (request.want_fence, len(request.offline_log_dirs)) == (True, 1)
    agent.poll(now_ms + FAREWELL_MS - 1)
    over_ms = now_ms + FAREWELL_MS
    if is_told:
        agent.on_reply(Channel.HEARTBEATS, BrokerHeartbeatResponse(is_fenced=True), now_ms + 5)
        over_ms = now_ms + 5
    assert agent.deadline_ms() <= over_ms
    with pytest.raises(NoLogDirectory, match="Input/output error"):
        agent.poll(over_ms)


def test_an_empty_answer_before_the_longest_wait_is_not_followed_by_a_request_at_once() -> None:
    follower, _ = agent_with_data(2, MemoryDisk())
    now_ms, [send] = running(follower, *metadata(leader=1))
    request = send.message
    assert isinstance(request, FetchRequest)
    parts = [PartitionData(partition_index=0, high_watermark=0, log_start_offset=0, records=b"")]
    topic = FetchableTopicResponse(topic_id=TOPIC, partitions=parts)
    follower.on_reply(send.reply_to.key, FetchResponse(session_id=7, responses=[topic]), now_ms)
    [again] = fetches(follower.poll(now_ms))
    assert isinstance(again.message, FetchRequest)
    assert (again.message.session_id, again.message.session_epoch, again.message.topics) == (7, 1, [])
    follower.on_reply(again.reply_to.key, FetchResponse(session_id=7), now_ms + 10)
    assert fetches(follower.poll(now_ms + 499)) == []
    assert len(fetches(follower.poll(now_ms + 500))) == 1


def test_heartbeats_go_on_while_many_partitions_are_published_a_few_in_each_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new epoch costs fsyncs, so 2,000 partitions in one turn took longer than a session."""
    agent, manager = agent_with_data(1, MemoryDisk())
    now_ms, _ = running(agent, *metadata(leader=1))
    known_offset = agent.metadata_offset
    partitions = 100
    _, first = new_topic((1, 2))
    assert isinstance(first, records.PartitionRecord)
    others = [replace(first, partition_id=number) for number in range(1, partitions)]
    led_in_turn: list[int] = []
    publish = manager.on_partition

    def counted(*arguments: Any, **named: Any) -> None:
        led_in_turn[-1] += 1
        publish(*arguments, **named)

    monkeypatch.setattr(manager, "on_partition", counted)
    commit(agent, *others)
    beats = []
    while not led_in_turn or led_in_turn[-1]:
        now_ms = max(now_ms + 600, agent.deadline_ms())
        led_in_turn.append(0)
        for send in agent.poll(now_ms):
            if send.reply_to.key is Channel.HEARTBEATS:
                beats.append(message_of(send, BrokerHeartbeatRequest).current_metadata_offset)
                agent.on_reply(Channel.HEARTBEATS, BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False), now_ms)
    assert max(led_in_turn) == manager.partitions_per_turn == 8
    assert sum(led_in_turn) == len(others)
    assert beats[0] == known_offset < beats[-1] == agent.metadata_offset
    assert len([beat for beat in beats if beat == known_offset]) > 1


def test_a_broker_makes_one_log_in_a_turn_on_the_disk_of_a_machine() -> None:
    """A new log takes six flushes, and a new leader epoch two. Those of eight logs in a turn took up to a second."""
    disk = MemoryDisk()
    real = replace(settings(1), new_log_weight=NEW_LOG_WEIGHT, change_weight=CHANGE_WEIGHT)
    agent, manager = agent_with_data(1, disk, real)
    now_ms, _ = running(agent, *metadata(leader=1))
    _, first = new_topic((1, 2))
    assert isinstance(first, records.PartitionRecord)
    flushed: list[int] = []
    publish = manager.on_partition

    def count_flushes(operation: str, path: str) -> None:
        flushed[-1] += operation.startswith("fsync")

    def counted(*arguments: Any, **named: Any) -> None:
        disk.on_operation = count_flushes
        publish(*arguments, **named)
        disk.on_operation = None

    manager.on_partition = counted  # type: ignore[method-assign]
    commit(agent, *[replace(first, partition_id=number) for number in range(1, 20)])
    while not flushed or flushed[-1]:
        now_ms = max(now_ms + 1, agent.deadline_ms())
        flushed.append(0)
        agent.poll(now_ms)
    assert flushed == [6] * 19 + [0]
    elections = [records.PartitionChangeRecord(topic_id=TOPIC, partition_id=one, leader=1) for one in range(1, 20)]
    commit(agent, *elections)
    flushed.append(0)
    agent.poll(now_ms + 1)
    assert 0 < flushed[-1] <= 8
