"""The articles' claims on partition leaders, reassignments, shutdowns and topics, by the rows of docs/behaviours.md.

A scenario is a function of a cluster with the registered brokers A, B, C and D. The scenario states the records that
each step writes. A scenario runs on one controller, on ours and Apache Kafka's at once, or on a quorum that changes its
leader after every step. No scenario advances the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any, Final

from metadata_log.records.metadata import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from metadata_log.serde import Message
from support.differential.controller_cluster import Cluster
from support.differential.controller_sides import directory
from support.differential.controller_stories import (
    PREFERRED,
    SET,
    TOPIC,
    UNCLEAN,
    A,
    B,
    C,
    D,
    Step,
    assign,
    configure,
    create,
    delete,
    delete_by,
    elections,
    grow,
    heartbeat,
    isr,
    latest,
    reassign,
    reassignments,
    register,
    topic,
)
from transport.protocol import messages as m
from transport.protocol.errors import Error
from transport.protocol.messages.update_features import FeatureUpdateKey

Scenario = Callable[[Cluster], None]
RECOVERING, RECOVERED = 1, 0
ELIGIBLE_REPLICAS: Final = "eligible.leader.replicas.version"


def dies(broker: int) -> Step:
    """Write what the end of a session writes, without the wait for it."""
    return heartbeat(broker, want_fence=True)


def returns(broker: int) -> Step:
    """With everything that it had."""
    return heartbeat(broker)


def stops(broker: int) -> Step:
    """The broker requests its controlled shutdown."""
    return heartbeat(broker, want_shut_down=True)


def allow_unclean(name: str) -> Step:
    return configure(TOPIC, name, ("unclean.leader.election.enable", SET, "true"))


def eligible_replicas(level: int) -> Step:
    """Switch KIP-966 on or off."""
    update = FeatureUpdateKey(feature=ELIGIBLE_REPLICAS, max_version_level=level, upgrade_type=1 if level else 2)
    return latest(lambda side: m.UpdateFeaturesRequest(feature_updates=[update]))


def error_of(answer: dict[str, object], *path: str | int) -> Error:
    """The error code at the end of a path into an answer."""
    found: Any = answer
    for part in path:
        found = found[part]
    return Error(found["error_code"])


def lose_all_but_the_outsider(cluster: Cluster, **configs: Any) -> None:
    """B falls out of the ISR of [A, B]; then A dies, and B is there again."""
    cluster.do(create(topic("t", [A, B], **configs)), dies(B), dies(A))


# Rows 3 to 5: topics are made


def s03_the_first_live_replica_leads_a_new_topic_and_the_live_ones_are_its_isr(cluster: Cluster) -> None:
    cluster.do(dies(A))
    made, partition = cluster.records(create(topic("t", [A, B, C])))
    assert isinstance(made, TopicRecord)
    assert isinstance(partition, PartitionRecord)
    assert (partition.replicas, partition.isr, partition.leader) == ((A, B, C), (B, C), B)
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)


def s04_a_topic_without_a_live_replica_is_refused(cluster: Cluster) -> None:
    cluster.do(create(topic("old", [A, B])), dies(A), dies(B), dies(C), dies(D))
    before = len(cluster.controller.batches)
    by_hand = cluster.do(create(topic("t", [A, B])))
    assert error_of(by_hand, "topics", 0) is Error.INVALID_REPLICA_ASSIGNMENT
    placed = cluster.do(create(topic("t", count=1, factor=2)))
    assert error_of(placed, "topics", 0) is Error.INVALID_REPLICATION_FACTOR
    grown = cluster.do(grow("old", 2))
    assert error_of(grown, "results", 0) is Error.INVALID_REPLICATION_FACTOR
    assert cluster.since(before) == []


# Rows 6 to 15: a leader is lost, and found


def s06_offline_election_follows_the_order_of_the_replicas_not_of_the_isr(cluster: Cluster) -> None:
    cluster.do(create(topic("t", [A, B, C])))
    cluster.do(cluster.in_sync("t", C, B, A))
    assert cluster.records(dies(A)) == [cluster.moved("t", isr=(C, B), leader=B), cluster.change(A, fenced=1)]


def s07_unclean_election_takes_the_first_live_replica_in_the_batch_that_fences(cluster: Cluster) -> None:
    cluster.do(create(topic("t", [A, B, C], unclean_leader_election_enable="true")), dies(B), dies(C), returns(B))
    assert cluster.leads("t") == (A, (A,))
    assert cluster.records(dies(A)) == [
        cluster.moved("t", isr=(B,), leader=B, leader_recovery_state=RECOVERING),
        cluster.change(A, fenced=1),
    ]
    assert cluster.records(cluster.in_sync("t", B)) == [cluster.moved("t", leader_recovery_state=RECOVERED)]


def s07_unclean_election_takes_the_first_replica_unfenced_in_the_same_batch(cluster: Cluster) -> None:
    lose_all_but_the_outsider(cluster, unclean_leader_election_enable="true")
    assert cluster.leads("t") == (-1, ())
    assert cluster.records(returns(B)) == [
        cluster.change(B, fenced=-1),
        cluster.moved(
            "t", isr=(B,), leader=B, leader_recovery_state=RECOVERING, eligible_leader_replicas=(), last_known_elr=()
        ),
    ]


def s08_without_unclean_elections_there_is_no_leader_and_the_last_one_is_eligible(cluster: Cluster) -> None:
    cluster.do(create(topic("t", [A, B])), dies(B))
    assert cluster.records(dies(A)) == [
        cluster.moved("t", isr=(), leader=-1, eligible_leader_replicas=(A,), last_known_elr=(A,)),
        cluster.change(A, fenced=1),
    ]


def s08_without_eligible_replicas_the_last_one_stays_in_the_isr(cluster: Cluster) -> None:
    cluster.do(eligible_replicas(0), create(topic("t", [A, B])), dies(B))
    assert cluster.records(dies(A)) == [cluster.moved("t", leader=-1), cluster.change(A, fenced=1)]
    assert cluster.leads("t") == (-1, (A,))


def s09_a_replica_outside_the_isr_does_not_lead_when_it_starts(cluster: Cluster) -> None:
    lose_all_but_the_outsider(cluster)
    assert cluster.records(returns(B)) == [cluster.change(B, fenced=-1)]
    assert cluster.leads("t") == (-1, ())


def s09_without_eligible_replicas_it_does_not_lead_either(cluster: Cluster) -> None:
    cluster.do(eligible_replicas(0))
    lose_all_but_the_outsider(cluster)
    assert cluster.records(returns(B)) == [cluster.change(B, fenced=-1)]
    assert cluster.leads("t") == (-1, (A,))


def s09_it_leads_when_it_starts_if_unclean_elections_are_allowed(cluster: Cluster) -> None:
    cluster.do(eligible_replicas(0))
    lose_all_but_the_outsider(cluster, unclean_leader_election_enable="true")
    gained = cluster.moved("t", isr=(B,), leader=B, leader_recovery_state=RECOVERING)
    assert cluster.records(returns(B)) == [cluster.change(B, fenced=-1), gained]


def s10_all_replicas_are_lost_and_the_first_member_of_the_isr_that_returns_leads(cluster: Cluster) -> None:
    """In every order of their return. Only A was in the ISR when it died."""
    for number, order in enumerate(permutations((A, B, C))):
        name = f"t{number}"
        cluster.do(eligible_replicas(0), create(topic(name, [C, B, A])), dies(B), dies(C), dies(A))
        assert cluster.leads(name) == (-1, (A,))
        for broker in order:
            before = cluster.leads(name)[0]
            cluster.do(returns(broker))
            assert cluster.leads(name)[0] == (A if broker == A else before)
        assert cluster.leads(name) == (A, (A,))


def s10_all_replicas_are_lost_and_the_first_that_returns_leads_where_that_is_allowed(cluster: Cluster) -> None:
    for number, order in enumerate(permutations((A, B, C))):
        name = f"t{number}"
        cluster.do(eligible_replicas(0), create(topic(name, [C, B, A], unclean_leader_election_enable="true")))
        cluster.do(dies(B), dies(C), dies(A))
        cluster.do(returns(order[0]))
        assert cluster.leads(name) == (order[0], (order[0],))
        cluster.do(returns(order[1]), returns(order[2]))
        assert cluster.leads(name) == (order[0], (order[0],))


def s10_all_replicas_are_lost_and_the_first_eligible_one_that_returns_leads(cluster: Cluster) -> None:
    """KIP-966: below min.insync.replicas a replica that leaves the ISR stays eligible, so its election is clean."""
    for number, order in enumerate(permutations((A, B, C))):
        name = f"t{number}"
        cluster.do(create(topic(name, [A, B, C], min_insync_replicas="3")), dies(C), dies(B), dies(A))
        assert set(cluster.partition(name).elr) == {A, B, C}
        cluster.do(returns(order[0]))
        assert cluster.leads(name) == (order[0], (order[0],))
        assert cluster.partition(name).leader_recovery_state == RECOVERED
        cluster.do(returns(order[1]), returns(order[2]))


def s11_the_single_member_of_an_isr_is_kept_when_its_broker_dies(cluster: Cluster) -> None:
    cluster.do(eligible_replicas(0), create(topic("t", [A])))
    assert cluster.records(dies(A)) == [cluster.moved("t", leader=-1), cluster.change(A, fenced=1)]
    assert cluster.records(returns(A)) == [cluster.change(A, fenced=-1), cluster.moved("t", leader=A)]


def s11_with_eligible_replicas_the_single_member_becomes_one_of_them(cluster: Cluster) -> None:
    cluster.do(create(topic("t", [A])), dies(A))
    lost = cluster.partition("t")
    assert (lost.leader, lost.isr, lost.elr, lost.last_known_elr) == (-1, (), (A,), (A,))
    assert cluster.records(returns(A)) == [
        cluster.change(A, fenced=-1),
        cluster.moved("t", isr=(A,), leader=A, eligible_leader_replicas=(), last_known_elr=()),
    ]


def s12_one_record_changes_leader_and_isr_of_a_partition_per_event(cluster: Cluster) -> None:
    cluster.do(create(topic("t", [A, B], [B, A], [C, D])), create(topic("alone", [A])))
    events = (dies(A), dies(B), returns(B), returns(A))
    for written in map(cluster.records, events):
        changed = [(one.topic_id, one.partition_id) for one in written if isinstance(one, PartitionChangeRecord)]
        assert len(changed) == len(set(changed)) > 0


def s13_an_election_by_the_tool_ignores_what_the_topic_allows(cluster: Cluster) -> None:
    lose_all_but_the_outsider(cluster)
    refused = cluster.do(elections(UNCLEAN, ("t", [0])))
    path = ("replica_election_results", 0, "partition_result", 0)
    assert error_of(refused, *path) is Error.ELIGIBLE_LEADERS_NOT_AVAILABLE
    cluster.do(returns(B))
    assert cluster.records(elections(UNCLEAN, ("t", [0]))) == [
        cluster.moved(
            "t", isr=(B,), leader=B, leader_recovery_state=RECOVERING, eligible_leader_replicas=(), last_known_elr=()
        )
    ]
    led = cluster.do(elections(UNCLEAN, ("t", [0])))
    assert error_of(led, *path) is Error.ELECTION_NOT_NEEDED


def s14_allowing_unclean_elections_elects_no_leader_by_itself(cluster: Cluster) -> None:
    """The next broker that returns makes the controller look again, and so does the task of row 14 in virtual time."""
    lose_all_but_the_outsider(cluster)
    cluster.do(dies(C), returns(B))
    assert not [one for one in cluster.records(allow_unclean("t")) if isinstance(one, PartitionChangeRecord)]
    assert cluster.leads("t") == (-1, ())
    cluster.do(returns(C))
    assert cluster.leads("t") == (B, (B,))


def s15_a_broker_that_starts_leads_what_it_can(cluster: Cluster) -> None:
    cluster.do(create(topic("t", [A, B], [B, A], [B, C])), create(topic("alone", [A], [B])))
    cluster.do(dies(C), dies(B), dies(A))
    assert cluster.records(returns(A))[0] == cluster.change(A, fenced=-1)
    assert [cluster.leads("t", number)[0] for number in range(3)] == [A, A, -1]
    assert [cluster.leads("alone", number)[0] for number in range(2)] == [A, -1]


def s16_a_directory_that_fails_takes_its_replicas_offline(cluster: Cluster) -> None:
    """D has two directories. It loses one, and with it the leadership of the partition in it."""
    good, bad = directory(D), directory(D, 1)
    cluster.do(register(D, log_dirs=[good, bad]), heartbeat(D), create(topic("t", [D, A], [D, A])))
    cluster.do(assign(D, good, ("t", 0)), assign(D, bad, ("t", 1)))
    assert cluster.records(heartbeat(D, offline_log_dirs=[bad])) == [
        cluster.moved("t", 1, isr=(A,), leader=A),
        cluster.change(D, log_dirs=(good,)),
    ]
    assert cluster.records(heartbeat(D, offline_log_dirs=[bad])) == []
    assert [cluster.leads("t", number)[0] for number in range(2)] == [D, A]


# Rows 17 and 18: a broker dies


def s17_a_dead_broker_loses_what_it_led_and_leaves_every_isr_that_it_was_in(cluster: Cluster) -> None:
    cluster.do(create(topic("t", [A, B, C], [B, A, C], [B, C, D], [C, A, B])))
    cluster.do(cluster.in_sync("t", C, number=3))
    written = cluster.records(dies(A))
    assert sorted(written[:-1], key=str) == [
        cluster.moved("t", 0, isr=(B, C), leader=B),
        cluster.moved("t", 1, isr=(B, C)),
    ]
    assert written[-1] == cluster.change(A, fenced=1)


def s18_the_first_live_member_of_the_isr_leads_and_a_live_outsider_stays_out(cluster: Cluster) -> None:
    """The articles' example: replicas 1 to 4, ISR 1 to 3; broker 1 dies, and broker 2 leads with ISR [2, 3]."""
    cluster.do(create(topic("t", [A, B, C, D])))
    cluster.do(cluster.in_sync("t", A, B, C), dies(A))
    assert cluster.leads("t") == (B, (B, C))


def s18_if_none_of_the_isr_lives_an_outsider_leads_uncleanly_alone(cluster: Cluster) -> None:
    cluster.do(create(topic("t", [A, B, C, D], unclean_leader_election_enable="true")))
    cluster.do(cluster.in_sync("t", A, B), dies(C), dies(B), dies(A))
    assert cluster.leads("t") == (D, (D,))


# Rows 19 to 22: replicas move


def s19_a_reassignment_away_from_its_leader_elects_the_first_of_the_target_that_is_in_sync(cluster: Cluster) -> None:
    cluster.do(create(topic("t", [C, A])), reassign("t", (0, [B, A])))
    done = cluster.in_sync("t", A, B, C)
    assert error_of(cluster.do(done), "topics", 0, "partitions", 0) is Error.NEW_LEADER_ELECTED
    assert cluster.leads("t") == (B, (A, B))
    assert cluster.partition("t").replicas == (B, A)


def s19_a_leader_that_stays_gets_a_new_epoch_when_another_replica_is_dropped(cluster: Cluster) -> None:
    cluster.do(create(topic("t", [A, C])), reassign("t", (0, [A, B])))
    before = cluster.partition("t").leader_epoch
    done = cluster.in_sync("t", A, B, C)
    assert error_of(cluster.do(done), "topics", 0, "partitions", 0) is Error.NONE
    after = cluster.partition("t")
    assert (after.leader, after.replicas, after.leader_epoch) == (A, (A, B), before + 1)


def s20_a_reassignment_is_two_records_and_its_state_is_in_the_partition(cluster: Cluster) -> None:
    cluster.do(create(topic("t", [B, C])))
    (begun,) = cluster.records(reassign("t", (0, [A, C])))
    assert isinstance(begun, PartitionChangeRecord)
    assert (begun.replicas, begun.adding_replicas, begun.removing_replicas) == ((A, C, B), (A,), (B,))
    assert begun.leader == -2
    cluster.do(cluster.in_sync("t", B, C))
    assert cluster.partition("t").adding_replicas == (A,)
    (ended,) = cluster.records(cluster.in_sync("t", A, B, C))
    assert isinstance(ended, PartitionChangeRecord)
    assert (ended.isr, ended.leader, ended.replicas) == ((A, C), A, (A, C))
    assert (ended.adding_replicas, ended.removing_replicas) == ((), ())


def s21_a_finished_reassignment_leaves_nothing_behind(cluster: Cluster) -> None:
    cluster.do(create(topic("t", [A])), reassign("t", (0, [B])))
    (running,) = cluster.do(reassignments(("t", [0])))["topics"]
    assert running["partitions"][0]["adding_replicas"] == [B]
    cluster.do(cluster.in_sync("t", A, B))
    assert cluster.do(reassignments(("t", [0])))["topics"] == []
    after = cluster.partition("t")
    assert (after.replicas, after.adding_replicas, after.removing_replicas) == ((B,), (), ())


def s22_a_cancelled_reassignment_drops_what_was_added_and_raises_the_epoch(cluster: Cluster) -> None:
    cluster.do(create(topic("t", [A, B])), reassign("t", (0, [B, C])))
    epoch = cluster.partition("t").leader_epoch
    cluster.do(reassign("t", (0, None)))
    after = cluster.partition("t")
    assert (after.replicas, after.leader, after.leader_epoch) == ((B, A), A, epoch + 1)
    again = cluster.do(reassign("t", (0, None)))
    assert error_of(again, "responses", 0, "partitions", 0) is Error.NO_REASSIGNMENT_IN_PROGRESS


def s22_a_new_target_replaces_a_running_one(cluster: Cluster) -> None:
    """The first step of the sequence observed in controller.md: added replicas that are not wanted are removed."""
    cluster.do(create(topic("t", [A, B])), reassign("t", (0, [A, C])), reassign("t", (0, [A, D])))
    now = cluster.partition("t")
    assert (now.adding_replicas, now.removing_replicas) == ((D,), (B, C))
    assert now.replicas == (A, D, B, C)


# Rows 23 to 26: preferred leaders


def s23_a_preferred_election_moves_the_leadership_to_the_first_replica_and_nothing_else(cluster: Cluster) -> None:
    cluster.do(create(topic("t", [A, B])), dies(A), returns(A))
    path = ("replica_election_results", 0, "partition_result", 0)
    outside = cluster.do(elections(PREFERRED, ("t", [0])))
    assert error_of(outside, *path) is Error.PREFERRED_LEADER_NOT_AVAILABLE
    cluster.do(cluster.in_sync("t", A, B))
    assert cluster.records(elections(PREFERRED, ("t", [0]))) == [cluster.moved("t", leader=A)]
    again = cluster.do(elections(PREFERRED, ("t", [0])))
    assert error_of(again, *path) is Error.ELECTION_NOT_NEEDED
    assert cluster.leads("t") == (A, (A, B))


# Rows 27 to 29: brokers stop


def s27_controlled_shutdown_elects_the_first_that_is_in_sync_and_not_stopping(cluster: Cluster) -> None:
    """Two brokers stop together: no leadership of the first moves to the second."""
    cluster.do(create(topic("t", [A, B, C], [B, A, C])))
    first = cluster.records(stops(A))
    assert first == [cluster.change(A, in_controlled_shutdown=1), *_moves(cluster, first)]
    assert (cluster.leads("t"), cluster.leads("t", 1)) == ((B, (B, C)), (B, (B, C)))
    cluster.do(stops(B))
    assert (cluster.leads("t"), cluster.leads("t", 1)) == ((C, (C,)), (C, (C,)))


def _moves(cluster: Cluster, written: list[Message]) -> list[Message]:
    return [one for one in written if isinstance(one, PartitionChangeRecord)]


def s28_a_partition_with_one_replica_loses_its_leader_and_delays_no_shutdown(cluster: Cluster) -> None:
    """Otherwise than the articles say: they leave such a partition alone until the broker is gone."""
    cluster.do(create(topic("t", [A])))
    assert cluster.records(stops(A)) == [
        cluster.change(A, in_controlled_shutdown=1),
        cluster.moved("t", isr=(), leader=-1, eligible_leader_replicas=(A,), last_known_elr=(A,)),
    ]
    cluster.do(heartbeat(B), heartbeat(C), heartbeat(D))
    assert cluster.do(stops(A))["should_shut_down"]


def s29_after_a_controlled_shutdown_the_fence_finds_nothing_left_to_move(cluster: Cluster) -> None:
    cluster.do(create(topic("t", [A, B], [B, A])), stops(A), heartbeat(B), heartbeat(C), heartbeat(D))
    fenced = BrokerRegistrationChangeRecord(broker_id=A, broker_epoch=cluster.side.epochs[A], fenced=1)
    assert cluster.records(stops(A)) == [fenced]


# Rows 33 to 39: in-sync replicas, deletion, zombies


def s33_the_leader_drops_a_slow_follower_and_takes_it_back(cluster: Cluster) -> None:
    cluster.do(create(topic("t", [A, B, C])))
    assert cluster.records(cluster.in_sync("t", A, B)) == [cluster.moved("t", isr=(A, B))]
    assert cluster.partition("t").leader_epoch == 0
    assert cluster.records(cluster.in_sync("t", A, B, C)) == [cluster.moved("t", isr=(A, B, C))]
    assert cluster.records(cluster.in_sync("t", A, B, C)) == []


def s36_a_deleted_topic_is_one_record(cluster: Cluster) -> None:
    cluster.do(create(topic("t", [A, B], [B, A])))
    gone = cluster.side.topics["t"]
    assert cluster.records(delete("t")) == [RemoveTopicRecord(topic_id=gone)]
    answer = cluster.do(delete("t"))
    assert error_of(answer, "responses", 0) is Error.UNKNOWN_TOPIC_OR_PARTITION


def s37_a_topic_made_again_is_another_topic(cluster: Cluster) -> None:
    """While a broker is away. The old id names no topic any more, so the broker recognizes stray replicas."""
    cluster.do(create(topic("t", [A, B])), dies(B))
    cluster.remember("t", "the old t")
    cluster.do(delete("t"), create(topic("t", [A])), returns(B))
    assert cluster.side.topics["t"] != cluster.side.topics["the old t"]
    by_old_id = cluster.do(isr("the old t", [A], by=A))
    assert error_of(by_old_id, "topics", 0, "partitions", 0) is Error.UNKNOWN_TOPIC_ID
    assert error_of(cluster.do(delete_by((None, "the old t"))), "responses", 0) is Error.UNKNOWN_TOPIC_ID


def s39_a_leader_of_yesterday_changes_nothing(cluster: Cluster) -> None:
    """Each epoch that protects a partition, stale in turn."""
    cluster.do(create(topic("t", [A, B, C])), dies(A), returns(A))
    now = cluster.partition("t")
    right = {"leader_epoch": now.leader_epoch, "partition_epoch": now.partition_epoch}
    before = len(cluster.controller.batches)

    def refused(**changes: Any) -> Error:
        said = cluster.do(isr("t", [B], **{"by": B, **right, **changes}))
        return error_of(said, "topics", 0, "partitions", 0) if said["topics"] else Error(said["error_code"])

    assert refused(leader_epoch=0) is Error.FENCED_LEADER_EPOCH
    assert refused(partition_epoch=0) is Error.INVALID_UPDATE_VERSION
    assert refused(partition_epoch=99) is Error.NOT_CONTROLLER
    assert refused(broker_epoch=1) is Error.STALE_BROKER_EPOCH
    stale = isr("t", [A, B, C], by=B, member_epoch=1, **right)
    assert error_of(cluster.do(stale), "topics", 0, "partitions", 0) is Error.INELIGIBLE_REPLICA
    assert refused(by=A) is Error.INVALID_REQUEST
    assert cluster.since(before) == []


SCENARIOS: Final[dict[str, Scenario]] = {
    name: scenario for name, scenario in sorted(globals().items()) if name[0] == "s" and name[1:3].isdigit()
}
