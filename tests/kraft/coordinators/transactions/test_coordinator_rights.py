"""The rights of a client for groups and transactions: each API with all rights that Kafka wants for it, and without
each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from msgspec import Struct

from kraft.access.authorizer import AclOperation, AclResource, AuthorizerSettings
from kraft.handling.patterns import Pattern
from metadata_log.records.metadata import FeatureLevelRecord, RemoveAccessControlEntryRecord
from metadata_log.serde import Message
from metadata_log.serde.fields import schema_of
from metadata_log.types import Uuid
from support.broker.coordinated_brokers import Coordinated
from support.broker.request_brokers import CLUSTER, rule
from support.kraft.denials import taken
from transport.protocol.errors import Error
from transport.protocol.messages import add_partitions_to_txn as adding
from transport.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from transport.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from transport.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from transport.protocol.messages.delete_groups import DeleteGroupsRequest
from transport.protocol.messages.describe_groups import DescribeGroupsRequest
from transport.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from transport.protocol.messages.describe_transactions import DescribeTransactionsRequest
from transport.protocol.messages.end_txn import EndTxnRequest
from transport.protocol.messages.find_coordinator import FindCoordinatorRequest
from transport.protocol.messages.heartbeat import HeartbeatRequest
from transport.protocol.messages.init_producer_id import InitProducerIdRequest
from transport.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from transport.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from transport.protocol.messages.list_groups import ListGroupsRequest
from transport.protocol.messages.list_transactions import ListTransactionsRequest
from transport.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from transport.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from transport.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from transport.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from transport.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Subtopology, Topology
from transport.protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
)
from transport.protocol.messages.sync_group import SyncGroupRequest
from transport.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from transport.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

Right = tuple[AclOperation, AclResource, str]
OF_TOPIC, OF_GROUP, OF_CLUSTER, OF_ID = (
    Error.TOPIC_AUTHORIZATION_FAILED,
    Error.GROUP_AUTHORIZATION_FAILED,
    Error.CLUSTER_AUTHORIZATION_FAILED,
    Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
REFUSALS: Final = {OF_TOPIC, OF_GROUP, OF_CLUSTER, OF_ID}
MEMBER: Final = str(Uuid.ZERO)


def group(operation: AclOperation) -> Right:
    return operation, AclResource.GROUP, "g"


def topic(operation: AclOperation) -> Right:
    return operation, AclResource.TOPIC, "in"


def transaction(operation: AclOperation) -> Right:
    return operation, AclResource.TRANSACTIONAL_ID, "t"


def cluster(operation: AclOperation) -> Right:
    return operation, AclResource.CLUSTER, CLUSTER


READ, WRITE, DESCRIBE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.DELETE
ACTION = AclOperation.CLUSTER_ACTION


class Row(Struct, frozen=True):
    """A request, and the error without each of the rights that it needs."""

    request: Message
    version: int
    needs: dict[Right, Error]

    @property
    def name(self) -> str:
        """For the list of tests."""
        return f"{type(self.request).__name__}-{self.version}"


OFFSETS = OffsetCommitRequest(
    "g", topics=[OffsetCommitRequestTopic("in", partitions=[OffsetCommitRequestPartition(0, 5)])]
)
FETCHED = OffsetFetchRequest(
    groups=[OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("in", partition_indexes=[0])])]
)
DELETED = OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("in", [OffsetDeleteRequestPartition(0)])])
JOINING = JoinGroupRequest(
    "g", 10_000, 10_000, protocol_type="consumer", protocols=[JoinGroupRequestProtocol("range", b"m")]
)
BEAT = ConsumerGroupHeartbeatRequest(
    "g", MEMBER, 0, rebalance_timeout_ms=9000, subscribed_topic_names=["in"], topic_partitions=[]
)
STREAMS = StreamsGroupHeartbeatRequest(
    "g",
    "m",
    rebalance_timeout_ms=9000,
    topology=Topology(0, [Subtopology("0", ["in"])]),
    active_tasks=[],
    standby_tasks=[],
    warmup_tasks=[],
    process_id="p",
)
PARTITIONS = adding.AddPartitionsToTxnRequest(
    v3_and_below_transactional_id="t",
    v3_and_below_producer_id=7,
    v3_and_below_topics=[adding.AddPartitionsToTxnTopic("in", [0])],
)
OF_BROKERS = adding.AddPartitionsToTxnRequest(
    transactions=[adding.AddPartitionsToTxnTransaction("t", 7, 0, True, [adding.AddPartitionsToTxnTopic("in", [0])])]
)
OF_A_TRANSACTION = TxnOffsetCommitRequest(
    "t", "g", 7, 0, topics=[TxnOffsetCommitRequestTopic("in", partitions=[TxnOffsetCommitRequestPartition(0, 5)])]
)
MARKERS = WriteTxnMarkersRequest([WritableTxnMarker(7, 0, True, [WritableTxnMarkerTopic("in", [0])])])
ROWS: Final = (
    Row(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4, {group(DESCRIBE): OF_GROUP}),
    Row(FindCoordinatorRequest("g"), 3, {group(DESCRIBE): OF_GROUP}),
    Row(FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]), 4, {transaction(DESCRIBE): OF_ID}),
    Row(JOINING, 5, {group(READ): OF_GROUP}),
    Row(SyncGroupRequest("g", 1, "m"), 3, {group(READ): OF_GROUP}),
    Row(HeartbeatRequest("g", 1, "m"), 4, {group(READ): OF_GROUP}),
    Row(LeaveGroupRequest("g", members=[MemberIdentity("m")]), 5, {group(READ): OF_GROUP}),
    Row(OFFSETS, 9, {group(READ): OF_GROUP, topic(READ): OF_TOPIC}),
    Row(FETCHED, 9, {group(DESCRIBE): OF_GROUP, topic(DESCRIBE): OF_TOPIC}),
    Row(DELETED, 0, {group(DELETE): OF_GROUP, topic(READ): OF_TOPIC}),
    Row(DescribeGroupsRequest(["g"]), 5, {group(DESCRIBE): OF_GROUP}),
    Row(DeleteGroupsRequest(["g"]), 2, {group(DELETE): OF_GROUP}),
    Row(BEAT, 1, {group(READ): OF_GROUP, topic(DESCRIBE): OF_TOPIC}),
    Row(ConsumerGroupDescribeRequest(["g"]), 1, {group(DESCRIBE): OF_GROUP}),
    Row(STREAMS, 1, {group(READ): OF_GROUP, topic(DESCRIBE): OF_TOPIC}),
    Row(StreamsGroupDescribeRequest(["g"]), 1, {group(DESCRIBE): OF_GROUP}),
    Row(StreamsGroupTopologyDescriptionUpdateRequest("g", "m", 1), 0, {group(READ): OF_GROUP}),
    Row(InitProducerIdRequest("t", 60_000), 4, {transaction(WRITE): OF_ID}),
    Row(InitProducerIdRequest(None), 4, {cluster(AclOperation.IDEMPOTENT_WRITE): OF_CLUSTER}),
    Row(PARTITIONS, 3, {transaction(WRITE): OF_ID, topic(WRITE): OF_TOPIC}),
    Row(OF_BROKERS, 5, {cluster(ACTION): OF_CLUSTER}),
    Row(AddOffsetsToTxnRequest("t", 7, 0, "g"), 4, {transaction(WRITE): OF_ID, group(READ): OF_GROUP}),
    Row(OF_A_TRANSACTION, 4, {transaction(WRITE): OF_ID, group(READ): OF_GROUP, topic(READ): OF_TOPIC}),
    Row(EndTxnRequest("t", 7, 0, True), 4, {transaction(WRITE): OF_ID}),
    Row(MARKERS, 1, {cluster(ACTION): OF_CLUSTER}),
    Row(MARKERS, 1, {cluster(AclOperation.ALTER): OF_CLUSTER}),
    Row(DescribeTransactionsRequest(["t"]), 0, {transaction(DESCRIBE): OF_ID}),
    Row(DescribeProducersRequest([TopicRequest("in", [0])]), 0, {topic(READ): OF_TOPIC}),
)
ONE = ((101,),)


def world_with(*rights: Right) -> Coordinated:
    """A broker that coordinates everything, where a client may do only this."""
    world = Coordinated(ONE, out=ONE, groups=ONE, authorizer=AuthorizerSettings())
    allow(world, *rights)
    world.brokers.change(FeatureLevelRecord(name="group.version", feature_level=1))
    world.brokers.change(FeatureLevelRecord(name="streams.version", feature_level=1))
    return world


def allow(world: Coordinated, *rights: Right) -> None:
    world.brokers.change(*(rule(number, *one) for number, one in enumerate(rights)))


def ask(world: Coordinated, request: Message, version: int) -> Any:
    return world.ask(101, request, version)


def codes(found: object) -> Iterator[int]:
    """Every error in an answer."""
    if isinstance(found, list):
        for one in found:
            yield from codes(one)
    elif isinstance(found, Struct):
        for field in found.__struct_fields__:
            value = getattr(found, field)
            if field.endswith("error_code"):
                yield value
            else:
                yield from codes(value)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_with_all_rights_nothing_is_refused(row: Row) -> None:
    world = used()
    allow(world, *row.needs)
    answer = ask(world, row.request, row.version)
    assert not REFUSALS & set(codes(answer)), answer
    assert denials(world, row) == []


@pytest.mark.parametrize(
    ("row", "missing"), [(row, right) for row in ROWS for right in row.needs], ids=lambda one: getattr(one, "name", "")
)
def test_without_a_right_a_request_is_refused_and_noted(row: Row, missing: Right) -> None:
    world = used()
    allow(world, *(one for one in row.needs if one != missing))
    log = world.brokers.part(101, (world.brokers.image.topics.by_name["__consumer_offsets"], 0)).log
    ends = log.end_offset
    answer = ask(world, row.request, row.version)
    assert REFUSALS & set(codes(answer)) == {row.needs[missing]}, answer
    assert log.end_offset == ends
    wanted = (ACTION, *missing[1:]) if row.request is MARKERS else missing
    assert denials(world, row) == [wanted]


def test_without_the_right_to_the_id_nobody_looks_at_the_topics_of_a_transaction() -> None:
    """`KafkaApis.handleAddPartitionsToTxnRequest`: the log of denials names the id alone."""
    world = used()
    answer = ask(world, PARTITIONS, 3)
    assert REFUSALS & set(codes(answer)) == {OF_ID}
    found = [(one.operation, one.resource, one.name) for one in taken(world.brokers.rights[101].audited)]
    assert [one for one in found if one[0] is not ACTION] == [transaction(WRITE)]


def test_every_api_of_the_coordinators_has_a_row() -> None:
    keys = {schema_of(type(one.request)).api_key for one in ROWS}
    listed = {schema_of(one).api_key for one in (ListGroupsRequest, ListTransactionsRequest)}
    served = {8, 9, 10, 11, 12, 13, 14, 15, 16, 22, 24, 25, 26, 27, 28, 42, 47, 61, 65, 66, 68, 69}
    assert served - keys == listed


def denials(world: Coordinated, row: Row) -> list[Right]:
    """The rights that the client was denied. The brokers, which act for the cluster, have no rights here either."""
    found = [(one.operation, one.resource, one.name) for one in taken(world.brokers.rights[101].audited)]
    is_of_brokers = isinstance(row.request, (WriteTxnMarkersRequest, adding.AddPartitionsToTxnRequest))
    return [one for one in found if is_of_brokers or one[0] is not ACTION]


def commit(world: Coordinated, group_id: str) -> None:
    topics = [OffsetCommitRequestTopic(one, partitions=[OffsetCommitRequestPartition(0, 5)]) for one in ("in", "out")]
    assert set(codes(ask(world, OffsetCommitRequest(group_id, topics=topics), 9))) == {0}


GROUPS_OF_ALL: Final = [(READ, AclResource.GROUP, one) for one in ("g", "hidden")]
TOPICS_OF_ALL: Final = [(READ, AclResource.TOPIC, one) for one in ("in", "out")]
IDS_OF_ALL: Final = [(WRITE, AclResource.TRANSACTIONAL_ID, one) for one in ("t", "secret")]


def used() -> Coordinated:
    """A broker with two groups and two transactional ids, where a client has no rights any more."""
    rights = *GROUPS_OF_ALL, *TOPICS_OF_ALL, *IDS_OF_ALL, *((WRITE, *one[1:]) for one in TOPICS_OF_ALL)
    world = world_with(*rights)
    for group_id in ("g", "hidden"):
        commit(world, group_id)
    # A broker without producer ids asks for some first.
    for name in ("t", "t", "secret"):
        found = ask(world, InitProducerIdRequest(name, 60_000), 4)
        topics = [adding.AddPartitionsToTxnTopic(one, [0]) for one in ("in", "out")]
        request = adding.AddPartitionsToTxnRequest([], name, found.producer_id, found.producer_epoch, topics)
        ask(world, request, 3)
    removed = [RemoveAccessControlEntryRecord(id=rule(number, *one).id) for number, one in enumerate(rights)]
    world.brokers.change(*removed)
    taken(world.brokers.rights[101].audited)
    return world


@pytest.mark.parametrize(
    ("rights", "groups"),
    [
        ((), set()),
        ((group(DESCRIBE),), {"g"}),
        (((DESCRIBE, AclResource.GROUP, "hidden"),), {"hidden"}),
        ((cluster(DESCRIBE),), {"g", "hidden"}),
    ],
)
def test_the_list_of_groups_has_what_the_client_may_describe(rights: tuple[Right, ...], groups: set[str]) -> None:
    world = used()
    allow(world, *rights)
    answer = ask(world, ListGroupsRequest(), 5)
    assert ({one.group_id for one in answer.groups}, answer.error_code) == (groups, 0)
    assert taken(world.brokers.rights[101].audited) == [], "what is left out of a list is no denial"


def test_the_list_of_transactions_has_what_the_client_may_describe() -> None:
    for rights, ids in (((), set()), ((transaction(DESCRIBE),), {"t"})):
        world = used()
        allow(world, *rights)
        answer = ask(world, ListTransactionsRequest(), 1)
        assert ({one.transactional_id for one in answer.transaction_states}, answer.error_code) == (ids, 0)
        assert taken(world.brokers.rights[101].audited) == []


def test_a_client_without_rights_causes_no_match(monkeypatch: pytest.MonkeyPatch) -> None:
    matched: list[str] = []
    right = Pattern.matches

    def matches(pattern: Pattern, text: str) -> bool:
        matched.append(text)
        return right(pattern, text)

    monkeypatch.setattr(Pattern, "matches", matches)
    world = used()
    asked = ListTransactionsRequest(transactional_id_pattern=".*")
    assert ask(world, asked, 2).transaction_states == []
    assert matched == []
    allow(world, transaction(DESCRIBE))
    assert [one.transactional_id for one in ask(world, asked, 2).transaction_states] == ["t"]
    assert matched == ["t"]
    refused = ask(world, ListTransactionsRequest(transactional_id_pattern="(?:a{1000}){1000}"), 2)
    assert (refused.error_code, refused.transaction_states) == (Error.INVALID_REGULAR_EXPRESSION, [])


def test_a_described_transaction_has_the_topics_that_the_client_may_describe() -> None:
    world = used()
    allow(world, transaction(DESCRIBE), topic(DESCRIBE))
    [state] = ask(world, DescribeTransactionsRequest(["t"]), 0).transaction_states
    assert (state.error_code, [one.topic for one in state.topics]) == (0, ["in"])


def test_all_offsets_of_a_group_are_those_of_topics_that_the_client_may_describe() -> None:
    world = used()
    allow(world, group(DESCRIBE), topic(DESCRIBE))
    [found] = ask(world, OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)]), 9).groups
    assert (found.error_code, [one.name for one in found.topics]) == (0, ["in"])
    assert taken(world.brokers.rights[101].audited) == []


def test_a_consumer_group_with_a_hidden_topic_is_not_described() -> None:
    world = world_with(group(READ), group(DESCRIBE), topic(DESCRIBE))
    assert ask(world, BEAT, 1).error_code == 0
    [found] = ask(world, ConsumerGroupDescribeRequest(["g"]), 1).groups
    assert (found.error_code, len(found.members)) == (0, 1)
    last = rule(2, *topic(DESCRIBE)).id
    world.brokers.change(RemoveAccessControlEntryRecord(id=last))
    [found] = ask(world, ConsumerGroupDescribeRequest(["g"]), 1).groups
    assert (found.error_code, found.members) == (OF_TOPIC, [])


def test_a_producer_without_an_id_needs_the_right_to_write_some_topic() -> None:
    request = InitProducerIdRequest(None)
    assert not REFUSALS & set(codes(ask(world_with(topic(WRITE)), request, 4)))
    assert set(codes(ask(world_with(topic(READ)), request, 4))) == {OF_CLUSTER}


def test_one_refused_topic_does_not_refuse_the_others() -> None:
    world = world_with(group(READ), topic(READ))
    topics = [OffsetCommitRequestTopic(one, partitions=[OffsetCommitRequestPartition(0, 5)]) for one in ("in", "out")]
    answer = ask(world, OffsetCommitRequest("g", topics=topics), 9)
    assert [(one.name, one.partitions[0].error_code) for one in answer.topics] == [("out", OF_TOPIC), ("in", 0)]


def test_a_refused_topic_keeps_the_others_out_of_a_transaction() -> None:
    world = world_with(transaction(WRITE), topic(WRITE))
    topics = [adding.AddPartitionsToTxnTopic(one, [0]) for one in ("in", "out")]
    answer = ask(world, adding.AddPartitionsToTxnRequest([], "t", 7, 0, topics), 3)
    found = {one.name: one.results_by_partition[0].partition_error_code for one in answer.results_by_topic_v3_and_below}
    assert found == {"in": Error.OPERATION_NOT_ATTEMPTED, "out": OF_TOPIC}
