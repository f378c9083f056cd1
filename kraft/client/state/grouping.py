"""The state of a consumer that shares the partitions of a topic with the other members of its group (Kafka:
`ConsumerCoordinator` of classic groups, `ConsumerMembershipManager` of KIP-848).

One request to the coordinator is on its way at a time. Each change of the assignment begins a new reader, at the
offsets after what the user has got; partitions that go to another member have their offsets committed before.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from itertools import count
from random import Random
from typing import Final

from msgspec import Struct

from kraft.client.state.assigning import (
    ASSIGNORS,
    COOPERATIVE,
    NO_GENERATION,
    PROTOCOL_TYPE,
    assignment_bytes,
    assignment_of,
    cooperative_subscription_bytes,
    subscriber_of,
    subscription_bytes,
)
from kraft.client.state.consuming import ConsumerSettings, ConsumerState
from kraft.client.state.coordinators import KeyType, silence
from kraft.client.state.errors import ClientError, cannot_connect, refused
from kraft.client.state.positions import AtOffset, AtTime, Beginning, ConsumedRecord, End, Isolation, Position
from kraft.client.state.requests import ELSEWHERE, REQUEST_TIMEOUT_MS, Address, Ask, pause_ms
from kraft.client.state.topic_view import TopicView
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS, NO_OFFSET, Uuid
from transport.protocol.errors import Error
from transport.protocol.inbound import LASTING, Failed
from transport.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from transport.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from transport.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from transport.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from transport.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from transport.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
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

COMMIT_MS: Final = 5_000
"""How often offsets are committed without a word of the user (Kafka: `auto.commit.interval.ms`)."""
_JOINING: Final = 0
_LEAVING: Final = -1
_NO_MEMBER: Final = frozenset({Error.UNKNOWN_MEMBER_ID, Error.FENCED_MEMBER_EPOCH})
_OTHER_GENERATION: Final = frozenset({Error.ILLEGAL_GENERATION, Error.REBALANCE_IN_PROGRESS})


class GroupProtocol(Enum):
    """The side that divides the partitions (Kafka: `group.protocol`)."""

    CLASSIC = "classic"
    """The leader among the members."""
    CONSUMER = "consumer"
    """The coordinator (KIP-848)."""


class GroupSettings(Struct, frozen=True, kw_only=True):
    """How a member of a group reads.

    `reset` is for partitions without a committed offset. `assignor` None means range in classic groups, and what the
    coordinator prefers in others. With `cooperative-sticky` a member of a classic group goes on with its partitions
    while the group rebalances, and gives up only those that go to another member (KIP-429). Without `follows`, the
    reading ends where the assigned partitions end.
    """

    protocol: GroupProtocol = GroupProtocol.CLASSIC
    assignor: str | None = None
    instance: str | None = None
    reset: Beginning | End | AtTime = Beginning()
    auto_commit: bool = True
    follows: bool = True
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    rebalance_timeout_ms: int = 300_000
    timeout_ms: int = 30_000


class MemberOffsets(Struct, frozen=True):
    """Offsets that a member commits by way of a transaction (Kafka: `ConsumerGroupMetadata`)."""

    group: str
    member: str
    instance: str | None
    generation: int
    topic: str
    topic_id: Uuid
    offsets: Mapping[int, int]
    """By partition the offset of the next record."""


class GroupState:
    """The engine of a member; see `Engine`."""

    def __init__(
        self, topic: str, group: str, bootstrap: Sequence[Address], settings: GroupSettings, *, rng: Random
    ) -> None:
        if settings.protocol is GroupProtocol.CLASSIC and (settings.assignor or "range") not in ASSIGNORS:
            raise ClientError(f"there is no assignor {settings.assignor}", hint=f"There are {', '.join(ASSIGNORS)}.")
        self.group = group
        self.assigned: tuple[int, ...] | None = None
        """The partitions of this member; None while it has no assignment."""
        self.generation = NO_GENERATION
        """The generation of the group, or the epoch of the member."""
        self.is_closed = False
        self.paused: frozenset[int] = frozenset()
        """The partitions of this member that it does not read for now."""
        self._settings = settings
        self._topic = topic
        self._bootstrap = tuple(bootstrap)
        self._tokens = count(1)
        self._view = TopicView(topic, bootstrap, self._tokens, may_create=False)
        self._reader: ConsumerState | None = None
        self._routes: dict[int, tuple[ConsumerState, int]] = {}
        self.coordinator: Address | None = None
        """The broker that coordinates the group; None while it is looked for."""
        self._member = ""
        if settings.protocol is GroupProtocol.CONSUMER:
            self._member = base64.urlsafe_b64encode(rng.getrandbits(128).to_bytes(16, "big")).rstrip(b"=").decode()
            self.generation = _JOINING
        self._asked: tuple[int, Message, Address] | None = None
        self._due_ms = 0
        self._failures = 0
        self._since_ms: int | None = None
        self._last_failure = ""
        self._beat_ms = 0
        self._commit_ms = 0
        self._interval_ms = settings.heartbeat_interval_ms
        self._joined: JoinGroupResponse | None = None
        """Set between JoinGroup and SyncGroup."""
        self._counts: dict[str, int] | None = None
        """The partitions of each topic, for the assignment by the leader."""
        self._needs_join = True
        self._is_cooperative = settings.protocol is GroupProtocol.CLASSIC and settings.assignor == COOPERATIVE
        """Whether the member keeps its partitions while it joins."""
        self._must_join_first = False
        """Whether the coordinator takes no commit before the member has joined again."""
        self._next: tuple[int, ...] | None = None
        """An assignment that is not taken over yet."""
        self._confirms = False
        self._committed: dict[int, int] = {}
        self._processed: dict[int, int] = {}
        self._delivered: dict[int, int] = {}
        """By partition the offset after the last record that the user has got."""
        self._wants_commit = False
        self._is_closing = False

    # What the user does

    def take_records(self) -> list[ConsumedRecord]:
        """Take records that have arrived."""
        records = [] if self._reader is None else self._reader.take_records()
        self._delivered |= {one.partition: one.offset + 1 for one in records}
        return records

    def take_notices(self) -> list[str]:
        """Take what the user should know."""
        notices = [] if self._reader is None else list(self._reader.notices)
        if self._reader is not None:
            self._reader.notices.clear()
        return notices

    def done(self, partition: int, following: int) -> None:
        """Note that the user has finished with the records before an offset."""
        if self.assigned is not None and partition in self.assigned:
            self._processed[partition] = max(following, self._processed.get(partition, 0))

    def seek(self, partition: int, offset: int) -> None:
        """Go on at an offset; it counts as what the user has finished up to."""
        if partition not in (self.assigned or ()):
            raise ClientError(
                f"partition {self._topic}-{partition} is not this member's", hint="`assigned` names its partitions."
            )
        self._delivered[partition] = self._processed[partition] = offset
        self._reader = None

    def rewind(self) -> None:
        """Go back to the committed offsets."""
        self._delivered.clear()
        self._processed.clear()
        self._reader = None

    def pause(self, partitions: Iterable[int]) -> None:
        """Read no further records of these partitions, as far as they are this member's."""
        self._set_paused(self.paused | set(partitions) & set(self.assigned or ()))

    def resume(self, partitions: Iterable[int]) -> None:
        """Go on with these partitions."""
        self._set_paused(self.paused - set(partitions))

    def _set_paused(self, partitions: frozenset[int]) -> None:
        self.paused = partitions
        if self._reader is not None:
            self._reader.paused = partitions

    def offsets_behind(self, records: Iterable[ConsumedRecord]) -> MemberOffsets:
        """The offsets that a transaction commits when these records are done."""
        if self._settings.auto_commit:
            raise ClientError("the member commits its offsets by itself", hint="Give it auto_commit=False.")
        following: dict[int, int] = {}
        for one in records:
            following[one.partition] = max(one.offset + 1, following.get(one.partition, 0))
        if lost := following.keys() - set(self.assigned or ()):
            raise ClientError(
                f"partition {self._topic}-{min(lost)} is no longer this member's",
                hint="Abort: the member that has it now reads these records again.",
            )
        return MemberOffsets(
            self.group,
            self._member,
            self._settings.instance,
            self.generation,
            self._topic,
            self._view.topic_id,
            following,
        )

    def on_committed(self, offsets: MemberOffsets) -> None:
        """Note the offsets that a transaction has committed."""
        for number, following in offsets.offsets.items():
            if number in self._committed:
                self._committed[number] = following

    def commit(self) -> None:
        """Commit what the user has finished with, as soon as possible."""
        self._wants_commit = True

    def close(self) -> None:
        """Commit, and leave the group; `is_closed` says when that is done."""
        self._is_closing = True

    @property
    def is_committed(self) -> bool:
        """Whether the offset of everything that the user has finished with is committed."""
        return not self._dirty and not self._wants_commit

    @property
    def is_done(self) -> bool:
        """Whether each assigned partition was read to its end."""
        if self._settings.follows or self.assigned is None or self._needs_join or self._next is not None:
            return False
        return not self.assigned or (self._reader is not None and self._reader.is_done)

    # The engine

    def deadline_ms(self) -> int:
        """The time of the next request, or of the end of a wait, in ms."""
        moments = [self._view.deadline_ms(), NEVER_MS if self._reader is None else self._reader.deadline_ms()]
        if self._asked is None and self._view.is_known and not self.is_closed:
            is_idle = self.coordinator is not None and not self._has_work(0)
            next_ms = min(self._beat_ms, self._commit_ms if self._has_offsets else NEVER_MS)
            moments.append(max(self._due_ms, next_ms) if is_idle else self._due_ms)
        return min(moments)

    def poll(self, now_ms: int) -> list[Ask]:
        """The requests that are due."""
        asks = self._view.poll(now_ms)
        if self._asked is None and now_ms >= self._due_ms and self._view.is_known and not self.is_closed:
            asks += self._ask_coordinator(now_ms)
        self._begin_reading()
        if self._reader is not None:
            for ask in self._reader.poll(now_ms):
                token = next(self._tokens)
                self._routes[token] = self._reader, ask.token
                asks.append(Ask(token, ask.to, ask.message, ask.timeout_ms, ask.highest))
        return asks

    def on_outcome(self, token: int, outcome: Message | Failed, now_ms: int) -> None:
        """Take the outcome of a request; those of a former reader are dropped."""
        if self._view.awaits(token):
            self._view.on_outcome(outcome, now_ms)
            return
        if (route := self._routes.pop(token, None)) is not None:
            reader, inner = route
            if reader is self._reader:
                reader.on_outcome(inner, outcome, now_ms)
            return
        assert self._asked is not None
        _, request, address = self._asked
        self._asked = None
        if isinstance(outcome, Failed):
            if outcome.cause in LASTING and self._view.lasts(outcome, address, now_ms):
                raise cannot_connect(outcome)
            self._again(outcome.detail, now_ms, is_elsewhere=True)
            return
        self._on_answer(request, outcome, now_ms)

    # Requests

    @property
    def _dirty(self) -> dict[int, int]:
        """The offsets of what the user has finished with, where another one is committed."""
        return {one: offset for one, offset in self._processed.items() if self._committed.get(one) != offset}

    @property
    def _has_offsets(self) -> bool:
        """Whether there is something to commit, now or when it is time. The coordinator takes nothing of a generation
        that has no assignment yet.
        """
        wants = self._settings.auto_commit or self._wants_commit
        is_taken = self.generation > 0 and self._joined is None and not self._must_join_first
        return bool(self._dirty) and wants and is_taken

    def _has_work(self, now_ms: int) -> bool:
        """Whether a request is due without waiting for the next heartbeat."""
        waits = self._needs_join or self._joined is not None or self._next is not None or self._confirms
        unknown = self.assigned is not None and any(one not in self._committed for one in self.assigned)
        is_time = self._settings.auto_commit and now_ms >= self._commit_ms
        wants = self._wants_commit or (is_time and bool(self._dirty))
        return waits or unknown or wants or self._is_closing

    def _ask_coordinator(self, now_ms: int) -> list[Ask]:
        self._since_ms = now_ms if self._since_ms is None else self._since_ms
        if self._failures and now_ms - self._since_ms >= self._settings.timeout_ms:
            if self._is_closing:
                self.is_closed = True
                return []
            raise silence(KeyType.GROUP, self.group, self._settings.timeout_ms, self._last_failure)
        message = self._next_request(now_ms)
        if message is None:
            self._since_ms = None
            return []
        to = self._view.any_broker() if self.coordinator is None else self.coordinator
        if isinstance(message, MetadataRequest):
            to = self._view.any_broker()
        token = next(self._tokens)
        self._asked = token, message, to
        longer = self._settings.rebalance_timeout_ms if isinstance(message, JoinGroupRequest | SyncGroupRequest) else 0
        return [Ask(token, to, message, REQUEST_TIMEOUT_MS + longer, is_to_coordinator=True)]

    def _next_request(self, now_ms: int) -> Message | None:
        """The next request to the coordinator; None if nothing is due."""
        if self.coordinator is None:
            return FindCoordinatorRequest(coordinator_keys=[self.group])
        gives_up = self._needs_join or self._next is not None or self._is_closing
        if self._has_offsets and (self._wants_commit or gives_up or now_ms >= self._commit_ms):
            return self._commit_request()
        self._wants_commit = False
        if self._is_closing:
            return self._leave_request()
        if self._next is not None:
            # What a member of a cooperative group gives up goes to others only once it has joined again.
            self._needs_join = self._needs_join or self._is_cooperative
            self._take_over(self._next)
        if self._settings.protocol is GroupProtocol.CLASSIC:
            if self._needs_join:
                if not self._is_cooperative:
                    self._release()
                return self._join_request()
            if self._joined is not None:
                return self._sync_request()
        if self.assigned is not None and any(one not in self._committed for one in self.assigned):
            return self._offsets_request()
        if self._confirms or now_ms >= self._beat_ms:
            return self._heartbeat()
        return None

    def _join_request(self) -> JoinGroupRequest:
        name = self._settings.assignor or "range"
        subscription = subscription_bytes(self._topic)
        if self._is_cooperative:
            subscription = cooperative_subscription_bytes(self._topic, self.assigned or (), self.generation)
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self._settings.session_timeout_ms,
            rebalance_timeout_ms=self._settings.rebalance_timeout_ms,
            member_id=self._member,
            group_instance_id=self._settings.instance,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name, subscription)],
        )

    def _sync_request(self) -> Message:
        """SyncGroup; the leader gives the assignment, and asks for the number of partitions before."""
        assert self._joined is not None
        assignments: list[SyncGroupRequestAssignment] = []
        if self._joined.leader == self._member and self._joined.members:
            members = [subscriber_of(one) for one in self._joined.members]
            if self._counts is None:
                topics = sorted({topic for one in members for topic in one.topics})
                return MetadataRequest(
                    topics=[MetadataRequestTopic(name=topic) for topic in topics], allow_auto_topic_creation=False
                )
            assigned = ASSIGNORS[self._joined.protocol_name or "range"](members, self._counts)
            assignments = [SyncGroupRequestAssignment(one, assignment_bytes(some)) for one, some in assigned.items()]
        return SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self._member,
            group_instance_id=self._settings.instance,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._joined.protocol_name,
            assignments=assignments,
        )

    def _heartbeat(self) -> Message:
        if self._settings.protocol is GroupProtocol.CLASSIC:
            return HeartbeatRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self._member,
                group_instance_id=self._settings.instance,
            )
        is_new = self.generation == _JOINING
        owned = [] if not self.assigned else [self._owned(self.assigned)]
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self._member,
            member_epoch=self.generation,
            instance_id=self._settings.instance,
            rebalance_timeout_ms=self._settings.rebalance_timeout_ms if is_new else -1,
            subscribed_topic_names=[self._topic] if is_new else None,
            server_assignor=self._settings.assignor if is_new else None,
            topic_partitions=owned if is_new or self._confirms else None,
        )

    def _owned(self, numbers: Sequence[int]) -> ConsumerGroupHeartbeatRequestTopicPartitions:
        return ConsumerGroupHeartbeatRequestTopicPartitions(self._view.topic_id, list(numbers))

    def _leave_request(self) -> Message | None:
        """The request that ends the membership; None where none is needed.

        A static member of a classic group sends none: it only goes silent.
        """
        self._release()
        is_classic = self._settings.protocol is GroupProtocol.CLASSIC
        if not self._member or self.generation <= 0 or (is_classic and self._settings.instance is not None):
            self.is_closed = True
            return None
        if is_classic:
            return LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(self._member)])
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self._member,
            member_epoch=_LEAVING if self._settings.instance is None else _LEAVING - 1,
            instance_id=self._settings.instance,
        )

    def _offsets_request(self) -> OffsetFetchRequest:
        numbers = [one for one in self.assigned or () if one not in self._committed]
        topic = OffsetFetchRequestTopics(name=self._topic, topic_id=self._view.topic_id, partition_indexes=numbers)
        is_new = self._settings.protocol is GroupProtocol.CONSUMER
        group = OffsetFetchRequestGroup(
            group_id=self.group,
            member_id=self._member if is_new else None,
            member_epoch=self.generation if is_new else -1,
            topics=[topic],
        )
        return OffsetFetchRequest(groups=[group], require_stable=True)

    def _commit_request(self) -> OffsetCommitRequest:
        partitions = [OffsetCommitRequestPartition(one, offset) for one, offset in sorted(self._dirty.items())]
        return OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self._member,
            group_instance_id=self._settings.instance,
            topics=[OffsetCommitRequestTopic(name=self._topic, topic_id=self._view.topic_id, partitions=partitions)],
        )

    # Answers

    def _on_answer(self, request: Message, answer: Message, now_ms: int) -> None:
        error, text = _error_of(answer)
        if error in ELSEWHERE or (error.retriable and error not in _OTHER_GENERATION):
            self._again(f"{type(request).__name__}: {error.name}", now_ms, is_elsewhere=error in ELSEWHERE)
        elif self._is_closing and error is not Error.NONE:
            self._on_refused_end(request)
        elif error in _NO_MEMBER:
            self._forget(keeps_id=self._settings.protocol is GroupProtocol.CONSUMER)
        elif error in _OTHER_GENERATION:
            self._on_other_generation(request, error)
        elif error is Error.STALE_MEMBER_EPOCH:
            self._confirms = True  # a heartbeat brings the new epoch
        elif error is Error.MEMBER_ID_REQUIRED:
            assert isinstance(answer, JoinGroupResponse)
            self._member = answer.member_id
        elif error is not Error.NONE:
            raise refused(f"group {self.group}", error, text)
        else:
            self._due_ms = 0
            if not isinstance(answer, FindCoordinatorResponse):
                self._failures, self._since_ms = 0, None
            self._on_success(request, answer, now_ms)

    def _on_other_generation(self, request: Message, error: Error) -> None:
        """Join again. The next owner of a partition reads again what was not committed in the former generation."""
        self._needs_join, self._joined = True, None
        self._must_join_first = isinstance(request, OffsetCommitRequest)
        if error is Error.ILLEGAL_GENERATION:
            self._release()
            self._next = None

    def _on_refused_end(self, request: Message) -> None:
        """The membership ended otherwise; what was not committed goes to the next member again."""
        if isinstance(request, OffsetCommitRequest):
            self._processed.clear()
            self._wants_commit = False
        else:
            self.is_closed = True

    def _on_success(self, request: Message, answer: Message, now_ms: int) -> None:
        match answer:
            case FindCoordinatorResponse():
                [one] = answer.coordinators
                self.coordinator = one.host, one.port
            case JoinGroupResponse():
                self._member, self.generation = answer.member_id, answer.generation_id
                self._joined, self._counts, self._needs_join = answer, None, False
            case MetadataResponse():
                self._counts = {one.name or "": len(one.partitions) for one in answer.topics if not one.error_code}
            case SyncGroupResponse():
                self._joined, self._must_join_first = None, False
                self._on_assignment(assignment_of(answer.assignment).get(self._topic, ()))
                self._beat_ms = now_ms + self._interval_ms
            case HeartbeatResponse():
                self._beat_ms = now_ms + self._interval_ms
            case ConsumerGroupHeartbeatResponse():
                self._on_epoch(request, answer, now_ms)
            case OffsetFetchResponse():
                for topic in answer.groups[0].topics:
                    for part in topic.partitions:
                        self._committed[part.partition_index] = part.committed_offset
            case OffsetCommitResponse():
                assert isinstance(request, OffsetCommitRequest)
                self._committed |= {one.partition_index: one.committed_offset for one in request.topics[0].partitions}
                self._commit_ms = now_ms + COMMIT_MS
                self._wants_commit = False
            case LeaveGroupResponse():
                self.is_closed = True
            case other:
                raise AssertionError(other)

    def _on_assignment(self, numbers: tuple[int, ...]) -> None:
        """Take the assignment of a classic group over; of what is given up the offsets are committed before."""
        if self.assigned is None or not self._is_cooperative:
            self._take_over(numbers)
        elif set(self.assigned) - set(numbers):
            self._next = numbers
        elif set(self.assigned) != set(numbers):
            self._take_over(numbers)

    def _on_epoch(self, request: Message, answer: ConsumerGroupHeartbeatResponse, now_ms: int) -> None:
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        if request.member_epoch < 0:
            self.is_closed = True
            return
        self._needs_join = self._confirms = False
        self.generation = answer.member_epoch
        self._beat_ms = now_ms + answer.heartbeat_interval_ms
        if answer.assignment is not None:
            mine = next(
                (one for one in answer.assignment.topic_partitions if one.topic_id == self._view.topic_id), None
            )
            wanted = tuple(sorted(mine.partitions)) if mine is not None else ()
            if wanted != self.assigned:
                self._next = wanted

    def _again(self, why: str, now_ms: int, *, is_elsewhere: bool) -> None:
        self._last_failure = why
        self._due_ms = now_ms + pause_ms(self._failures)
        self._failures += 1
        if is_elsewhere:
            self.coordinator = None

    def _forget(self, *, keeps_id: bool) -> None:
        """Begin anew as another member."""
        self._release()
        self._member = self._member if keeps_id else ""
        self.generation = _JOINING if keeps_id else NO_GENERATION
        self._needs_join, self._joined, self._next, self._beat_ms = True, None, None, 0
        self._must_join_first = False

    # The assignment

    def _release(self) -> None:
        """Give all partitions up."""
        self.assigned = self._reader = None
        self.paused = frozenset()
        self._committed.clear()
        self._processed.clear()
        self._delivered.clear()
        self._wants_commit = False

    def _take_over(self, numbers: Sequence[int]) -> None:
        """Have this assignment from now on."""
        kept = set(self.assigned or ()) & set(numbers)
        self._confirms = self._settings.protocol is GroupProtocol.CONSUMER
        self.assigned, self._next, self._reader = tuple(sorted(numbers)), None, None
        self.paused &= kept
        self._processed = {one: offset for one, offset in self._processed.items() if one in kept}
        self._delivered = {one: offset for one, offset in self._delivered.items() if one in kept}
        self._committed = {one: offset for one, offset in self._committed.items() if one in kept}

    def _begin_reading(self) -> None:
        """Begin to read, once the offsets of the assigned partitions are known."""
        if self._reader is not None or not self.assigned or self._is_closing:
            return
        if any(one not in self._committed for one in self.assigned):
            return
        settings = ConsumerSettings(
            partitions=self.assigned,
            follows=self._settings.follows,
            isolation=self._settings.isolation,
            timeout_ms=self._settings.timeout_ms,
        )
        self._reader = ConsumerState(self._topic, self._view.addresses, settings)
        self._reader.paused = self.paused
        self._reader.positions = positions_of(self.assigned, self._committed, self._delivered, self._settings)


def positions_of(
    numbers: Sequence[int], committed: Mapping[int, int], delivered: Mapping[int, int], settings: GroupSettings
) -> dict[int, Position]:
    """Where each partition goes on: after what the user has got, else at the committed offset."""
    positions: dict[int, Position] = {}
    for one in numbers:
        offset = delivered.get(one, committed[one])
        start = settings.reset if offset == NO_OFFSET else AtOffset(offset)
        positions[one] = Position(start, needs_end=not settings.follows)
    return positions


def _error_of(answer: Message) -> tuple[Error, str | None]:
    """The error of an answer, and its text: the first one, where there are several."""
    match answer:
        case FindCoordinatorResponse():
            return Error.of(answer.coordinators[0].error_code), answer.coordinators[0].error_message
        case ConsumerGroupHeartbeatResponse():
            return Error.of(answer.error_code), answer.error_message
        case JoinGroupResponse() | SyncGroupResponse() | HeartbeatResponse():
            return Error.of(answer.error_code), None
        case LeaveGroupResponse():
            codes = [answer.error_code, *(one.error_code for one in answer.members)]
        case OffsetFetchResponse():
            [group] = answer.groups
            codes = [group.error_code, *(one.error_code for topic in group.topics for one in topic.partitions)]
        case OffsetCommitResponse():
            codes = [one.error_code for topic in answer.topics for one in topic.partitions]
        case _:
            codes = []
    return Error.of(next((code for code in codes if code), 0)), None
