"""The answer of ShareGroupDescribe for one group (Kafka: `ShareGroup.asDescribedGroup`)."""

from __future__ import annotations

from kraft.config.group_settings import SHARE_ASSIGNOR
from kraft.coordinators.groups.consumer.hashing import in_java_order
from kraft.coordinators.groups.shares.group import ShareGroup, ShareMember
from kraft.handling.orders import in_timeline_order, newest_first_in_slots
from kraft.handling.steps import Handling
from kraft.limits import PARTITIONS_PER_STEP
from metadata_log.image import MetadataImage
from transport.protocol.messages.share_group_describe import Assignment, DescribedGroup, TopicPartitions
from transport.protocol.messages.share_group_describe import Member as DescribedMember


def described(group: ShareGroup, image: MetadataImage, bits: int) -> Handling[DescribedGroup]:
    """A group with its members, in steps, and what the client may do with it."""
    members: list[DescribedMember] = []
    order = newest_first_in_slots(len(group.members))
    in_order = yield from in_timeline_order(list(group.members.values()), lambda one: order(one.member_id, one.joined))
    told = 0
    for one in in_order:
        members.append(_member(one, image))
        told += 1 + sum(map(len, one.assigned.values()))
        if told >= PARTITIONS_PER_STEP:
            told = 0
            yield None
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=SHARE_ASSIGNOR,
        members=members,
        authorized_operations=bits,
    )


def _member(member: ShareMember, image: MetadataImage) -> DescribedMember:
    """Topics that do not exist any more are left out."""
    topics = []
    for topic_id, numbers in sorted(member.assigned.items()):
        topic = image.topics.by_id.get(topic_id)
        if topic is not None:
            topics.append(TopicPartitions(topic_id, topic.name, list(numbers)))
    return DescribedMember(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=in_java_order(member.names),
        assignment=Assignment(topics),
    )
