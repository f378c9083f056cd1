"""Members of the classic protocol in a consumer group (Kafka: `GroupMetadataManager.classicGroup…ToConsumerGroup`)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Final

from msgspec.structs import replace

from kraft.access.errors import ApiError
from kraft.coordinators.groups.classic import (
    KNOWN_IDS_SINCE,
    LEAVE_LISTS_SINCE,
    NO_MEMBER,
    PROTOCOL_TYPE_SINCE,
    SYNC_PROTOCOL_SINCE,
    client_host,
    joined,
    left,
)
from kraft.coordinators.groups.classic_group import CONSUMER
from kraft.coordinators.groups.consumer.draft import Draft
from kraft.coordinators.groups.consumer.embedded import EmbeddedError, assignment_bytes, by_id, subscription_of
from kraft.coordinators.groups.consumer.fencing import ConsumerTimer, Watch
from kraft.coordinators.groups.consumer.group import ConsumerGroup
from kraft.coordinators.groups.consumer.groups import ConsumerGroups, of_instance, replaced
from kraft.coordinators.groups.consumer.member import Member, MemberState
from kraft.coordinators.runtime.shard import Context, CoordinatorResult
from kraft.wire import WireRequest
from metadata_log.records.consumer_offsets import ClassicMemberMetadata, ClassicProtocol
from metadata_log.types import random_uuid
from transport.protocol.errors import Error
from transport.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from transport.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from transport.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity, MemberResponse
from transport.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

DISABLED: Final = "disabled"
ConvertJoined = Callable[[Draft, Context, bool], CoordinatorResult]
"""Makes a classic group of the members of a draft, who must join again if the flag says so."""


def _nothing(_: str) -> bool:
    """Members of the classic protocol use no regular expressions of the broker."""
    return False


def joining(
    group: ConsumerGroup,
    groups: ConsumerGroups,
    request: WireRequest[JoinGroupRequest],
    policy: str,
    replaces_last: Callable[[ConsumerGroup, Member], bool],
    convert: ConvertJoined,
    context: Context,
) -> Generator[None, None, CoordinatorResult]:
    """JoinGroup, which is answered at once: the member takes part as those of the consumer protocol do. In portions, of
    which only the last one has effects.

    Args:
        group: The group.
        groups: The consumer groups.
        request: The request.
        policy: `group.consumer.migration.policy`.
        replaces_last: Whether the group becomes a classic one when a static member is replaced.
        convert: Makes it one.
        context: What an operation may look at.

    Raises:
        ApiError: The request is refused.
    """
    message = request.message
    if policy == DISABLED:
        raise ApiError(Error.INCONSISTENT_GROUP_PROTOCOL)
    is_unknown = message.member_id == NO_MEMBER
    member_id = str(random_uuid(context.rng)) if is_unknown else message.member_id
    groups.check_room(group, member_id, message.group_instance_id)
    protocols = tuple(ClassicProtocol(one.name, bytes(one.metadata)) for one in message.protocols)
    counts = group.classic_protocols
    if message.protocol_type != CONSUMER or not any(
        counts.get(one.name, 0) == group.classic_members for one in protocols
    ):
        raise ApiError(Error.INCONSISTENT_GROUP_PROTOCOL)
    instance_id = message.group_instance_id
    if is_unknown and instance_id is None and request.version >= KNOWN_IDS_SINCE:
        return CoordinatorResult(result=joined(request, Error.MEMBER_ID_REQUIRED, member_id))
    try:
        subscription = subscription_of(protocols[0].metadata)
    except EmbeddedError as bad:
        raise ApiError(Error.INCONSISTENT_GROUP_PROTOCOL, f"The subscription cannot be read: {bad}") from bad
    existing = group.static_member(instance_id)
    downgrades = existing is not None and replaces_last(group, existing)
    draft = Draft(group)
    if instance_id is None or (existing is None and is_unknown):
        member = group.members.get(member_id) or Member(member_id)
    elif is_unknown:
        assert existing is not None, instance_id
        member = replaced(draft, existing, member_id)
    else:
        member = of_instance(existing, instance_id, member_id)
    updated = replace(
        member,
        instance_id=member.instance_id if instance_id is None else instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=message.rebalance_timeout_ms
        if message.rebalance_timeout_ms != -1
        else member.rebalance_timeout_ms,
        names=frozenset(subscription.topics),
        regex="",
        client_id=request.client_id or "",
        client_host=client_host(request),
        classic=ClassicMemberMetadata(message.session_timeout_ms, protocols),
    )
    owned = by_id(((one.topic, one.partitions) for one in subscription.owned_partitions), context.image)
    if downgrades:
        updated, rebalances = groups.apply_without_target(draft, member, updated, owned, context)
        operation = convert(draft, context, rebalances)
        return replace(operation, result=_joined(request, updated))
    updated = yield from groups.applying(draft, member, updated, owned, _nothing, context)
    group_id = group.group_id

    def ended(error: Error, context: Context) -> None:
        """The records are committed: the member has joined, and has to ask for its assignment in time."""
        if error is Error.NONE:
            context.timers.cancel(ConsumerTimer(Watch.JOIN, group_id, member_id))
            groups.watch(Watch.SESSION, group_id, member_id, message.session_timeout_ms, context)
            groups.watch(Watch.SYNC, group_id, member_id, message.rebalance_timeout_ms, context)

    return CoordinatorResult(draft.records, _joined(request, updated), ended)


def _joined(request: WireRequest, member: Member) -> JoinGroupResponse:
    assert member.classic is not None, member
    return JoinGroupResponse(
        generation_id=member.epoch,
        protocol_type=CONSUMER if request.version >= PROTOCOL_TYPE_SINCE else None,
        protocol_name=member.classic.supported_protocols[0].name,
        leader="",
        member_id=member.member_id,
    )


def _known(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> Member:
    """The member of the classic protocol that asks; raises `ApiError` if it is none."""
    if instance_id is None:
        member = group.members.get(member_id)
    else:
        member = of_instance(group.static_member(instance_id), instance_id, member_id)
    if member is None or member.classic is None:
        raise ApiError(Error.UNKNOWN_MEMBER_ID)
    if member.epoch != generation:
        raise ApiError(Error.ILLEGAL_GENERATION)
    return member


def _expect_join(group: ConsumerGroup, member: Member, groups: ConsumerGroups, context: Context) -> None:
    """The member is told to join again, and has its time for that from the first time on."""
    if ConsumerTimer(Watch.JOIN, group.group_id, member.member_id) not in context.timers:
        groups.watch(Watch.JOIN, group.group_id, member.member_id, member.rebalance_timeout_ms, context)


def sync(
    group: ConsumerGroup, groups: ConsumerGroups, request: WireRequest[SyncGroupRequest], context: Context
) -> CoordinatorResult:
    """SyncGroup: what the member has."""
    message = request.message
    member = _known(group, message.member_id, message.group_instance_id, message.generation_id)
    assert member.classic is not None, member
    first = member.classic.supported_protocols[0]
    if message.protocol_type not in (None, CONSUMER) or message.protocol_name not in (None, first.name):
        raise ApiError(Error.INCONSISTENT_GROUP_PROTOCOL)
    if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _expect_join(group, member, groups, context)
        raise ApiError(Error.REBALANCE_IN_PROGRESS)
    session_ms = member.classic.session_timeout_ms
    group_id, member_id = group.group_id, member.member_id

    def ended(error: Error, context: Context) -> None:
        if error is Error.NONE:
            context.timers.cancel(ConsumerTimer(Watch.SYNC, group_id, member_id))
            groups.watch(Watch.SESSION, group_id, member_id, session_ms, context)

    names_protocol = request.version >= SYNC_PROTOCOL_SINCE
    answer = SyncGroupResponse(
        protocol_type=message.protocol_type if names_protocol else None,
        protocol_name=message.protocol_name if names_protocol else None,
        assignment=assignment_bytes(member.assigned, first.metadata, context.image),
    )
    return CoordinatorResult(result=answer, on_end=ended)


def heartbeat(
    group: ConsumerGroup, groups: ConsumerGroups, request: WireRequest[HeartbeatRequest], context: Context
) -> CoordinatorResult:
    """Heartbeat: whether the member must join again."""
    message = request.message
    member = _known(group, message.member_id, message.group_instance_id, message.generation_id)
    assert member.classic is not None, member
    session_ms = member.classic.session_timeout_ms
    groups.watch(Watch.SESSION, group.group_id, member.member_id, session_ms, context)
    must_join = (
        member.epoch < group.assignment_epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not _waits(group, member))
    )
    if must_join:
        _expect_join(group, member, groups, context)
    return CoordinatorResult(
        result=HeartbeatResponse(error_code=Error.REBALANCE_IN_PROGRESS if must_join else Error.NONE)
    )


def _waits(group: ConsumerGroup, member: Member) -> bool:
    """Whether somebody still holds what the member should have (`waitingOnUnreleasedPartition`)."""
    return any(
        number in held and number not in member.assigned.get(topic_id, ())
        for topic_id, numbers in group.targets.get(member.member_id, {}).items()
        if (held := group.held_near(topic_id, numbers))
        for number in numbers
    )


def leave(
    group: ConsumerGroup, groups: ConsumerGroups, request: WireRequest[LeaveGroupRequest], context: Context
) -> CoordinatorResult:
    """LeaveGroup, which members of either protocol may use."""
    message = request.message
    identities: Iterable[MemberIdentity] = message.members
    if request.version < LEAVE_LISTS_SINCE:
        identities = (MemberIdentity(message.member_id),)
    answers: list[MemberResponse] = []
    gone: dict[str, Member] = {}
    for one in identities:
        error = Error.NONE
        try:
            member = _leaving(group, one)
            gone[member.member_id] = member
        except ApiError as refused:
            error = refused.error
        answers.append(MemberResponse(one.member_id, one.group_instance_id, error))
    answer = left(request, Error.NONE, answers)
    if not gone:
        return CoordinatorResult(result=answer)
    return replace(groups.fence(group, list(gone.values()), context), result=answer)


def _leaving(group: ConsumerGroup, one: MemberIdentity) -> Member:
    if one.group_instance_id is None:
        member = group.members.get(one.member_id)
        if member is None:
            raise ApiError(Error.UNKNOWN_MEMBER_ID)
        return member
    existing = group.static_member(one.group_instance_id)
    member_id = one.member_id or (existing.member_id if existing is not None else "")
    return of_instance(existing, one.group_instance_id, member_id)
