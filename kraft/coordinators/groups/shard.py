"""The group coordinator of one partition of `__consumer_offsets` (Kafka: `GroupCoordinatorShard`)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

from msgspec import structs

from kraft.access.errors import ApiError
from kraft.config.group_settings import GroupConfig
from kraft.coordinators.groups import classic_members
from kraft.coordinators.groups.classic import ClassicGroups, GroupTimer
from kraft.coordinators.groups.classic_group import GroupState
from kraft.coordinators.groups.consumer.draft import Draft, tombstones
from kraft.coordinators.groups.consumer.fencing import ConsumerTimer
from kraft.coordinators.groups.consumer.group import ConsumerGroup
from kraft.coordinators.groups.consumer.groups import ConsumerGroups, Downgrade, MayDescribe
from kraft.coordinators.groups.consumer.member import Member
from kraft.coordinators.groups.migration import downgraded, may_downgrade, upgraded, watch_upgraded
from kraft.coordinators.groups.offsets import expired, of_deleted_topics
from kraft.coordinators.groups.shares.deleted_topics import Forgetting
from kraft.coordinators.groups.shares.group import ShareGroup
from kraft.coordinators.groups.shares.heartbeats import Begin, ShareGroups, ShareTimer, ShareWatch
from kraft.coordinators.groups.state import (
    GroupsState,
    Place,
    consumer_group,
    end_transaction,
    lacking_before,
    replay_groups,
    share_group,
    streams_group,
)
from kraft.coordinators.groups.streams import draft as streams_records
from kraft.coordinators.groups.streams.group import StreamsGroup
from kraft.coordinators.groups.streams.heartbeats import StreamsGroups, StreamsTimer
from kraft.coordinators.runtime.budget import Budget
from kraft.coordinators.runtime.partition import RETRY_TIMER_MS
from kraft.coordinators.runtime.shard import Context, CoordinatorResult, Record
from kraft.handling.coordinators import Counted
from kraft.limits import COMMITS_PER_STEP, GLANCES_PER_UNIT, GROUPS_PER_PARTITION, GROUPS_PER_STEP, MEMBERS_PER_UNIT
from kraft.wire import WireRequest
from metadata_log.image.persistent_map import RUN, keys_in_order_by_runs
from metadata_log.records.consumer_offsets import GroupMetadataKey
from metadata_log.records.coordinator import CONSUMER_OFFSETS
from metadata_log.serde.codec import finished
from metadata_log.types import Uuid
from transport.protocol.errors import Error
from transport.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from transport.protocol.messages.heartbeat import HeartbeatRequest
from transport.protocol.messages.join_group import JoinGroupRequest
from transport.protocol.messages.leave_group import LeaveGroupRequest
from transport.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from transport.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from transport.protocol.messages.sync_group import SyncGroupRequest

EXPIRY: Final = GroupTimer("expiry", "")
"""When old offsets are looked for."""
DELETION: Final = GroupTimer("deletion", "")
"""When the offsets of deleted topics are forgotten."""
START: Final = "start"
_LONG_METADATA: Final = 4096
"""The bytes of a subscription of the classic protocol from which on it may name very many topics or partitions."""
_END: Any = object()
_OfMember = TypeVar("_OfMember", SyncGroupRequest, HeartbeatRequest, LeaveGroupRequest)


def _downgrading(classic: ClassicGroups, settings: GroupConfig) -> Downgrade:
    """Makes classic groups. It does not know the shard, so that an unloaded one is no cycle."""

    def downgrade(group: ConsumerGroup, gone: Sequence[Member], context: Context) -> CoordinatorResult | None:
        if not may_downgrade(group, gone, settings):
            return None
        return downgraded(Draft(group), gone, classic, context, rebalances=True)

    return downgrade


class GroupShard:
    """The groups of one partition.

    Args:
        settings: The settings.
        counted: What the groups of the broker have done.
        is_full: Whether the groups of the broker take as much memory as they may.
        begin: Asks for the states of share partitions.
    """

    kinds = CONSUMER_OFFSETS

    def __init__(
        self,
        settings: GroupConfig,
        counted: Counted,
        is_full: Callable[[], bool] = lambda: False,
        begin: Begin = lambda *_: None,
    ) -> None:
        self._settings = settings
        self.classic = ClassicGroups(settings, counted, is_full)
        self.consumer = ConsumerGroups(settings.consumer, _downgrading(self.classic, settings), counted, is_full)
        self.shares = ShareGroups(settings.share, counted, begin, is_full)
        self.streams = StreamsGroups(settings.streams, counted, is_full)
        self._expiring: Sweep | None = None
        """The walk that looks for old offsets."""
        self._deleting: Sweep | None = None
        self._deleted: dict[str, Uuid] = {}
        """The deleted topics by name."""
        self._forgetting = Forgetting()

    def empty(self) -> GroupsState:
        """The state without groups."""
        return GroupsState()

    def replay(self, state: GroupsState, record: Record, offset: int, producer_id: int) -> GroupsState:
        """The state after a record."""
        return replay_groups(state, record, offset, producer_id)

    def lacking(self, state: GroupsState, record: Record) -> str:
        """The records that cleaning has taken from before a record."""
        return lacking_before(state, record)

    def end_transaction(
        self, state: GroupsState, producer_id: int, *, is_commit: bool
    ) -> Generator[None, None, GroupsState]:
        """The state after the end of a transaction."""
        return end_transaction(state, producer_id, is_commit=is_commit)

    def on_loaded(self, context: Context) -> Generator[None, None, None]:
        """Each group with members goes on: what it needs to write follows in a timer."""
        context.timers.set(EXPIRY, context.now_ms + self._settings.retention_check_ms)
        groups = iter(context.state.groups.items())
        while some := list(islice(groups, GROUPS_PER_STEP)):
            for group_id, group in some:
                if group.members:
                    context.timers.set(GroupTimer(START, group_id), context.now_ms)
            yield None

    def on_timer(self, key: Hashable, context: Context) -> CoordinatorResult:
        """Act on a timer that has ended."""
        if isinstance(key, ShareTimer):
            return self._on_share_timer(key, context)
        if isinstance(key, StreamsTimer):
            return self.streams.on_timer(streams_group(context.state, key.group_id), key, context)
        if isinstance(key, ConsumerTimer):
            return self.consumer.on_timer(consumer_group(context.state, key.group_id), key, context)
        assert isinstance(key, GroupTimer), key
        if key == EXPIRY:
            return self._expire(context)
        if key == DELETION:
            return self._forget_deleted(context)
        if key.kind == START:
            group = consumer_group(context.state, key.group_id)
            known = context.state.groups.get(key.group_id)
            context.budget.take(0 if known is None else len(known.members) // MEMBERS_PER_UNIT)
            if group is not None:
                return self.consumer.start(group, context)
            if isinstance(known, ShareGroup):
                return self.shares.start(known, context)
            if isinstance(known, StreamsGroup):
                return self.streams.start(known, context)
            return self.classic.start(key.group_id, context)
        return self.classic.on_timer(key, context)

    def on_deleted_topics(self, topics: Mapping[str, Uuid], context: Context) -> None:
        """Forget the offsets of the topics, and the states of their share partitions, soon."""
        self._forgetting.add(topics.values())
        context.timers.set(ShareTimer(ShareWatch.DELETION), context.now_ms)
        self._deleted |= topics
        self._deleting = None
        context.timers.set(DELETION, context.now_ms)

    def on_unloaded(self, context: Context) -> Generator[None, None, None]:
        """All that wait are told."""
        return self.classic.unload(context)

    # ----------------------------------------------------------------------------------------------------- share groups

    def share_heartbeating(
        self, request: WireRequest[ShareGroupHeartbeatRequest], context: Context
    ) -> Generator[None, None, CoordinatorResult] | None:
        """The same operation as `share_heartbeat` in portions, of which only the last one has effects.

        Returns:
            The portions; None if the operation is little work.
        """
        message = request.message
        group = self._share_group(message, context)
        if not self.shares.is_much(group, message, context.image):
            return None
        return self.shares.heartbeating(group, request, context)

    def share_heartbeat(self, request: WireRequest[ShareGroupHeartbeatRequest], context: Context) -> CoordinatorResult:
        """ShareGroupHeartbeat."""
        return self.shares.heartbeat(self._share_group(request.message, context), request, context)

    def _share_group(self, message: ShareGroupHeartbeatRequest, context: Context) -> ShareGroup | None:
        """The group of a heartbeat; None if it is new. Raises `ApiError` for one of another type."""
        group = share_group(context.state, message.group_id)
        if group is None:
            if self.present(message.group_id, context.state) is not None:
                raise ApiError(Error.GROUP_ID_NOT_FOUND, f"Group {message.group_id} is not a share group.")
            if message.member_epoch == 0:
                self.check_room(context)
        return group

    def _on_share_timer(self, key: ShareTimer, context: Context) -> CoordinatorResult:
        if key.watch is ShareWatch.DELETION:
            return self._forgetting.go_on(key, context)
        return self.shares.on_timer(share_group(context.state, key.group_id), key, context)

    # --------------------------------------------------------------------------------------------------- streams groups

    def streams_heartbeating(
        self, request: WireRequest[StreamsGroupHeartbeatRequest], context: Context
    ) -> Generator[None, None, CoordinatorResult] | None:
        """The same operation as `streams_heartbeat` in portions, of which only the last one has effects.

        Returns:
            The portions; None if the operation is little work.
        """
        group = streams_group(context.state, request.message.group_id)
        if not self.streams.is_much(group, request.message, context.image):
            return None
        return self._streams_heartbeating(group, request, context)

    def streams_heartbeat(
        self, request: WireRequest[StreamsGroupHeartbeatRequest], context: Context
    ) -> CoordinatorResult:
        """StreamsGroupHeartbeat: an empty classic group of this name ends."""
        group = streams_group(context.state, request.message.group_id)
        return finished(self._streams_heartbeating(group, request, context))

    def _streams_heartbeating(
        self, group: StreamsGroup | None, request: WireRequest[StreamsGroupHeartbeatRequest], context: Context
    ) -> Generator[None, None, CoordinatorResult]:
        group_id, joins = request.message.group_id, request.message.member_epoch == 0
        classic = self.classic.find(group_id, context.state) if group is None and joins else None
        if classic is not None and classic.state is GroupState.EMPTY:
            before = (Record(GroupMetadataKey(group=group_id)),)
            operation = yield from self.streams.heartbeating(None, request, context, before)
            self.classic.drop(group_id, context)
            return operation
        if group is None and self.present(group_id, context.state) is not None:
            raise ApiError(Error.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")
        if group is None and joins:
            self.check_room(context)
        return (yield from self.streams.heartbeating(group, request, context))

    # -------------------------------------------------------------------------------------------------- consumer groups

    def present(self, group_id: str, state: GroupsState) -> object:
        """The knowledge of a group; another object after each change."""
        return state.groups.get(group_id) or self.classic.live.get(group_id)

    def consumer_heartbeating(
        self, request: WireRequest[ConsumerGroupHeartbeatRequest], may_describe: MayDescribe, context: Context
    ) -> Generator[None, None, CoordinatorResult] | None:
        """The same operation as `consumer_heartbeat` in portions, of which only the last one has effects.

        Returns:
            The portions; None if the operation is little work, or concerns a classic group.
        """
        message = request.message
        present = self.present(message.group_id, context.state)
        group = consumer_group(context.state, message.group_id)
        if present is not group or not self.consumer.is_much(group, message, context.image):
            return None
        if group is None and message.member_epoch == 0:
            self.check_room(context)
        return self.consumer.heartbeating(group, request, may_describe, context)

    def check_room(self, context: Context) -> None:
        """Raise `ApiError` if there may be no further group."""
        if len(context.state.groups) >= GROUPS_PER_PARTITION or self.classic.is_full():
            raise ApiError(Error.COORDINATOR_NOT_AVAILABLE)

    def consumer_heartbeat(
        self, request: WireRequest[ConsumerGroupHeartbeatRequest], may_describe: MayDescribe, context: Context
    ) -> CoordinatorResult:
        """ConsumerGroupHeartbeat: an empty classic group of this name ends, and one with members goes on as a consumer
        group.
        """
        message = request.message
        group_id = message.group_id
        group = consumer_group(context.state, group_id)
        classic = self.classic.find(group_id, context.state) if group is None and message.member_epoch == 0 else None
        if classic is None:
            if group is None:
                if isinstance(context.state.groups.get(group_id), (ShareGroup, StreamsGroup)):
                    raise ApiError(Error.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
                if message.member_epoch == 0:
                    self.check_room(context)
            return self.consumer.heartbeat(group, request, may_describe, context)
        if classic.state is GroupState.EMPTY:
            before = (Record(GroupMetadataKey(group=group_id)),)
            operation = self.consumer.heartbeat(None, request, may_describe, context, before)
            self.classic.drop(group_id, context)
            return operation
        draft = upgraded(classic, self._settings, context.image, self.consumer.hashes)
        operation = self.consumer.heartbeat(draft.group, request, may_describe, context, draft.records)
        self.classic.end(group_id, Error.REBALANCE_IN_PROGRESS, context)
        watch_upgraded(draft.group, context)

        def ended(error: Error, context: Context) -> CoordinatorResult | None:
            is_written = error in (Error.NONE, Error.REQUEST_TIMED_OUT)
            return None if is_written else self.classic.start(group_id, context)

        return structs.replace(operation, on_end=ended)

    def join(self, request: WireRequest[JoinGroupRequest], context: Context) -> CoordinatorResult:
        """JoinGroup: an empty consumer or streams group of this name ends."""
        group = context.state.groups.get(request.message.group_id)
        match group:
            case ShareGroup():
                raise ApiError(Error.INCONSISTENT_GROUP_PROTOCOL)
            case StreamsGroup() if group.members:
                raise ApiError(Error.INCONSISTENT_GROUP_PROTOCOL)
            case ConsumerGroup() if group.members:
                return finished(self._joining_consumers(group, request, context))
            case ConsumerGroup() | StreamsGroup():
                return self._joining_after(group, request, context)
        return self.classic.join(request, context)

    def _joining_after(
        self, group: ConsumerGroup | StreamsGroup, request: WireRequest[JoinGroupRequest], context: Context
    ) -> CoordinatorResult:
        operation = self.classic.join(request, context)
        if not operation.records:
            return operation
        if isinstance(group, StreamsGroup):
            self.streams.drop(group.group_id, context)
            ends = streams_records.tombstones(group)
        else:
            self.consumer.drop(group, context)
            ends = tombstones(group)
        return structs.replace(operation, records=[*ends, *operation.records])

    def joining(
        self, request: WireRequest[JoinGroupRequest], context: Context
    ) -> Generator[None, None, CoordinatorResult] | None:
        """The same operation as `join` in portions, of which only the last one has effects.

        Returns:
            The portions; None if the operation is little work.
        """
        message = request.message
        group = consumer_group(context.state, message.group_id)
        if group is None or not group.members:
            return None
        is_long = any(len(one.metadata) > _LONG_METADATA for one in message.protocols)
        if not is_long and not self.consumer.is_large(group, context.image):
            return None
        return self._joining_consumers(group, request, context)

    def _joining_consumers(
        self, group: ConsumerGroup, request: WireRequest[JoinGroupRequest], context: Context
    ) -> Generator[None, None, CoordinatorResult]:
        return classic_members.joining(
            group,
            self.consumer,
            request,
            self._settings.consumer.migration_policy,
            lambda group, old: old.classic is None and may_downgrade(group, (old,), self._settings, joining=1),
            lambda draft, context, rebalances: downgraded(draft, (), self.classic, context, rebalances=rebalances),
            context,
        )

    def sync(self, request: WireRequest[SyncGroupRequest], context: Context) -> CoordinatorResult:
        """SyncGroup."""
        return self._by_protocol(request, self.classic.sync, classic_members.sync, context)

    def heartbeat(self, request: WireRequest[HeartbeatRequest], context: Context) -> CoordinatorResult:
        """Heartbeat."""
        return self._by_protocol(request, self.classic.heartbeat, classic_members.heartbeat, context)

    def leave(self, request: WireRequest[LeaveGroupRequest], context: Context) -> CoordinatorResult:
        """LeaveGroup."""
        return self._by_protocol(request, self.classic.leave, classic_members.leave, context)

    def _by_protocol(
        self,
        request: WireRequest[_OfMember],
        of_classic: Callable[[WireRequest[_OfMember], Context], CoordinatorResult],
        of_consumer: Callable[[ConsumerGroup, ConsumerGroups, WireRequest[_OfMember], Context], CoordinatorResult],
        context: Context,
    ) -> CoordinatorResult:
        """Handle the request of a classic member by the type of its group: a consumer group may have some, too."""
        message = request.message
        group = consumer_group(context.state, message.group_id)
        return of_classic(request, context) if group is None else of_consumer(group, self.consumer, request, context)

    # ----------------------------------------------------------------------------------------------------------- sweeps

    def _expire(self, context: Context) -> CoordinatorResult:
        """Forget old offsets of the next groups."""
        if self._expiring is None:
            self._expiring = Sweep(context)

        def look(group_id: str, places: list[Place], *, are_last: bool) -> list[Record]:
            return expired(group_id, places, self.classic, self._settings, context, are_last=are_last)

        operation, is_over = self._expiring.go_on(look, context)
        if is_over:
            self._expiring = None
        context.timers.set(EXPIRY, context.now_ms + (self._settings.retention_check_ms if is_over else 1))
        return operation

    def _forget_deleted(self, context: Context) -> CoordinatorResult:
        """Forget the offsets of deleted topics of the next groups."""
        if self._deleting is None:
            self._deleting = Sweep(context)
        topics = dict(self._deleted)

        def look(group_id: str, places: list[Place], *, are_last: bool) -> list[Record]:
            return of_deleted_topics(group_id, places, topics, context)

        operation, is_over = self._deleting.go_on(look, context)
        if is_over:
            self._deleting, self._deleted = None, {}
        else:
            context.timers.set(DELETION, context.now_ms + 1)

        def ended(error: Error, context: Context) -> None:
            if error not in (Error.NONE, Error.REQUEST_TIMED_OUT):
                self._deleted, self._deleting = topics | self._deleted, None
                context.timers.set(DELETION, context.now_ms + RETRY_TIMER_MS)

        return structs.replace(operation, on_end=ended)


class Look(Protocol):
    """Finds what is to be written for some offsets of a group, `are_last` if it has no more."""

    def __call__(self, group_id: str, places: list[Place], *, are_last: bool) -> list[Record]:
        """The records."""


class Sweep:
    """A walk over the offsets of all groups, in portions: in the order of the groups, and of the partitions."""

    def __init__(self, context: Context) -> None:
        self._groups = keys_in_order_by_runs(context.state.groups)
        self._group_id = ""
        self._places: Iterator[Place | None] | None = None
        """The partitions of the group that are still to be looked at; None between two groups."""

    def go_on(self, look: Look, context: Context) -> tuple[CoordinatorResult, bool]:
        """The operation that writes the records of the next portion, and whether it was the last one.

        A group with very many offsets has several portions: each sees what the one before it has changed.
        """
        records: list[Record] = []
        budget = context.budget
        # What is found is written, which costs the turn more than the look.
        while len(records) < budget.left:
            if self._places is None:
                group_id = next(self._groups, _END)
                if group_id is _END:
                    return CoordinatorResult(records, is_atomic=False), True
                if group_id is None:
                    break
                self._group_id = group_id
                self._places = context.state.places(self._group_id)
            places, are_last = self._portion(budget)
            records += look(self._group_id, places, are_last=are_last)
            if not are_last:
                break
            self._places = None
        return CoordinatorResult(records, is_atomic=False), False

    def _portion(self, budget: Budget) -> tuple[list[Place], bool]:
        """The next partitions of the group, and whether there are no more."""
        assert self._places is not None, self._group_id
        places: dict[Place, None] = {}
        for place in self._places:
            if place is not None:
                places[place] = None
                if len(places) < COMMITS_PER_STEP:
                    continue
            else:
                budget.take(RUN // GLANCES_PER_UNIT)
                if not budget.is_spent:
                    continue
            return list(places), False
        budget.take(1 + len(places) // GLANCES_PER_UNIT)
        return list(places), True
