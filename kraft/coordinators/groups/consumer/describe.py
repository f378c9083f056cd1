"""The answer of ConsumerGroupDescribe for one group (Kafka: `ConsumerGroup.asDescribedGroup`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kraft.coordinators.groups.consumer.group import ConsumerGroup
from kraft.coordinators.groups.consumer.hashing import in_java_order
from kraft.coordinators.groups.consumer.member import Member
from kraft.coordinators.groups.consumer.targets import preferred_assignor
from kraft.handling.orders import in_timeline_order, newest_first_in_slots
from kraft.handling.steps import Handling
from kraft.limits import PARTITIONS_PER_STEP
from metadata_log.image import MetadataImage
from metadata_log.types import Uuid
from transport.protocol.messages.consumer_group_describe import Assignment, DescribedGroup, TopicPartitions
from transport.protocol.messages.consumer_group_describe import Member as DescribedMember

CLASSIC_TYPE = 0
CONSUMER_TYPE = 1


def described(
    group: ConsumerGroup, assignors: tuple[str, ...], image: MetadataImage, bits: int
) -> Handling[DescribedGroup]:
    """A group with its members, in steps, and what the client may do with it."""
    members = []
    order = newest_first_in_slots(len(group.members))
    in_order = yield from in_timeline_order(list(group.members.values()), lambda one: order(one.member_id, one.joined))
    for number, one in enumerate(in_order, 1):
        members.append(_member(group, one, image))
        if number % PARTITIONS_PER_STEP == 0:
            yield None
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=preferred_assignor(group, assignors),
        members=members,
        authorized_operations=bits,
    )


def _member(group: ConsumerGroup, member: Member, image: MetadataImage) -> DescribedMember:
    held: dict[Uuid, set[int]] = {}
    for assigned in (member.assigned, member.revoking):
        for topic_id, epochs in assigned.items():
            held.setdefault(topic_id, set()).update(epochs)
    target = group.targets.get(member.member_id, {})
    return DescribedMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=in_java_order(member.names),
        subscribed_topic_regex=member.regex,
        assignment=Assignment(list(_named(held.items(), image))),
        target_assignment=Assignment(list(_named(target.items(), image))),
        member_type=CONSUMER_TYPE if member.classic is None else CLASSIC_TYPE,
    )


def _named(partitions: Iterable[tuple[Uuid, Iterable[int]]], image: MetadataImage) -> Iterator[TopicPartitions]:
    """Topics that do not exist any more are left out."""
    for topic_id, numbers in sorted(partitions):
        topic = image.topics.by_id.get(topic_id)
        if topic is not None:
            yield TopicPartitions(topic_id, topic.name, sorted(numbers))
