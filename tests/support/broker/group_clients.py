"""Members of groups, and who commits, at brokers in memory."""

from __future__ import annotations

from typing import Any, Final

from kraft.config.group_settings import GroupConfig
from kraft.partitions.replicas.key import PartitionKey
from kraft.wire import Answer, Outcome
from metadata_log.memory_disk import MemoryDisk
from metadata_log.serde import Message, schema_of
from metadata_log.types import Uuid
from support.broker.request_brokers import Brokers, NewTopic, topic_id, wire_request
from transport.protocol.messages.heartbeat import HeartbeatRequest
from transport.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from transport.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from transport.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from transport.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from transport.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

GROUPS: Final = NewTopic("__consumer_offsets", topic_id(1), ((101,),), {"cleanup.policy": "compact"})
REPLICATED: Final = NewTopic(
    "__consumer_offsets", topic_id(1), ((101, 102, 103),), {"cleanup.policy": "compact", "min.insync.replicas": "2"}
)
ORDERS: Final = NewTopic("orders", topic_id(2), ((101,), (101,)))
GROUPS_KEY: Final[PartitionKey] = (GROUPS.id, 0)
LATEST: Final = {8: 9, 9: 9, 11: 9, 12: 4, 13: 5, 14: 5, 15: 6, 16: 5, 42: 2, 47: 0}
SESSION_MS: Final = 10_000
REBALANCE_MS: Final = 9000


class GroupBrokers:
    """Brokers of which 101 coordinates all groups, and the answers by the ids of the requests."""

    def __init__(
        self, *topics: NewTopic, disks: dict[int, MemoryDisk] | None = None, authorizer: Any = None, **settings: Any
    ) -> None:
        self.brokers = Brokers(
            list(topics or (GROUPS, ORDERS)), disks=disks, authorizer=authorizer, groups=GroupConfig(**settings)
        )
        self.answers: dict[int, Any] = {}
        self._last_id = 0
        self.wait(0)

    def take(self, outcomes: list[Outcome]) -> None:
        for one in outcomes:
            assert isinstance(one, Answer), one
            assert one.request_id not in self.answers, one
            self.answers[one.request_id] = one.message

    def wait(self, ms: int, broker_id: int = 101) -> None:
        """Let time pass at a broker: everything happens when it is due."""
        brokers = self.brokers
        end_ms = due_ms = brokers.now_ms
        end_ms += ms
        while due_ms <= end_ms:
            brokers.now_ms = due_ms
            self.take(brokers.poll(broker_id))
            requests = brokers.requests[broker_id]
            due_ms = max(due_ms, requests.agenda.deadline_ms)
        brokers.now_ms = end_ms

    def send(self, message: Message, version: int | None = None, *, broker_id: int = 101, client_id: str = "c") -> int:
        """Send a request; its answer is in `answers`, once it comes."""
        key = schema_of(type(message)).api_key
        assert key is not None
        self._last_id += 1
        request = wire_request(
            self._last_id, key, LATEST[key] if version is None else version, message, client_id=client_id
        )
        brokers = self.brokers
        outcome = brokers.requests[broker_id].on_request(request, brokers.image, brokers.now_ms)
        self.take([] if outcome is None else [outcome])
        self.wait(0, broker_id)
        return self._last_id

    def ask(self, message: Message, version: int | None = None, *, broker_id: int = 101) -> Any:
        """Send a request that is answered at once."""
        return self.answers.pop(self.send(message, version, broker_id=broker_id))

    # What members do

    def join(self, group_id: str = "g", **fields: Any) -> int:
        """Send a JoinGroup."""
        return self.send(joining(group_id, **fields))

    def member(self, group_id: str = "g", **fields: Any) -> tuple[str, int]:
        """Learn an id, and send a JoinGroup with it: the id, and the number of the request."""
        told = self.ask(joining(group_id, **fields))
        assert told.error_code == 79, told
        return told.member_id, self.join(group_id, member_id=told.member_id, **fields)

    def sync(self, member_id: str, generation: int, group_id: str = "g", *assignments: tuple[str, bytes]) -> int:
        """Send a SyncGroup."""
        return self.send(
            SyncGroupRequest(
                group_id=group_id,
                generation_id=generation,
                member_id=member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[SyncGroupRequestAssignment(*one) for one in assignments],
            )
        )

    def beat(self, member_id: str, generation: int, group_id: str = "g", instance_id: str | None = None) -> int:
        """The error of a Heartbeat."""
        answer = self.ask(HeartbeatRequest(group_id, generation, member_id, instance_id))
        code: int = answer.error_code
        return code

    def leave(self, *members: tuple[str, str | None], group_id: str = "g") -> Any:
        """The answer to a LeaveGroup."""
        return self.ask(LeaveGroupRequest(group_id=group_id, members=[MemberIdentity(*one) for one in members]))

    def stable(self, count: int = 1, group_id: str = "g") -> list[str]:
        """A group with so many members, each with an assignment; the ids, the leader's first."""
        pairs = [self.member(group_id) for _ in range(count)]
        self.wait(2 * self.delay_ms)
        joined = [self.answers.pop(number) for _, number in pairs]
        assert {one.error_code for one in joined} == {0}, joined
        leader = joined[0].leader
        ids = sorted((member_id for member_id, _ in pairs), key=lambda one: one != leader)
        waiting = [self.sync(one, joined[0].generation_id, group_id) for one in ids[1:]]
        waiting.append(self.sync(leader, joined[0].generation_id, group_id, *((one, one.encode()) for one in ids)))
        codes = [self.answers.pop(one).error_code for one in waiting]
        assert codes == [0] * count, codes
        return ids

    @property
    def delay_ms(self) -> int:
        return 3000

    # Offsets

    def commit(self, offset: int, group_id: str = "g", **fields: Any) -> int:
        """The error of an OffsetCommit for the first partition of `orders`."""
        answer = self.ask(committing(offset, group_id, **fields))
        code: int = answer.topics[0].partitions[0].error_code
        return code

    def committed(self, group_id: str = "g", *, is_stable: bool = False, broker_id: int = 101) -> tuple[int, int]:
        """The committed offset of the first partition of `orders`, and the error."""
        topics = [OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)], require_stable=is_stable
        )
        (group,) = self.ask(request, broker_id=broker_id).groups
        if group.error_code:
            return -1, group.error_code
        one = group.topics[0].partitions[0]
        return one.committed_offset, one.error_code


def joining(
    group_id: str = "g",
    *,
    member_id: str = "",
    instance_id: str | None = None,
    protocols: tuple[tuple[str, bytes], ...] = (("range", b"m"),),
    session_ms: int = SESSION_MS,
    rebalance_ms: int = REBALANCE_MS,
    kind: str = "consumer",
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=kind,
        protocols=[JoinGroupRequestProtocol(*one) for one in protocols],
    )


def committing(
    offset: int, group_id: str = "g", *, generation: int = -1, member_id: str = "", metadata: str = ""
) -> OffsetCommitRequest:
    part = OffsetCommitRequestPartition(0, offset, committed_metadata=metadata)
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic("orders", Uuid.ZERO, [part])],
    )
