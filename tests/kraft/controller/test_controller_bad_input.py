"""Requests that a controller refuses: bad input of every kind, and what Kafka 4.4.0 refuses from 4.4-IV0 on."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec import structs

from errors_of_answers import error_codes
from kraft.controller.apis import APIS, Write
from metadata_log.errors import EncodeError
from metadata_log.records.metadata import FeatureLevelRecord
from metadata_log.serde import Message, schema_of
from metadata_log.types import Uuid
from support.differential.admin_answers import SECURED
from support.differential.controller_admin_steps import allow, credentials, disallow, quotas, replace
from support.differential.controller_cluster import Cluster
from support.differential.controller_sides import InProcess, directory, incarnation, registration
from support.differential.controller_stories import (
    APPEND,
    BROKER,
    SET,
    TOPIC,
    A,
    B,
    C,
    Step,
    configure,
    create,
    delete,
    elections,
    grow,
    heartbeat,
    latest,
    reassign,
    reassignments,
    topic,
)
from support.serde_values import values
from transport.protocol import messages as m
from transport.protocol.apis import APIS as SERVED
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.headers import decode_response, encode_request, encode_response
from transport.protocol.limits import request_limit
from transport.protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    BrokerHeartbeatRequest,
    BrokerRegistrationResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    incremental_alter_configs,
)
from transport.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from transport.protocol.messages.create_partitions import CreatePartitionsTopic
from transport.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic
from transport.protocol.messages.fetch_snapshot import (
    FetchSnapshotResponse,
    FetchSnapshotResponsePartitionSnapshot,
    FetchSnapshotResponseTopicSnapshot,
)

WRITES = [getattr(m, name) for name, api in APIS.items() if isinstance(api, Write)]
TEXTS = ("t", "", "alice", "User:alice", "101", "retention.ms", "cleanup.policy", "user", "ip", "*", "9" * 5000)
NUMBERS = (0, 1, 2, 3, 4, -1, -2, 16, 32, A, B, 2**31 - 1, -(2**31))


def cluster() -> Cluster:
    """Two brokers that are well and one that is fenced, and a topic."""
    made = Cluster(A, B, C, admin=SECURED)
    made.do(create(topic("t", [A, B, C], [B, C, A])), heartbeat(C, want_fence=True))
    return made


def refused(on: Cluster, step: Step) -> list[Error]:
    """The errors in the answer to a request that is to change nothing."""
    before, written = on.controller.controller.history.latest, len(on.controller.batches)
    codes = list(error_codes(on.do(step)))
    assert len(on.controller.batches) == written
    assert on.controller.controller.history.latest is before
    assert on.controller.controller.is_active
    return codes


# Whatever a schema can hold


def plausible(value: Any, rng: Random, on: Cluster) -> Any:
    """The same with much of it replaced by what the cluster knows."""
    if isinstance(value, Message):
        fields = [name for name in value.__struct_fields__ if name != "unknown_tagged"]
        return structs.replace(value, **{name: plausible(getattr(value, name), rng, on) for name in fields})
    if isinstance(value, list):
        found = [plausible(one, rng, on) for one in value]
        return [*found, found[0]] if found and rng.random() < 0.2 else found
    if isinstance(value, (bool, float)) or value is None or rng.random() < 0.4:
        return value
    if isinstance(value, Uuid):
        return rng.choice((on.side.topics["t"], directory(A), incarnation(A)))
    if isinstance(value, str):
        return rng.choice(TEXTS)
    return rng.choice((*NUMBERS, on.side.epochs[A])) if isinstance(value, int) else value


@pytest.mark.parametrize("type_", WRITES, ids=lambda type_: type_.__name__)
@settings(max_examples=8, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_random_requests_are_answered_and_their_records_replay(
    type_: type[Message], data: st.DataObject, seed: int
) -> None:
    """All written records can be replayed, and the next request is served. Larger frames are refused before that."""
    versions = SERVED[APIS[type_.__name__].key].versions
    version = data.draw(st.integers(versions.lowest, versions.highest))
    on = cluster()
    drawn = data.draw(values(type_, version, flexible=version in schema_of(type_).flexible))
    request = plausible(drawn, Random(seed), on)
    key = APIS[type_.__name__].key
    try:
        frame = encode_request(key, version, 1, "", request)
    except EncodeError:
        request, frame = drawn, encode_request(key, version, 1, "", drawn)
    assume(len(frame) <= request_limit(key).size)
    on.controller.ask(request, version)
    assert on.controller.controller.is_active
    assert on.do(delete("unknown-topic"))["responses"][0]["error_code"] == Error.UNKNOWN_TOPIC_OR_PARTITION


# Too much


def many_topics(count: int, each: int) -> Step:
    return create(*(topic(f"many-{number}", count=each, factor=1) for number in range(count)))


ENTRY: dict[str, Any] = {f"key.{number}": "1" for number in range(10_001)}
TOO_MUCH: dict[str, tuple[Step, Error]] = {
    "partitions of a topic": (many_topics(1, 10_001), Error.POLICY_VIOLATION),
    "partitions of a request": (many_topics(3, 4_000), Error.POLICY_VIOLATION),
    "records, as the topic is one": (many_topics(1, 10_000), Error.POLICY_VIOLATION),
    "new partitions": (grow("t", 10_003), Error.POLICY_VIOLATION),
    "new partitions, all that there can be": (grow("t", 2**31 - 1), Error.POLICY_VIOLATION),
    "configurations": (configure(BROKER, "101", *((key, SET, "1") for key in ENTRY)), Error.POLICY_VIOLATION),
    "configurations as a whole": (replace(BROKER, "101", **ENTRY), Error.POLICY_VIOLATION),
    "ACLs": (allow(*(f"many-{number}" for number in range(10_001))), Error.POLICY_VIOLATION),
}


@pytest.mark.parametrize("what", TOO_MUCH)
def test_more_records_than_an_operation_may_write_are_refused_as_a_whole(what: str) -> None:
    """The limit is 10,000 records (`MAX_RECORDS_PER_USER_OP`)."""
    step, error = TOO_MUCH[what]
    assert set(refused(cluster(), step)) - {Error.NONE} == {error}


def test_as_many_records_as_an_operation_may_write_are_written() -> None:
    on = cluster()
    assert list(error_codes(on.do(many_topics(1, 9_999)))) == [Error.NONE]
    assert len(on.controller.batches[-1]) == 10_000


# Not active


@pytest.mark.parametrize("type_", WRITES, ids=lambda type_: type_.__name__)
def test_a_standby_answers_not_controller_in_each_item(type_: type[Message]) -> None:
    """On top where the response has a code there, else in each item; nothing else is said."""
    on = cluster()
    asked = BY_HAND[type_][0](on.side) if type_ in BY_HAND else type_()
    controller = on.controller.controller
    controller.renounce()
    before = controller.history.latest
    answer = controller.handle(asked, schema_of(type_).versions.highest, 2, 0)
    assert answer.records == ()
    assert controller.history.latest is before
    assert set(error_codes(on.side.named(answer.response))) == {Error.NOT_CONTROLLER}


BY_HAND: dict[type[Message], Step] = {
    m.CreateTopicsRequest: create(topic("n", [A])),
    m.DeleteTopicsRequest: delete("t"),
    m.CreatePartitionsRequest: grow("t", 4),
    m.AlterConfigsRequest: replace(TOPIC, "t", retention_ms="1"),
    m.IncrementalAlterConfigsRequest: configure(TOPIC, "t", ("retention.ms", SET, "1")),
    m.AlterPartitionReassignmentsRequest: reassign("t", (0, [A])),
    m.AlterClientQuotasRequest: quotas({"user": "alice"}, {"producer_byte_rate": 1.0}),
    m.AlterUserScramCredentialsRequest: credentials(put=[("alice", 1, 4096)]),
    m.CreateAclsRequest: allow("t"),
    m.DeleteAclsRequest: disallow(None),
    m.ElectLeadersRequest: elections(0, ("t", [0])),
}
"""Those that ask for nothing by default, which every controller answers."""


# What Apache Kafka 4.3.1 does not survive


def test_an_unknown_operation_on_a_configuration_is_refused() -> None:
    """Kafka's active controller fails on it, and resigns: any client could have that, again and again."""
    assert refused(cluster(), configure(TOPIC, "t", ("retention.ms", 9, "1"))) == [Error.INVALID_REQUEST]


def test_a_null_append_value_changes_nothing() -> None:
    """Kafka's active controller fails on the null, and resigns."""
    on = cluster()
    answer = on.do(configure(TOPIC, "t", ("cleanup.policy", SET, "delete"), ("cleanup.policy", APPEND, None)))
    assert list(error_codes(answer)) == [Error.NONE]
    assert on.controller.controller.is_active


def test_credentials_of_all_users_are_described_for_null() -> None:
    """Kafka never answers: its controllers name the API and have nothing that serves it, null or not."""
    on = cluster()
    on.do(credentials(put=[("alice", 1, 4096), ("bob", 2, 8192)]))
    answer = on.do(latest(lambda side: m.DescribeUserScramCredentialsRequest(users=None)))
    assert [one["user"] for one in answer["results"]] == ["alice", "bob"]


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize("error", [Error.SNAPSHOT_NOT_FOUND, Error.POSITION_OUT_OF_RANGE, Error.FENCED_LEADER_EPOCH])
def test_a_partition_error_of_fetch_snapshot_can_be_encoded(error: Error, version: int) -> None:
    """Kafka leaves the records of such an answer null, which its own codec refuses: the asking node hears nothing.

    `test_replica_snapshots` shows which request gets which error.
    """
    partition = FetchSnapshotResponsePartitionSnapshot(index=0, error_code=error)
    answer = FetchSnapshotResponse(
        topics=[FetchSnapshotResponseTopicSnapshot(name="__cluster_metadata", partitions=[partition])]
    )
    sent = encode_response(ApiKey.FETCH_SNAPSHOT, version, 1, answer)
    assert decode_response(ApiKey.FETCH_SNAPSHOT, version, sent)[1] == answer


def test_a_reassignment_overridden_with_the_original_replicas_completes() -> None:
    """In Kafka the replica is then to be added and removed, so that only a cancellation ends it."""
    on = Cluster(A, B, C)
    on.do(create(topic("t", [A, B])), reassign("t", (0, [A, C])), reassign("t", (0, [A, B])))
    partition = on.partition("t")
    assert (partition.replicas, partition.adding_replicas, partition.removing_replicas) == ((A, B), (), ())
    assert on.do(reassignments())["topics"] == []


def test_a_repeated_resource_of_unknown_type_is_answered() -> None:
    """Kafka cannot gather its answers by resource then, and gives none."""
    assert set(refused(cluster(), replace(77, "x", twice=True, a="1"))) <= {Error.INVALID_REQUEST}


@pytest.mark.parametrize("value", ["many", "", "9" * 5000])
def test_a_non_numeric_cluster_wide_setting_is_ignored(value: str) -> None:
    """No controller checks the value. Kafka's active one fails at the next fence, and resigns; so do its successors."""
    on = cluster()
    on.do(configure(BROKER, "", ("min.insync.replicas", SET, value)))
    on.do(heartbeat(A, want_fence=True))
    assert on.partition("t").leader == B
    assert on.do(create(topic("later", [B])))["topics"][0]["error_code"] == Error.NONE


# Requests that a controller refuses from 4.4-IV0 on.


DIRECTORY = Uuid(b"d" * 16)


def with_broker(level: int, *, cordoned: bool = False) -> InProcess:
    """A controller with the broker 5, which is not fenced."""
    side = InProcess(bootstrap=(FeatureLevelRecord(name="metadata.version", feature_level=level),))
    asked = structs.replace(
        registration(5),
        cluster_id=side.controller.settings.cluster_id,
        log_dirs=[DIRECTORY],
        features=[structs.replace(one, max_supported_version=33) for one in registration(5).features],
    )
    answer = side.ask(asked, 4)
    assert isinstance(answer, BrokerRegistrationResponse)
    assert answer.error_code == Error.NONE
    beat = BrokerHeartbeatRequest(
        broker_id=5,
        broker_epoch=answer.broker_epoch,
        current_metadata_offset=side.end,
        want_fence=False,
        cordoned_log_dirs=[DIRECTORY] if cordoned else [],
    )
    side.ask(beat, 2)
    return side


def created(side: InProcess, name: str) -> CreateTopicsResponse:
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[5])],
    )
    answer = side.ask(CreateTopicsRequest(topics=[topic]), 7)
    assert isinstance(answer, CreateTopicsResponse)
    return answer


@pytest.mark.parametrize("level", [30, 31])
def test_a_manual_assignment_to_cordoned_directories(level: int) -> None:
    [result] = created(with_broker(level, cordoned=True), "t").topics
    if level == 30:
        assert result.error_code == Error.NONE
        return
    assert result.error_code == Error.INVALID_REPLICA_ASSIGNMENT
    assert result.error_message == (
        "The manual partition assignment includes broker 5, but all its log directories are cordoned."
    )


@pytest.mark.parametrize(
    ("level", "text"),
    [
        (30, "Unable to perform excessively large batch operation."),
        (33, "Excessively large number of additional partitions per request."),
    ],
)
def test_more_new_partitions_than_a_request_may_ask_for(level: int, text: str) -> None:
    """The sum counts, and nothing is written of either topic."""
    side = with_broker(level)
    for name in ("a", "b"):
        assert created(side, name).topics[0].error_code == Error.NONE
    before = len(side.batches)
    asked = [CreatePartitionsTopic(name=name, count=5002, assignments=None) for name in ("a", "b")]
    answer = side.ask(CreatePartitionsRequest(topics=asked, timeout_ms=1000), 3)
    assert isinstance(answer, CreatePartitionsResponse)
    assert {(one.error_code, one.error_message) for one in answer.results} == {(Error.POLICY_VIOLATION, text)}
    assert len(side.batches) == before


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_quota_is_a_finite_number(value: float) -> None:
    entity = [AlterClientQuotasRequestEntityData(entity_type="user", entity_name="a")]
    entry = AlterClientQuotasRequestEntryData(entity=entity, ops=[OpData(key="producer_byte_rate", value=value)])
    answer = with_broker(33).ask(AlterClientQuotasRequest(entries=[entry]), 1)
    assert isinstance(answer, AlterClientQuotasResponse)
    [result] = answer.entries
    assert (Error(result.error_code), result.error_message) == (
        Error.INVALID_REQUEST,
        "Quota producer_byte_rate must be a finite number",
    )


@pytest.mark.parametrize(("level", "error"), [(29, Error.INVALID_CONFIG), (30, Error.NONE)])
def test_directories_are_cordoned_from_their_level_on(level: int, error: Error) -> None:
    """Even the change to none is refused before, whoever takes it."""
    config = incremental_alter_configs.AlterableConfig(name="cordoned.log.dirs", value="")
    one = incremental_alter_configs.AlterConfigsResource(resource_type=4, resource_name="5", configs=[config])
    answer = with_broker(level).ask(IncrementalAlterConfigsRequest(resources=[one]), 1)
    assert isinstance(answer, IncrementalAlterConfigsResponse)
    assert [each.error_code for each in answer.responses] == [error]
