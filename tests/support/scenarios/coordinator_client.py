"""Requests by hand to the coordinators of groups and transactions, and the list of their scenarios."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar
from uuid import uuid4

from msgspec import Struct

from metadata_log.records.coordinator import CONSUMER_OFFSETS, TRANSACTION_STATE, CoordinatorRecord, decode_pair
from metadata_log.records.record import records
from metadata_log.serde import Message, encode
from support.interop.real_kafka import eventually
from support.scenarios.scenario_cluster import SECONDS, Cluster, Kind, Topic
from transport.protocol.errors import Error
from transport.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from transport.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from transport.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from transport.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from transport.protocol.messages.describe_transactions import DescribeTransactionsRequest
from transport.protocol.messages.end_txn import EndTxnRequest
from transport.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from transport.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from transport.protocol.messages.init_producer_id import InitProducerIdRequest
from transport.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from transport.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from transport.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from transport.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from transport.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from transport.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

M = TypeVar("M", bound=Message)

GROUP: Final = 0
TRANSACTION: Final = 1
"""The key types of FindCoordinator."""
SESSION_TIMEOUT_MS: Final = 6000
REBALANCE_TIMEOUT_MS: Final = 10_000
SOON: Final = {
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_COORDINATOR,
}
"""What a client answers with another search for the coordinator."""
PARTITIONS: Final = 4
"""Of each topic of coordinators."""
COORDINATED: Final = Kind(
    "coordinated",
    settings=(
        "group.initial.rebalance.delay.ms=0",
        f"offsets.topic.num.partitions={PARTITIONS}",
        f"transaction.state.log.num.partitions={PARTITIONS}",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",
        # A member of the consumer protocol has the session of its coordinator.
        "group.consumer.min.session.timeout.ms=6000",
        "group.consumer.session.timeout.ms=15000",
        "group.consumer.min.heartbeat.interval.ms=1000",
        "group.consumer.heartbeat.interval.ms=1000",
    ),
)
"""Brokers with small topics of coordinators."""


OF_TRANSACTIONS: Final = (
    InitProducerIdRequest,
    AddPartitionsToTxnRequest,
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    DescribeTransactionsRequest,
)
"""What goes to the coordinator of the transactional id; all else goes to that of the group."""


TOPIC_OF: Final = {GROUP: "__consumer_offsets", TRANSACTION: "__transaction_state"}
KINDS: Final = {GROUP: CONSUMER_OFFSETS, TRANSACTION: TRANSACTION_STATE}
NAMES: Final = ("group", "group_id", "transactional_id")
"""What the keys of records call the group or the transactional id."""


class CoordinatorScenario(Struct, frozen=True):
    """A scenario; `by_default` are the makes of the clusters on which it is quick enough for the default run."""

    id: str
    run: Callable[[Cluster], None]
    by_default: tuple[str, ...]

    @property
    def name(self) -> str:
        """The id of the test plan and the name of the function, which says what must hold."""
        return f"{self.id}-{self.run.__name__}"


OURS: Final = ("ours",)
COORDINATOR_SCENARIOS: Final[list[CoordinatorScenario]] = []


def coordinated(
    plan_id: str, *, by_default: tuple[str, ...] = ()
) -> Callable[[Callable[[Cluster], None]], Callable[[Cluster], None]]:
    """Put a function into the list."""

    def listed(run: Callable[[Cluster], None]) -> Callable[[Cluster], None]:
        COORDINATOR_SCENARIOS.append(CoordinatorScenario(plan_id, run, by_default))
        return run

    return listed


def fresh(name: str) -> str:
    """A name that no scenario has used."""
    return f"{name}-{uuid4().hex[:8]}"


def found_coordinator(cluster: Cluster, key: str, kind: int = GROUP, broker: int | None = None) -> Coordinator:
    """The answer of a broker to FindCoordinator."""
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    asked = cluster.alive[0] if broker is None else broker
    [answer] = cluster.ask(asked, request, 6, FindCoordinatorResponse).coordinators
    return answer


def coordinator_of(cluster: Cluster, key: str, kind: int = GROUP) -> int:
    """The broker that coordinates, once there is one that runs."""
    answers: list[Coordinator] = []

    def is_known() -> bool:
        answers.append(found_coordinator(cluster, key, kind))
        assert answers[-1].error_code in {Error.NONE, *SOON}, answers[-1]
        return answers[-1].error_code == Error.NONE and answers[-1].node_id in cluster.alive

    eventually(is_known, f"{key} has a coordinator", SECONDS)
    return answers[-1].node_id


def coordinate(
    cluster: Cluster, key: str, request: Message, version: int, answer: type[M], errors: Callable[[M], Sequence[int]]
) -> M:
    """The answer of the coordinator to a request, which is repeated as long as a client would."""
    kind = TRANSACTION if isinstance(request, OF_TRANSACTIONS) else GROUP
    found: list[M] = []

    def is_answered() -> bool:
        try:
            found.append(cluster.ask(coordinator_of(cluster, key, kind), request, version, answer))
        except (OSError, AssertionError):
            return False
        return not set(errors(found[-1])) & SOON

    eventually(is_answered, f"{type(request).__name__} of {key} is answered", SECONDS)
    return found[-1]


def subscription(*topics: str) -> bytes:
    """The bytes in which a classic consumer names its topics: version 0."""
    return b"\x00\x00" + encode(ConsumerProtocolSubscription(topics=list(topics)), 0)


class Member:
    """A member of a classic group, with the id that the coordinator gave it."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        *,
        instance: str | None = None,
        protocols: Sequence[tuple[str, bytes]] = (("range", b"m"),),
        protocol_type: str = "consumer",
    ) -> None:
        self.cluster = cluster
        self.group = group
        self.instance = instance
        self.protocols = protocols
        self.protocol_type = protocol_type
        self.id = ""
        self.generation = -1

    def join(self, version: int = 9, *, repeats: bool = True) -> JoinGroupResponse:
        """Join once, or twice if the coordinator asks the member to come back with its id."""
        answer = self.join_once(version)
        if repeats and answer.error_code == Error.MEMBER_ID_REQUIRED:
            self.id = answer.member_id
            answer = self.join_once(version)
        if answer.error_code == Error.NONE:
            self.id, self.generation = answer.member_id, answer.generation_id
        return answer

    def joining(self, version: int = 9) -> JoinGroupRequest:
        """The next JoinGroup."""
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if version >= 1 else -1,
            member_id=self.id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupRequestProtocol(name, metadata) for name, metadata in self.protocols],
        )

    def join_once(self, version: int = 9) -> JoinGroupResponse:
        """The answer to one JoinGroup."""
        return coordinate(
            self.cluster,
            self.group,
            self.joining(version),
            version,
            JoinGroupResponse,
            lambda answer: [answer.error_code],
        )

    def sync(self, assignments: dict[str, bytes] | None = None) -> SyncGroupResponse:
        """The answer to SyncGroup; the leader gives the assignments."""
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type,
            protocol_name=self.protocols[0][0],
            assignments=[SyncGroupRequestAssignment(one, data) for one, data in (assignments or {}).items()],
        )
        return coordinate(self.cluster, self.group, request, 5, SyncGroupResponse, lambda answer: [answer.error_code])

    def heartbeat(self) -> Error:
        """The error of a heartbeat."""
        request = HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.id, group_instance_id=self.instance
        )
        answer = coordinate(self.cluster, self.group, request, 4, HeartbeatResponse, lambda answer: [answer.error_code])
        return Error.of(answer.error_code)

    def leave(self) -> LeaveGroupResponse:
        """The answer to LeaveGroup."""
        return leave(self.cluster, self.group, MemberIdentity(self.id, self.instance))

    def commit(self, topic: Topic, offset: int, version: int = 10) -> Error:
        """The error of a commit by this member."""
        return commit(self.cluster, self.group, topic, offset, version, member=self)


def leave(cluster: Cluster, group: str, *members: MemberIdentity) -> LeaveGroupResponse:
    """The answer to LeaveGroup with these members."""
    request = LeaveGroupRequest(group_id=group, members=list(members))
    return coordinate(cluster, group, request, 5, LeaveGroupResponse, lambda answer: [answer.error_code])


def commit(
    cluster: Cluster,
    group: str,
    topic: Topic,
    offset: int,
    version: int = 10,
    *,
    member: Member | None = None,
    metadata: str | None = "m",
    retention_ms: int = -1,
    partition: int = 0,
) -> Error:
    """The error of a commit, by a member or by nobody."""
    parts = [OffsetCommitRequestPartition(partition, offset, committed_metadata=metadata)]
    named = (
        OffsetCommitRequestTopic(topic_id=topic.id, partitions=parts)
        if version >= 10
        else OffsetCommitRequestTopic(name=topic.name, partitions=parts)
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1 if member is None else member.generation,
        member_id="" if member is None else member.id,
        group_instance_id=None if member is None else member.instance,
        retention_time_ms=retention_ms,
        topics=[named],
    )

    def errors(answer: OffsetCommitResponse) -> Sequence[int]:
        return [one.error_code for each in answer.topics for one in each.partitions]

    answer = coordinate(cluster, group, request, version, OffsetCommitResponse, errors)
    return Error.of(errors(answer)[0])


def committed(
    cluster: Cluster, group: str, topic: Topic | None, *, version: int = 10, stable: bool = False, partition: int = 0
) -> tuple[int, Error]:
    """The committed offset of a partition and the error beside it; without a topic, of the first there is."""
    named = None
    if topic is not None:
        named = [
            OffsetFetchRequestTopics(topic_id=topic.id, partition_indexes=[partition])
            if version >= 10
            else OffsetFetchRequestTopics(name=topic.name, partition_indexes=[partition])
        ]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=named)], require_stable=stable)
    answer = coordinate(
        cluster, group, request, version, OffsetFetchResponse, lambda answer: [answer.groups[0].error_code]
    )
    [found] = answer.groups
    if found.error_code != Error.NONE:
        return -1, Error.of(found.error_code)
    [each] = found.topics
    [part] = each.partitions
    return part.committed_offset, Error.of(part.error_code)


def wait_for_offset(cluster: Cluster, group: str, topic: Topic, offset: int) -> None:
    """Wait until no transaction holds the offset of a group back, and it is this one."""
    eventually(
        lambda: committed(cluster, group, topic, stable=True) == (offset, Error.NONE),
        f"{group} is at {offset}",
        SECONDS,
    )


def stable_group(
    cluster: Cluster, *, group: str | None = None, members: int = 1, instance: str | None = None
) -> list[Member]:
    """A group with members that have their assignments; the first one leads."""
    group = group or fresh("g")
    found = [Member(cluster, group, instance=instance and f"{instance}{at}") for at in range(members)]
    for at, member in enumerate(found):
        settle(found[: at + 1], member)
    return found


def wait_for_rebalance(member: Member) -> None:
    """Wait until a heartbeat calls a member to a rebalance."""
    eventually(lambda: member.heartbeat() == Error.REBALANCE_IN_PROGRESS, "a rebalance begins", SECONDS)


def settle(members: Sequence[Member], joiner: Member) -> None:
    """Let a member join, and the others with it, until all have synced."""
    with ThreadPoolExecutor(len(members)) as pool:
        late = pool.submit(joiner.join)
        others = [one for one in members if one is not joiner]
        for one in others:
            wait_for_rebalance(one)
        rejoined = {one: pool.submit(one.join) for one in others}
        answers = {joiner: late.result(), **{one: future.result() for one, future in rejoined.items()}}
        for one, answer in answers.items():
            assert answer.error_code == Error.NONE, (one.id, Error.of(answer.error_code))
        assert len({answer.generation_id for answer in answers.values()}) == 1
        leader = next(one for one, answer in answers.items() if answer.leader == one.id)
        assignments = {one.id: f"a-{one.id}".encode() for one in members}
        waiting = [pool.submit(one.sync) for one in members if one is not leader]
        given = [leader.sync(assignments), *(future.result() for future in waiting)]
        assert [one.error_code for one in given] == [Error.NONE] * len(members)
        assert {one.assignment for one in given} == set(assignments.values())


def described(cluster: Cluster, group: str) -> DescribedGroup:
    """A group as DescribeGroups shows it."""
    request = DescribeGroupsRequest(groups=[group])
    answer = coordinate(
        cluster, group, request, 6, DescribeGroupsResponse, lambda answer: [answer.groups[0].error_code]
    )
    return answer.groups[0]


def listed(cluster: Cluster, group: str) -> ListedGroup:
    """A group as ListGroups of its coordinator shows it."""
    answer = coordinate(cluster, group, ListGroupsRequest(), 5, ListGroupsResponse, lambda answer: [answer.error_code])
    [found] = [one for one in answer.groups if one.group_id == group]
    return found


def java_hash(text: str) -> int:
    """`String.hashCode`, written without the code under test."""
    value = 0
    units = text.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def partition_of(key: str) -> int:
    """The partition that has a group or a transactional id."""
    value = java_hash(key)
    return 0 if value == -(1 << 31) else abs(value) % PARTITIONS


def internal(cluster: Cluster, kind: int) -> Topic:
    """The topic in which the coordinators of a kind keep what they know."""
    name = TOPIC_OF[kind]
    image = cluster.image().topics[name]
    return Topic(name, image.id, tuple(sorted(image.partitions[0].replicas)))


def written(cluster: Cluster, key: str, kind: int = GROUP) -> list[CoordinatorRecord]:
    """The records of a group or a transactional id, in order, as the log of its coordinator has them."""
    topic, kinds = internal(cluster, kind), KINDS[kind]
    found: list[CoordinatorRecord] = []
    for one in cluster.batches(coordinator_of(cluster, key, kind), topic, partition_of(key)):
        for record in () if one.is_control else records(one):
            pair = decode_pair(kinds, record.key or b"", record.value)
            if pair is not None and key in {getattr(pair.key, name, None) for name in NAMES}:
                found.append(pair)
    return found


def fail_over(cluster: Cluster, key: str, kind: int = GROUP) -> tuple[int, int]:
    """Kill the coordinator of a key, and wait for another one; returns both."""
    former = coordinator_of(cluster, key, kind)
    cluster.kill(former)
    if kind == GROUP:
        described(cluster, key)  # a coordinator that still loads answers 0 to any heartbeat
    return former, coordinator_of(cluster, key, kind)
