"""C01 to C22: classic groups and their offsets, at any make of coordinator."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from metadata_log.types import Uuid
from support.interop.real_kafka import eventually
from support.scenarios.coordinator_client import (
    OURS,
    PARTITIONS,
    TOPIC_OF,
    Member,
    commit,
    committed,
    coordinate,
    coordinated,
    coordinator_of,
    described,
    fail_over,
    found_coordinator,
    fresh,
    leave,
    listed,
    milliseconds_of,
    partition_of,
    settle,
    stable_group,
    subscription,
    wait_for_rebalance,
)
from support.scenarios.scenario_cluster import SECONDS, Cluster
from transport.protocol.errors import Error
from transport.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from transport.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from transport.protocol.messages.join_group import JoinGroupResponse
from transport.protocol.messages.leave_group import MemberIdentity
from transport.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from transport.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)


@coordinated("C01", by_default=OURS)
def a_coordinator_is_the_leader_of_the_partition_of_the_key(cluster: Cluster) -> None:
    for kind, topic in TOPIC_OF.items():
        for key in ("", "g", "ä-ß", "𝄞", "polygenelubricants"):
            coordinator = coordinator_of(cluster, key, kind)
            image = cluster.image().topics[topic]
            assert len(image.partitions) == PARTITIONS
            assert image.partitions[partition_of(key)].leader == coordinator
            configs = dict(cluster.image().configs.of((2, topic)))
            assert configs["cleanup.policy"] == "compact"
    assert found_coordinator(cluster, "g", 7).error_code == Error.INVALID_REQUEST


@coordinated("C04", by_default=OURS)
def an_old_member_joins_at_once_and_a_new_one_comes_back_with_its_id(cluster: Cluster) -> None:
    old = Member(cluster, fresh("g"))
    answer = old.join(3, repeats=False)
    assert (answer.error_code, answer.leader) == (Error.NONE, answer.member_id)
    new = Member(cluster, fresh("g"))
    answer = new.join_once(4)
    assert answer.error_code == Error.MEMBER_ID_REQUIRED
    assert answer.member_id.startswith("scenario-")
    new.id = answer.member_id
    assert new.join_once(4).error_code == Error.NONE


@coordinated("C06", by_default=OURS)
def a_survivor_rejoins_with_the_next_generation(cluster: Cluster) -> None:
    first, second = stable_group(cluster, members=2)
    generation = first.generation
    assert second.leave().error_code == Error.NONE
    assert first.heartbeat() == Error.REBALANCE_IN_PROGRESS
    assert first.join().error_code == Error.NONE
    assert first.generation == generation + 1
    assert first.sync({first.id: b"all"}).assignment == b"all"
    assert first.heartbeat() == Error.NONE


@coordinated("C05")
def a_member_that_waited_at_a_dead_coordinator_is_unknown(cluster: Cluster) -> None:
    [leader] = stable_group(cluster)
    waiting = Member(cluster, leader.group)
    waiting.id = waiting.join_once().member_id
    with ThreadPoolExecutor(1) as pool:
        broker = coordinator_of(cluster, leader.group)
        held = pool.submit(cluster.ask, broker, waiting.joining(), 9, JoinGroupResponse)
        wait_for_rebalance(leader)
        fail_over(cluster, leader.group)
        assert isinstance(held.exception(SECONDS), AssertionError | OSError)
    assert waiting.join_once().error_code == Error.UNKNOWN_MEMBER_ID
    assert leader.heartbeat() == Error.NONE, "the group is as it was written"


def two_joined(cluster: Cluster) -> tuple[Member, Member]:
    """The leader of a group and a new member, who know their generation and have no assignments in it yet."""
    [leader] = stable_group(cluster)
    joiner = Member(cluster, leader.group)
    with ThreadPoolExecutor(1) as pool:
        joining = pool.submit(joiner.join)
        wait_for_rebalance(leader)
        assert [leader.join().error_code, joining.result().error_code] == [Error.NONE, Error.NONE]
    assert leader.generation == joiner.generation
    return leader, joiner


@coordinated("C07")
def a_generation_without_assignments_is_not_known_to_the_next_coordinator(cluster: Cluster) -> None:
    leader, joiner = two_joined(cluster)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(joiner.sync)
        fail_over(cluster, leader.group)
        # Asked again at the new coordinator, as a client does.
        assert waiting.result().error_code == Error.UNKNOWN_MEMBER_ID
    assert leader.heartbeat() == Error.ILLEGAL_GENERATION
    leader.generation -= 1
    assert leader.heartbeat() == Error.NONE
    joiner.id = ""
    settle([leader, joiner], joiner)


@coordinated("C08", by_default=OURS)
def a_stable_group_goes_on_at_another_coordinator(cluster: Cluster) -> None:
    topic = cluster.create("c08")
    first, second = stable_group(cluster, members=2)
    assert first.commit(topic, 7) == Error.NONE
    fail_over(cluster, first.group)
    assert [one.heartbeat() for one in (first, second)] == [Error.NONE, Error.NONE]
    assert committed(cluster, first.group, topic) == (7, Error.NONE)
    assert second.commit(topic, 8) == Error.NONE
    assert committed(cluster, first.group, topic) == (8, Error.NONE)


@coordinated("C09")
def a_silent_member_is_removed_after_its_session(cluster: Cluster) -> None:
    first, second = stable_group(cluster, members=2)

    took = milliseconds_of(lambda: wait_for_rebalance(first))
    assert 4000 < took < 12_000, took
    assert first.join().error_code == Error.NONE
    assert second.heartbeat() == Error.UNKNOWN_MEMBER_ID


@coordinated("C10")
def a_member_that_never_syncs_is_removed(cluster: Cluster) -> None:
    leader, joiner = two_joined(cluster)

    def is_removed() -> bool:
        leader.heartbeat()
        return joiner.heartbeat() == Error.UNKNOWN_MEMBER_ID

    assert leader.sync({leader.id: b"all"}).error_code == Error.NONE
    took = milliseconds_of(lambda: eventually(is_removed, "who never syncs is removed", SECONDS))
    assert 8000 < took < 20_000, took
    assert leader.heartbeat() == Error.REBALANCE_IN_PROGRESS


@coordinated("C11", by_default=OURS)
def a_static_member_returns_without_a_rebalance(cluster: Cluster) -> None:
    topic = cluster.create("c11")
    [member] = stable_group(cluster, instance="i")
    again = Member(cluster, member.group, instance=member.instance)
    answer = again.join()
    assert (answer.error_code, answer.generation_id) == (Error.NONE, member.generation)
    assert answer.skip_assignment
    assert again.sync().assignment == f"a-{member.id}".encode()
    fenced = Error.FENCED_INSTANCE_ID
    assert member.heartbeat() == fenced
    assert member.commit(topic, 1) == fenced
    assert member.join_once().error_code == fenced
    assert member.leave().members[0].error_code == fenced
    assert again.heartbeat() == Error.NONE


@coordinated("C12")
def the_new_id_of_a_static_member_is_known_after_a_fail_over(cluster: Cluster) -> None:
    [member] = stable_group(cluster, instance="i")
    again = Member(cluster, member.group, instance=member.instance)
    assert again.join().error_code == Error.NONE
    fail_over(cluster, member.group)
    assert again.heartbeat() == Error.NONE
    assert member.heartbeat() == Error.FENCED_INSTANCE_ID


@coordinated("C13", by_default=OURS)
def a_static_member_that_returns_during_a_rebalance_begins_another_one(cluster: Cluster) -> None:
    group = fresh("g")
    member, again = (Member(cluster, group, instance="i") for _ in range(2))
    assert member.join().error_code == Error.NONE
    answer = again.join()
    assert (answer.error_code, answer.generation_id) == (Error.NONE, member.generation + 1)
    assert member.sync({member.id: b"all"}).error_code == Error.FENCED_INSTANCE_ID
    assert again.sync({again.id: b"all"}).assignment == b"all"


@coordinated("C14", by_default=OURS)
def a_group_agrees_on_a_protocol_of_all(cluster: Cluster) -> None:
    group = fresh("g")
    first = Member(cluster, group, protocols=[("a", b"1"), ("b", b"2")])
    settle([first], first)
    second = Member(cluster, group, protocols=[("b", b"3"), ("c", b"4")])
    second.id = second.join_once().member_id
    with ThreadPoolExecutor(1) as pool:
        joining = pool.submit(second.join)
        wait_for_rebalance(first)
        answer = first.join()
        assert joining.result().protocol_name == answer.protocol_name == "b"
    third = Member(cluster, group, protocols=[("c", b"5")])
    assert third.join_once().error_code == Error.INCONSISTENT_GROUP_PROTOCOL
    other = Member(cluster, group, protocols=[("b", b"5")], protocol_type="connect")
    assert other.join_once().error_code == Error.INCONSISTENT_GROUP_PROTOCOL


@coordinated("C16", by_default=OURS)
def each_member_of_a_leave_gets_its_own_answer(cluster: Cluster) -> None:
    [member] = stable_group(cluster)
    answer = leave(
        cluster,
        member.group,
        MemberIdentity(member.id),
        MemberIdentity("nobody"),
        MemberIdentity("", "no-instance"),
    )
    assert answer.error_code == Error.NONE
    unknown = Error.UNKNOWN_MEMBER_ID
    assert [one.error_code for one in answer.members] == [Error.NONE, unknown, unknown]


@coordinated("C17", by_default=OURS)
def a_commit_is_taken_or_refused_as_the_group_says(cluster: Cluster) -> None:
    topic = cluster.create("c17")
    [member] = stable_group(cluster)
    for version in range(2, 11):
        assert commit(cluster, fresh("simple"), topic, version, version) == Error.NONE
        assert member.commit(topic, version, version) == Error.NONE
        assert committed(cluster, member.group, topic) == (version, Error.NONE)
        assert commit(cluster, member.group, topic, 1, version) == Error.UNKNOWN_MEMBER_ID
    member.generation += 1
    assert member.commit(topic, 1) == Error.ILLEGAL_GENERATION
    stranger = Member(cluster, fresh("none"))
    stranger.generation = 5
    assert stranger.commit(topic, 1, 9) == Error.GROUP_ID_NOT_FOUND
    assert stranger.commit(topic, 1, 8) == Error.ILLEGAL_GENERATION
    group = fresh("simple")
    assert commit(cluster, group, topic, 3, metadata="x" * 5000) == Error.OFFSET_METADATA_TOO_LARGE
    assert commit(cluster, group, topic, -5) == Error.NONE
    assert committed(cluster, group, topic) == (-5, Error.NONE)
    assert commit(cluster, "", topic, 9) == Error.NONE
    assert commit(cluster, group, topic, 1, partition=7) == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(cluster, group, topic, 4, 4, retention_ms=60_000) == Error.NONE


@coordinated("C18", by_default=OURS)
def an_acknowledged_commit_survives_its_coordinator(cluster: Cluster) -> None:
    topic = cluster.create("c18")
    group = fresh("simple")
    assert commit(cluster, group, topic, 41) == Error.NONE
    fail_over(cluster, group)
    assert committed(cluster, group, topic, stable=True) == (41, Error.NONE)
    # Without it, a read is of what is committed for the new leader, whose high watermark may still be behind.
    eventually(lambda: committed(cluster, group, topic) == (41, Error.NONE), "the offset is committed", SECONDS)


@coordinated("C19", by_default=OURS)
def what_was_never_committed_has_no_offset(cluster: Cluster) -> None:
    topic = cluster.create("c19")
    group = fresh("simple")
    assert commit(cluster, group, topic, 5) == Error.NONE
    for version in range(8, 11):
        assert committed(cluster, group, topic, version=version) == (5, Error.NONE)
        assert committed(cluster, group, topic, version=version, partition=3) == (-1, Error.NONE)
        assert committed(cluster, fresh("none"), topic, version=version) == (-1, Error.NONE)
        assert committed(cluster, group, None, version=version) == (5, Error.NONE)
    unknown = type(topic)("nothing", Uuid(bytes(15) + b"\x09"), ())
    assert committed(cluster, group, unknown) == (-1, Error.UNKNOWN_TOPIC_ID)
    assert committed(cluster, group, unknown, version=9) == (-1, Error.NONE)


def deleted(cluster: Cluster, group: str) -> Error:
    """The error of DeleteGroups."""
    request = DeleteGroupsRequest(groups_names=[group])
    answer = coordinate(cluster, group, request, 2, DeleteGroupsResponse, lambda answer: [answer.results[0].error_code])
    return Error.of(answer.results[0].error_code)


def deleted_offset(cluster: Cluster, group: str, topic: str) -> tuple[Error, Error]:
    """The error of OffsetDelete, and that of the partition."""
    named = OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(0)])
    request = OffsetDeleteRequest(group_id=group, topics=[named])
    answer = coordinate(cluster, group, request, 0, OffsetDeleteResponse, lambda answer: [answer.error_code])
    parts = [one.error_code for each in answer.topics for one in each.partitions]
    return Error.of(answer.error_code), Error.of(parts[0] if parts else 0)


@coordinated("C22", by_default=OURS)
def groups_are_described_listed_and_deleted(cluster: Cluster) -> None:
    topic = cluster.create("c22")
    group = fresh("g")
    member = Member(cluster, group, protocols=[("range", subscription(topic.name))])
    settle([member], member)
    assert member.commit(topic, 3) == Error.NONE
    shown = described(cluster, group)
    assert (shown.group_state, shown.protocol_type, shown.protocol_data) == ("Stable", "consumer", "range")
    [one] = shown.members
    assert (one.member_id, one.client_id, one.client_host) == (member.id, "scenario", "/127.0.0.1")
    assert (one.member_metadata, one.member_assignment) == (member.protocols[0][1], f"a-{member.id}".encode())
    nobody = described(cluster, fresh("none"))
    assert (nobody.error_code, nobody.group_state) == (Error.GROUP_ID_NOT_FOUND, "Dead")
    coordinator = coordinator_of(cluster, group)
    named = listed(cluster, group)
    assert (named.group_state, named.group_type, named.protocol_type) == ("Stable", "classic", "consumer")
    for states, types, there in (
        (["stable"], [], True),
        (["Empty"], [], False),
        ([], ["Classic"], True),
        ([], ["x"], False),
    ):
        request = ListGroupsRequest(states_filter=states, types_filter=types)
        found = cluster.ask(coordinator, request, 5, ListGroupsResponse).groups
        assert any(one.group_id == group for one in found) is there, (states, types)
    assert deleted(cluster, group) == Error.NON_EMPTY_GROUP
    assert deleted_offset(cluster, group, topic.name) == (Error.NONE, Error.GROUP_SUBSCRIBED_TO_TOPIC)
    assert deleted_offset(cluster, group, "nothing") == (Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION)
    assert member.leave().error_code == Error.NONE
    assert described(cluster, group).group_state == "Empty"
    assert deleted_offset(cluster, group, topic.name) == (Error.NONE, Error.NONE)
    assert committed(cluster, group, topic) == (-1, Error.NONE)
    assert deleted(cluster, group) == Error.NONE
    assert deleted(cluster, group) == Error.GROUP_ID_NOT_FOUND


@coordinated("C20")
def the_offsets_of_a_deleted_topic_are_gone(cluster: Cluster) -> None:
    topic = cluster.create("c20")
    group = fresh("simple")
    assert commit(cluster, group, topic, 5) == Error.NONE
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic.name)], timeout_ms=10_000)
    [answer] = cluster.ask(cluster.alive[0], request, 6, DeleteTopicsResponse).responses
    assert answer.error_code == Error.NONE
    eventually(lambda: committed(cluster, group, topic, version=9) == (-1, Error.NONE), "the offset is gone", SECONDS)
