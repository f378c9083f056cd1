"""The choice of the partitions that each member of a group should have (Kafka: `TargetAssignmentBuilder`)."""

from __future__ import annotations

from collections.abc import Generator, Iterable

from kraft.coordinators.groups.assignors import ASSIGNORS, AssignmentMember, GroupSpec
from kraft.coordinators.groups.consumer.draft import Draft
from kraft.coordinators.groups.consumer.group import ConsumerGroup
from kraft.limits import TARGET_TOPICS_PER_STEP
from metadata_log.image import MetadataImage
from metadata_log.types import Uuid


def ids_of(image: MetadataImage, names: Iterable[str]) -> frozenset[Uuid]:
    """The ids of the topics of these names that exist."""
    ids = (image.topics.by_name.get(name) for name in names)
    return frozenset(topic_id for topic_id in ids if topic_id is not None)


def preferred_assignor(group: ConsumerGroup, assignors: tuple[str, ...]) -> str:
    """The assignor that most members ask for; the first of the broker's among equals, and where nobody asks."""
    return max(assignors, key=lambda name: group.assignors.get(name, 0))


def assigning(
    draft: Draft, image: MetadataImage, assignors: tuple[str, ...], now_ms: int
) -> Generator[None, None, None]:
    """Write the targets for the present epoch of the group, in portions."""
    group = draft.group
    topics: dict[tuple[frozenset[str], str | None], tuple[Uuid, ...]] = {}
    members = []
    for member_id in sorted(group.members):
        member = group.members[member_id]
        wish = member.names, member.regex
        if wish not in topics:
            topics[wish] = tuple(sorted(ids_of(image, group.topics_of(member))))
        members.append(AssignmentMember(member_id, member.instance_id, topics[wish], group.targets.get(member_id, {})))
    counts = {one: len(image.topics.by_id[one].partitions) for wanted in topics.values() for one in wanted}
    spec = GroupSpec(members, counts, group.is_homogeneous)
    yield None
    targets = ASSIGNORS[preferred_assignor(group, assignors)](spec)
    written = TARGET_TOPICS_PER_STEP
    for member_id in sorted(group.members):
        if written >= TARGET_TOPICS_PER_STEP:
            written = 0
            yield None
        target = {topic_id: numbers for topic_id, numbers in targets.get(member_id, {}).items() if numbers}
        before = group.targets.get(member_id)
        if before is None or before != target:
            draft.target(member_id, target)
            written += len(target)
    draft.target_epoch(group.epoch, now_ms)
