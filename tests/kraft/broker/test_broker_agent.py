"""The broker agent says to a controller what Kafka's broker says, when it says it."""

from __future__ import annotations

import pytest

from kraft.broker import BrokerAgent, LifecycleState, NoLogDirectory, RegistrationFailed
from kraft.handling.reply_keys import Channel
from kraft.partitions.replicas import DataSettings, ReplicaManager
from kraft.partitions.replicas.settings import DataDirectory
from kraft.wire import Target
from metadata_log.log.clean_shutdown import take_clean_shutdown, write_clean_shutdown
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records import metadata as records
from metadata_log.serde import Message
from metadata_log.types import Uuid
from support.kraft.broker_agents import (
    EPOCH,
    ONE,
    TOPIC,
    TWO,
    heartbeat,
    led_by,
    new_agent,
    only,
    replay,
    started,
    without_data,
)
from transport.protocol.errors import Error
from transport.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from transport.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from transport.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from transport.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from transport.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState

UNASSIGNED = Uuid(bytes(15) + b"\x01")


# Registration and heartbeats


def test_a_broker_registers_catches_up_and_asks_to_be_unfenced() -> None:
    agent = new_agent(rack="r1", previous_epoch=12)
    request = only(agent.poll(0), Channel.HEARTBEATS)
    assert isinstance(request, BrokerRegistrationRequest)
    assert (request.broker_id, request.rack, request.log_dirs, request.previous_broker_epoch) == (101, "r1", [ONE], 12)
    agent.on_reply(Channel.HEARTBEATS, BrokerRegistrationResponse(broker_epoch=EPOCH), 3)
    first = heartbeat(agent, 3)
    assert (first.broker_epoch, first.current_metadata_offset, first.want_fence) == (EPOCH, -1, True)
    assert first.cordoned_log_dirs is None
    agent.on_reply(Channel.HEARTBEATS, BrokerHeartbeatResponse(is_caught_up=False), 4)
    assert (agent.lifecycle.state, agent.deadline_ms()) == (LifecycleState.STARTING, 14)
    replay(agent, [records.NoOpRecord()], EPOCH)
    assert heartbeat(agent, 14).current_metadata_offset == EPOCH
    agent.on_reply(Channel.HEARTBEATS, BrokerHeartbeatResponse(is_caught_up=True), 15)
    assert agent.lifecycle.state is LifecycleState.RECOVERY
    second = heartbeat(agent, 25)
    assert (second.want_fence, second.cordoned_log_dirs) == (False, None)
    agent.on_reply(Channel.HEARTBEATS, BrokerHeartbeatResponse(is_caught_up=False), 26)  # not published yet
    assert (agent.lifecycle.state, agent.deadline_ms()) == (LifecycleState.RECOVERY, 36)
    assert not heartbeat(agent, 36).want_fence
    agent.on_reply(Channel.HEARTBEATS, BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False), 40)
    assert (agent.lifecycle.state, agent.deadline_ms()) == (LifecycleState.RUNNING, 2040)


def test_a_broker_reports_the_directories_that_take_no_new_replicas() -> None:
    """`cordoned.log.dirs` of the file, until the dynamic configuration of this broker has another value (KIP-1066)."""
    agent = started(directories=(TWO, ONE), paths=("/b", "/a"), cordoned="/b")
    replay(agent, [records.FeatureLevelRecord("metadata.version", 30)], EPOCH)
    assert told_at(agent, 3000) == [TWO]
    offset = EPOCH + 1

    def after(value: str | None, broker: str = "101") -> list[Uuid] | None:
        nonlocal offset
        record = records.ConfigRecord(resource_type=4, resource_name=broker, name="cordoned.log.dirs", value=value)
        replay(agent, [record], offset)
        offset += 1
        return told_at(agent, 3000 + offset)

    assert after("/a", broker="102") is None, "a change that changes nothing is no reason for a heartbeat"
    assert after("/a") == [ONE]
    assert after("*") == [ONE, TWO]
    assert after("/nowhere") == []
    assert after("") is None
    assert after(None) == [TWO]


def told_at(agent: BrokerAgent, now_ms: int) -> list[Uuid] | None:
    """What the heartbeat that the agent sends at this time, if it sends one, says of cordoned directories."""
    told = only(agent.poll(now_ms), Channel.HEARTBEATS)
    if told is None:
        return None
    assert isinstance(told, BrokerHeartbeatRequest), told
    agent.on_reply(Channel.HEARTBEATS, BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False), now_ms)
    return told.cordoned_log_dirs


def test_cordoned_directories_are_told_once_the_cluster_knows_them() -> None:
    """Kafka: `cordonedLogDirsSupported`."""
    agent = started(directories=(TWO, ONE), paths=("/b", "/a"), cordoned="/b")
    replay(agent, [records.FeatureLevelRecord("metadata.version", 29)], EPOCH)
    assert heartbeat(agent, 3000).cordoned_log_dirs is None
    agent.on_reply(Channel.HEARTBEATS, BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False), 3000)
    replay(agent, [records.FeatureLevelRecord("metadata.version", 30)], EPOCH + 1)
    assert told_at(agent, 3001) is None, "the level alone is no reason for a heartbeat"
    assert told_at(agent, 5000) == [TWO]


def test_a_change_of_cordoned_directories_during_a_heartbeat_is_told_after_its_answer() -> None:
    agent = started(directories=(TWO, ONE), paths=("/b", "/a"))
    replay(agent, [records.FeatureLevelRecord("metadata.version", 30)], EPOCH)
    assert heartbeat(agent, 3000).cordoned_log_dirs == []
    replay(agent, [records.ConfigRecord(4, "101", "cordoned.log.dirs", "*")], EPOCH + 1)
    assert only(agent.poll(3001), Channel.HEARTBEATS) is None, "one request at a time"
    agent.on_reply(Channel.HEARTBEATS, BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False), 3002)
    assert told_at(agent, 3002) == [ONE, TWO]
    assert told_at(agent, 3003) is None


def test_new_replicas_avoid_cordoned_directories() -> None:
    """Kafka: `LogManager.nextLogDirs`: the first directory where all are cordoned."""
    agent = started(directories=(TWO, ONE), paths=("/b", "/a"), cordoned="/b")
    place = agent.directories.place
    for number, expected in enumerate((ONE, ONE)):
        place((TOPIC, number), Uuid.ZERO, is_told=True, cordoned={TWO})
        assert agent.directories.directory_of((TOPIC, number)) == expected
    place((TOPIC, 2), Uuid.ZERO, is_told=True, cordoned={ONE, TWO})
    assert agent.directories.directory_of((TOPIC, 2)) == TWO
    agent = started(directories=(TWO, ONE), paths=("/b", "/a"), cordoned="/b")
    commit(agent, registration(101, EPOCH), records.TopicRecord("t", TOPIC), partition(101, (101,)))
    agent.poll(3000)
    assert agent.directories.directory_of((TOPIC, 0)) == ONE, "as the file says, at any level"


@pytest.mark.parametrize(
    ("answer", "again_ms"),
    [
        (None, 100),
        (BrokerRegistrationResponse(error_code=Error.NOT_CONTROLLER), 100),
        (BrokerRegistrationResponse(error_code=Error.DUPLICATE_BROKER_REGISTRATION), 250),
        (BrokerRegistrationResponse(error_code=Error.INVALID_REGISTRATION), 2000),
    ],
)
def test_a_registration_that_fails_is_tried_again(answer: Message | None, again_ms: int) -> None:
    """The agent looks for another controller at once; it retries one that refuses after a heartbeat interval, and much
    sooner where the session of its predecessor is about to end.
    """
    agent = new_agent()
    agent.poll(0)
    agent.on_reply(Channel.HEARTBEATS, answer, 0)
    assert only(agent.poll(again_ms - 1), Channel.HEARTBEATS) is None
    assert isinstance(only(agent.poll(again_ms), Channel.HEARTBEATS), BrokerRegistrationRequest)


def test_a_broker_that_cannot_register_gives_up() -> None:
    agent = new_agent(initial_registration_timeout_ms=500)
    agent.poll(0)
    agent.on_reply(Channel.HEARTBEATS, BrokerRegistrationResponse(error_code=Error.DUPLICATE_BROKER_REGISTRATION), 1)
    with pytest.raises(RegistrationFailed, match="DUPLICATE_BROKER_REGISTRATION"):
        agent.poll(500)


def test_a_stale_broker_epoch_in_a_heartbeat_does_not_make_the_broker_register() -> None:
    """As Kafka's, the broker does not register by itself: it goes on with its epoch until a restart."""
    agent = started()
    heartbeat(agent, 3000)
    agent.on_reply(Channel.HEARTBEATS, BrokerHeartbeatResponse(error_code=Error.STALE_BROKER_EPOCH), 3001)
    assert heartbeat(agent, 5001).broker_epoch == EPOCH


def test_a_controlled_shutdown_is_waited_for() -> None:
    agent = started()
    agent.begin_shutdown(1500)
    asked = heartbeat(agent, 1500)
    assert (asked.want_shut_down, asked.want_fence) == (True, False)
    agent.on_reply(Channel.HEARTBEATS, BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False), 1510)
    assert agent.deadline_ms() == 1560
    heartbeat(agent, 1560)
    agent.on_reply(Channel.HEARTBEATS, BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False), 1570)
    assert agent.deadline_ms() == 3570
    assert not agent.may_stop
    heartbeat(agent, 3570)
    agent.on_reply(Channel.HEARTBEATS, BrokerHeartbeatResponse(is_caught_up=True, should_shut_down=True), 3580)
    assert agent.may_stop
    assert agent.poll(10_000) == []


def test_a_broker_without_controlled_shutdown_stops_at_once() -> None:
    agent = started(controlled_shutdown=False)
    agent.begin_shutdown(1500)
    assert agent.may_stop


def test_a_broker_registers_its_directories_at_the_metadata_version_that_has_them() -> None:
    """With the same incarnation, which keeps its epoch; and only once for what it has seen."""
    agent = started()
    registration = records.RegisterBrokerRecord(
        broker_id=101, incarnation_id=agent.settings.incarnation_id, broker_epoch=EPOCH, log_dirs=()
    )
    feature = records.FeatureLevelRecord(name="metadata.version", feature_level=17)
    replay(agent, [feature, registration], 41)
    assert isinstance(only(agent.poll(1001), Channel.HEARTBEATS), BrokerRegistrationRequest)
    agent.on_reply(Channel.HEARTBEATS, BrokerRegistrationResponse(broker_epoch=EPOCH), 1010)
    assert heartbeat(agent, 1010).broker_epoch == EPOCH
    agent.on_reply(Channel.HEARTBEATS, BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False), 1011)
    assert only(agent.poll(1020), Channel.HEARTBEATS) is None


def test_a_broker_registers_its_directories_after_the_heartbeat_that_is_on_its_way() -> None:
    agent = started()
    assert heartbeat(agent, 3000).broker_epoch == EPOCH
    registration = records.RegisterBrokerRecord(
        broker_id=101, incarnation_id=agent.settings.incarnation_id, broker_epoch=EPOCH, log_dirs=()
    )
    replay(agent, [records.FeatureLevelRecord(name="metadata.version", feature_level=17), registration], 41)
    assert only(agent.poll(3001), Channel.HEARTBEATS) is None
    agent.on_reply(Channel.HEARTBEATS, BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False), 3011)
    assert isinstance(only(agent.poll(3011), Channel.HEARTBEATS), BrokerRegistrationRequest)


# Leading


def registration(broker_id: int, epoch: int, *, fenced: bool = False) -> records.RegisterBrokerRecord:
    directory = ONE if broker_id == 101 else TWO
    return records.RegisterBrokerRecord(
        broker_id=broker_id,
        broker_epoch=epoch,
        incarnation_id=Uuid(b"i" * 16) if broker_id == 101 else Uuid(bytes([broker_id] * 16)),
        fenced=fenced,
        log_dirs=(directory,),
        end_points=(records.BrokerEndpoint(name="PLAINTEXT", host=f"h{broker_id}", port=9092),),
    )


def partition(leader: int, isr: tuple[int, ...], directory: Uuid = ONE) -> records.PartitionRecord:
    return records.PartitionRecord(
        partition_id=0,
        topic_id=TOPIC,
        replicas=(101, 102),
        isr=isr,
        leader=leader,
        leader_epoch=0,
        partition_epoch=0,
        directories=(directory, TWO),
    )


def commit(agent: BrokerAgent, *committed: Message) -> None:
    base_offset = agent.image.end.offset
    replay(agent, committed, base_offset)


def leading(isr: tuple[int, ...], **options: object) -> BrokerAgent:
    """An agent that has just become the leader of one partition, which broker 102 follows."""
    agent = started(**options)
    commit(
        agent,
        records.FeatureLevelRecord(name="metadata.version", feature_level=30),
        registration(101, EPOCH),
        registration(102, 50),
        records.TopicRecord(name="t", topic_id=TOPIC),
        partition(101, isr),
    )
    agent.poll(1000)
    assert (TOPIC, 0) in led_by(agent)
    return agent


def fetch(agent: BrokerAgent, now_ms: int, *, leader_epoch: int = 0, broker_epoch: int = 50) -> Error:
    part = FetchPartition(partition=0, current_leader_epoch=leader_epoch)
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=102, replica_epoch=broker_epoch),
        topics=[FetchTopic(topic_id=TOPIC, partitions=[part])],
    )
    return Error.of(without_data(agent).on_fetch(request, agent.image, now_ms).responses[0].partitions[0].error_code)


def change(agent: BrokerAgent, now_ms: int) -> AlterPartitionRequest | None:
    request = only(agent.poll(now_ms), Channel.ISR_CHANGES)
    assert request is None or isinstance(request, AlterPartitionRequest)
    return request


def answer(agent: BrokerAgent, now_ms: int, error: Error, *, partition_epoch: int = 1) -> None:
    part = AlterPartitionResponsePartitionData(
        partition_index=0, error_code=error, leader_id=101, isr=[101, 102], partition_epoch=partition_epoch
    )
    topic = AlterPartitionResponseTopicData(topic_id=TOPIC, partitions=[part])
    agent.on_reply(Channel.ISR_CHANGES, AlterPartitionResponse(topics=[topic]), now_ms)


def test_clear_elr_record_raises_partition_epochs_of_unnamed_partitions() -> None:
    """A leader that overlooks it is out of date for ever: each of its changes is refused."""
    agent = leading((101,))
    commit(
        agent,
        records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, eligible_leader_replicas=(102,)),
        records.ClearElrRecord(topic_name="t"),
    )
    agent.poll(1050)
    fetch(agent, 1100)
    asked = change(agent, 1100)
    assert asked is not None
    assert asked.topics[0].partitions[0].partition_epoch == 2


def test_a_follower_asks_the_leader_at_the_listener_between_brokers() -> None:
    agent = leading((101, 102), inter_broker_listener="BROKERS")
    leader = agent.image.brokers.by_id[102]
    endpoints = (
        records.BrokerEndpoint(name="PLAINTEXT", host="clients", port=9092),
        records.BrokerEndpoint(name="BROKERS", host="inside", port=9093),
    )
    again = records.RegisterBrokerRecord(
        broker_id=102,
        broker_epoch=leader.epoch + 1,
        incarnation_id=leader.incarnation_id,
        fenced=False,
        end_points=endpoints,
    )
    commit(agent, again, records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=102))
    (fetching,) = [send for send in agent.poll(1100) if isinstance(send.message, FetchRequest)]
    assert fetching.target == Target(102, "inside", 9093)


# Directories


def test_a_replica_without_a_directory_is_assigned_to_the_emptiest_one() -> None:
    agent = started(directories=(ONE, Uuid(b"3" * 16)))
    commit(
        agent,
        records.FeatureLevelRecord(name="metadata.version", feature_level=30),
        records.TopicRecord(name="t", topic_id=TOPIC),
        partition(101, (101,), UNASSIGNED),
    )
    request = only(agent.poll(1000), Channel.ASSIGNMENTS)
    assert isinstance(request, AssignReplicasToDirsRequest)
    assert (request.broker_epoch, [one.id for one in request.directories]) == (EPOCH, [ONE])
    agent.on_reply(Channel.ASSIGNMENTS, None, 1100)
    assert only(agent.poll(1599), Channel.ASSIGNMENTS) is None
    assert only(agent.poll(1600), Channel.ASSIGNMENTS) == request
    agent.on_reply(Channel.ASSIGNMENTS, AssignReplicasToDirsResponse(), 1700)
    assert only(agent.poll(5000), Channel.ASSIGNMENTS) is None


def test_a_failed_directory_is_reported_and_its_partitions_lose_leadership() -> None:
    agent = leading((101, 102))
    heartbeat(agent, 3000)
    agent.on_reply(Channel.HEARTBEATS, BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False), 3001)
    agent.fail_directory(ONE, 3100)
    assert not led_by(agent)
    assert heartbeat(agent, 3100).offline_log_dirs == [ONE]


def test_a_broker_without_any_log_directory_ends() -> None:
    """A broker that went on would be registered, lead nothing, and report its failed directories for ever."""
    disk = MemoryDisk()

    def fail(_: str, path: str) -> None:
        raise OSError(5, "broken", path)

    disk.on_operation = fail
    manager = ReplicaManager(disk, DataSettings(broker_id=101, directories=(DataDirectory(ONE, "d", is_clean=False),)))
    agent = BrokerAgent(new_agent().settings, manager)
    agent.poll(0)
    agent.on_reply(Channel.HEARTBEATS, BrokerRegistrationResponse(broker_epoch=EPOCH), 5)
    agent.poll(5)
    agent.on_reply(Channel.HEARTBEATS, BrokerHeartbeatResponse(is_caught_up=True), 10)
    with pytest.raises(NoLogDirectory, match=r"every log directory of the broker has failed: .*broken"):
        agent.poll(20)
    assert any("the log directory d has failed" in one for one in manager.findings)


# The clean end


def test_a_clean_shutdown_counts_once_and_needs_the_marker_in_each_directory() -> None:
    disk = MemoryDisk()
    for path in ("/a", "/b"):
        disk.mkdir(path)
        write_clean_shutdown(disk, path, 17)
    assert disk.read("/a/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":17}'
    assert take_clean_shutdown(disk, ("/a", "/b")) == 17
    assert take_clean_shutdown(disk, ("/a", "/b")) == -1
    write_clean_shutdown(disk, "/a", 18)
    assert take_clean_shutdown(disk, ("/a", "/b")) == -1
