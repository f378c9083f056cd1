"""The requests of members of groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup (Kafka: `KafkaApis`,
`GroupCoordinatorService`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import structs

from kraft.access.authorizer import AclOperation
from kraft.access.errors import ApiError
from kraft.config.group_settings import GroupConfig
from kraft.coordinators.groups.classic import LEAVE_LISTS_SINCE, SYNC_PROTOCOL_SINCE, joined, left, synced
from kraft.coordinators.groups.portions import in_portions
from kraft.coordinators.groups.shard import GroupShard
from kraft.coordinators.groups.state import GroupsState, consumer_group
from kraft.coordinators.runtime.runtime import CoordinatorRuntime
from kraft.coordinators.runtime.shard import Context, Operation
from kraft.handling.api import M
from kraft.handling.rights import Rights
from kraft.handling.steps import Handling, long_step
from kraft.limits import LEAVING_AT_ONCE, REQUEST_STEPS_PER_TURN
from kraft.wire import Answer, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from transport.protocol.errors import Error
from transport.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from transport.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from transport.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from transport.protocol.messages.sync_group import SyncGroupRequest


class MembersHandler:
    """Answers members.

    Args:
        runtime: The coordinators of this broker.
        settings: The settings.
        rights: What clients may do.
    """

    def __init__(self, runtime: CoordinatorRuntime[GroupsState], settings: GroupConfig, rights: Rights) -> None:
        self._runtime = runtime
        self._settings = settings
        self._rights = rights

    def _refusal(self, request: WireRequest, group_id: str) -> Error:
        return self._rights.refused_group(request, AclOperation.READ, group_id)

    def join(
        self, request: WireRequest[JoinGroupRequest], image: MetadataImage, now_ms: int
    ) -> Answer | Handling[Answer | None] | None:
        """JoinGroup: into a consumer group of very many topics in several turns."""
        message = request.message
        least_ms, most_ms = self._settings.min_session_timeout_ms, self._settings.max_session_timeout_ms
        error = self._refusal(request, message.group_id)
        if error is Error.NONE and not least_ms <= message.session_timeout_ms <= most_ms:
            error = Error.INVALID_SESSION_TIMEOUT
        if error is Error.NONE:
            known = self._runtime.active(self._runtime.number_of(message.group_id))
            if not isinstance(known, Error) and consumer_group(known.state, message.group_id) is not None:
                return self._joining(request, message.group_id, now_ms)
        return self._done(request, message.group_id, error, GroupShard.join, _refused_join, now_ms)

    def _joining(self, request: WireRequest[JoinGroupRequest], group_id: str, now_ms: int) -> Handling[Answer | None]:
        prepared = yield from in_portions(
            self._runtime, group_id, lambda shard, context: shard.joining(request, context), now_ms
        )

        def join(shard: GroupShard, request: WireRequest[JoinGroupRequest], context: Context) -> Operation:
            if isinstance(prepared, ApiError):
                raise prepared
            return prepared or shard.join(request, context)

        return self._done(request, group_id, Error.NONE, join, _refused_join, now_ms)

    def sync(self, request: WireRequest[SyncGroupRequest], image: MetadataImage, now_ms: int) -> Answer | None:
        """SyncGroup."""
        message = request.message
        is_vague = message.protocol_type is None or message.protocol_name is None
        if request.version >= SYNC_PROTOCOL_SINCE and is_vague:
            error = Error.INCONSISTENT_GROUP_PROTOCOL
        else:
            error = self._refusal(request, message.group_id)
        return self._done(request, message.group_id, error, GroupShard.sync, synced, now_ms)

    def heartbeat(self, request: WireRequest[HeartbeatRequest], image: MetadataImage, now_ms: int) -> Answer | None:
        """Heartbeat. A coordinator that loads has no objection: the members would only be worried."""
        message = request.message
        error = self._refusal(request, message.group_id)
        return self._done(request, message.group_id, error, GroupShard.heartbeat, _refused_heartbeat, now_ms)

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
                return self._leaving(request, message, now_ms)
        return self._done(request, message.group_id, error, GroupShard.leave, _refused_leave, now_ms)

    def _leaving(
        self, request: WireRequest[LeaveGroupRequest], message: LeaveGroupRequest, now_ms: int
    ) -> Handling[Answer | None]:
        left_at: dict[int, LeaveGroupResponse] = {}
        begins = range(0, len(message.members), LEAVING_AT_ONCE)

        def ended(part: WireRequest[LeaveGroupRequest], begin: int, result: Any) -> None:
            answer = _refused_leave(part, result) if isinstance(result, Error) else result
            left_at[begin] = answer
            if len(left_at) == len(begins):
                told = [left_at[one] for one in begins]
                error = next((Error(one.error_code) for one in told if one.error_code), Error.NONE)
                members = [] if error is not Error.NONE else [each for one in told for each in one.members]
                self._runtime.answer(request, left(request, error, members))

        number = self._runtime.number_of(message.group_id)
        for begin in begins:
            some = message.members[begin : begin + LEAVING_AT_ONCE]
            part = structs.replace(request, message=structs.replace(message, members=some))
            self._runtime.run(number, partial(_leave, part), partial(ended, part, begin), now_ms)
            if begin != begins[-1]:
                yield from long_step(REQUEST_STEPS_PER_TURN)
        return None

    def _done(
        self,
        request: WireRequest[M],
        group_id: str,
        error: Error,
        do: Callable[[GroupShard, WireRequest[M], Context], Operation],
        refused: Callable[[WireRequest[M], Error], Message],
        now_ms: int,
    ) -> Answer | None:
        """Refuse a request if there is an error already; otherwise hand it to its group."""
        if error is not Error.NONE:
            return Answer(request.request_id, refused(request, error))
        return self._runtime.write(
            self._runtime.number_of(group_id),
            request,
            lambda shard, context: do(shard, request, context),
            lambda refusal: refused(request, refusal.error),
            now_ms,
        )

    # The answers to requests that fail as a whole

    @staticmethod
    def refuse_join(request: WireRequest[JoinGroupRequest], refused: ApiError) -> Answer:
        """JoinGroup with an error."""
        return Answer(request.request_id, _refused_join(request, refused.error))

    @staticmethod
    def refuse_sync(request: WireRequest, refused: ApiError) -> Answer:
        """SyncGroup with an error."""
        return Answer(request.request_id, synced(request, refused.error))

    @staticmethod
    def refuse_heartbeat(request: WireRequest, refused: ApiError) -> Answer:
        """Heartbeat with an error."""
        return Answer(request.request_id, HeartbeatResponse(error_code=refused.error))

    @staticmethod
    def refuse_leave(request: WireRequest, refused: ApiError) -> Answer:
        """LeaveGroup with an error."""
        return Answer(request.request_id, left(request, refused.error, []))


def _refused_join(request: WireRequest[JoinGroupRequest], error: Error) -> JoinGroupResponse:
    message = request.message
    return joined(request, error, message.member_id)


def _refused_heartbeat(request: WireRequest, error: Error) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=Error.NONE if error is Error.COORDINATOR_LOAD_IN_PROGRESS else error)


def _leave(request: WireRequest[LeaveGroupRequest], shard: GroupShard, context: Context) -> Operation:
    return shard.leave(request, context)


def _refused_leave(request: WireRequest[LeaveGroupRequest], error: Error) -> LeaveGroupResponse:
    """A group that does not exist has none of the members."""
    message = request.message
    if error is Error.UNKNOWN_MEMBER_ID:
        members = message.members if request.version >= LEAVE_LISTS_SINCE else [MemberIdentity(message.member_id)]
        return left(
            request, Error.NONE, [MemberResponse(one.member_id, one.group_instance_id, error) for one in members]
        )
    return left(request, error, [])
