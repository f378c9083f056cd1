"""What the log of `__consumer_offsets` says of groups and their offsets (Kafka: `GroupMetadataManager`,
`OffsetMetadataManager`, the `replay` of both).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import chain, islice
from typing import Final

from msgspec import Struct, structs

from kraft.broker.coordinator.shard import Record
from kraft.broker.groups.consumer.group import ConsumerGroup
from kraft.broker.groups.consumer.replaying import GroupKey, replay
from kraft.limits import OFFSETS_ENDED_PER_STEP
from metadata_log.errors import ReplayError
from metadata_log.image.persistent_map import Map, keys_in_order_by_runs, with_changes, with_entry, without_key
from metadata_log.records.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from metadata_log.serde import Message
from metadata_log.types import Uuid

NEVER_EXPIRES: Final = -1
NO_PRODUCER: Final = -1
SIMPLE: Final = GroupMetadataValue(protocol=None, leader=None)
"""A group without members, of which only offsets are known: somebody commits without joining."""
Place = tuple[str, int]
"""A topic and a partition."""


class Offset(Struct, frozen=True, gc=False):
    """A committed offset. Times are ms since 1970."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int
    """When the commit itself wants the offset to be forgotten; -1 for what the broker is set to."""
    topic_id: Uuid
    record_offset: int
    """The offset of the record in the log."""


Offsets = Map[Place, Offset]
NO_OFFSETS: Final[Offsets] = Map()
Group = GroupMetadataValue | ConsumerGroup
"""What the log says of a group: a classic one, or one of KIP-848."""


class GroupsState(Struct, frozen=True):
    """The groups of one partition."""

    groups: Map[str, Group] = Map()
    offsets: Map[str, Offsets] = Map()
    """The committed offsets of each group."""
    open: Map[int, Map[str, Offsets]] = Map()
    """The offsets of open transactions, by producer id and group."""
    producers: Map[str, tuple[int, ...]] = Map()
    """The producers with such offsets, by group."""

    def is_pending(self, group: str, place: Place) -> bool:
        """Whether an open transaction has an offset of a partition."""
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


def replay_groups(state: GroupsState, record: Record, offset: int, producer_id: int) -> GroupsState:
    """The state after a record."""
    match record.key:
        case (
            OffsetCommitKey(group=group, topic=topic, partition=number)
            | LegacyOffsetCommitKey(group=group, topic=topic, partition=number)
        ):
            place = topic, number
            if record.value is None:
                return _without_offset(state, group, place)
            return _with_offset(state, group, place, _offset_of(record.value, offset), producer_id)
        case GroupMetadataKey(group=group):
            if record.value is None:
                return without_group(state, group)
            assert isinstance(record.value, GroupMetadataValue), record
            return structs.replace(state, groups=with_entry(state.groups, group, record.value))
        case key if isinstance(key, GroupKey):
            return _with_consumer_record(state, key, record.value)
    return state


def _with_consumer_record(state: GroupsState, key: GroupKey, value: Message | None) -> GroupsState:
    known = state.groups.get(key.group_id)
    if isinstance(known, GroupMetadataValue):
        if known.members or known.protocol_type:
            raise ReplayError(f"group {key.group_id} is a classic group, and has a {type(key).__name__}")
        known = None
    group = replay(known, key, value)
    if group is None:
        return without_group(state, key.group_id)
    return structs.replace(state, groups=with_entry(state.groups, key.group_id, group))


def without_group(state: GroupsState, group: str) -> GroupsState:
    """The state without a group, which may be missing; its offsets stay."""
    return structs.replace(state, groups=without_key(state.groups, group)) if group in state.groups else state


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
    groups = state.groups
    if group not in groups:
        groups = with_entry(groups, group, SIMPLE)
    if producer_id == NO_PRODUCER:
        known = with_entry(state.offsets.get(group, NO_OFFSETS), place, value)
        return structs.replace(state, groups=groups, offsets=with_entry(state.offsets, group, known))
    of_producer = state.open.get(producer_id, Map())
    producers = state.producers.get(group, ())
    pending = with_entry(of_producer.get(group, NO_OFFSETS), place, value)
    return structs.replace(
        state,
        groups=groups,
        open=with_entry(state.open, producer_id, with_entry(of_producer, group, pending)),
        producers=state.producers
        if producer_id in producers
        else with_entry(state.producers, group, (*producers, producer_id)),
    )


def _without_offset(state: GroupsState, group: str, place: Place) -> GroupsState:
    known = state.offsets.get(group, NO_OFFSETS)
    if place in known:
        state = structs.replace(state, offsets=_with_or_without(state.offsets, group, without_key(known, place)))
    for producer_id in state.producers.get(group, ()):
        pending = state.open[producer_id][group]
        if place in pending:
            state = _with_pending(state, producer_id, group, without_key(pending, place))
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
    for group, pending in state.open.get(producer_id, Map[str, Offsets]()).items():
        state = _with_pending(state, producer_id, group, NO_OFFSETS)
        if is_commit:
            known = state.offsets.get(group, NO_OFFSETS)
            entries = iter(pending.items())
            while some := list(islice(entries, OFFSETS_ENDED_PER_STEP)):
                newer = {
                    place: value
                    for place, value in some
                    if place not in known or value.record_offset > known[place].record_offset
                }
                known = with_changes(known, newer)
                yield None
            state = structs.replace(state, offsets=with_entry(state.offsets, group, known))
        yield None
    return state
