"""The state of groups and their offsets, by the log of `__consumer_offsets`.

Kafka: `GroupMetadataManager`, `OffsetMetadataManager`, the `replay` of both.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from itertools import chain, islice
from typing import Final

from msgspec import Struct, structs

from kraft.coordinators.groups.consumer.group import ConsumerGroup
from kraft.coordinators.groups.consumer.member import Member
from kraft.coordinators.groups.consumer.replaying import GroupKey, is_nothing, lacking, replay
from kraft.coordinators.groups.shares import replaying as shares
from kraft.coordinators.groups.shares.group import ShareGroup
from kraft.coordinators.groups.shares.replaying import ShareGroupKey
from kraft.coordinators.groups.streams import replaying as streams
from kraft.coordinators.groups.streams.group import StreamsGroup
from kraft.coordinators.groups.streams.replaying import StreamsGroupKey
from kraft.coordinators.runtime.shard import Record
from kraft.coordinators.runtime.weights import text_bytes
from kraft.limits import OFFSETS_ENDED_PER_STEP, SHARED_PLACES
from metadata_log.image.persistent_map import Map, keys_in_order_by_runs, with_changes, with_entry, without_key
from metadata_log.records.consumer_offsets import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupTargetAssignmentMemberKey,
)
from metadata_log.types import NO_PRODUCER, Uuid

NEVER_EXPIRES: Final = -1
SIMPLE: Final = GroupMetadataValue(protocol=None, leader=None)
"""A group without members, of which only offsets are known: somebody commits without joining."""
Place = tuple[str, int]
"""A topic and a partition."""
_shared: dict[Place, Place] = {}


def shared_place(topic: str, partition: int) -> Place:
    """A topic and a partition, as one object for all groups that commit there. The collector looks at a dictionary of
    offsets for ever if one of its keys was new when it came, and there are as many dictionaries as groups.
    """
    place = topic, partition
    if len(_shared) >= SHARED_PLACES:
        _shared.clear()
    return _shared.setdefault(place, place)


class Offset(Struct, frozen=True, gc=False):
    """A committed offset. Times are ms since 1970."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int
    """When the offset expires by the commit itself; -1 if the setting of the broker decides."""
    topic_id: Uuid
    record_offset: int
    """The offset of the record in the log."""


Offsets = Mapping[Place, Offset]
"""The offsets of a group, which nobody changes in place: a dictionary while they are few, as in most groups, since the
collector then has nothing to look at; else a `Map`.
"""
NO_OFFSETS: Final[Offsets] = {}
NO_GROUPS: Final[Map[str, Offsets]] = Map()
_NO_PLACES: Final[Map[Place, Offset]] = Map()
_FEW_OFFSETS: Final = 8
Group = GroupMetadataValue | ConsumerGroup | ShareGroup | StreamsGroup
"""The group as the log has it: a classic one, one of KIP-848, a share group, or a streams group."""


class GroupsState(Struct, frozen=True, gc=False):
    """The groups of one partition."""

    groups: Map[str, Group] = Map()
    offsets: Map[str, Offsets] = Map()
    """The committed offsets of each group."""
    open: Map[int, Map[str, Offsets]] = Map()
    """The offsets of open transactions, by producer id and group."""
    producers: Map[str, tuple[int, ...]] = Map()
    """The producers with such offsets, by group."""
    bytes: int = 0
    """About how much memory all of this takes."""

    def is_pending(self, group: str, place: Place) -> bool:
        """Whether an open transaction has an offset of this group for a partition."""
        return any(place in self.open[one][group] for one in self.producers.get(group, ()))

    def is_known(self, group: str, place: Place) -> bool:
        """Whether a group has an offset of a partition, also one of an open transaction."""
        return place in self.offsets.get(group, NO_OFFSETS) or self.is_pending(group, place)

    def places(self, group: str) -> Iterator[Place | None]:
        """The partitions with offsets of a group, also those of open transactions, which may come again; None where
        work may pause.
        """
        pending = [self.open[one][group] for one in self.producers.get(group, ())]
        places = [keys_in_order_by_runs(one) for one in (self.offsets.get(group, NO_OFFSETS), *pending)]
        return chain.from_iterable(places)


def consumer_group(state: GroupsState, group_id: str) -> ConsumerGroup | None:
    """A consumer group; None if there is none of this name."""
    group = state.groups.get(group_id)
    return group if isinstance(group, ConsumerGroup) else None


def share_group(state: GroupsState, group_id: str) -> ShareGroup | None:
    """A share group; None if there is none of this name."""
    group = state.groups.get(group_id)
    return group if isinstance(group, ShareGroup) else None


def streams_group(state: GroupsState, group_id: str) -> StreamsGroup | None:
    """A streams group; None if there is none of this name."""
    group = state.groups.get(group_id)
    return group if isinstance(group, StreamsGroup) else None


_OFFSET_BYTES: Final = 400
_GROUP_BYTES: Final = 1200
_MEMBER_BYTES: Final = 1000
_PROTOCOL_BYTES: Final = 250
_TARGET_TOPIC_BYTES: Final = 300
_TOPIC_BYTES: Final = 1000
_PARTITION_BYTES: Final = 100
_NAME_BYTES: Final = 100
"""How much memory each of these takes besides the texts and bytes that clients choose."""
_PLACES: Final = 3
"""Where a name of a group or a member is kept, at most, each time as a text of its own: they come from several records
after a load.
"""


def _offset_bytes(offsets: Offsets, place: Place) -> int:
    known = offsets.get(place)
    if known is None:
        return 0
    return _OFFSET_BYTES + text_bytes(known.metadata) if known.metadata else _OFFSET_BYTES


def group_bytes(group_id: str, group: Group | None) -> int:
    """The memory that a group takes, in bytes; for one that is not classic without its members."""
    if group is None:
        return 0
    own = _GROUP_BYTES + _PLACES * text_bytes(group_id)
    if not isinstance(group, GroupMetadataValue) or not group.members:
        return own
    return own + sum(
        [
            _MEMBER_BYTES
            + text_bytes(one.member_id)
            + text_bytes(one.group_instance_id)
            + text_bytes(one.client_id)
            + len(one.subscription)
            + len(one.assignment)
            for one in group.members
        ]
    )


def _consumer_bytes(group_id: str, group: Group | None, key: GroupKey) -> int:
    """The memory of a consumer group itself and of the one part that a record with this key sets, in bytes."""
    own = group_bytes(group_id, group)
    if not isinstance(group, ConsumerGroup):
        return own
    match key:
        case ConsumerGroupRegularExpressionKey():
            resolved = group.resolved.get(key.regular_expression)
            if resolved is None:
                return own
            return own + _NAME_BYTES * (1 + len(resolved.topics)) + text_bytes(key.regular_expression)
        case ConsumerGroupTargetAssignmentMemberKey():
            target = group.targets.get(key.member_id, {})
            return own + _TARGET_TOPIC_BYTES * len(target) + _PARTITION_BYTES * sum(map(len, target.values()))
        case ConsumerGroupCurrentMemberAssignmentKey():
            member = group.members.get(key.member_id)
            held = () if member is None else (*member.assigned.values(), *member.revoking.values())
            return own + _TOPIC_BYTES * len(held) + _PARTITION_BYTES * sum(map(len, held))
        case ConsumerGroupMemberMetadataKey():
            member = group.members.get(key.member_id)
            return own if member is None or not member.has_subscription else own + _member_bytes(member)
    return own


def _member_bytes(member: Member) -> int:
    """The memory of a member of a consumer group, without its partitions."""
    protocols = () if member.classic is None else member.classic.supported_protocols
    return (
        _MEMBER_BYTES
        + _PLACES * text_bytes(member.member_id)
        + 2 * text_bytes(member.instance_id)
        + text_bytes(member.rack_id)
        + text_bytes(member.client_id)
        + text_bytes(member.regex)
        + sum([_NAME_BYTES + text_bytes(one) for one in member.names])
        + sum([_PROTOCOL_BYTES + text_bytes(one.name) + len(one.metadata) for one in protocols])
    )


def _whole_bytes(group_id: str, group: Group | None) -> int:
    """The memory of a group with all members that are left, in bytes."""
    own = group_bytes(group_id, group)
    if isinstance(group, ShareGroup):
        return own + shares.parts_bytes(group)
    if isinstance(group, StreamsGroup):
        return own + streams.parts_bytes(group)
    if not isinstance(group, ConsumerGroup):
        return own
    keys: list[GroupKey] = [ConsumerGroupRegularExpressionKey(group_id, one) for one in group.resolved]
    keys += [ConsumerGroupTargetAssignmentMemberKey(group_id, one) for one in group.targets]
    for part in (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupMemberMetadataKey):
        keys += [part(group_id, one) for one in group.members]
    return own + sum([_consumer_bytes(group_id, group, key) - own for key in keys])


def lacking_before(state: GroupsState, record: Record) -> str:
    """The part of the log that was removed before a record on which it follows, in words; empty if nothing was.

    Such a log comes from an upgrade, a downgrade or a removal of a group of which some tombstones were cleaned away.
    """
    key, value = record.key, record.value
    if isinstance(key, GroupMetadataKey):
        known = state.groups.get(key.group)
        if value is not None and isinstance(known, (ConsumerGroup, ShareGroup, StreamsGroup)):
            return f"group {key.group} is a {_kind(known)} group, and has a GroupMetadataKey"
        return ""
    if not isinstance(key, (GroupKey, ShareGroupKey, StreamsGroupKey)):
        return ""
    known = state.groups.get(key.group_id)
    match known:
        case ConsumerGroup() if isinstance(key, GroupKey):
            return lacking(known, key, value)
        case ShareGroup() if isinstance(key, ShareGroupKey):
            return shares.lacking(known, key, value)
        case StreamsGroup() if isinstance(key, StreamsGroupKey):
            return streams.lacking(known, key, value)
        case None:
            return ""
        case GroupMetadataValue() if not known.members and not known.protocol_type:
            return ""
        case _ if isinstance(known, GroupMetadataValue) or value is not None:
            return f"group {key.group_id} is a {_kind(known)} group, and has a {type(key).__name__}"
    return ""


def _kind(group: Group) -> str:
    match group:
        case ConsumerGroup():
            return "consumer"
        case ShareGroup():
            return "share"
        case StreamsGroup():
            return "streams"
    return "classic"


def _with_offsets(offsets: Offsets, changes: Mapping[Place, Offset]) -> Offsets:
    if isinstance(offsets, Map):
        return with_changes(offsets, changes)
    if len(offsets) + len(changes) <= _FEW_OFFSETS:
        return {**offsets, **changes}
    return with_changes(with_changes(_NO_PLACES, offsets), changes)


def _without_place(offsets: Offsets, place: Place) -> Offsets:
    if isinstance(offsets, Map):
        return without_key(offsets, place)
    return {one: offset for one, offset in offsets.items() if one != place}


def replay_groups(state: GroupsState, record: Record, offset: int, producer_id: int) -> GroupsState:
    """The state after a record."""
    commit, value = record.key, record.value
    if type(commit) is OffsetCommitKey and type(value) is OffsetCommitValue:
        # Most records, and each request of a consumer that commits.
        place = shared_place(commit.topic, commit.partition)
        return _with_offset(state, commit.group, place, _offset_of(value, offset), producer_id)
    match commit:
        case (
            OffsetCommitKey(group=group, topic=topic, partition=number)
            | LegacyOffsetCommitKey(group=group, topic=topic, partition=number)
        ):
            place = shared_place(topic, number)
            if record.value is None:
                return _without_offset(state, group, place)
            return _with_offset(state, group, place, _offset_of(record.value, offset), producer_id)
        case GroupMetadataKey(group=group):
            if record.value is None:
                return without_group(state, group)
            assert isinstance(record.value, GroupMetadataValue), record
            size = state.bytes + group_bytes(group, record.value) - _whole_bytes(group, state.groups.get(group))
            return structs.replace(state, groups=with_entry(state.groups, group, record.value), bytes=size)
        case key if isinstance(key, GroupKey):
            return _with_consumer_record(state, key, record)
        case key if isinstance(key, ShareGroupKey):
            return _with_share_record(state, key, record)
        case key if isinstance(key, StreamsGroupKey):
            return _with_streams_record(state, key, record)
    return state


def _with_consumer_record(state: GroupsState, key: GroupKey, record: Record) -> GroupsState:
    known = state.groups.get(key.group_id)
    if known is not None and not isinstance(known, ConsumerGroup):
        if record.value is None:
            # Of a consumer group that was there before.
            return state
        state, known = _without_modern_group(state, key.group_id), None
    if record.value is None and isinstance(key, ConsumerGroupMemberMetadataKey) and known is not None:
        for part in (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupTargetAssignmentMemberKey):
            if lacking(known, key, None):
                state = _with_consumer_record(state, part(key.group_id, key.member_id), Record(key))
                known = consumer_group(state, key.group_id)
                if known is None:
                    return state
    before = _consumer_bytes(key.group_id, known or state.groups.get(key.group_id), key)
    if record.found is not None and _is_from(known, record.found[0]):
        group = record.found[1]
    else:
        group = replay(known, key, record.value)
    if group is None or (record.value is None and is_nothing(group)):
        return without_group(state, key.group_id)
    size = state.bytes + _consumer_bytes(key.group_id, group, key) - before
    return structs.replace(state, groups=with_entry(state.groups, key.group_id, group), bytes=size)


def _without_modern_group(state: GroupsState, group_id: str) -> GroupsState:
    """A consumer group follows a share or streams group, of which the log has lost the end."""
    is_one = isinstance(state.groups.get(group_id), (ShareGroup, StreamsGroup))
    return without_group(state, group_id) if is_one else state


def _with_share_record(state: GroupsState, key: ShareGroupKey, record: Record) -> GroupsState:
    group_id = key.group_id
    known = state.groups.get(group_id)
    if known is not None and not isinstance(known, ShareGroup):
        if record.value is None:
            # Of a share group that was there before.
            return state
        state, known = without_group(state, group_id), None
    if record.value is None and isinstance(key, ShareGroupMemberMetadataKey) and known is not None:
        for part in (ShareGroupCurrentMemberAssignmentKey, ShareGroupTargetAssignmentMemberKey):
            state = _with_share_record(state, part(group_id, key.member_id), Record(part(group_id, key.member_id)))
        known = share_group(state, group_id)
        if known is None:
            return state
    before = 0 if known is None else group_bytes(group_id, known) + shares.part_bytes(known, key)
    if record.found is not None and _is_from(known, record.found[0]):
        group = record.found[1]
    else:
        group = shares.replay(known, key, record.value)
    if group is None or (record.value is None and shares.is_nothing(group)):
        return without_group(state, group_id)
    size = state.bytes + group_bytes(group_id, group) + shares.part_bytes(group, key) - before
    return structs.replace(state, groups=with_entry(state.groups, group_id, group), bytes=size)


def _with_streams_record(state: GroupsState, key: StreamsGroupKey, record: Record) -> GroupsState:
    group_id = key.group_id
    known = state.groups.get(group_id)
    if known is not None and not isinstance(known, StreamsGroup):
        if record.value is None:
            # Of a streams group that was there before.
            return state
        state, known = without_group(state, group_id), None
    if record.value is None and isinstance(key, StreamsGroupMemberMetadataKey) and known is not None:
        for part in (StreamsGroupCurrentMemberAssignmentKey, StreamsGroupTargetAssignmentMemberKey):
            if streams.holds(known, part(group_id, key.member_id)):
                state = _with_streams_record(state, part(group_id, key.member_id), Record(key))
        known = streams_group(state, group_id)
        if known is None:
            return state
    before = 0 if known is None else group_bytes(group_id, known) + streams.part_bytes(known, key)
    if record.found is not None and _is_from(known, record.found[0]):
        group = record.found[1]
    else:
        group = streams.replay(known, key, record.value)
    if group is None or (record.value is None and streams.is_nothing(group)):
        return without_group(state, group_id)
    size = state.bytes + group_bytes(group_id, group) + streams.part_bytes(group, key) - before
    return structs.replace(state, groups=with_entry(state.groups, group_id, group), bytes=size)


_Modern = ConsumerGroup | ShareGroup | StreamsGroup


def _is_from(known: _Modern | None, before: _Modern) -> bool:
    """Whether a record was made for this group; a new one is not in the state."""
    return before is known or (known is None and before.is_new)


def without_group(state: GroupsState, group: str) -> GroupsState:
    """The state without a group, which may be missing; its offsets stay."""
    known = state.groups.get(group)
    if known is None:
        return state
    size = state.bytes - _whole_bytes(group, known)
    return structs.replace(state, groups=without_key(state.groups, group), bytes=size)


def _offset_of(value: object, record_offset: int) -> Offset:
    match value:
        case OffsetCommitValue():
            return Offset(
                value.offset,
                value.leader_epoch,
                value.metadata,
                value.commit_timestamp,
                value.expire_timestamp,
                value.topic_id,
                record_offset,
            )
        case LegacyOffsetCommitValue():
            return Offset(
                value.offset, -1, value.metadata, value.commit_timestamp, NEVER_EXPIRES, Uuid.ZERO, record_offset
            )
    raise AssertionError(value)


def _with_offset(state: GroupsState, group: str, place: Place, value: Offset, producer_id: int) -> GroupsState:
    groups, size = state.groups, state.bytes + _OFFSET_BYTES
    if value.metadata:
        size += text_bytes(value.metadata)
    if group not in groups:
        groups = with_entry(groups, group, SIMPLE)
        size += group_bytes(group, SIMPLE)
    if producer_id == NO_PRODUCER:
        offsets = state.offsets.get(group, NO_OFFSETS)
        size -= _offset_bytes(offsets, place)
        known = _with_offsets(offsets, {place: value})
        return GroupsState(groups, with_entry(state.offsets, group, known), state.open, state.producers, size)
    of_producer = state.open.get(producer_id, Map())
    producers = state.producers.get(group, ())
    offsets = of_producer.get(group, NO_OFFSETS)
    size -= _offset_bytes(offsets, place)
    pending = _with_offsets(offsets, {place: value})
    return structs.replace(
        state,
        groups=groups,
        bytes=size,
        open=with_entry(state.open, producer_id, with_entry(of_producer, group, pending)),
        producers=state.producers
        if producer_id in producers
        else with_entry(state.producers, group, (*producers, producer_id)),
    )


def _without_offset(state: GroupsState, group: str, place: Place) -> GroupsState:
    known = state.offsets.get(group, NO_OFFSETS)
    if place in known:
        size = state.bytes - _offset_bytes(known, place)
        offsets = _with_or_without(state.offsets, group, _without_place(known, place))
        state = structs.replace(state, offsets=offsets, bytes=size)
    for producer_id in state.producers.get(group, ()):
        pending = state.open[producer_id][group]
        if place in pending:
            size = state.bytes - _offset_bytes(pending, place)
            state = _with_pending(state, producer_id, group, _without_place(pending, place))
            state = structs.replace(state, bytes=size)
    return state


def _with_or_without(offsets: Map[str, Offsets], group: str, known: Offsets) -> Map[str, Offsets]:
    return with_entry(offsets, group, known) if known else without_key(offsets, group)


def _with_pending(state: GroupsState, producer_id: int, group: str, pending: Offsets) -> GroupsState:
    """The state with other offsets of a group in a transaction that has some of that group."""
    of_producer = state.open[producer_id]
    if pending:
        changed = with_entry(of_producer, group, pending)
        return structs.replace(state, open=with_entry(state.open, producer_id, changed))
    rest = without_key(of_producer, group)
    others = tuple(one for one in state.producers[group] if one != producer_id)
    return structs.replace(
        state,
        open=with_entry(state.open, producer_id, rest) if rest else without_key(state.open, producer_id),
        producers=with_entry(state.producers, group, others) if others else without_key(state.producers, group),
    )


def end_transaction(state: GroupsState, producer_id: int, *, is_commit: bool) -> Generator[None, None, GroupsState]:
    """Find the state after the end of a transaction, in steps: its offsets are committed, unless a later record has
    overtaken them.
    """
    for group, pending in state.open.get(producer_id, NO_GROUPS).items():
        state = _with_pending(state, producer_id, group, NO_OFFSETS)
        known, size = state.offsets.get(group, NO_OFFSETS), state.bytes
        entries = iter(pending.items())
        while some := list(islice(entries, OFFSETS_ENDED_PER_STEP)):
            size -= sum([_offset_bytes(pending, place) for place, _ in some])
            if is_commit:
                newer = {
                    place: value
                    for place, value in some
                    if place not in known or value.record_offset > known[place].record_offset
                }
                size += sum([_offset_bytes(pending, one) - _offset_bytes(known, one) for one in newer])
                known = _with_offsets(known, newer)
            yield None
        offsets = with_entry(state.offsets, group, known) if is_commit else state.offsets
        state = structs.replace(state, offsets=offsets, bytes=size)
    return state
