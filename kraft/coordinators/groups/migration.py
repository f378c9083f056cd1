"""Groups that change between the classic protocol and that of KIP-848 while they have members (Kafka:
`GroupMetadataManager.convertToConsumerGroup`, `convertToClassicGroup`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from kraft.access.errors import ApiError
from kraft.config.group_settings import GroupConfig
from kraft.coordinators.groups.classic import ClassicGroups
from kraft.coordinators.groups.classic_group import CONSUMER, ClassicGroup, GroupState
from kraft.coordinators.groups.classic_group import Member as ClassicMember
from kraft.coordinators.groups.consumer.draft import Draft, tombstones
from kraft.coordinators.groups.consumer.embedded import (
    CustomAssignorError,
    EmbeddedError,
    assignment_bytes,
    assignment_of,
    subscription_of,
)
from kraft.coordinators.groups.consumer.fencing import ConsumerTimer, Watch
from kraft.coordinators.groups.consumer.group import ConsumerGroup
from kraft.coordinators.groups.consumer.hashing import TopicHashes
from kraft.coordinators.groups.consumer.member import Member, with_epoch
from kraft.coordinators.runtime.shard import Context, CoordinatorResult, Record
from metadata_log.image import MetadataImage
from metadata_log.records.consumer_offsets import (
    ClassicMemberMetadata,
    ClassicProtocol,
    GroupMetadataKey,
)
from metadata_log.types import Uuid
from transport.protocol.errors import Error

UPGRADES: Final = ("upgrade", "bidirectional")
_CUSTOM: Final = (
    "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor "
    "before re-attempting the upgrade."
)
DOWNGRADES: Final = ("downgrade", "bidirectional")


class _Upgraded(Struct, frozen=True):
    member: Member
    target: Mapping[Uuid, tuple[int, ...]]


def upgraded(classic: ClassicGroup, settings: GroupConfig, image: MetadataImage, hashes: TopicHashes) -> Draft:
    """A classic group of consumers as a consumer group, with the same members, generation and assignments.

    Raises:
        ApiError: The settings do not allow it, or its members cannot be understood.
    """
    if why := _obstacle(classic, settings):
        raise _not_upgraded(classic, why)
    try:
        members = [_upgraded_member(one, classic, image) for one in classic.members.values()]
    except CustomAssignorError as bad:
        raise _not_upgraded(classic, _CUSTOM) from bad
    except EmbeddedError as bad:
        raise _not_upgraded(classic, "the embedded consumer protocol is malformed.") from bad
    draft = Draft(ConsumerGroup(classic.group_id), (Record(GroupMetadataKey(group=classic.group_id)),))
    for one in members:
        draft.subscription(one.member)
    draft.epoch(classic.generation, hashes.of_group(image, draft.group.topics))
    for one in members:
        draft.target(one.member.member_id, one.target)
    draft.target_epoch(classic.generation, 0)
    for one in members:
        draft.assignment(one.member)
    return draft


def _obstacle(classic: ClassicGroup, settings: GroupConfig) -> str:
    """Why a group stays a classic one, whatever its members say (`GroupMetadataManager.validateOnlineUpgrade`)."""
    if settings.consumer.migration_policy not in UPGRADES:
        return "online upgrade is disabled."
    if classic.protocol_type != CONSUMER or classic.protocol is None:
        return "the group does not use the consumer embedded protocol."
    if len(classic.members) > settings.consumer.max_size:
        return "the group size exceeds the consumer group maximum size."
    return ""


def _not_upgraded(classic: ClassicGroup, why: str) -> ApiError:
    text = f"Cannot upgrade classic group {classic.group_id} to consumer group because {why}"
    return ApiError(Error.GROUP_ID_NOT_FOUND, text)


def _upgraded_member(one: ClassicMember, classic: ClassicGroup, image: MetadataImage) -> _Upgraded:
    subscription = subscription_of(one.metadata(classic.protocol))
    target = assignment_of(one.assignment, image)
    protocols = tuple(ClassicProtocol(name, data) for name, data in one.protocols)
    member = Member(
        one.member_id,
        epoch=classic.generation,
        previous_epoch=classic.generation,
        instance_id=one.instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=one.rebalance_timeout_ms,
        client_id=one.client_id,
        client_host=one.client_host,
        names=frozenset(subscription.topics),
        assigned=with_epoch(target, classic.generation),
        classic=ClassicMemberMetadata(one.session_timeout_ms, protocols),
    )
    return _Upgraded(member, target)


def watch_upgraded(group: ConsumerGroup, context: Context) -> None:
    """Expect heartbeats of the members of the classic protocol."""
    for member in group.members.values():
        if member.classic is not None:
            key = ConsumerTimer(Watch.SESSION, group.group_id, member.member_id)
            context.timers.set(key, context.now_ms + member.classic.session_timeout_ms)


def may_downgrade(group: ConsumerGroup, gone: Sequence[Member], settings: GroupConfig, *, joining: int = 0) -> bool:
    """Whether only members of the classic protocol remain or join, and the settings let them have a classic group."""
    left = len(group.members) - len(gone)
    classic = group.classic_members - sum(one.classic is not None for one in gone)
    is_allowed = settings.consumer.migration_policy in DOWNGRADES and left + joining <= settings.max_size
    return is_allowed and classic == left and left + joining > 0


def downgraded(
    draft: Draft, gone: Sequence[Member], groups: ClassicGroups, context: Context, *, rebalances: bool
) -> CoordinatorResult:
    """A consumer group as a classic one of the members that remain, with their targets; it is stable.

    Args:
        draft: The group with the records so far.
        gone: The members that do not remain.
        groups: The classic groups, which take it over.
        context: What an operation may look at.
        rebalances: Whether the members must join again.
    """
    group = draft.group
    leaving = {one.member_id for one in gone}
    classic = ClassicGroup(group.group_id, context.now_ms)
    for member_id in sorted(group.members):
        member = group.members[member_id]
        if member_id not in leaving:
            assert member.classic is not None, member
            protocols = tuple((one.name, one.metadata) for one in member.classic.supported_protocols)
            classic.add(
                ClassicMember(
                    member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms,
                    member.classic.session_timeout_ms,
                    protocols,
                ),
                CONSUMER,
            )
    classic.generation = group.epoch
    classic.enter(GroupState.STABLE, context.now_ms)
    classic.protocol = classic.selected_protocol()
    try:
        for one in classic.members.values():
            target = group.targets.get(one.member_id, {})
            one.assignment = assignment_bytes(target, one.metadata(classic.protocol), context.image)
    except EmbeddedError as bad:
        raise ApiError(Error.GROUP_ID_NOT_FOUND, f"Group {group.group_id} cannot become a classic group.") from bad
    record = Record(GroupMetadataKey(group=group.group_id), classic.recorded())

    def ended(error: Error, context: Context) -> None:
        if error not in (Error.NONE, Error.REQUEST_TIMED_OUT) and groups.live.get(group.group_id) is classic:
            groups.drop(group.group_id, context)

    following = groups.adopt(classic, context, rebalances=rebalances)
    assert not following.records, following
    return CoordinatorResult((*draft.records, *tombstones(group), record), on_end=ended)
