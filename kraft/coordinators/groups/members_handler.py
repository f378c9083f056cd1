"""The requests of members of groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup (Kafka: `KafkaApis`,
`GroupCoordinatorService`).
"""

from __future__ import annotations

from msgspec import Struct, structs

from kraft.access.authorizer import AclOperation
from kraft.access.errors import ApiError
from kraft.coordinators.groups.classic import LEAVE_LISTS_SINCE, NO_MEMBER, SYNC_PROTOCOL_SINCE, joined, left, synced
from kraft.coordinators.groups.handler import GroupsHandler
from kraft.coordinators.groups.portions import Portions, in_portions
from kraft.coordinators.groups.shard import GroupShard
from kraft.coordinators.groups.state import consumer_group
from kraft.coordinators.runtime.parts import InParts
from kraft.coordinators.runtime.shard import Context, CoordinatorResult, refusing
from kraft.handling.steps import Handling, long_step
from kraft.limits import LEAVING_AT_ONCE, REQUEST_STEPS_PER_TURN
from kraft.wire import Answer, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from transport.protocol.errors import Error
from transport.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from transport.protocol.messages.join_group import JoinGroupRequest
from transport.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from transport.protocol.messages.sync_group import SyncGroupRequest


class Join(Struct):
    """JoinGroup."""

    request: WireRequest[JoinGroupRequest]
    prepared: CoordinatorResult | ApiError | None = None

    def portions(self, shard: GroupShard, context: Context) -> Portions | None:
        """Join a consumer group of very many topics, in several turns."""
        return shard.joining(self.request, context)

    def decide(self, shard: GroupShard, context: Context) -> CoordinatorResult:
        """Join, or begin to wait for the others."""
        if isinstance(self.prepared, ApiError):
            raise self.prepared
        return self.prepared or shard.join(self.request, context)

    def tell(self, message: Message) -> Message:
        """The answer, which the group has made."""
        return message

    def refuse(self, refused: ApiError) -> Message:
        """The error. Kafka's consumer groups do not repeat the id of a member with other protocols."""
        is_named = refused.error is not Error.INCONSISTENT_GROUP_PROTOCOL
        return joined(self.request, refused.error, self.request.message.member_id if is_named else NO_MEMBER)


class Sync(Struct):
    """SyncGroup."""

    request: WireRequest[SyncGroupRequest]

    def decide(self, shard: GroupShard, context: Context) -> CoordinatorResult:
        """Take the assignments of the leader, or give a member its own."""
        return shard.sync(self.request, context)

    def tell(self, message: Message) -> Message:
        """The answer, which the group has made."""
        return message

    def refuse(self, refused: ApiError) -> Message:
        """The error."""
        return synced(self.request, refused.error)


class Heartbeat(Struct):
    """Heartbeat."""

    request: WireRequest[HeartbeatRequest]

    def decide(self, shard: GroupShard, context: Context) -> CoordinatorResult:
        """Note that a member lives."""
        return shard.heartbeat(self.request, context)

    def tell(self, message: Message) -> Message:
        """The answer, which the group has made."""
        return message

    def refuse(self, refused: ApiError) -> Message:
        """The error; none of a coordinator that loads: the members would only be worried."""
        is_loading = refused.error is Error.COORDINATOR_LOAD_IN_PROGRESS
        return HeartbeatResponse(error_code=Error.NONE if is_loading else refused.error)


class Leave(Struct):
    """LeaveGroup."""

    request: WireRequest[LeaveGroupRequest]

    def decide(self, shard: GroupShard, context: Context) -> CoordinatorResult:
        """Remove the members."""
        return shard.leave(self.request, context)

    def tell(self, message: Message) -> Message:
        """The answer, which the group has made."""
        return message

    def refuse(self, refused: ApiError) -> LeaveGroupResponse:
        """The error. A group that does not exist has none of the members."""
        request, message, error = self.request, self.request.message, refused.error
        if error is Error.UNKNOWN_MEMBER_ID:
            members = message.members if request.version >= LEAVE_LISTS_SINCE else [MemberIdentity(message.member_id)]
            return left(
                request, Error.NONE, [MemberResponse(one.member_id, one.group_instance_id, error) for one in members]
            )
        return left(request, error, [])


class LeaveInParts(InParts[LeaveGroupRequest]):
    """LeaveGroup of very many members, as many operations: the results by the place of the first member of each."""

    def __init__(self, request: WireRequest[LeaveGroupRequest], count: int) -> None:
        super().__init__(request, count)
        self.told: dict[int, LeaveGroupResponse] = {}

    def answer(self) -> Message:
        """All members; an error of one part is that of the request."""
        told = [self.told[one] for one in sorted(self.told)]
        error = next((Error(one.error_code) for one in told if one.error_code), Error.NONE)
        members = [] if error is not Error.NONE else [each for one in told for each in one.members]
        return left(self.request, error, members)


class LeavePart(Struct):
    """Some of these members."""

    whole: LeaveInParts
    part: Leave
    at: int

    @property
    def request(self) -> WireRequest:
        """The request, of which this is a part."""
        return self.whole.request

    def decide(self, shard: GroupShard, context: Context) -> CoordinatorResult:
        """Remove the members."""
        return self.part.decide(shard, context)

    def tell(self, message: LeaveGroupResponse) -> Message | None:
        """The answer, after the last part."""
        self.whole.told[self.at] = message
        return self.whole.ended()

    def refuse(self, refused: ApiError) -> Message | None:
        """As `tell`."""
        return self.tell(self.part.refuse(refused))


class MembersHandler(GroupsHandler):
    """Answers members."""

    refuse_join = staticmethod(refusing(Join))
    refuse_sync = staticmethod(refusing(Sync))
    refuse_heartbeat = staticmethod(refusing(Heartbeat))
    refuse_leave = staticmethod(refusing(Leave))

    def _refusal(self, request: WireRequest, group_id: str) -> Error:
        return self._rights.refused_group(request, AclOperation.READ, group_id)

    def join(
        self, request: WireRequest[JoinGroupRequest], image: MetadataImage, now_ms: int
    ) -> Answer | Handling[Answer | None] | None:
        """JoinGroup: into a consumer group of very many topics in several turns."""
        message, operation = request.message, Join(request)
        least_ms, most_ms = self._settings.min_session_timeout_ms, self._settings.max_session_timeout_ms
        error = self._refusal(request, message.group_id)
        if error is Error.NONE and not least_ms <= message.session_timeout_ms <= most_ms:
            error = Error.INVALID_SESSION_TIMEOUT
        if error is Error.NONE:
            known = self._runtime.active(self._runtime.number_of(message.group_id))
            if not isinstance(known, Error) and consumer_group(known.state, message.group_id) is not None:
                return self._joining(operation, message.group_id, now_ms)
        return self._write(operation, message.group_id, error, now_ms)

    def _joining(self, operation: Join, group_id: str, now_ms: int) -> Handling[Answer | None]:
        operation.prepared = yield from in_portions(self._runtime, group_id, operation.portions, now_ms)
        return self._write(operation, group_id, Error.NONE, now_ms)

    def sync(self, request: WireRequest[SyncGroupRequest], image: MetadataImage, now_ms: int) -> Answer | None:
        """SyncGroup."""
        message = request.message
        is_vague = message.protocol_type is None or message.protocol_name is None
        if request.version >= SYNC_PROTOCOL_SINCE and is_vague:
            error = Error.INCONSISTENT_GROUP_PROTOCOL
        else:
            error = self._refusal(request, message.group_id)
        return self._write(Sync(request), message.group_id, error, now_ms)

    def heartbeat(self, request: WireRequest[HeartbeatRequest], image: MetadataImage, now_ms: int) -> Answer | None:
        """Heartbeat."""
        group_id = request.message.group_id
        return self._write(Heartbeat(request), group_id, self._refusal(request, group_id), now_ms)

    def leave(
        self, request: WireRequest[LeaveGroupRequest], image: MetadataImage, now_ms: int
    ) -> Answer | Handling[Answer | None] | None:
        """LeaveGroup. Very many members leave a consumer group in parts, each with an epoch of its own: their records
        take long.
        """
        message = request.message
        error = self._refusal(request, message.group_id)
        if error is Error.NONE and len(message.members) > LEAVING_AT_ONCE:
            known = self._runtime.active(self._runtime.number_of(message.group_id))
            if not isinstance(known, Error) and consumer_group(known.state, message.group_id) is not None:
                return self._leaving(request, now_ms)
        return self._write(Leave(request), message.group_id, error, now_ms)

    def _leaving(self, request: WireRequest[LeaveGroupRequest], now_ms: int) -> Handling[Answer | None]:
        message = request.message
        begins = range(0, len(message.members), LEAVING_AT_ONCE)
        whole = LeaveInParts(request, len(begins))
        answer: Answer | None = None
        for begin in begins:
            some = message.members[begin : begin + LEAVING_AT_ONCE]
            part = Leave(structs.replace(request, message=structs.replace(message, members=some)))
            answer = self._write(LeavePart(whole, part, begin), message.group_id, Error.NONE, now_ms)
            if begin != begins[-1]:
                yield from long_step(REQUEST_STEPS_PER_TURN)
        return answer
