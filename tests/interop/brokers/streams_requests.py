"""Requests of streams groups with wrong fields, in an order in which each changes both makes of brokers alike."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from metadata_log.serde import Message, to_json
from support.broker.streams_world import subtopology, topology
from support.eventually import eventually
from support.wire import ask
from transport.protocol.errors import Error
from transport.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse
from transport.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from transport.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from transport.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from transport.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from transport.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from transport.protocol.messages.streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from transport.protocol.messages.streams_group_heartbeat import (
    CopartitionGroup,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatRequestEndpoint,
    StreamsGroupHeartbeatRequestTaskIds,
    StreamsGroupHeartbeatResponse,
    TaskOffset,
    TopicInfo,
)

TOPICS: Final = {"a": 2, "b": 3, "hidden": 1}
"""The topics that both brokers have, and their partitions."""
HIDDEN: Final = "hidden"
"""The topic, and the group, that a rule keeps from everybody."""
SOURCE: Final = topology(subtopology("0", "a"))
EMPTY: Final[list[StreamsGroupHeartbeatRequestTaskIds]] = []
NOTHING: Final[dict[str, Any]] = {"active_tasks": EMPTY, "standby_tasks": EMPTY, "warmup_tasks": EMPTY}
AWAY: Final = {Error.COORDINATOR_LOAD_IN_PROGRESS, Error.COORDINATOR_NOT_AVAILABLE, Error.NOT_COORDINATOR}
Step = tuple[str, Message, int, type[Message]]


def _joins(member_id: str = "m", group_id: str = "g", **fields: Any) -> StreamsGroupHeartbeatRequest:
    usual = {"rebalance_timeout_ms": 60_000, "topology": SOURCE, "process_id": "p", **NOTHING}
    return StreamsGroupHeartbeatRequest(**{"group_id": group_id, "member_id": member_id, **usual, **fields})


def _beats(epoch: int, member_id: str = "m", group_id: str = "g", **fields: Any) -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest(
        **{"group_id": group_id, "member_id": member_id, "member_epoch": epoch, **fields}
    )


def _owned(name: str, *numbers: int) -> dict[str, Any]:
    return {**NOTHING, "active_tasks": [StreamsGroupHeartbeatRequestTaskIds(name, list(numbers))]}


def _with(of: Any, **fields: Any) -> Any:
    return topology(replace(of, **fields))


PLAIN: Final = subtopology("0", "a")
BEFORE: Final[dict[str, StreamsGroupHeartbeatRequest]] = {
    "of no group": _beats(1),
    "leaves no group": _beats(-1),
    "without a group": _joins(group_id=""),
    "with a blank group": _joins(group_id=" "),
    "without a member": _joins(member_id=""),
    "with a blank instance": _joins(instance_id=""),
    "with a blank rack": _joins(rack_id=" "),
    "without a timeout": _joins(rebalance_timeout_ms=-1),
    "without a topology": _joins(topology=None),
    "joins with active tasks": _joins(**_owned("0", 0)),
    "joins with standby tasks": _joins(standby_tasks=[StreamsGroupHeartbeatRequestTaskIds("0", [0])]),
    "joins with warm-up tasks": _joins(warmup_tasks=[StreamsGroupHeartbeatRequestTaskIds("0", [0])]),
    "goes away without an instance": _beats(-2),
    "with an epoch below all": _beats(-3),
    "with some roles": _beats(1, active_tasks=EMPTY),
    "brings a topology later": _beats(1, topology=SOURCE),
    "with a regular expression": _joins(topology=_with(PLAIN, source_topic_regex=["a.*"])),
    "with a changelog of so many partitions": _joins(
        topology=_with(PLAIN, state_changelog_topics=[TopicInfo("store", 3)])
    ),
    "with an internal topic": _joins(topology=topology(subtopology("0", "__consumer_offsets"))),
    "with a bad name": _joins(topology=topology(subtopology("0", "a b"))),
    "with no topic": _joins(topology=topology(subtopology("0"))),
    "with nothing": _joins(group_id="g8", topology=topology()),
    "with a repartition that nobody writes": _joins(topology=topology(subtopology("0", "a", repartitions={"r": 0}))),
    "with a loop": _joins(topology=topology(subtopology("0", repartitions={"r": 0}, sinks=["r"]))),
    "with a number of no topic": _joins(topology=_with(PLAIN, copartition_groups=[CopartitionGroup([1])])),
    "with a number below 0": _joins(topology=_with(PLAIN, copartition_groups=[CopartitionGroup([-1])])),
    "with an empty copartition group": _joins(
        group_id="e", topology=_with(PLAIN, copartition_groups=[CopartitionGroup()])
    ),
    "with a subtopology twice": _joins(topology=topology(PLAIN, PLAIN)),
    "with an epoch of the topology below 0": _joins(topology=topology(PLAIN, epoch=-1)),
    "with a tag twice": _joins(client_tags=[KeyValue("k", "1"), KeyValue("k", "2")]),
    "with negative partitions": _joins(topology=topology(subtopology("0", "a", repartitions={"r": -1}, sinks=["r"]))),
    "with sources that are missing": _joins(group_id="g1", topology=topology(subtopology("0", "no", "a", "none"))),
    "with many sources that are missing": _joins(
        group_id="g2", topology=topology(subtopology("0", "n5", "n4", "n3", "n2", "n1"))
    ),
    "with sources that do not fit": _joins(group_id="g3", topology=topology(subtopology("0", "a", "b", together=True))),
    "with a fixed repartition that does not fit": _joins(
        group_id="g4", topology=topology(subtopology("0", "a", repartitions={"r": 3}, sinks=["r"], together=True))
    ),
    "with a changelog that does not fit": _joins(
        group_id="g5", topology=topology(subtopology("0", "a", changelogs=["b"]))
    ),
    "of a hidden group": _joins(group_id=HIDDEN),
    "of a hidden topic": _joins(topology=topology(subtopology("0", "a", HIDDEN))),
}
"""The heartbeats before the group is there."""
DURING: Final[dict[str, StreamsGroupHeartbeatRequest]] = {
    "joins": _joins(user_endpoint=StreamsGroupHeartbeatRequestEndpoint("h", 7), endpoint_information_epoch=-1),
    "stays": _beats(2),
    "joins again": _joins(),
    "tells an endpoint": _beats(2, user_endpoint=StreamsGroupHeartbeatRequestEndpoint("h", 8)),
    "is of an epoch to come": _beats(9),
    "is of an epoch before": _beats(1),
    "is of an epoch before and owns nothing": _beats(1, **NOTHING),
    "owns a task of no subtopology": _beats(3, **_owned("7", 0)),
    "owns a task beyond the last": _beats(3, **_owned("0", 2)),
    "owns a task below 0": _beats(3, **_owned("0", -1)),
    "tells an offset twice": _beats(3, task_offsets=[TaskOffset("0", 0, 1), TaskOffset("0", 0, 2)]),
    "tells offsets": _beats(3, task_offsets=[TaskOffset("0", 1, 1)], task_end_offsets=[TaskOffset("0", 0, 2)]),
    "has another topology": _joins("n", topology=topology(subtopology("0", "b"))),
    "has a topology of another epoch": _joins("n", topology=topology(PLAIN, epoch=1)),
    "is unknown": _beats(3, "n"),
    "is unknown and leaves": _beats(-1, "n"),
    "is an unknown instance": _beats(3, instance_id="i"),
    "joins as an instance": _joins("s", instance_id="i", process_id="q"),
    "joins as the same instance": _joins("t", instance_id="i", process_id="q"),
    "is fenced as an instance": _beats(3, "t", instance_id="i"),
    "goes away as another": _beats(-2, "t", instance_id="i"),
    "goes away": _beats(-2, "s", instance_id="i"),
    "comes back": _joins("t", instance_id="i", process_id="q"),
    "gives up": _beats(3, **_owned("0", 0, 1)),
    "has given up": _beats(3, **_owned("0", 0)),
    "asks for the end": _beats(4, shutdown_application=True),
    "is told of the end": _beats(4, "t", instance_id="i"),
}
"""The heartbeats that make the group, and those while it is there."""


def _commit(epoch: int, member_id: str = "m", topic: str = "a", partition: int = 0, version: int = 9) -> Step:
    part = OffsetCommitRequestPartition(partition, 1, committed_metadata="")
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[part])],
    )
    return f"commit {epoch} {member_id} {topic} {partition} v{version}", request, version, OffsetCommitResponse


def _fetch(epoch: int, member_id: str | None) -> Step:
    topics = [OffsetFetchRequestTopics(name="a", partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", member_id, epoch, topics)])
    return f"fetch {epoch} {member_id}", request, 9, OffsetFetchResponse


def steps() -> list[Step]:
    """All requests, with the types of their answers."""
    made: list[Step] = [
        (name, request, version, StreamsGroupHeartbeatResponse)
        for name, request in BEFORE.items()
        for version in (0, 1)
        if version or request.group_id == "g"
    ]
    made += [(name, request, 1, StreamsGroupHeartbeatResponse) for name, request in DURING.items()]
    describes = StreamsGroupDescribeRequest(group_ids=["g", "g1", "g3", "g5", "none", "", HIDDEN, "g"])
    made += [("describe", describes, version, StreamsGroupDescribeResponse) for version in (0, 1)]
    whole = StreamsGroupDescribeRequest(["g"], True, True)
    made.append(("describe whole", whole, 1, StreamsGroupDescribeResponse))
    for states in ([], ["Stable"], ["not_ready"], ["NotReady"], ["notready"]):
        request = ListGroupsRequest(states_filter=states, types_filter=["streams"])
        made.append((f"list {states}", request, 5, ListGroupsResponse))
    made += [
        *(_commit(4), _commit(3), _commit(9), _commit(4, "none"), _commit(-1, ""), _commit(4, version=8)),
        *(_commit(3, topic="b"), _commit(3, partition=1), _fetch(4, "m"), _fetch(3, "m"), _fetch(-1, None)),
        _fetch(4, "none"),
    ]
    parts = [OffsetDeleteRequestPartition(0)]
    for topic in ("a", "b"):
        deletes = OffsetDeleteRequest("g", [OffsetDeleteRequestTopic(topic, parts)])
        made.append((f"forget {topic}", deletes, 0, OffsetDeleteResponse))
    deletion = DeleteGroupsRequest(["g", "none"])
    made.append(("delete", deletion, 2, DeleteGroupsResponse))
    leaving = {"m leaves": _beats(-1), "t leaves": _beats(-1, "t", instance_id="i")}
    made += [(name, request, 1, StreamsGroupHeartbeatResponse) for name, request in leaving.items()]
    made.append(("describe the empty group", StreamsGroupDescribeRequest(["g"]), 1, StreamsGroupDescribeResponse))
    made.append(("delete", deletion, 2, DeleteGroupsResponse))
    made.append(("describe no group", StreamsGroupDescribeRequest(["g"]), 1, StreamsGroupDescribeResponse))
    return made


def _is_coordinated(port: int, group_id: str) -> bool:
    found = ask(port, FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id]), 4, FindCoordinatorResponse)
    answer = ask(port, _beats(1, group_id=group_id), 1, StreamsGroupHeartbeatResponse)
    return not found.coordinators[0].error_code and answer.error_code not in AWAY


def told(port: int) -> dict[str, Any]:
    """What a broker answers to all steps, by their names and places, once it coordinates the groups."""
    groups = ["g", *(f"g{number}" for number in range(1, 9)), "e", "none"]
    eventually(lambda: all(_is_coordinated(port, one) for one in groups), "the broker coordinates all groups", 120)
    return {
        f"{number} {name} v{version}": _compared(to_json(ask(port, request, version, answer), version))
        for number, (name, request, version, answer) in enumerate(steps())
    }


def _compared(answer: Any) -> Any:
    """Without the text of an error that is an exception of Java in Kafka's broker: only ours says something."""
    return {**answer, "errorMessage": None} if answer.get("errorCode") == Error.UNKNOWN_SERVER_ERROR else answer
