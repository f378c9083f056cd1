"""Committed offsets: who may commit, what is fetched, what is forgotten (Kafka: `OffsetMetadataManager`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from kraft.access.errors import ApiError
from kraft.config.group_settings import GroupConfig
from kraft.coordinators.groups.classic import ClassicGroups, session
from kraft.coordinators.groups.classic_group import CONSUMER, ClassicGroup, GroupState
from kraft.coordinators.groups.consumer.commits import CheckPartition, check_commit
from kraft.coordinators.groups.consumer.draft import tombstones
from kraft.coordinators.groups.consumer.group import ConsumerGroup
from kraft.coordinators.groups.state import (
    NO_GROUPS,
    NO_OFFSETS,
    GroupsState,
    Offset,
    Place,
    consumer_group,
    share_group,
    streams_group,
)
from kraft.coordinators.groups.streams import commits as streams_commits
from kraft.coordinators.groups.streams import draft as streams_records
from kraft.coordinators.groups.streams.group import StreamsGroup
from kraft.coordinators.runtime.shard import Context, CoordinatorResult, Record
from kraft.limits import (
    GROUPS_PER_PARTITION,
    OFFSETS_PER_GROUP,
    OFFSETS_PER_TRANSACTION,
    PLAIN_METADATA,
)
from metadata_log.records.consumer_offsets import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from metadata_log.records.coordinator import RETENTION_VERSION
from metadata_log.types import Uuid
from transport.protocol.errors import Error

MISSING_GROUPS_SINCE: Final = 9
"""The version of OffsetCommit with an error of its own for a group that does not exist."""
NO_GENERATION: Final = -1
NO_RETENTION: Final = -1


class Commit(Struct, frozen=True, gc=False):
    """An offset to be committed."""

    topic: str
    topic_id: Uuid
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class Committer(Struct, frozen=True, gc=False):
    """The member or the client that commits, as the request names it."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    version: int
    retention_ms: int = NO_RETENTION
    producer: tuple[int, int] | None = None
    """The producer id and epoch of a commit in a transaction."""


def units(text: str) -> int:
    """The length of a text in units of UTF-16, as Java counts."""
    return len(text) + sum(1 for one in text if one > "\uffff") if not text.isascii() else len(text)


def may_commit(committer: Committer, groups: ClassicGroups, context: Context) -> ClassicGroup | None:
    """Raise `ApiError` unless the group takes the offsets; returns the group, None if it does not exist."""
    group = groups.find(committer.group_id, context.state)
    generation, member_id, instance_id = committer.generation, committer.member_id, committer.instance_id
    if group is None:
        if share_group(context.state, committer.group_id) is not None:
            raise ApiError(Error.GROUP_ID_NOT_FOUND)
        if generation >= 0:
            is_told = committer.version >= MISSING_GROUPS_SINCE
            raise ApiError(Error.GROUP_ID_NOT_FOUND if is_told else Error.ILLEGAL_GENERATION)
        if len(context.state.groups) >= GROUPS_PER_PARTITION or groups.is_full():
            raise ApiError(Error.COORDINATOR_NOT_AVAILABLE)
        return None
    if generation < 0 and group.state is GroupState.EMPTY:
        return group
    if generation >= 0 or member_id or instance_id is not None:
        refusal = group.refusal(member_id, instance_id)
        if refusal is Error.NONE and generation != group.generation:
            refusal = Error.ILLEGAL_GENERATION
        if refusal is not Error.NONE:
            raise ApiError(refusal)
    elif committer.producer is None and group.state is not GroupState.EMPTY:
        # A transaction may commit without naming a member, as before KIP-447.
        raise ApiError(Error.UNKNOWN_MEMBER_ID)
    if group.state is GroupState.COMPLETING and committer.producer is None:
        raise ApiError(Error.REBALANCE_IN_PROGRESS)
    return group


def _check_of_members(committer: Committer, context: Context) -> CheckPartition | None:
    """The check of each partition of a commit to a consumer or streams group; None for other groups, ApiError if it
    refuses.
    """
    group = context.state.groups.get(committer.group_id)
    if isinstance(group, StreamsGroup):
        return streams_commits.check_commit(
            group,
            committer.member_id,
            committer.instance_id,
            committer.generation,
            committer.version,
            transactional=committer.producer is not None,
        )
    if not isinstance(group, ConsumerGroup):
        return None
    return check_commit(
        group,
        committer.member_id,
        committer.instance_id,
        committer.generation,
        committer.version,
        transactional=committer.producer is not None,
    )


def commit(
    committer: Committer, commits: Iterable[Commit], groups: ClassicGroups, settings: GroupConfig, context: Context
) -> CoordinatorResult:
    """Commit offsets; the result has the error of each topic and partition."""
    group_id, producer, state, now_ms = committer.group_id, committer.producer, context.state, context.now_ms
    check = _check_of_members(committer, context)
    if check is None:
        group = may_commit(committer, groups, context)
        if group is not None and producer is None and committer.member_id in group.members:
            member = group.members[committer.member_id]
            context.timers.set(session(group, member.member_id), now_ms + member.session_timeout_ms)
    expires_ms, version = -1, None
    if committer.retention_ms >= 0:
        expires_ms, version = now_ms + committer.retention_ms, RETENTION_VERSION
    errors: dict[Place, Error] = {}
    records: list[Record] = []
    known = state.offsets.get(group_id, NO_OFFSETS)
    room = OFFSETS_PER_GROUP - len(known)
    pending, pending_room = NO_OFFSETS, 0
    if producer is not None:
        open_groups = state.open.get(producer[0], NO_GROUPS)
        pending = open_groups.get(group_id, NO_OFFSETS)
        pending_room = OFFSETS_PER_TRANSACTION - sum(map(len, open_groups.values()))
    is_full: bool | None = None
    for one in commits:
        place, metadata = (one.topic, one.partition), one.metadata
        if check is not None:
            check(one.topic, one.topic_id, one.partition)
        error = Error.NONE
        is_new = place not in known
        room -= is_new
        if metadata and units(metadata) > settings.metadata_max_characters:
            errors[place] = Error.OFFSET_METADATA_TOO_LARGE
            continue
        if is_full is None and (is_new or len(metadata) > PLAIN_METADATA):
            is_full = groups.is_full()
        if producer is not None and place not in pending:
            is_new = is_new or pending_room <= 0
            pending_room -= 1
        if is_new and (room < 0 or pending_room < 0 or is_full):
            error = Error.INVALID_COMMIT_OFFSET_SIZE
        elif is_full and len(metadata) > PLAIN_METADATA:
            error = Error.OFFSET_METADATA_TOO_LARGE
        else:
            key = OffsetCommitKey(group_id, one.topic, one.partition)
            value = OffsetCommitValue(one.offset, one.leader_epoch, metadata, now_ms, expires_ms, one.topic_id)
            records.append(Record(key, value, version))
        errors[place] = error
    groups.counted.commits += len(records)
    return CoordinatorResult(records, errors, None, producer)


# ---------------------------------------------------------------------------------------------------------------- fetch


def fetched(
    state: GroupsState, group_id: str, place: Place, topic_id: Uuid | None, *, is_stable: bool
) -> Offset | Error | None:
    """The committed offset of a partition; None for none.

    Args:
        state: The state.
        group_id: The group.
        place: The topic and the partition.
        topic_id: The topic that the client means; None if it knows only the name.
        is_stable: Whether an offset of an open transaction is waited for (`requireStable`).
    """
    if is_stable and state.is_pending(group_id, place):
        return Error.UNSTABLE_OFFSET_COMMIT
    offset = state.offsets.get(group_id, NO_OFFSETS).get(place)
    if offset is not None and topic_id is not None and offset.topic_id not in (Uuid.ZERO, topic_id):
        return None
    return offset


# -------------------------------------------------------------------------------------------------------------- forget


def tombstone(group_id: str, place: Place) -> Record:
    """The record that forgets an offset."""
    return Record(OffsetCommitKey(group=group_id, topic=place[0], partition=place[1]))


def delete_offsets(
    group_id: str, places: Iterable[Place], groups: ClassicGroups, context: Context
) -> CoordinatorResult:
    """Forget offsets that no member is subscribed to; the result has the error of each partition."""
    with_members = consumer_group(context.state, group_id) or streams_group(context.state, group_id)
    group = groups.find(group_id, context.state)
    if group is None and with_members is None:
        raise ApiError(Error.GROUP_ID_NOT_FOUND)
    if group is not None and group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER:
        raise ApiError(Error.NON_EMPTY_GROUP)
    errors: dict[Place, Error] = {}
    records: list[Record] = []
    for place in places:
        if with_members is not None:
            is_used = with_members.subscribes_to(place[0])
        else:
            is_used = group is not None and group.protocol_type == CONSUMER and group.is_subscribed(place[0])
        errors[place] = Error.GROUP_SUBSCRIBED_TO_TOPIC if is_used else Error.NONE
        if not is_used and context.state.is_known(group_id, place):
            records.append(tombstone(group_id, place))
    groups.counted.deleted += len(records)
    return CoordinatorResult(records, errors)


def _check_deletion(group_id: str, groups: ClassicGroups, context: Context) -> ConsumerGroup | StreamsGroup | None:
    """Raise `ApiError` unless a group may be deleted; returns it if it is a consumer or streams group."""
    with_members = context.state.groups.get(group_id)
    if isinstance(with_members, (ConsumerGroup, StreamsGroup)):
        if with_members.members:
            raise ApiError(Error.NON_EMPTY_GROUP)
        return with_members
    group = groups.find(group_id, context.state)
    if group is None:
        raise ApiError(Error.GROUP_ID_NOT_FOUND)
    if group.state is not GroupState.EMPTY:
        raise ApiError(Error.NON_EMPTY_GROUP)
    return None


def _ending(group: ConsumerGroup | StreamsGroup) -> list[Record]:
    return streams_records.tombstones(group) if isinstance(group, StreamsGroup) else tombstones(group)


def delete_some(group_id: str, places: Iterable[Place], groups: ClassicGroups, context: Context) -> CoordinatorResult:
    """Forget some offsets of a group that is about to be deleted."""
    _check_deletion(group_id, groups, context)
    return CoordinatorResult([tombstone(group_id, one) for one in places if context.state.is_known(group_id, one)])


def delete_group(group_id: str, groups: ClassicGroups, context: Context) -> CoordinatorResult:
    """Forget a group without members, and its offsets."""
    with_members = _check_deletion(group_id, groups, context)
    places = dict.fromkeys(one for one in context.state.places(group_id) if one is not None)
    records = [tombstone(group_id, place) for place in places]
    if with_members is not None:
        return CoordinatorResult((*records, *_ending(with_members)), Error.NONE)

    def ended(error: Error, context: Context) -> None:
        if error is Error.NONE and group_id not in context.state.groups:
            groups.drop(group_id, context)

    return CoordinatorResult((*records, Record(GroupMetadataKey(group=group_id))), Error.NONE, ended)


def expired(
    group_id: str,
    places: Iterable[Place],
    groups: ClassicGroups,
    settings: GroupConfig,
    context: Context,
    *,
    are_last: bool,
) -> list[Record]:
    """The records that remove those of some offsets of a group that are too old (Kafka: `cleanupExpiredOffsets`).

    A group without members is removed with the last of its offsets.
    """
    state, now_ms = context.state, context.now_ms
    with_members = consumer_group(state, group_id) or streams_group(state, group_id)
    group = groups.find(group_id, state)
    if group is None and with_members is None:
        return []
    known = state.offsets.get(group_id, NO_OFFSETS)
    gone: list[Place] = []
    for place in places:
        one = known.get(place)
        if one is None or state.is_pending(group_id, place):
            continue
        if group is not None:
            since_ms = _expires_since(group, place, one)
        else:
            assert with_members is not None, group_id
            since_ms = None if with_members.subscribes_to(place[0]) else one.committed_ms
        if _is_expired(one, since_ms, settings, now_ms):
            gone.append(place)
    groups.counted.expired += len(gone)
    records = [tombstone(group_id, place) for place in sorted(gone)]
    if are_last and len(gone) == len(known) and not state.producers.get(group_id):
        if with_members is not None and not with_members.members:
            records += _ending(with_members)
        elif group is not None and group.state is GroupState.EMPTY and not group.pending:
            records.append(Record(GroupMetadataKey(group=group_id)))
    return records


def _expires_since(group: ClassicGroup, place: Place, one: Offset) -> int | None:
    """Since when an offset grows old; None if it does not."""
    if group.protocol_type:
        match group.state:
            case GroupState.EMPTY:
                return group.state_ms if group.state_ms >= 0 else one.committed_ms
            case GroupState.STABLE if group.protocol_type == CONSUMER:
                return None if group.is_subscribed(place[0]) else one.committed_ms
            case _:
                return None
    return one.committed_ms


def _is_expired(one: Offset, since_ms: int | None, settings: GroupConfig, now_ms: int) -> bool:
    if since_ms is None:
        return False
    if one.expires_ms >= 0:
        return now_ms >= one.expires_ms
    return now_ms - since_ms >= settings.retention_minutes * 60_000


def of_deleted_topics(
    group_id: str, places: Iterable[Place], deleted: dict[str, Uuid], context: Context
) -> list[Record]:
    """The records that remove those of some offsets whose topics are deleted; `deleted` has their names and ids."""
    state = context.state
    gone = [
        place
        for place in places
        if place[0] in deleted
        and any(one.topic_id in (Uuid.ZERO, deleted[place[0]]) for one in _at(state, group_id, place))
    ]
    return [tombstone(group_id, place) for place in sorted(gone)]


def _at(state: GroupsState, group_id: str, place: Place) -> Iterator[Offset]:
    offset = state.offsets.get(group_id, NO_OFFSETS).get(place)
    if offset is not None:
        yield offset
    for producer_id in state.producers.get(group_id, ()):
        pending = state.open[producer_id][group_id].get(place)
        if pending is not None:
            yield pending
