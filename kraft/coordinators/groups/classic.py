"""Classic groups: join, sync, heartbeat, leave (Kafka: `GroupMetadataManager`, the `classicGroup…` methods).

Each method is one operation on a partition. What waits for other members is held in the group and answered from there.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from random import Random
from typing import Final

from msgspec import Struct, structs

from kraft.access.caller import host_of_peer
from kraft.access.errors import LONGEST_TEXT_BYTES, ApiError
from kraft.config.group_settings import GroupConfig
from kraft.coordinators.groups.classic_group import ClassicGroup, GroupState, Member, Protocols, protocol_bytes
from kraft.coordinators.groups.state import GroupsState
from kraft.coordinators.runtime.partition import TRANSLATED
from kraft.coordinators.runtime.shard import HELD, NOTHING, Context, CoordinatorResult, Record
from kraft.handling.coordinators import Counted
from kraft.limits import (
    ASSIGNMENT_BYTES_PER_MEMBER,
    GLANCES_PER_UNIT,
    GROUP_MEMBERS,
    GROUP_PROTOCOLS,
    GROUPS_PER_PARTITION,
    PENDING_MEMBERS,
)
from kraft.wire import WireRequest
from metadata_log.records.consumer_offsets import GroupMetadataKey, GroupMetadataValue
from transport.protocol.errors import Error
from transport.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from transport.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from transport.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from transport.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

NEW_MEMBER_TIMEOUT_MS: Final = 300_000
"""How long a member may wait for its first generation."""
KNOWN_IDS_SINCE: Final = 4
"""The version of JoinGroup since which a member first learns its id, and then joins."""
PROTOCOL_TYPE_SINCE: Final = 7
SKIPPED_ASSIGNMENT_SINCE: Final = 9
SYNC_PROTOCOL_SINCE: Final = 5
LEAVE_LISTS_SINCE: Final = 3
NO_MEMBER: Final = ""
_COMPLETED: Final = (GroupState.COMPLETING, GroupState.STABLE)


class GroupTimer(Struct, frozen=True, gc=False):
    """A timer of a group, or of one of its members."""

    kind: str
    group_id: str
    member_id: str = ""


def session(group: ClassicGroup, member_id: str) -> GroupTimer:
    """The timer that ends when a member was silent for too long."""
    return GroupTimer("session", group.group_id, member_id)


def joined(
    request: WireRequest,
    error: Error,
    member_id: str,
    group: ClassicGroup | None = None,
    *,
    leader: str | None = None,
    skips: bool = False,
    has_members: bool = False,
) -> JoinGroupResponse:
    """The answer to a JoinGroup, with the present generation of a group if it is given."""
    knows_type = request.version >= PROTOCOL_TYPE_SINCE
    protocol = None if group is None else group.protocol
    leads = has_members and group is not None
    return JoinGroupResponse(
        error_code=error,
        generation_id=-1 if group is None else group.generation,
        protocol_type=group.protocol_type if group is not None and knows_type else None,
        protocol_name=(protocol or None) if knows_type else protocol or "",
        leader="" if group is None else (group.leader or "") if leader is None else leader,
        skip_assignment=skips and request.version >= SKIPPED_ASSIGNMENT_SINCE,
        member_id=member_id,
        members=[
            JoinGroupResponseMember(one.member_id, one.instance_id, one.metadata(protocol))
            for one in group.members.values()
        ]
        if leads and group is not None
        else [],
    )


def synced(
    request: WireRequest, error: Error, group: ClassicGroup | None = None, member: Member | None = None
) -> SyncGroupResponse:
    """The answer to a SyncGroup, with the assignment of a member if it is given."""
    if group is None or member is None:
        return SyncGroupResponse(error_code=error)
    return SyncGroupResponse(
        error_code=error,
        protocol_type=group.protocol_type if request.version >= SYNC_PROTOCOL_SINCE else None,
        protocol_name=group.protocol if request.version >= SYNC_PROTOCOL_SINCE else None,
        assignment=member.assignment,
    )


class ClassicGroups:
    """The classic groups of one partition that are more than records: with members, or with somebody who waits.

    Args:
        settings: The settings.
        counted: What the groups of the broker have done.
        is_full: Whether the groups of the broker take as much memory as they may.
    """

    def __init__(self, settings: GroupConfig, counted: Counted, is_full: Callable[[], bool] = lambda: False) -> None:
        self._settings = settings
        self.counted = counted
        self.is_full = is_full
        self.live: dict[str, ClassicGroup] = {}
        self.bytes = 0
        """How much memory the groups take."""
        self._weighed: dict[str, int] = {}
        """How much each group took when it was last weighed."""

    def weigh(self, group_id: str) -> None:
        """A group may take more or less memory than before."""
        group = self.live.get(group_id)
        if group is None:
            self.bytes -= self._weighed.pop(group_id, 0)
        else:
            self.bytes += group.bytes - self._weighed.get(group_id, 0)
            self._weighed[group_id] = group.bytes

    def find(self, group_id: str, state: GroupsState) -> ClassicGroup | None:
        """The classic group of this name, read from its record if it is not live; None if there is none."""
        group = self.live.get(group_id)
        if group is not None:
            return group
        recorded = state.groups.get(group_id)
        if not isinstance(recorded, GroupMetadataValue):
            return None
        group = ClassicGroup.of(group_id, recorded)
        if group.members:
            self.live[group_id] = group
            self.weigh(group_id)
        return group

    def start(self, group_id: str, context: Context) -> CoordinatorResult:
        """Begin with a group whose log was loaded: each member has its full session time-out from now on."""
        group = self.find(group_id, context.state)
        if group is None:
            return NOTHING
        for member in group.members.values():
            self._restart(group, member, context)
        return self._rebalance(group, context) if len(group.members) > self._settings.max_size else NOTHING

    def drop(self, group_id: str, context: Context) -> None:
        """Forget a group that is deleted or becomes one of another type, with its timers."""
        group = self.live.pop(group_id, None)
        if group is None:
            return
        for member_id in (*group.members, *group.pending):
            context.timers.cancel(session(group, member_id))
        context.timers.cancel(GroupTimer("join", group_id))
        context.timers.cancel(GroupTimer("sync", group_id))
        self.weigh(group_id)

    def end(self, group_id: str, error: Error, context: Context) -> None:
        """Drop a group that becomes one of another type; whoever waits gets an error."""
        group = self.live.get(group_id)
        if group is not None:
            for member in group.members.values():
                self._refuse_waiting(group, member, error, context)
        self.drop(group_id, context)

    def adopt(self, group: ClassicGroup, context: Context, *, rebalances: bool) -> CoordinatorResult:
        """Go on with a group that was one of another type."""
        self.live[group.group_id] = group
        self.weigh(group.group_id)
        for member in group.members.values():
            self._restart(group, member, context)
        return self._rebalance(group, context) if rebalances else NOTHING

    def unload(self, context: Context) -> Generator[None, None, None]:
        """This broker coordinates the groups no longer: whoever waits is told, in steps."""
        for group_id in list(self.live):
            group = self.live.pop(group_id)
            for member in group.members.values():
                self._refuse_waiting(group, member, Error.NOT_COORDINATOR, context)
            context.budget.take(1 + len(group.members) // GLANCES_PER_UNIT)
            self.weigh(group_id)
            del group
            yield None

    def _refuse_waiting(self, group: ClassicGroup, member: Member, error: Error, context: Context) -> None:
        """Answer the requests that wait for a member with an error."""
        join = group.hold_join(member, None)
        if join is not None:
            context.answer(join, joined(join, error, member.member_id))
        self._answer_sync(group, member, error, context)

    def _answer_sync(self, group: ClassicGroup, member: Member, error: Error, context: Context) -> bool:
        sync, member.sync = member.sync, None
        if sync is None:
            return False
        answer = synced(sync, error, group, member) if error is Error.NONE else synced(sync, error)
        context.answer(sync, answer)
        return True

    def _restart(self, group: ClassicGroup, member: Member, context: Context) -> None:
        context.timers.set(session(group, member.member_id), context.now_ms + member.session_timeout_ms)

    # ------------------------------------------------------------------------------------------------------------ join

    def join(self, request: WireRequest[JoinGroupRequest], context: Context) -> CoordinatorResult:
        """JoinGroup."""
        message = request.message
        group = self.find(message.group_id, context.state)
        is_new = group is None
        if group is None:
            if message.member_id != NO_MEMBER:
                raise ApiError(Error.UNKNOWN_MEMBER_ID)
            if len(context.state.groups) >= GROUPS_PER_PARTITION or self.is_full():
                raise ApiError(Error.COORDINATOR_NOT_AVAILABLE)
            group = ClassicGroup(message.group_id, context.now_ms)
        known = group.members.get(message.member_id or group.static.get(message.group_instance_id or "", ""))
        request = structs.replace(
            request,
            # While it waits, nothing is kept twice of what it says.
            message=JoinGroupRequest(group.group_id),
            client_id=request.client_id if known is None else known.client_id,
        )
        operation = self._joining(group, request, message, context)
        if group.members or group.pending:
            self.live[group.group_id] = group
        self.weigh(group.group_id)
        if not is_new or operation.records:
            return operation
        empty = GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=group.state_ms)
        return CoordinatorResult(
            (Record(GroupMetadataKey(group=group.group_id), empty),),
            operation.result,
            partial(self._created, group, request),
        )

    def _created(self, group: ClassicGroup, request: WireRequest, error: Error, context: Context) -> None:
        """The first record of a group is committed, or not: then there is no such group."""
        if error is Error.NONE:
            return
        for member in list(group.members.values()):
            if error is not Error.REQUEST_TIMED_OUT or member.join is request:
                self._refuse_waiting(group, member, TRANSLATED.get(error, error), context)
        if error is not Error.REQUEST_TIMED_OUT and self.live.get(group.group_id) is group:
            self.drop(group.group_id, context)

    def _joining(
        self, group: ClassicGroup, request: WireRequest, message: JoinGroupRequest, context: Context
    ) -> CoordinatorResult:
        def refused(error: Error, member_id: str = message.member_id) -> CoordinatorResult:
            return CoordinatorResult(result=joined(request, error, member_id))

        if self._is_full(group, message.member_id):
            group.forget(message.member_id)
            return refused(Error.GROUP_MAX_SIZE_REACHED, NO_MEMBER)
        protocols = tuple((one.name, bytes(one.metadata)) for one in message.protocols)
        if not group.supports(message.protocol_type, protocols):
            return refused(Error.INCONSISTENT_GROUP_PROTOCOL)
        before = group.members.get(message.member_id)
        if (before is None or protocol_bytes(protocols) > protocol_bytes(before.protocols)) and self.is_full():
            return refused(Error.GROUP_MAX_SIZE_REACHED)
        if group.listed + len(protocols) - (0 if before is None else len(before.protocols)) > GROUP_PROTOCOLS:
            return refused(Error.GROUP_MAX_SIZE_REACHED)
        instance_id = message.group_instance_id
        if message.member_id == NO_MEMBER:
            number = random_uuid(context.rng)
            new_id = f"{request.client_id or ''}-{number}" if instance_id is None else f"{instance_id}-{number}"
            if len(new_id.encode()) > LONGEST_TEXT_BYTES:
                # No answer could carry the id; Kafka finds out when it writes the answer.
                return refused(Error.UNKNOWN_SERVER_ERROR)
            if instance_id is not None and instance_id in group.static:
                return self._return_static(group, request, message, new_id, protocols, context)
            if instance_id is None and request.version >= KNOWN_IDS_SINCE:
                if len(group.pending) >= PENDING_MEMBERS:
                    return refused(Error.GROUP_MAX_SIZE_REACHED)
                group.expect(new_id)
                context.timers.set(session(group, new_id), context.now_ms + message.session_timeout_ms)
                return refused(Error.MEMBER_ID_REQUIRED, new_id)
            return self._enter(group, request, message, new_id, protocols, context)
        if message.member_id in group.pending:
            if instance_id is not None:
                return refused(Error.UNKNOWN_SERVER_ERROR)
            return self._enter(group, request, message, message.member_id, protocols, context)
        refusal = group.refusal(message.member_id, instance_id)
        if refusal is not Error.NONE:
            return refused(refusal)
        member = group.members[message.member_id]
        leads, is_same = group.leader == member.member_id, member.protocols == protocols
        match group.state:
            case GroupState.COMPLETING if is_same:
                # The answer was lost.
                return CoordinatorResult(result=joined(request, Error.NONE, member.member_id, group, has_members=leads))
            case GroupState.STABLE if is_same and not leads:
                return CoordinatorResult(result=joined(request, Error.NONE, member.member_id, group))
            case GroupState.PREPARING | GroupState.COMPLETING | GroupState.STABLE:
                self._update(group, member, request, message, protocols, context)
                return _holding(self._go_on(group, context))
        return refused(Error.UNKNOWN_MEMBER_ID)

    def _is_full(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether there is no room for a member that joins (`acceptJoiningMember`)."""
        most = min(self._settings.max_size, GROUP_MEMBERS)
        if group.state is GroupState.EMPTY:
            return False
        if group.state is GroupState.PREPARING:
            member = group.members.get(member_id)
            return (member is None or member.join is None) and group.waiting >= most
        return member_id not in group.members and len(group.members) >= most

    def _enter(
        self,
        group: ClassicGroup,
        request: WireRequest,
        message: JoinGroupRequest,
        member_id: str,
        protocols: Protocols,
        context: Context,
    ) -> CoordinatorResult:
        """Add a member (`addMemberThenRebalanceOrCompleteJoin`)."""
        member = Member(
            member_id,
            message.group_instance_id,
            request.client_id or "",
            client_host(request),
            _rebalance_ms(request, message),
            message.session_timeout_ms,
            protocols,
            join=request,
            is_new=True,
        )
        if group.state is GroupState.PREPARING and group.previous is GroupState.EMPTY:
            group.is_extended = True
        group.add(member, message.protocol_type)
        context.timers.set(session(group, member_id), context.now_ms + NEW_MEMBER_TIMEOUT_MS)
        return _holding(self._go_on(group, context))

    def _update(
        self,
        group: ClassicGroup,
        member: Member,
        request: WireRequest,
        message: JoinGroupRequest,
        protocols: Protocols,
        context: Context,
    ) -> None:
        group.update(member, protocols, _rebalance_ms(request, message), message.session_timeout_ms)
        before = group.hold_join(member, request)
        if before is not None:
            # Its connection is most likely gone; Kafka never answers it.
            context.answer(before, joined(before, Error.REBALANCE_IN_PROGRESS, member.member_id))

    def _return_static(
        self,
        group: ClassicGroup,
        request: WireRequest,
        message: JoinGroupRequest,
        new_id: str,
        protocols: Protocols,
        context: Context,
    ) -> CoordinatorResult:
        """Take back the static member of an instance (`updateStaticMemberThenRebalanceOrCompleteJoin`)."""
        instance_id, leader = message.group_instance_id, group.leader
        assert instance_id is not None, message
        old_id = group.static[instance_id]
        member = group.members[old_id]
        self._refuse_waiting(group, member, Error.FENCED_INSTANCE_ID, context)
        before = member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms
        context.timers.cancel(session(group, old_id))
        group.replace(instance_id, new_id)
        self._update(group, member, request, message, protocols, context)
        self._restart(group, member, context)
        if group.state is GroupState.COMPLETING:
            return _holding(self._rebalance(group, context))
        if group.state is GroupState.STABLE:
            if group.protocol != group.selected_protocol():
                return _holding(self._go_on(group, context))
            record = Record(GroupMetadataKey(group=group.group_id), group.recorded())
            returned = partial(self._returned, group, member, request, old_id, leader, before)
            return CoordinatorResult((record,), HELD, returned)
        return _holding(self._complete_phase(group, context))

    def _returned(
        self,
        group: ClassicGroup,
        member: Member,
        request: WireRequest,
        old_id: str,
        old_leader: str | None,
        before: tuple[Protocols, int, int],
        error: Error,
        context: Context,
    ) -> None:
        """The record of a member that is back under another id is committed, or not."""
        if member.join is not request:
            return
        group.hold_join(member, None)
        if error is Error.NONE:
            leads = group.leader == member.member_id
            skips = request.version >= SKIPPED_ASSIGNMENT_SINCE
            answer = (
                joined(request, error, member.member_id, group, skips=leads, has_members=leads)
                if skips
                else joined(request, error, member.member_id, group, leader=old_leader)
            )
            context.answer(request, answer)
            return
        new_id, instance_id = member.member_id, member.instance_id
        context.answer(request, joined(request, TRANSLATED.get(error, error), NO_MEMBER))
        if instance_id is not None and group.static.get(instance_id) == new_id:
            group.update(member, *before)
            context.timers.cancel(session(group, new_id))
            group.replace(instance_id, old_id)
            self._restart(group, member, context)

    # ------------------------------------------------------------------------------------------------------ rebalances

    def _go_on(self, group: ClassicGroup, context: Context) -> CoordinatorResult:
        """Begin to rebalance, or end it if everybody has joined."""
        if group.state in (GroupState.STABLE, GroupState.COMPLETING, GroupState.EMPTY):
            return self._rebalance(group, context)
        return self._complete_phase(group, context)

    def _complete_phase(self, group: ClassicGroup, context: Context) -> CoordinatorResult:
        """Begin a generation if everybody has joined; the first one of a group waits for its delay in any case."""
        is_first = group.previous is GroupState.EMPTY
        if group.state is GroupState.PREPARING and group.have_all_joined and not is_first:
            return self._complete(group, context)
        return NOTHING

    def _rebalance(self, group: ClassicGroup, context: Context) -> CoordinatorResult:
        """Let all members join again (`prepareRebalance`)."""
        if group.state is GroupState.COMPLETING:
            self._take_assignments_back(group, Error.REBALANCE_IN_PROGRESS, context)
        context.timers.cancel(GroupTimer("sync", group.group_id))
        is_first = group.state is GroupState.EMPTY
        group.enter(GroupState.PREPARING, context.now_ms)
        self.live[group.group_id] = group
        if not is_first:
            return self._complete_if_possible(group, context)
        delay_ms = self._settings.initial_rebalance_delay_ms
        group.delay_ms, group.remaining_ms = delay_ms, max(group.rebalance_timeout_ms() - delay_ms, 0)
        group.is_extended = False
        if delay_ms <= 0:
            return self._complete(group, context)
        context.timers.set(GroupTimer("join", group.group_id), context.now_ms + delay_ms)
        return NOTHING

    def _complete_if_possible(self, group: ClassicGroup, context: Context) -> CoordinatorResult:
        if group.have_all_joined:
            return self._complete(group, context)
        group.delay_ms = 0
        context.timers.set(GroupTimer("join", group.group_id), context.now_ms + group.rebalance_timeout_ms())
        return NOTHING

    def _complete(self, group: ClassicGroup, context: Context) -> CoordinatorResult:
        """Begin a generation with the members that have joined (`completeClassicGroupJoin`)."""
        context.timers.cancel(GroupTimer("join", group.group_id))
        for member in list(group.members.values()):
            if member.join is None and member.instance_id is None:
                group.remove(member.member_id)
                context.timers.cancel(session(group, member.member_id))
        if not group.elect_joined() and group.members:
            group.delay_ms = 0
            context.timers.set(GroupTimer("join", group.group_id), context.now_ms + group.rebalance_timeout_ms())
            return NOTHING
        group.begin_generation(context.now_ms)
        if group.state is GroupState.EMPTY:
            if not group.pending:
                self.live.pop(group.group_id, None)
            return CoordinatorResult((Record(GroupMetadataKey(group=group.group_id), group.recorded()),))
        for member in group.members.values():
            join = group.hold_join(member, None)
            if join is not None:
                leads = group.leader == member.member_id
                answer = joined(join, Error.NONE, member.member_id, group, has_members=leads)
                context.answer(join, answer)
            self._restart(group, member, context)
            member.is_new = False
            group.unsynced[member.member_id] = None
        context.timers.set(GroupTimer("sync", group.group_id), context.now_ms + group.rebalance_timeout_ms())
        return NOTHING

    def _take_assignments_back(self, group: ClassicGroup, error: Error, context: Context) -> None:
        for member in group.members.values():
            member.assignment = b""
            if self._answer_sync(group, member, error, context):
                self._restart(group, member, context)

    # ------------------------------------------------------------------------------------------------- sync, heartbeat

    def sync(self, request: WireRequest[SyncGroupRequest], context: Context) -> CoordinatorResult:
        """SyncGroup."""
        message = request.message
        group = self.find(message.group_id, context.state)
        if group is None or group.state is GroupState.EMPTY:
            raise ApiError(Error.UNKNOWN_MEMBER_ID)
        refusal = group.refusal(message.member_id, message.group_instance_id)
        if refusal is not Error.NONE:
            raise ApiError(refusal)
        if message.generation_id != group.generation:
            raise ApiError(Error.ILLEGAL_GENERATION)
        named = (message.protocol_type, group.protocol_type), (message.protocol_name, group.protocol)
        if any(said is not None and said != known for said, known in named):
            raise ApiError(Error.INCONSISTENT_GROUP_PROTOCOL)
        member = group.members[message.member_id]
        if group.state is GroupState.PREPARING:
            raise ApiError(Error.REBALANCE_IN_PROGRESS)
        group.unsynced.pop(member.member_id, None)
        if not group.unsynced:
            context.timers.cancel(GroupTimer("sync", group.group_id))
        if group.state is GroupState.STABLE:
            return CoordinatorResult(result=synced(request, Error.NONE, group, member))
        leads = group.leader == member.member_id
        size = sum(len(one.assignment) for one in message.assignments)
        if leads and size > ASSIGNMENT_BYTES_PER_MEMBER * len(group.members) and self.is_full():
            raise ApiError(Error.COORDINATOR_NOT_AVAILABLE)
        if member.sync is not None:
            context.answer(member.sync, synced(member.sync, Error.REBALANCE_IN_PROGRESS))
        # Nothing of what it says is kept while it waits.
        held = SyncGroupRequest(group.group_id)
        member.sync = structs.replace(request, message=held, client_id=member.client_id)
        if not leads:
            return CoordinatorResult(result=HELD)
        assignments = {
            one.member_id: bytes(one.assignment) for one in message.assignments if one.member_id in group.members
        }
        record = Record(GroupMetadataKey(group=group.group_id), group.recorded(assignments))
        return CoordinatorResult((record,), HELD, partial(self._assigned, group, assignments, group.generation))

    def _assigned(
        self, group: ClassicGroup, assignments: dict[str, bytes], generation: int, error: Error, context: Context
    ) -> CoordinatorResult | None:
        """Go on once the assignments of a generation are committed, or could not be."""
        if group.state is not GroupState.COMPLETING or group.generation != generation:
            return None
        if self.live.get(group.group_id) is not group:
            return None
        if error is not Error.NONE:
            self._take_assignments_back(group, TRANSLATED.get(error, error), context)
            return self._go_on(group, context)
        group.enter(GroupState.STABLE, context.now_ms)
        self.counted.rebalances += 1
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if self._answer_sync(group, member, Error.NONE, context):
                self._restart(group, member, context)
        return None

    def heartbeat(self, request: WireRequest[HeartbeatRequest], context: Context) -> CoordinatorResult:
        """Heartbeat."""
        message = request.message
        group = self.find(message.group_id, context.state)
        if group is None:
            raise ApiError(Error.UNKNOWN_MEMBER_ID)
        refusal = group.refusal(message.member_id, message.group_instance_id)
        if refusal is Error.NONE and message.generation_id != group.generation:
            refusal = Error.ILLEGAL_GENERATION
        if refusal is Error.NONE and group.state is GroupState.EMPTY:
            refusal = Error.UNKNOWN_MEMBER_ID
        if refusal is not Error.NONE:
            raise ApiError(refusal)
        self._restart(group, group.members[message.member_id], context)
        is_rebalancing = group.state is GroupState.PREPARING
        error = Error.REBALANCE_IN_PROGRESS if is_rebalancing else Error.NONE
        return CoordinatorResult(result=HeartbeatResponse(error_code=error))

    # ----------------------------------------------------------------------------------------------------------- leave

    def leave(self, request: WireRequest[LeaveGroupRequest], context: Context) -> CoordinatorResult:
        """LeaveGroup."""
        message = request.message
        group = self.find(message.group_id, context.state)
        if group is None:
            raise ApiError(Error.UNKNOWN_MEMBER_ID)
        answers: list[MemberResponse] = []
        leaving: dict[str, None] = {}
        has_forgotten = False
        members = message.members if request.version >= LEAVE_LISTS_SINCE else [MemberIdentity(message.member_id)]
        for one in members:
            error = Error.NONE
            if one.member_id == NO_MEMBER and one.group_instance_id is not None:
                known = group.static.get(one.group_instance_id)
                if known is None:
                    error = Error.UNKNOWN_MEMBER_ID
                else:
                    leaving[known] = None
            elif one.member_id in group.pending:
                group.forget(one.member_id)
                context.timers.cancel(session(group, one.member_id))
                has_forgotten = True
            else:
                error = group.refusal(one.member_id, one.group_instance_id)
                if error is Error.NONE:
                    leaving[one.member_id] = None
            answers.append(MemberResponse(one.member_id, one.group_instance_id, error))
        for member_id in leaving:
            self._remove(group, member_id, context)
        following = self._after_removal(group, context) if leaving or has_forgotten else NOTHING
        self.weigh(group.group_id)
        return CoordinatorResult(following.records, left(request, Error.NONE, answers), following.on_end)

    def _remove(self, group: ClassicGroup, member_id: str, context: Context) -> None:
        member = group.members[member_id]
        join = group.hold_join(member, None)
        if join is not None:
            context.answer(join, joined(join, Error.UNKNOWN_MEMBER_ID, NO_MEMBER))
        self._answer_sync(group, member, Error.UNKNOWN_MEMBER_ID, context)
        group.remove(member_id)
        context.timers.cancel(session(group, member_id))

    def _after_removal(self, group: ClassicGroup, context: Context) -> CoordinatorResult:
        """Rebalance a group, complete its phase, or forget it, after members or member ids were removed."""
        if group.state in _COMPLETED:
            return self._rebalance(group, context)
        if group.state is GroupState.EMPTY and not group.pending:
            self.live.pop(group.group_id, None)
        return self._complete_phase(group, context)

    # ---------------------------------------------------------------------------------------------------------- timers

    def on_timer(self, timer: GroupTimer, context: Context) -> CoordinatorResult:
        """A timer of a classic group has ended."""
        group = self.live.get(timer.group_id)
        operation = NOTHING if group is None else self._on_timer(group, timer, context)
        self.weigh(timer.group_id)
        return operation

    def _on_timer(self, group: ClassicGroup, timer: GroupTimer, context: Context) -> CoordinatorResult:
        match timer.kind:
            case "session":
                return self._expire_session(group, timer.member_id, context)
            case "join" if group.state is GroupState.PREPARING:
                return self._end_delay(group, context)
            case "sync" if group.state in _COMPLETED and group.unsynced:
                for member_id in list(group.unsynced):
                    self._remove(group, member_id, context)
                return self._rebalance(group, context)
        return NOTHING

    def _end_delay(self, group: ClassicGroup, context: Context) -> CoordinatorResult:
        """End the wait for members, or extend it if more have come (`tryCompleteInitialRebalanceElseSchedule`)."""
        if group.delay_ms and group.is_extended and group.remaining_ms:
            group.is_extended = False
            delay_ms = min(self._settings.initial_rebalance_delay_ms, group.remaining_ms)
            group.remaining_ms = max(group.remaining_ms - group.delay_ms, 0)
            group.delay_ms = delay_ms
            context.timers.set(GroupTimer("join", group.group_id), context.now_ms + delay_ms)
            return NOTHING
        return self._complete(group, context)

    def _expire_session(self, group: ClassicGroup, member_id: str, context: Context) -> CoordinatorResult:
        if member_id in group.pending:
            group.forget(member_id)
            return self._after_removal(group, context) if group.state not in _COMPLETED else NOTHING
        member = group.members.get(member_id)
        if member is None or (not member.is_new and (member.join is not None or member.sync is not None)):
            return NOTHING
        self._remove(group, member_id, context)
        return self._after_removal(group, context)


def random_uuid(rng: Random) -> str:
    """A random UUID as Java writes it (`UUID.randomUUID`)."""
    digits = f"{rng.getrandbits(128):032x}"
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def _holding(following: CoordinatorResult) -> CoordinatorResult:
    """The operation of a request that waits for the others."""
    return CoordinatorResult(following.records, HELD, following.on_end)


def _rebalance_ms(request: WireRequest, message: JoinGroupRequest) -> int:
    """The rebalance time-out of a member. In the first version of JoinGroup the session time-out stands for both."""
    return message.rebalance_timeout_ms if request.version > 0 else message.session_timeout_ms


def client_host(request: WireRequest) -> str:
    """The host of a client as the log has it."""
    return f"/{host_of_peer(request.peer)}"


def left(request: WireRequest, error: Error, answers: list[MemberResponse]) -> LeaveGroupResponse:
    """The answer to a LeaveGroup: of one member in the first versions."""
    if request.version >= LEAVE_LISTS_SINCE:
        return LeaveGroupResponse(error_code=error, members=answers)
    one = Error(answers[0].error_code) if answers else Error.NONE
    return LeaveGroupResponse(error_code=one if error is Error.NONE else error)
