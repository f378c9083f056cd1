"""The answer of StreamsGroupDescribe for one group (Kafka: `StreamsGroup.asDescribedGroup`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kraft.config.group_settings import STREAMS_ASSIGNOR
from kraft.coordinators.groups.consumer.hashing import in_java_order
from kraft.coordinators.groups.streams.group import StreamsGroup, StreamsMember
from kraft.coordinators.groups.streams.tasks import NOTHING, Tasks
from kraft.coordinators.groups.streams.topology import ConfiguredSubtopology, InternalTopic
from kraft.coordinators.groups.streams.wishes import Offsets
from kraft.handling.orders import in_timeline_order, newest_first_in_slots
from kraft.handling.steps import Handling
from kraft.limits import PARTITIONS_PER_STEP
from metadata_log.records import consumer_offsets as records
from metadata_log.types import NO_EPOCH
from transport.protocol.messages import streams_group_describe as messages

OffsetsOf = Callable[[str], tuple[Offsets, Offsets]]
"""The offsets of its tasks that a member has told, and the ends of their changelogs."""
Configured = Mapping[str, ConfiguredSubtopology]


def described(
    group: StreamsGroup, configured: Configured | None, offsets_of: OffsetsOf, bits: int
) -> Handling[messages.DescribedGroup]:
    """A group with its members, in steps.

    Args:
        group: The group.
        configured: Its topology with the partitions of its topics; None if it does not run.
        offsets_of: What members have told of their tasks.
        bits: What the client may do with it.
    """
    members: list[messages.Member] = []
    order = newest_first_in_slots(len(group.members))
    in_order = yield from in_timeline_order(list(group.members.values()), lambda one: order(one.member_id, one.joined))
    told = 0
    for one in in_order:
        target = group.targets.get(one.member_id, NOTHING)
        offsets, ends = offsets_of(one.member_id)
        members.append(_member(one, target, offsets, ends))
        held, roles = one.assigned, (target.active, target.standby, target.warmup)
        told += 1 + sum(map(len, (*held.active.values(), *held.standby.values(), *held.warmup.values())))
        told += sum([len(numbers) for role in roles for numbers in role.values()])
        told += sum(map(len, (*offsets.values(), *ends.values())))
        if told >= PARTITIONS_PER_STEP:
            told = 0
            yield None
    return messages.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=_topology(group, configured),
        members=members,
        authorized_operations=bits,
        assignor_name=STREAMS_ASSIGNOR,
    )


def _topology(group: StreamsGroup, configured: Configured | None) -> messages.Topology:
    if configured is not None and group.topology is not None:
        found = [_configured(name, one) for name, one in configured.items()]
        return messages.Topology(group.topology.epoch, found)
    if group.topology is None:
        # Only a log of which something was removed has such a group.
        return messages.Topology(NO_EPOCH, [])
    subtopologies = {one.subtopology_id: one for one in group.topology.subtopologies}
    recorded = [_recorded(subtopologies[name]) for name in in_java_order(subtopologies)]
    return messages.Topology(group.topology.epoch, recorded)


def _configured(name: str, one: ConfiguredSubtopology) -> messages.Subtopology:
    return messages.Subtopology(
        name,
        in_java_order(set(one.source_topics)),
        in_java_order(set(one.repartition_sinks)),
        _by_name(map(_internal, one.changelogs)),
        _by_name(map(_internal, one.repartition_sources)),
    )


def _internal(topic: InternalTopic) -> messages.TopicInfo:
    configs = [messages.KeyValue(key, value) for key, value in topic.configs.items()]
    return messages.TopicInfo(topic.name, topic.partitions, topic.replication_factor, configs)


def _recorded(one: records.Subtopology) -> messages.Subtopology:
    return messages.Subtopology(
        one.subtopology_id,
        in_java_order(one.source_topics),
        in_java_order(one.repartition_sink_topics),
        _by_name(map(_of_record, one.state_changelog_topics)),
        _by_name(map(_of_record, one.repartition_source_topics)),
    )


def _of_record(topic: records.StreamsGroupTopologyValueTopicInfo) -> messages.TopicInfo:
    configs = [messages.KeyValue(one.key, one.value) for one in topic.topic_configs]
    return messages.TopicInfo(topic.name, topic.partitions, topic.replication_factor, configs)


def _by_name(topics: Iterable[messages.TopicInfo]) -> list[messages.TopicInfo]:
    by_name = {one.name: one for one in topics}
    return [by_name[name] for name in in_java_order(by_name)]


def _member(member: StreamsMember, target: Tasks, offsets: Offsets, ends: Offsets) -> messages.Member:
    endpoint, held = member.endpoint, member.assigned
    return messages.Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else messages.Endpoint(*endpoint),
        client_tags=[messages.KeyValue(key, value) for key, value in member.client_tags.items()],
        task_offsets=_offsets(offsets),
        task_end_offsets=_offsets(ends),
        assignment=messages.Assignment(_tasks(held.active), _tasks(held.standby), _tasks(held.warmup)),
        target_assignment=messages.Assignment(_tasks(target.active), _tasks(target.standby), _tasks(target.warmup)),
    )


def _tasks(tasks: Mapping[str, Iterable[int]]) -> list[messages.TaskIds]:
    return [messages.TaskIds(name, sorted(tasks[name])) for name in in_java_order(tasks)]


def _offsets(offsets: Offsets) -> list[messages.TaskOffset]:
    return [
        messages.TaskOffset(name, number, offsets[name][number])
        for name in in_java_order(offsets)
        for number in sorted(offsets[name])
    ]
