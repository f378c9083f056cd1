"""The partitions of a share group that have a state at their share coordinators, or are to get one, or to lose it
(Kafka: `GroupMetadataManager.addInitializingTopicsRecords` and the like; record type 15).

Only a partition with a state is given to members. A state is asked for when some member wants the topic, and after the
record of that is committed.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping
from itertools import islice
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.coordinators.groups.shares.group import NamedPartitions, ShareGroup, States, StateTopics
from kraft.limits import SHARE_PARTITIONS_PER_GROUP, SHARE_PARTITIONS_PER_STEP
from kraft.supported_features import GROUPS_OF_4_4
from metadata_log.image import MetadataImage
from metadata_log.types import Uuid

BY_SETTING: Final = -1
"""The start offset of a state whose leader chooses it, by `share.auto.offset.reset`."""
FROM_BEGIN: Final = 0
"""The start offset of the partitions by which a topic has grown: none of their records is passed over."""
Partitions = Mapping[Uuid, NamedPartitions]


class Beginning(Struct, frozen=True, gc=False):
    """A state to ask for: the partition, and the offset from which on the group reads."""

    topic_id: Uuid
    partition: int
    start_offset: int


def united(first: StateTopics, second: StateTopics) -> StateTopics:
    """The partitions of both."""
    result = dict(first)
    for topic_id, more in second.items():
        known = result.get(topic_id)
        numbers = more.partitions if known is None else tuple(sorted({*known.partitions, *more.partitions}))
        result[topic_id] = NamedPartitions(more.name, numbers)
    return result


def without(first: StateTopics, second: StateTopics) -> StateTopics:
    """The partitions of the first that are not in the second. A topic of the second without partitions is gone, too."""
    result: dict[Uuid, NamedPartitions] = {}
    for topic_id, known in first.items():
        less = second.get(topic_id)
        if less is None:
            result[topic_id] = known
        else:
            gone = set(less.partitions)
            numbers = tuple(number for number in known.partitions if number not in gone)
            if numbers:
                result[topic_id] = NamedPartitions(known.name, numbers)
    return result


def lacking_states(
    group: ShareGroup, image: MetadataImage, *, repeats: bool
) -> Generator[None, None, dict[Uuid, NamedPartitions]]:
    """Find the partitions of wanted topics that have no state, and for which nobody asks for one, in portions.

    Args:
        group: The group.
        image: The metadata.
        repeats: Whether the last request for states is so old that it counts no longer.
    """
    states, found, looked_at = group.states, dict[Uuid, NamedPartitions](), 0
    room = SHARE_PARTITIONS_PER_GROUP - count_of(states)
    for name in group.names:
        topic = image.topics.get(name)
        if topic is None:
            continue
        begun = _begun(states, topic.id, repeats=repeats)
        count = len(topic.partitions)
        if len(begun) < count and room > 0:
            numbers = tuple(islice((number for number in range(count) if number not in begun), room))
            found[topic.id] = NamedPartitions(name, numbers)
            room -= len(numbers)
        looked_at += count
        if looked_at >= SHARE_PARTITIONS_PER_STEP:
            looked_at = 0
            yield None
    return found


def count_of(states: States) -> int:
    """How many states a group has, or asks for."""
    return sum(len(one.partitions) for topics in (states.initializing, states.initialized) for one in topics.values())


def _begun(states: States, topic_id: Uuid, *, repeats: bool) -> set[int]:
    """The partitions of a topic that have a state, or are to get one."""
    known = states.initialized.get(topic_id)
    begun = set() if known is None else set(known.partitions)
    asked = None if repeats else states.initializing.get(topic_id)
    return begun if asked is None else begun | set(asked.partitions)


def beginnings(group: ShareGroup, lacking: Partitions, image: MetadataImage, *, repeats: bool) -> list[Beginning]:
    """The states to ask for, of partitions that lack one."""
    states, found = group.states, list[Beginning]()
    knows_growth = (image.features.metadata_version or 0) >= GROUPS_OF_4_4
    for topic_id, topic in sorted(lacking.items()):
        is_grown = topic_id in states.initialized or (not repeats and topic_id in states.initializing)
        start = FROM_BEGIN if is_grown and knows_growth else BY_SETTING
        found += [Beginning(topic_id, number, start) for number in topic.partitions]
    return found


def with_initializing(states: States, more: Partitions) -> States:
    """The states while some more are asked for."""
    deleting = {topic_id: name for topic_id, name in states.deleting.items() if topic_id not in more}
    return replace(states, initializing=united(states.initializing, more), deleting=deleting)


def with_initialized(states: States, more: Partitions) -> States:
    """The states after some more have begun."""
    initializing = without(states.initializing, more)
    return replace(states, initializing=initializing, initialized=united(states.initialized, more))


def without_initializing(states: States, less: Partitions) -> States:
    """The states after some could not begin."""
    return replace(states, initializing=without(states.initializing, less))


def with_deleting(states: States, topic_ids: Collection[Uuid]) -> States:
    """The states while those of some topics are deleted."""
    deleting = dict(states.deleting)
    for topics in (states.initializing, states.initialized):
        deleting |= {topic_id: topics[topic_id].name for topic_id in topic_ids if topic_id in topics}
    rest = _without_topics(states, topic_ids)
    return replace(rest, deleting=deleting)


def without_deleting(states: States, topic_ids: Collection[Uuid]) -> States:
    """The states after those of some topics were deleted."""
    return replace(
        states, deleting={topic_id: name for topic_id, name in states.deleting.items() if topic_id not in topic_ids}
    )


def without_topics(states: States, topic_ids: Collection[Uuid]) -> States:
    """The states without topics that do not exist any more."""
    return without_deleting(_without_topics(states, topic_ids), topic_ids)


def _without_topics(states: States, topic_ids: Collection[Uuid]) -> States:
    return replace(
        states,
        initializing={topic_id: one for topic_id, one in states.initializing.items() if topic_id not in topic_ids},
        initialized={topic_id: one for topic_id, one in states.initialized.items() if topic_id not in topic_ids},
    )


def is_in(states: States, topic_ids: Iterable[Uuid]) -> bool:
    """Whether some partition of one of these topics has a state, or is to get or to lose one."""
    return any(one in states.initializing or one in states.initialized or one in states.deleting for one in topic_ids)


def assignable(group: ShareGroup, image: MetadataImage) -> dict[Uuid, tuple[int, ...]]:
    """The partitions that may be given to members."""
    return {
        topic_id: topic.partitions
        for topic_id, topic in group.states.initialized.items()
        if topic_id in image.topics.by_id
    }


def is_assignment_pending(group: ShareGroup, image: MetadataImage) -> Generator[None, None, bool]:
    """Find whether a partition with a state, of a topic that some member wants, is in nobody's target, in portions."""
    wanted = {topic_id for name in group.names if (topic_id := image.topics.by_name.get(name)) is not None}
    initialized = {topic_id: topic for topic_id, topic in group.states.initialized.items() if topic_id in wanted}
    assigned: dict[Uuid, set[int]] = {topic_id: set() for topic_id in initialized}
    looked_at = 0
    for target in group.targets.values():
        for topic_id, numbers in target.items():
            if topic_id in assigned:
                assigned[topic_id].update(numbers)
                looked_at += len(numbers)
        if looked_at >= SHARE_PARTITIONS_PER_STEP:
            looked_at = 0
            yield None
    return any(
        len(assigned[topic_id].intersection(topic.partitions)) < len(topic.partitions)
        for topic_id, topic in initialized.items()
    )
