"""Rules of streams groups, one by one, in virtual time."""

from __future__ import annotations

from typing import Any, Final

import pytest

from kraft.access.errors import ApiError
from kraft.coordinators.groups.state import GroupsState, replay_groups, streams_group
from kraft.coordinators.groups.streams.draft import tombstones
from kraft.coordinators.groups.streams.group import GroupState, MemberState
from kraft.coordinators.groups.streams.topology import Status
from kraft.limits import NAMED_TOPICS, STREAMS_PARTITIONS_AT_ONCE, STREAMS_PARTITIONS_PER_GROUP
from metadata_log.serde.codec import finished
from support.broker.share_world import TYPES
from support.broker.streams_world import StreamsWorld, subtopology, topology
from transport.protocol.errors import Error
from transport.protocol.messages import streams_group_heartbeat as messages

SESSION_MS: Final = 45_000
NOTHING: Final[tuple[dict[str, list[int]], ...]] = ({}, {}, {})


def kinds(world: StreamsWorld) -> list[str]:
    """The types of the records of each operation, a tombstone with a `-` after it."""
    return [" ".join(f"{TYPES[type(one.key)]}{'-' if one.value is None else ''}" for one in of) for of in world.batches]


def statuses(answer: Any) -> list[Status]:
    return [Status(one.status_code) for one in answer.status]


def refusal(world: StreamsWorld, member_id: str, epoch: int, **fields: Any) -> tuple[Error, str | None]:
    with pytest.raises(ApiError) as refused:
        world.send(member_id, epoch, **fields)
    return refused.value.error, refused.value.text


def running(*members: str, partitions: int = 4, **settings: Any) -> StreamsWorld:
    """A group of which each member has its tasks."""
    world = StreamsWorld(**settings)
    world.topic("a", partitions)
    for one in members:
        world.send(one, 0)
        world.settle(*list(world.group().members))
    world.settle(*members)
    world.batches.clear()
    return world


def test_a_task_moves_once_its_owner_has_given_it_up() -> None:
    world = running("m")
    world.send("n", 0)
    assert (world.held("n"), world.group().members["n"].state) == ({}, MemberState.UNRELEASED_TASKS)
    given = world.send("m", 2)
    assert [one.partitions for one in given.active_tasks] == [[0, 1]]
    assert world.group().members["m"].state is MemberState.UNREVOKED_TASKS
    assert world.send("n", 3).active_tasks is None, "the tasks are not free yet"
    assert world.send("m", 2, owned=({"0": [0, 1]}, {}, {})).member_epoch == 3
    assert [one.partitions for one in world.send("n", 3).active_tasks] == [[2, 3]]
    assert world.group().state is GroupState.STABLE


def test_a_silent_member_is_removed_when_its_session_is_over() -> None:
    world = running("m")
    world.wait(SESSION_MS - 1)
    assert list(world.group().members) == ["m"]
    world.wait(1)
    assert (list(world.group().members), world.group().state) == ([], GroupState.EMPTY)
    assert kinds(world) == ["22- 21- 19- 17 20"]


def test_a_member_that_leaves_is_gone_at_once_and_its_tasks_go_to_another() -> None:
    world = running("m", "n")
    assert world.send("n", -1).member_epoch == -1
    world.settle("m")
    assert world.held("m") == {"0": [0, 1, 2, 3]}
    assert refusal(world, "n", -1) == (Error.UNKNOWN_MEMBER_ID, "Member n is not a member of group g.")


def test_sources_that_are_missing_are_named_and_the_group_begins_when_they_exist() -> None:
    world = StreamsWorld()
    answer = world.send("m", 0)
    assert [(one.status_code, one.status_detail) for one in answer.status] == [(1, "Source topics a are missing.")]
    assert (world.group().state, answer.active_tasks) == (GroupState.NOT_READY, [])
    world.topic("a", 1)
    answer = world.send("m", answer.member_epoch)
    assert ([one.partitions for one in answer.active_tasks], answer.status) == ([[0]], [])


@pytest.mark.parametrize(
    ("made", "given", "text"),
    [
        (
            {"a": 2, "b": 3},
            subtopology("0", "a", "b", together=True),
            "Following topics do not have the same number of partitions: [{a=2, b=3}]",
        ),
        (
            {"a": 2, "store": 1},
            subtopology("0", "a", changelogs=["store"]),
            "Existing topic store has different number of partitions: expected 2, found 1",
        ),
        (
            {"a": 2},
            subtopology("0", "a", repartitions={"again": 3}, sinks=["again"], together=True),
            "Number of partitions [3] of repartition topic [again] doesn't match number of partitions [2] of the source"
            " topic.",
        ),
    ],
)
def test_topics_that_do_not_fit_are_named(made: dict[str, int], given: messages.Subtopology, text: str) -> None:
    world = StreamsWorld()
    for name, count in made.items():
        world.topic(name, count)
    answer = world.send("m", 0, topology=topology(given))
    assert [(one.status_code, one.status_detail) for one in answer.status] == [(2, text)]
    assert world.group().state is GroupState.NOT_READY


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (subtopology("0"), "No source topics found for subtopology 0"),
        (
            subtopology("0", "a", repartitions={"again": 0}),
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic is"
            " never used as a sink topic.",
        ),
        (
            subtopology("0", repartitions={"again": 0}, sinks=["again"]),
            "Failed to compute number of partitions for all repartition topics. There may be loops in the topology that"
            " cannot be resolved.",
        ),
    ],
)
def test_a_topology_that_cannot_run_is_refused(given: messages.Subtopology, text: str) -> None:
    world = StreamsWorld()
    world.topic("a", 1)
    assert refusal(world, "m", 0, topology=topology(given)) == (Error.STREAMS_INVALID_TOPOLOGY, text)
    assert not world.log


def test_a_repartition_topic_gets_as_many_partitions_as_what_is_joined_with_it() -> None:
    world = StreamsWorld()
    world.topic("a", 2)
    world.topic("b", 5)
    first = subtopology("0", "a", sinks=["again"])
    second = subtopology("1", "b", repartitions={"again": 0}, together=True)
    world.send("m", 0, topology=topology(first, second))
    assert world.told is not None
    assert [(one.name, one.partitions) for one in world.told.lacking] == [("again", 5)]


def test_settings_of_the_assignor_make_a_new_epoch() -> None:
    world = running("m")
    epoch = world.group().epoch
    world.configure("g", streams_num_standby_replicas="1")
    world.send("m", epoch)
    assert (world.group().epoch, dict(world.group().assignment_configs)) == (epoch + 1, {"num.standby.replicas": "1"})


def test_the_first_targets_wait_for_further_members() -> None:
    world = StreamsWorld(initial_rebalance_delay_ms=3000)
    world.topic("a", 2)
    answer = world.send("m", 0)
    assert (statuses(answer), answer.active_tasks, answer.member_epoch) == ([Status.ASSIGNMENT_DELAYED], [], 1)
    world.send("n", 0)
    world.wait(3000)
    assert [one.partitions for one in world.send("m", 1).active_tasks] == [[1]]
    assert [one.partitions for one in world.send("n", 1).active_tasks] == [[0]]


def test_targets_are_an_interval_apart() -> None:
    world = StreamsWorld(assignment_interval_ms=1000)
    world.topic("a", 2)
    world.send("m", 0)
    answer = world.send("n", 0)
    assert (statuses(answer), answer.member_epoch) == ([Status.ASSIGNMENT_DELAYED], 2)
    world.wait(1000)
    assert statuses(world.send("n", 2)) == []


def test_a_static_member_comes_back_with_its_tasks_under_another_id() -> None:
    world = StreamsWorld()
    world.topic("a", 2)
    world.send("m", 0, instance_id="i", process_id="p")
    epoch = world.group().epoch
    assert refusal(world, "n", 0, instance_id="i", process_id="p")[0] is Error.UNRELEASED_INSTANCE_ID
    assert world.send("m", -2, instance_id="i").member_epoch == -2
    assert world.group().members["m"].assigned.active == {"0": {0: 0, 1: 0}}
    answer = world.send("n", 0, instance_id="i", process_id="p")
    assert (answer.member_epoch, [one.partitions for one in answer.active_tasks]) == (epoch, [[0, 1]])
    assert world.group().epoch == epoch, "nothing else has changed"
    assert list(world.group().members) == ["n"]
    assert refusal(world, "m", epoch, instance_id="i")[0] is Error.FENCED_INSTANCE_ID
    assert refusal(world, "m", epoch, instance_id="j") == (Error.UNKNOWN_MEMBER_ID, "Instance id j is unknown.")


def test_a_member_of_another_epoch_is_fenced_unless_its_answer_was_lost() -> None:
    world = running("m")
    world.configure("g", streams_num_standby_replicas="1")
    world.send("m", 2)
    assert world.send("m", 2, owned=({"0": [0]}, {}, {})).member_epoch == 3
    assert refusal(world, "m", 2)[0] is Error.FENCED_MEMBER_EPOCH, "it does not say what it owns"
    assert refusal(world, "m", 1, owned=NOTHING)[0] is Error.FENCED_MEMBER_EPOCH
    assert refusal(world, "m", 4)[0] is Error.FENCED_MEMBER_EPOCH
    assert world.send("m", 0).member_epoch == 3, "it may begin again"


def test_a_topology_does_not_change_and_an_older_one_is_told() -> None:
    world = running("m")
    world.topic("b", 1)
    other = topology(subtopology("0", "b"))
    assert refusal(world, "n", 0, topology=other) == (
        *(Error.INVALID_REQUEST, "Topology updates are not supported yet."),
    )
    world = StreamsWorld()
    world.topic("a", 1)
    world.send("m", 0, topology=topology(subtopology("0", "a"), epoch=2))
    answer = world.send("n", 0, topology=topology(subtopology("0", "b"), epoch=1))
    assert statuses(answer) == [Status.STALE_TOPOLOGY]


def test_tasks_that_the_topology_does_not_have_are_refused() -> None:
    world = running("m", partitions=1)
    assert refusal(world, "m", 2, owned=({"1": [0]}, {}, {})) == (
        *(Error.INVALID_REQUEST, "Subtopology 1 does not exist in the topology."),
    )
    assert refusal(world, "m", 2, owned=({"0": [1]}, {}, {})) == (
        Error.INVALID_REQUEST,
        "Task 1 for subtopology 0 is invalid. Number of tasks for this subtopology: 1",
    )


def test_who_asks_for_the_end_of_the_application_is_told_to_all() -> None:
    world = running("m", "n")
    world.send("m", -1, shutdown_application=True)
    assert statuses(world.send("n", world.group().members["n"].epoch)) == [Status.SHUTDOWN_APPLICATION]
    world.send("n", -1)
    assert statuses(world.send("n", 0)) == [], "a new run of the application begins anew"


def test_members_learn_where_the_others_answer_queries() -> None:
    world = running("m")
    endpoint = messages.StreamsGroupHeartbeatRequestEndpoint("host", 7000)
    answer = world.send("m", 2, user_endpoint=endpoint)
    (told,) = answer.partitions_by_user_endpoint
    assert (told.user_endpoint.host, told.user_endpoint.port) == ("host", 7000)
    assert [(one.topic, one.partitions) for one in told.active_partitions] == [("a", [0, 1, 2, 3])]
    epoch = answer.endpoint_information_epoch
    assert epoch == 1
    member = world.group().members["m"].epoch
    assert world.send("m", member, endpoint_information_epoch=epoch).partitions_by_user_endpoint is None


def test_a_member_without_a_tag_that_the_group_needs_is_told() -> None:
    world = running("m")
    world.configure("g", streams_rack_aware_assignment_tags="zone,rack")
    answer = world.send("m", 2, client_tags=[messages.KeyValue("zone", "1")])
    assert [one.status_detail for one in answer.status] == [
        "Missing required client tags for rack-aware standby assignment: [rack]. Configure them via"
        " 'client.tag.<tagKey>' in your Streams config."
    ]
    assert world.send("m", world.group().epoch, version=0).status == []


def test_offsets_of_tasks_are_remembered_and_doubled_ones_refused() -> None:
    world = running("m")
    told = [messages.TaskOffset("0", 1, 5), messages.TaskOffset("0", 0, 4)]
    world.send("m", 2, task_offsets=told, task_end_offsets=told[:1])
    assert world.shard.streams.offsets_of("g", "m") == ({"0": {1: 5, 0: 4}}, {"0": {1: 5}})
    assert refusal(world, "m", 2, task_offsets=told + told)[0] is Error.INVALID_REQUEST
    world.send("m", -1)
    assert world.shard.streams.offsets_of("g", "m") == ({}, {})


@pytest.mark.parametrize(
    ("epoch", "fields", "text"),
    [
        (0, {"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        (0, {"topology": None}, "Topology must be non-null when (re-)joining."),
        (0, {"owned": ({"0": [0]}, {}, {})}, "ActiveTasks must be empty when (re-)joining."),
        (0, {"instance_id": ""}, "InstanceId can't be empty."),
        (0, {"rack_id": " "}, "RackId can't be empty."),
        (0, {"group_id": ""}, "GroupId can't be empty."),
        (-2, {}, "InstanceId can't be null."),
        (-3, {}, "MemberEpoch is -3, but must be greater than or equal to -2."),
        (1, {"active_tasks": []}, "If one task-type is non-null, all must be non-null."),
        (1, {"topology": topology()}, "Topology can only be provided when (re-)joining."),
    ],
)
def test_requests_that_no_group_could_accept_are_refused(epoch: int, fields: dict[str, Any], text: str) -> None:
    assert refusal(StreamsWorld(), "m", epoch, **fields) == (Error.INVALID_REQUEST, text)


def test_a_group_or_member_begins_only_with_epoch_0() -> None:
    world = StreamsWorld()
    assert refusal(world, "m", 1) == (Error.GROUP_ID_NOT_FOUND, "Streams group g not found.")
    assert refusal(world, "m", -1) == (Error.GROUP_ID_NOT_FOUND, "Group g not found.")
    world = running("m")
    assert refusal(world, "n", 1)[0] is Error.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_no_further_member() -> None:
    world = running("m", max_size=1)
    assert refusal(world, "n", 0)[0] is Error.GROUP_MAX_SIZE_REACHED
    assert world.send("m", 0).member_epoch == 2


def test_a_topology_of_too_much_is_refused() -> None:
    world = StreamsWorld()
    names = [f"t{number}" for number in range(NAMED_TOPICS + 1)]
    assert refusal(world, "m", 0, topology=topology(subtopology("0", *names)))[0] is Error.STREAMS_INVALID_TOPOLOGY
    world.topic("a", STREAMS_PARTITIONS_PER_GROUP + 1)
    assert refusal(world, "m", 0) == (
        Error.STREAMS_INVALID_TOPOLOGY,
        f"The tasks of a group read at most {STREAMS_PARTITIONS_PER_GROUP} partitions.",
    )


def test_a_new_broker_has_the_same_group_and_goes_on() -> None:
    world = running("m", "n")
    before = world.group()
    world.restart()
    after = world.group()
    assert after == before
    size = world.state.bytes
    assert size > 0
    assert world.send("m", world.group().members["m"].epoch).active_tasks is None
    assert not world.batches, "the topics are what they were"
    world.wait(SESSION_MS)
    assert not world.group().members, "each member has its full time from the start"


def test_the_end_of_a_group_leaves_nothing() -> None:
    world = running("m")
    for record in tombstones(world.group()):
        world.state = replay_groups(world.state, record, len(world.log), -1)
    assert world.state == GroupsState()


def test_a_cleaned_log_gives_the_same_group() -> None:
    world = running("m", "n")
    world.send("n", -1)
    world.settle("m")
    last = {record.key: record for record in world.log}
    state = GroupsState()
    for record in last.values():
        state = replay_groups(state, record, 0, -1)
    group = streams_group(state, "g")
    assert group is not None
    assert group.members["m"].assigned == world.group().members["m"].assigned
    assert (group.epoch, group.topology, group.targets) == (
        world.group().epoch,
        world.group().topology,
        world.group().targets,
    )


def test_many_tasks_are_given_in_portions_that_have_the_effect_of_one() -> None:
    world, other = StreamsWorld(), StreamsWorld()
    for one in (world, other):
        one.topic("a", STREAMS_PARTITIONS_AT_ONCE)
    request = world.wire(world.request("m", 0))
    portions = world.shard.streams_heartbeating(request, world.context())
    assert portions is not None
    operation = finished(portions)
    world.take(operation)
    other.take(other.shard.streams_heartbeat(request, other.context()))
    assert world.state.groups == other.state.groups
    assert world.held("m") == {"0": list(range(STREAMS_PARTITIONS_AT_ONCE))}
