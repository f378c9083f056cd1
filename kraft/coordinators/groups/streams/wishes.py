"""The wishes of a heartbeat of a streams group, and the member and the topology of which it speaks (Kafka:
`GroupCoordinatorService.throwIfStreamsGroupHeartbeatRequestIsInvalid`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from kraft.access.caller import host_of_peer
from kraft.access.errors import ApiError
from kraft.coordinators.groups.consumer.groups import is_blank
from kraft.coordinators.groups.streams.group import AWAY, StreamsMember
from kraft.coordinators.groups.streams.tasks import TaskIds, Tasks, task_ids
from kraft.coordinators.groups.streams.topology import ConfiguredSubtopology
from kraft.limits import (
    NAMED_TOPICS,
    STREAMS_CLIENT_TAGS,
    STREAMS_PARTITIONS_PER_GROUP,
    STREAMS_TOPOLOGY_ITEMS,
)
from kraft.wire import WireRequest
from metadata_log.records import consumer_offsets as records
from transport.protocol.errors import Error
from transport.protocol.messages import streams_group_heartbeat as messages
from transport.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest

Offsets = Mapping[str, Mapping[int, int]]
"""Offsets of the changelogs of tasks, by subtopology and partition."""
NO_REBALANCE_TIMEOUT: Final = -1
_ALL_OR_NONE: Final = "If one task-type is non-null, all must be non-null."


def check(message: StreamsGroupHeartbeatRequest) -> None:
    """Refuse what no group could accept; raises `ApiError`."""
    subtopologies = () if message.topology is None else message.topology.subtopologies
    if any(one.source_topic_regex for one in subtopologies):
        raise _invalid("Regular expressions for source topics are not supported yet.")
    for name, text in (
        ("MemberId", message.member_id),
        ("GroupId", message.group_id),
        ("InstanceId", message.instance_id),
        ("RackId", message.rack_id),
    ):
        if text is not None and is_blank(text):
            raise _invalid(f"{name} can't be empty.")
    roles = ("ActiveTasks", message.active_tasks), ("StandbyTasks", message.standby_tasks)
    if message.member_epoch == 0:
        if message.rebalance_timeout_ms == NO_REBALANCE_TIMEOUT:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        for name, tasks in (*roles, ("WarmupTasks", message.warmup_tasks)):
            if tasks:
                raise _invalid(f"{name} must be empty when (re-)joining.")
        if message.topology is None:
            raise _invalid("Topology must be non-null when (re-)joining.")
        _check_changelogs(message.topology)
    elif message.member_epoch == AWAY and message.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif message.member_epoch < AWAY:
        raise _invalid(f"MemberEpoch is {message.member_epoch}, but must be greater than or equal to -2.")
    given = [one is not None for one in (message.active_tasks, message.standby_tasks, message.warmup_tasks)]
    if any(given) and not all(given):
        raise _invalid(_ALL_OR_NONE)
    if message.member_epoch != 0 and message.topology is not None:
        raise _invalid("Topology can only be provided when (re-)joining.")
    _check_counts(message)


def _invalid(text: str) -> ApiError:
    return ApiError(Error.INVALID_REQUEST, text)


def _check_changelogs(topology: messages.Topology) -> None:
    for one in topology.subtopologies:
        for topic in one.state_changelog_topics:
            if topic.partitions:
                text = f"Changelog topic {topic.name} must have an undefined partition count, but it is set to"
                raise ApiError(Error.STREAMS_INVALID_TOPOLOGY, f"{text} {topic.partitions}.")


def check_size(topology: messages.Topology) -> None:
    """Refuse a topology of more than any program of Kafka Streams has; Kafka itself has no such bounds."""
    count = len(topology.subtopologies)
    if count > STREAMS_TOPOLOGY_ITEMS or sum(map(_items, topology.subtopologies)) > STREAMS_TOPOLOGY_ITEMS:
        text = f"A topology has at most {STREAMS_TOPOLOGY_ITEMS} subtopologies, topics and settings."
        raise ApiError(Error.STREAMS_INVALID_TOPOLOGY, text)
    if len(topic_names(topology)) > NAMED_TOPICS:
        raise ApiError(Error.STREAMS_INVALID_TOPOLOGY, f"A topology names at most {NAMED_TOPICS} topics.")


def _check_counts(message: StreamsGroupHeartbeatRequest) -> None:
    """Refuse what Kafka's broker runs into exceptions for, and more tasks and tags than any program has."""
    if message.topology is not None:
        topology = message.topology
        ids = [one.subtopology_id for one in topology.subtopologies]
        if len(set(ids)) < len(ids):
            # Kafka's broker runs into an exception of Java there.
            raise ApiError(Error.UNKNOWN_SERVER_ERROR, "A subtopology is there twice.")
        if topology.epoch < 0:
            raise ApiError(Error.UNKNOWN_SERVER_ERROR, "Topology epoch must be non-negative.")
    tags = message.client_tags or ()
    if len(tags) > STREAMS_CLIENT_TAGS:
        raise _invalid(f"A member has at most {STREAMS_CLIENT_TAGS} tags.")
    if len({one.key for one in tags}) < len(tags):
        raise ApiError(Error.UNKNOWN_SERVER_ERROR, "A client tag is there twice.")
    roles = (message.active_tasks, message.standby_tasks, message.warmup_tasks)
    owned = sum([1 + len(one.partitions) for role in roles for one in role or ()])
    told = len(message.task_offsets or ()) + len(message.task_end_offsets or ())
    if owned > STREAMS_PARTITIONS_PER_GROUP or told > 2 * STREAMS_PARTITIONS_PER_GROUP:
        raise _invalid(f"A member has at most {STREAMS_PARTITIONS_PER_GROUP} tasks.")


def _items(one: messages.Subtopology) -> int:
    topics = (*one.state_changelog_topics, *one.repartition_source_topics)
    groups = [
        1 + len(each.source_topics) + len(each.source_topic_regex) + len(each.repartition_source_topics)
        for each in one.copartition_groups
    ]
    named = len(one.source_topics) + len(one.repartition_sink_topics)
    return 1 + named + sum([1 + len(each.topic_configs) for each in topics]) + sum(groups)


def topic_names(topology: messages.Topology) -> list[str]:
    """The topics of a topology in the order in which it names them, each once."""
    return list(dict.fromkeys(name for one in topology.subtopologies for name in _names(one)))


def _names(one: messages.Subtopology) -> Iterator[str]:
    yield from one.source_topics
    yield from one.repartition_sink_topics
    yield from (topic.name for topic in one.repartition_source_topics)
    yield from (topic.name for topic in one.state_changelog_topics)


def recorded(topology: messages.Topology) -> records.StreamsGroupTopologyValue:
    """The record of a topology."""
    return records.StreamsGroupTopologyValue(topology.epoch, tuple(map(_subtopology, topology.subtopologies)))


def _subtopology(one: messages.Subtopology) -> records.Subtopology:
    return records.Subtopology(
        one.subtopology_id,
        tuple(one.source_topics),
        tuple(one.source_topic_regex),
        tuple(map(_topic, one.state_changelog_topics)),
        tuple(one.repartition_sink_topics),
        tuple(map(_topic, one.repartition_source_topics)),
        tuple(
            records.CopartitionGroup(
                tuple(each.source_topics), tuple(each.source_topic_regex), tuple(each.repartition_source_topics)
            )
            for each in one.copartition_groups
        ),
    )


def _topic(one: messages.TopicInfo) -> records.StreamsGroupTopologyValueTopicInfo:
    configs = tuple(records.TopicConfig(each.key, each.value) for each in one.topic_configs)
    return records.StreamsGroupTopologyValueTopicInfo(one.name, one.partitions, one.replication_factor, configs)


def are_same(first: records.StreamsGroupTopologyValue, second: records.StreamsGroupTopologyValue) -> bool:
    """Whether two topologies are the same, in whatever order they name their subtopologies."""
    return first.epoch == second.epoch and (
        first.subtopologies == second.subtopologies
        or {one.subtopology_id: one for one in first.subtopologies}
        == {one.subtopology_id: one for one in second.subtopologies}
    )


def merged(member: StreamsMember, request: WireRequest[StreamsGroupHeartbeatRequest]) -> StreamsMember:
    """The member with what a heartbeat says; what it leaves out stays, but the endpoint of a member that joins."""
    message = request.message
    endpoint = None if message.user_endpoint is None else (message.user_endpoint.host, message.user_endpoint.port)
    tags, timeout_ms = message.client_tags, message.rebalance_timeout_ms
    joins = message.member_epoch == 0
    return replace(
        member,
        instance_id=_or(message.instance_id, member.instance_id),
        rack_id=_or(message.rack_id, member.rack_id),
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == NO_REBALANCE_TIMEOUT else timeout_ms,
        topology_epoch=member.topology_epoch if message.topology is None else message.topology.epoch,
        client_id=request.client_id or "",
        client_host=f"/{host_of_peer(request.peer)}",
        process_id=_or(message.process_id, member.process_id) or "",
        endpoint=member.endpoint if endpoint is None and not joins else endpoint,
        client_tags=member.client_tags if tags is None else {one.key: one.value for one in tags},
    )


def _or(given: str | None, known: str | None) -> str | None:
    return known if given is None else given


def owned_tasks(message: StreamsGroupHeartbeatRequest) -> Tasks | None:
    """The tasks that a member says that it owns; None if it does not say so."""
    if message.active_tasks is None or message.standby_tasks is None or message.warmup_tasks is None:
        return None
    return Tasks(task_ids(message.active_tasks), task_ids(message.standby_tasks), task_ids(message.warmup_tasks))


def check_tasks(owned: Tasks, subtopologies: Mapping[str, ConfiguredSubtopology]) -> None:
    """Refuse tasks that the topology does not have; raises `ApiError`."""
    for role in (owned.active, owned.standby, owned.warmup):
        _check_role(role, subtopologies)


def _check_role(tasks: TaskIds, subtopologies: Mapping[str, ConfiguredSubtopology]) -> None:
    for name, numbers in tasks.items():
        one = subtopologies.get(name)
        if one is None:
            raise _invalid(f"Subtopology {name} does not exist in the topology.")
        for number in numbers:
            if not 0 <= number < one.tasks:
                text = f"Task {number} for subtopology {name} is invalid. Number of tasks for this subtopology:"
                raise _invalid(f"{text} {one.tasks}")


def told_offsets(told: Iterable[messages.TaskOffset]) -> Offsets:
    """The offsets of tasks that a member tells, each once; raises `ApiError`."""
    found: dict[str, dict[int, int]] = {}
    for one in told:
        of = found.setdefault(one.subtopology_id, {})
        if one.partition in of:
            text = f"Task offsets contain a duplicate entry for subtopology {one.subtopology_id} and partition"
            raise _invalid(f"{text} {one.partition}.")
        of[one.partition] = one.offset
    return found
