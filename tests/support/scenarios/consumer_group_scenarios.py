"""C23 to C32: groups of the consumer protocol (KIP-848), and groups that change from one protocol to the other."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import Final

from confluent_kafka import Consumer

from metadata_log.records.consumer_offsets import ConsumerGroupRegularExpressionKey
from metadata_log.serde import decode, encode
from support.interop.real_kafka import eventually
from support.scenarios.confluent_load import ConfluentLoad
from support.scenarios.consumer_member import LEAVE_FOR_A_WHILE, ConsumerMember, Place, converge, epochs, places_of
from support.scenarios.coordinator_client import (
    OURS,
    Member,
    commit,
    committed,
    coordinated,
    coordinator_of,
    fail_over,
    fresh,
    listed,
    subscription,
    wait_for_rebalance,
    written,
)
from support.scenarios.scenario_cluster import SECONDS, Cluster, Topic
from transport.protocol.errors import Error
from transport.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
)
from transport.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from transport.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

ASSIGNMENT_INTERVAL_SECONDS: Final = 1.1
"""A little more than `group.consumer.assignment.interval.ms` of the brokers."""
OF_GROUP: Final = 32
INTERVAL: Final = "consumer.assignment.interval.ms"
LONG_INTERVAL_MS: Final = 5000


def let_the_interval_pass() -> None:
    """Wait until the coordinator computes an assignment again: there is nothing to be asked before."""
    threading.Event().wait(ASSIGNMENT_INTERVAL_SECONDS)


def configure(cluster: Cluster, group: str, name: str, value: str) -> None:
    """Set a config of a group, and wait until its coordinator knows."""
    wanted = AlterConfigsResource(OF_GROUP, group, [AlterableConfig(name, 0, value)])
    request = IncrementalAlterConfigsRequest(resources=[wanted])
    [done] = cluster.ask(cluster.alive[0], request, 1, IncrementalAlterConfigsResponse).responses
    assert done.error_code == Error.NONE, done
    coordinator = coordinator_of(cluster, group)
    asked = DescribeConfigsRequest([DescribeConfigsResource(OF_GROUP, group, [name])])

    def is_known() -> bool:
        [found] = cluster.ask(coordinator, asked, 4, DescribeConfigsResponse).results
        return [one.value for one in found.configs] == [value]

    eventually(is_known, f"{coordinator} knows {name} of {group}", SECONDS)


def begin(member: ConsumerMember, places: frozenset[Place]) -> None:
    """Let a first member join, and get all partitions: at once, but for a coordinator to which the topic is news."""
    assert member.join().error_code == Error.NONE
    converge([member], places)
    assert member.epoch == 2


def two_members(
    cluster: Cluster, topic: Topic, count: int, *, group: str | None = None, rebalance_timeout_ms: int = 60_000
) -> tuple[ConsumerMember, ConsumerMember]:
    """A member that has all partitions and has just been told to give up half, and one that waits for them."""
    first, second = (
        ConsumerMember(cluster, one, topic, rebalance_timeout_ms=rebalance_timeout_ms)
        for one in [group or fresh("g")] * 2
    )
    begin(first, places_of((topic, count)))
    let_the_interval_pass()
    assert second.join().error_code == Error.NONE
    assert second.held == frozenset()
    return first, second


@coordinated("C23")
def members_join_and_no_partition_has_two_owners(cluster: Cluster) -> None:
    six, four = cluster.create_wide("c23", 6), cluster.create_wide("c23", 4)
    places = places_of((six, 6), (four, 4))
    group = fresh("g")
    first = ConsumerMember(cluster, group, six, four)
    begin(first, places)
    members = [first]
    for epoch in (3, 4):
        let_the_interval_pass()
        members.append(ConsumerMember(cluster, group, six, four))
        answer = members[-1].join()
        assert (answer.error_code, answer.member_epoch) == (Error.NONE, epoch)
        assert answer.assignment is not None
        assert members[-1].held == frozenset()
        converge(members, places)
        assert epochs(cluster, group) == ("Stable", epoch, epoch)
    assert sorted(len(one.held) for one in members) == [3, 3, 4]
    types = [one.kind.type for one in written(cluster, group)]
    # The second one: its own member, the epoch, two targets and their epoch, and what it has: nothing yet.
    second = [at for at, one in enumerate(types) if one == 5][1]
    assert types[second : second + 6] == [5, 3, 7, 7, 6, 8]
    assert types[0] == 5
    assert types[second - 4 : second] == [3, 7, 6, 8]


@coordinated("C24")
def a_target_is_not_computed_again_within_the_interval(cluster: Cluster) -> None:
    topic = cluster.create_wide("c24", 4)
    group = fresh("g")
    configure(cluster, group, INTERVAL, str(LONG_INTERVAL_MS))
    first, second = (ConsumerMember(cluster, group, topic) for _ in range(2))
    begin(first, places_of((topic, 4)))
    assert (second.join().member_epoch, len(second.held)) == (2, 0)
    assert epochs(cluster, group) == ("Assigning", 3, 2)
    for one in (first, second, first):
        assert (one.beat().error_code, one.epoch) == (Error.NONE, 2)
    assert (len(first.held), len(second.held)) == (4, 0)
    converge([first, second], places_of((topic, 4)))
    assert epochs(cluster, group) == ("Stable", 3, 3)
    assert (len(first.held), len(second.held)) == (2, 2)


@coordinated("C25")
def a_member_that_gives_nothing_up_is_fenced(cluster: Cluster) -> None:
    topic = cluster.create_wide("c25", 4)
    first, second = two_members(cluster, topic, 4, rebalance_timeout_ms=3000)
    everything = first.held

    def is_fenced() -> bool:
        assert second.beat().error_code == Error.NONE
        answer = first.beat(held=everything)
        assert answer.error_code in {Error.NONE, Error.UNKNOWN_MEMBER_ID}, Error.of(answer.error_code)
        assert not second.held or answer.error_code == Error.UNKNOWN_MEMBER_ID
        return answer.error_code == Error.UNKNOWN_MEMBER_ID

    eventually(is_fenced, "the member that keeps its partitions is fenced", SECONDS)
    converge([second], everything)


@coordinated("C26")
def a_new_coordinator_goes_on_with_a_member_that_gives_up_partitions(cluster: Cluster) -> None:
    topic = cluster.create_wide("c26", 4)
    first, second = two_members(cluster, topic, 4)
    everything = first.held
    answer = first.beat()
    assert (answer.error_code, first.epoch, len(first.held)) == (Error.NONE, 2, 2)
    kept = first.held
    fail_over(cluster, first.group)
    answer = first.beat(held=everything)
    assert (answer.error_code, answer.member_epoch) == (Error.NONE, 2), Error.of(answer.error_code)
    first.held = kept
    assert second.beat().error_code == Error.NONE
    assert second.held == frozenset(), "the first one has not given them up"
    converge([first, second], everything)
    assert (first.held, first.epoch, second.epoch) == (kept, 3, 3)


@coordinated("C27", by_default=("ours", "mixed"))
def an_epoch_is_the_last_one_or_that_before_with_no_more_than_was_given(cluster: Cluster) -> None:
    topic = cluster.create_wide("c27", 4)
    first, second = two_members(cluster, topic, 4)
    everything = first.held
    converge([first, second], everything)
    assert first.epoch == 3
    fenced = Error.FENCED_MEMBER_EPOCH
    held = first.held
    assert first.beat(epoch=4).error_code == fenced
    assert first.beat(epoch=1).error_code == fenced
    assert first.beat(epoch=2, says_nothing=True).error_code == fenced
    assert first.beat(epoch=2, held=everything).error_code == fenced
    answer = first.beat(epoch=2, held=sorted(held)[:1])
    assert (answer.error_code, answer.member_epoch) == (Error.NONE, 3)
    answer = first.join()
    assert (answer.error_code, answer.member_epoch, first.held) == (Error.NONE, 3, held)
    stranger = ConsumerMember(cluster, first.group, topic)
    assert stranger.beat(epoch=1).error_code == Error.UNKNOWN_MEMBER_ID
    assert ConsumerMember(cluster, fresh("none"), topic).beat(epoch=1).error_code == Error.GROUP_ID_NOT_FOUND


@coordinated("C28", by_default=OURS)
def a_static_member_takes_its_place_again(cluster: Cluster) -> None:
    topic = cluster.create_wide("c28", 4)
    group = fresh("g")
    first, again, third = (ConsumerMember(cluster, group, topic, instance="i") for _ in range(3))
    begin(first, places_of((topic, 4)))
    assert first.leave(LEAVE_FOR_A_WHILE).member_epoch == LEAVE_FOR_A_WHILE
    assert again.join().error_code == Error.NONE
    converge([again], first.held)
    assert (again.epoch, epochs(cluster, group)) == (2, ("Stable", 2, 2))
    assert third.join().error_code == Error.UNRELEASED_INSTANCE_ID
    assert first.beat().error_code == Error.FENCED_INSTANCE_ID
    assert ConsumerMember(cluster, group, topic, instance="j").beat(epoch=1).error_code == Error.UNKNOWN_MEMBER_ID
    assert again.beat().error_code == Error.NONE


@coordinated("C29")
def a_regular_expression_finds_topics_that_come_later(cluster: Cluster) -> None:
    prefix = fresh("rx")
    early = cluster.create_wide(prefix, 2)
    group = fresh("g")
    member = ConsumerMember(cluster, group, regex=f"{prefix}-.*")
    answer = member.join()
    assert (answer.error_code, answer.member_epoch, member.held) == (Error.NONE, 1, frozenset())
    converge([member], places_of((early, 2)))
    assert (member.epoch, epochs(cluster, group)) == (2, ("Stable", 2, 2))
    late = cluster.create_wide(prefix, 3)
    other = cluster.create_wide("c29", 2)
    converge([member], places_of((early, 2), (late, 3)))
    assert member.epoch == 3
    assert (other.id, 0) not in member.held
    broken = ConsumerMember(cluster, group, regex="rx-[")
    assert broken.join().error_code == Error.INVALID_REGULAR_EXPRESSION
    assert member.leave().error_code == Error.NONE

    def is_forgotten() -> bool:
        found = [one for one in written(cluster, group) if isinstance(one.key, ConsumerGroupRegularExpressionKey)]
        return found[-1].value is None

    eventually(is_forgotten, "the regular expression of nobody is forgotten", SECONDS)


@coordinated("C30")
def each_assignor_gives_what_its_rule_says(cluster: Cluster) -> None:
    five, three = cluster.create_wide("c30", 5), cluster.create_wide("c30", 3)
    places = places_of((five, 5), (three, 3))
    for assignor in ("range", "uniform"):
        members = [
            ConsumerMember(cluster, group, five, three, id=f"{at}", assignor=assignor)
            for at, group in enumerate([fresh("g")] * 2)
        ]
        begin(members[0], places)
        let_the_interval_pass()
        assert members[1].join().error_code == Error.NONE
        converge(members, places)
        shares = [
            [sorted(number for topic, number in one.held if topic == each.id) for each in (five, three)]
            for one in members
        ]
        if assignor == "range":
            assert shares == [[[0, 1, 2], [0, 1]], [[3, 4], [2]]]
        else:
            assert [sum(map(len, one)) for one in shares] == [4, 4]
        # Who is left has all; who joins again is given as little as balance needs.
        before = members[0].held
        assert members[1].leave().error_code == Error.NONE
        converge(members[:1], places)
        let_the_interval_pass()
        members[1] = ConsumerMember(cluster, members[0].group, five, three, id="1", assignor=assignor)
        assert members[1].join().error_code == Error.NONE
        converge(members, places)
        if assignor == "range":
            assert members[0].held == before
        else:
            assert [len(one.held) for one in members] == [4, 4]
    unknown = ConsumerMember(cluster, fresh("g"), five, assignor="nothing")
    assert unknown.join().error_code == Error.UNSUPPORTED_ASSIGNOR


@coordinated("C31")
def a_group_changes_its_protocol_under_load_and_back(cluster: Cluster) -> None:
    topics = [cluster.create("c31") for _ in range(4)]
    group = fresh("g")
    seen: set[tuple[str, int]] = set()

    def consumer(protocol: str) -> Consumer:
        settings: dict[str, str | int | bool] = {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
        if protocol == "classic":
            settings["session.timeout.ms"] = 10_000
            settings["partition.assignment.strategy"] = "roundrobin"
        made = Consumer(settings)
        made.subscribe([one.name for one in topics])
        return made

    def read(*consumers: Consumer) -> int:
        found = [each for one in consumers for each in one.consume(500, timeout=0.2) if each.error() is None]
        seen.update((each.topic() or "", each.offset() or 0) for each in found)
        return len(found)

    def wait_until_shared(kind: str, *consumers: Consumer) -> None:
        def is_shared() -> bool:
            read(*consumers)
            each = [{one.topic for one in one.assignment()} for one in consumers]
            whole = set().union(*each) == {one.name for one in topics}
            return whole and all(each) and listed(cluster, group).group_type == kind

        eventually(is_shared, f"{group} is a {kind} group of {len(consumers)} members", 2 * SECONDS)

    with closing(consumer("classic")) as old:
        loads = [ConfluentLoad(cluster, one, per_second=50) for one in topics]
        for load in loads:
            load.__enter__()
        wait_until_shared("classic", old)
        eventually(lambda: bool(read(old)), "there is something to commit", SECONDS)
        old.commit(asynchronous=False)
        kept = {one.name: committed(cluster, group, one)[0] for one in topics}
        with closing(consumer("consumer")) as new:
            wait_until_shared("consumer", old, new)
            assert all(committed(cluster, group, one)[0] >= kept[one.name] for one in topics)
        wait_until_shared("classic", old)
        assert all(committed(cluster, group, one)[0] >= kept[one.name] for one in topics)
        for load in loads:
            load.__exit__(None, None, None)
        wanted = {
            (one.name, offset) for one, load in zip(topics, loads, strict=True) for offset in load.acknowledged.values()
        }

        def is_whole() -> bool:
            read(old)
            return wanted <= seen

        eventually(is_whole, "every record is delivered", SECONDS)


@coordinated("C32")
def an_upgraded_group_is_loaded_with_its_classic_members(cluster: Cluster) -> None:
    topic = cluster.create_wide("c32", 4)
    group = fresh("g")
    classic = Member(cluster, group, protocols=[("range", subscription(topic.name))])
    assert classic.join().error_code == Error.NONE
    whole = ConsumerProtocolAssignment([ConsumerProtocolAssignmentTopicPartition(topic.name, [0, 1, 2, 3])])
    given = b"\x00\x00" + encode(whole, 0)
    assert classic.sync({classic.id: given}).error_code == Error.NONE
    assert commit(cluster, group, topic, 7, member=classic) == Error.NONE
    new = ConsumerMember(cluster, group, topic)
    answer = new.join()
    assert (answer.error_code, new.held) == (Error.NONE, frozenset())
    assert [one.kind.type for one in written(cluster, group)][-3:] == [7, 6, 8]
    fail_over(cluster, group)
    assert listed(cluster, group).group_type == "consumer"
    wait_for_rebalance(classic)
    answered = classic.join_once()
    assert (answered.error_code, answered.leader, answered.members) == (Error.NONE, "", [])
    classic.generation = answered.generation_id
    share = decode(ConsumerProtocolAssignment, 0, classic.sync().assignment[2:])
    [mine] = share.assigned_partitions
    assert (mine.topic, len(mine.partitions)) == (topic.name, 2)
    theirs = places_of((topic, 4)) - {(topic.id, number) for number in mine.partitions}

    def is_shared() -> bool:
        if classic.heartbeat() == Error.REBALANCE_IN_PROGRESS:
            answered = classic.join_once()
            classic.generation = answered.generation_id
            classic.sync()
        assert new.beat().error_code == Error.NONE
        return new.held == theirs

    eventually(is_shared, "the new member has the other half", SECONDS)
    eventually(lambda: committed(cluster, group, topic) == (7, Error.NONE), "the offset is kept", SECONDS)
    assert new.leave().error_code == Error.NONE
    assert listed(cluster, group).group_type == "classic"
