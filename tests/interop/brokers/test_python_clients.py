"""kafka-python and confluent-kafka do their work on brokers of Kafka with our controllers, one of which dies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing
from itertools import count
from typing import Any

import pytest
from confluent_kafka import (
    ElectionType,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import TopicPartition as Name
from kafka import admin as plain
from kafka import errors

from kraft.config.keys import STANDARD_AUTHORIZER
from metadata_log.image import ResourceType as Family
from support.interop.broker_cluster import BROKERS, NO_LEADER, BrokerCluster, broker_cluster
from support.interop.load import ANSWER_LOST, Load
from support.interop.mixed_quorum import TERMINATED
from support.interop.real_kafka import KafkaInstallation, eventually

pytestmark = pytest.mark.kafka
SECURITY = (f"authorizer.class.name={STANDARD_AUTHORIZER}", "super.users=User:ANONYMOUS")
SECONDS = 60
FRESH = count()


@pytest.fixture(scope="module")
def cluster(kafka: KafkaInstallation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    with broker_cluster(kafka, tmp_path_factory.mktemp("clients"), settings=SECURITY) as cluster:
        yield cluster


@pytest.fixture
def confluent(cluster: BrokerCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


@pytest.fixture
def python(cluster: BrokerCluster) -> Iterator[plain.KafkaAdminClient]:
    with closing(plain.KafkaAdminClient(bootstrap_servers=servers(cluster))) as client:
        yield client


@pytest.fixture
def topic(python: plain.KafkaAdminClient) -> str:
    """A topic of three partitions on all brokers, not used before."""
    name = f"topic-{next(FRESH)}"
    made = {"num_partitions": 3, "replication_factor": 3, "configs": {"min.insync.replicas": "2"}}
    python.create_topics({name: made}, wait_for_metadata=True)
    return name


def servers(cluster: BrokerCluster) -> list[str]:
    """The value of `bootstrap_servers` for kafka-python."""
    return cluster.bootstrap.split(",")


def answers(futures: Mapping[Any, Future[Any]]) -> list[Any]:
    """The result of each future of confluent-kafka, or its error."""
    return [future.result(SECONDS) for future in futures.values()]


def refusal(futures: Mapping[Any, Future[Any]]) -> str:
    """Kafka's name for the error of the only future."""
    (future,) = futures.values()
    with pytest.raises(KafkaException) as refused:
        future.result(SECONDS)
    return refused.value.args[0].name()


def test_confluent_kafka_administers(cluster: BrokerCluster, confluent: AdminClient) -> None:
    """Whatever its admin client can ask a controller for is done, or refused as Kafka refuses it."""
    name = "by-confluent"
    wanted = NewTopic(name, num_partitions=2, replication_factor=3, config={"retention.ms": "1000"})
    answers(confluent.create_topics([wanted]))
    assert refusal(confluent.create_topics([wanted])) == "TOPIC_ALREADY_EXISTS"
    assert refusal(confluent.create_topics([NewTopic("wide", 1, replication_factor=4)])) == "INVALID_REPLICATION_FACTOR"
    answers(confluent.create_topics([NewTopic("only-tried", 1, replication_factor=1)], validate_only=True))
    assert "only-tried" not in cluster.image().topics
    answers(confluent.create_partitions([NewPartitions(name, 3)]))
    assert refusal(confluent.create_partitions([NewPartitions(name, 3)])) == "INVALID_PARTITIONS"

    set_to = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND)
    removed = ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[set_to, removed])
    answers(confluent.incremental_alter_configs([resource]))
    assert dict(cluster.image().configs.of((Family.TOPIC, name))) == {"cleanup.policy": "delete,compact"}

    def described() -> str:
        (found,) = answers(confluent.describe_configs([ConfigResource(ResourceType.TOPIC, name)]))
        return found["cleanup.policy"].value

    eventually(lambda: described() == "delete,compact", "the brokers know the setting")
    wrong = ConfigEntry("retention.ms", "soon", incremental_operation=AlterConfigOpType.SET)
    refused = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[wrong])
    assert refusal(confluent.incremental_alter_configs([refused])) == "INVALID_CONFIG"

    partitions = [TopicPartition(name, number) for number in range(3)]
    elected = confluent.elect_leaders(ElectionType.PREFERRED, partitions).result(SECONDS)
    assert {error.name() for error in elected.values()} == {"ELECTION_NOT_NEEDED"}

    granted = AclBinding(
        ResourceType.TOPIC,
        name,
        ResourcePatternType.LITERAL,
        "User:ann",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    answers(confluent.create_acls([granted]))
    assert [one.principal for one in cluster.image().acls.by_id.values()] == ["User:ann"]
    any_name: Any = None  # the types of the package lack what its page allows
    anything = AclBindingFilter(
        ResourceType.ANY, any_name, ResourcePatternType.ANY, any_name, any_name, AclOperation.ANY, AclPermissionType.ANY
    )
    eventually(lambda: confluent.describe_acls(anything).result(SECONDS) == [granted], "the brokers know the ACL")
    assert answers(confluent.delete_acls([anything])) == [[granted]]

    how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    answers(confluent.alter_user_scram_credentials([UserScramCredentialUpsertion("ann", how, b"secret")]))
    assert cluster.image().scram.by_user["ann"][1].iterations == 8192
    gone = UserScramCredentialDeletion("ann", ScramMechanism.SCRAM_SHA_256)
    answers(confluent.alter_user_scram_credentials([gone]))
    assert refusal(confluent.alter_user_scram_credentials([gone])) == "RESOURCE_NOT_FOUND"

    def in_sync() -> list[list[int]]:
        (found,) = answers(confluent.describe_topics(TopicCollection([name])))
        return [sorted(node.id for node in one.isr) for one in found.partitions]

    eventually(lambda: in_sync() == [list(BROKERS)] * 3, "all replicas are in sync")
    answers(confluent.delete_topics([name]))
    assert name not in cluster.image().topics
    eventually(
        lambda: refusal(confluent.delete_topics([name])) == "UNKNOWN_TOPIC_OR_PART", "the brokers know that it is gone"
    )


def test_kafka_python_administers(cluster: BrokerCluster, python: plain.KafkaAdminClient) -> None:
    """Among what it can ask for are reassignments, features and the state of the quorum."""
    name = "by-kafka-python"
    python.create_topics({name: {"assignments": {0: [101, 102], 1: [102, 103]}}}, wait_for_metadata=True)
    with pytest.raises(errors.TopicAlreadyExistsError):
        python.create_topics({name: {"num_partitions": 1, "replication_factor": 1}})
    with pytest.raises(errors.InvalidTopicError):
        python.create_topics({"no spaces": {"num_partitions": 1, "replication_factor": 1}})
    python.create_partitions({name: {"count": 3, "assignments": [[103, 101]]}})
    assert [one.replicas for one in cluster.image().topics[name].partitions] == [(101, 102), (102, 103), (103, 101)]
    python.alter_configs([plain.ConfigResource("TOPIC", name, {"retention.ms": "4321"})])
    assert cluster.image().configs.of((Family.TOPIC, name))["retention.ms"] == "4321"
    python.alter_configs([plain.ConfigResource("BROKER", "101", {"log.cleaner.threads": "2"})])
    assert cluster.image().configs.of((Family.BROKER, "101"))["log.cleaner.threads"] == "2"

    moved, unknown = Name(name, 0), Name(name, 9)
    told = python.alter_partition_reassignments({moved: [103, 102], unknown: [101]})
    assert told == {moved: None, unknown: errors.UnknownTopicOrPartitionError}
    eventually(lambda: cluster.partition(name).replicas == (103, 102), "it was moved")
    eventually(lambda: python.list_partition_reassignments() == {}, "nothing is moved any more")
    assert python.alter_partition_reassignments({moved: None}) == {moved: errors.NoReassignmentInProgressError}
    python.elect_leaders(0, {name: [0, 1, 2]})
    assert [one.leader for one in cluster.image().topics[name].partitions] == [103, 102, 103]

    python.update_features({"share.version": ("SAFE_DOWNGRADE", 0)})
    assert cluster.image().features.level("share.version") == 0
    quorum = python.describe_metadata_quorum()["topics"][0]["partitions"][0]
    assert quorum["leader_id"] == cluster.leader()
    assert {one["replica_id"] for one in quorum["current_voters"]} == set(cluster.layout.ports)
    assert {one["replica_id"] for one in quorum["observers"]} == set(BROKERS)
    python.delete_topics([name])
    assert name not in cluster.image().topics


def test_the_leader_of_the_controllers_is_killed_under_load(cluster: BrokerCluster) -> None:
    """Nothing that was acknowledged is lost, and no client sees an error, but for a change that was asked for twice."""
    load = Load(cluster, "under-load")
    with load.running():
        leader = cluster.leader()
        cluster.controllers.processes.pop(leader).kill()
        assert cluster.leader() != leader
        load.wait_for_progress()
        cluster.controllers.start(leader)
        cluster.controllers.wait_until_listening()
        cluster.leader()
    assert load.seen.errors.keys() <= ANSWER_LOST


def test_brokers_that_shut_down_or_are_killed_hand_over_their_partitions(cluster: BrokerCluster, topic: str) -> None:
    """One that stops has given up its leaders before; of one that is killed they are taken; back, it joins the ISR."""

    def in_sync() -> list[list[int]]:
        return [sorted(one.isr) for one in cluster.image().topics[topic].partitions]

    assert cluster.brokers[101].stop(timeout=120) == TERMINATED
    assert NO_LEADER not in {one.leader for one in cluster.image().topics[topic].partitions}
    assert in_sync() == [[102, 103]] * 3
    cluster.start_broker(101)
    cluster.wait_until_started(101)
    eventually(lambda: in_sync() == [list(BROKERS)] * 3, "the one that has stopped is in sync again")
    cluster.brokers[102].kill()
    eventually(lambda: cluster.registration(102).fenced, "the one that was killed is fenced")
    assert in_sync() == [[101, 103]] * 3
    assert 102 not in {one.leader for one in cluster.image().topics[topic].partitions}
    cluster.start_broker(102)
    cluster.wait_until_started(102)
    eventually(lambda: in_sync() == [list(BROKERS)] * 3, "the one that was killed is in sync again")
