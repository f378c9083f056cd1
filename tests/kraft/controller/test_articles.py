"""Each row of the articles' behaviours on our controller: as it stands, and with another leader after every request."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from msgspec import structs

from kraft.controller import QuorumController
from kraft.controller.decision.request_context import DecisionSettings
from kraft.controller.server import ControllerServer
from kraft.process.hosting import host_controller
from metadata_log.image import Partition
from metadata_log.records.batch import scan
from metadata_log.records.frame import decode_record
from metadata_log.records.metadata import NoOpRecord, RegisterControllerRecord
from metadata_log.records.record import records
from metadata_log.serde import Message
from metadata_log.types import Uuid
from support.differential.article_scenarios import (
    SCENARIOS,
    allow_unclean,
    dies,
    lose_all_but_the_outsider,
    returns,
    stops,
)
from support.differential.controller_cluster import Cluster
from support.differential.controller_draws import Draw
from support.differential.controller_sides import CLUSTER_ID
from support.differential.controller_stories import (
    PREFERRED,
    A,
    B,
    Build,
    C,
    D,
    E,
    arrives,
    create,
    elections,
    heartbeat,
    newest,
    reassign,
    reassignments,
    topic,
)
from support.kraft.replica_net import Net, formatted_disk
from transport.protocol.errors import Error
from transport.protocol.messages import (
    CreateTopicsResponse,
    ElectLeadersResponse,
    ListPartitionReassignmentsResponse,
)


class Unsteady:
    """A quorum of three. If it `changes`, its leader dies after each request, and is back when there is another."""

    def __init__(self, *, changes: bool = True) -> None:
        self._changes = changes
        disks = {node: formatted_disk(node, cluster_id=CLUSTER_ID) for node in (1, 2, 3)}
        self.net = Net(application=host_controller, disks=disks, cluster_id=CLUSTER_ID)
        self.net.elect()
        self.net.until(lambda: self.controller.history.committed.features.metadata_version is not None)

    @property
    def controller(self) -> QuorumController:
        """The one on the leader."""
        return self.controller_on(self.net.leader)

    def controller_on(self, node: int) -> QuorumController:
        """The one on a node."""
        hosted = self.net.processes[node].application
        assert isinstance(hosted, ControllerServer)
        return hosted.controller

    @property
    def batches(self) -> list[list[tuple[int, Message]]]:
        """The leader's log, without what controllers write about themselves."""
        found = []
        for batch in scan(self.net.log_of(self.net.leader)):
            if not batch.is_control:
                values = [decode_record(one.value or b"") for one in records(batch)]
                shown = [
                    (value.version, value.record)
                    for value in values
                    if value.record is not None and not isinstance(value.record, NoOpRecord | RegisterControllerRecord)
                ]
                if shown:
                    found.append(shown)
        return found

    @property
    def end(self) -> int:
        """The end of the leader's log."""
        return self.net.processes[self.net.leader].replica.core.log.end_offset

    def ask(self, request: Message, version: int) -> Message:
        """The leader's answer; then another leads."""
        answer = self.net.ask(self.net.leader, request, version)
        if self._changes:
            self.change_leader()
        return answer

    def change_leader(self) -> None:
        """The leader dies, and comes back when there is another."""
        leader = self.net.leader
        self.net.kill(leader)
        assert self.net.elect() != leader
        self.net.start(leader)
        self.net.elect()

    def cut_off(self) -> int:
        """Cut the leader off in both directions; returns the leader's id."""
        leader = self.net.leader
        self.net.cut = {leader}
        return leader

    def heal(self) -> None:
        """End all partitions, and wait for a leader."""
        self.net.cut = set()
        self.net.elect()

    def advance(self, ms: int) -> None:
        """Let time go on."""
        self.net.advance(ms)


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str) -> None:
    SCENARIOS[name](Cluster(A, B, C, D))


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_with_a_failover_between_its_steps(name: str) -> None:
    SCENARIOS[name](Cluster(A, B, C, D, stage=Unsteady()))


# What the clock decides

PATIENT = DecisionSettings(broker_session_timeout_ms=10**9)
MINUTES_MS = 60_000


@pytest.mark.parametrize("seed", range(5))
def test_s01_partitions_make_only_the_transitions_of_the_table(seed: int) -> None:
    """A partition has a leader from its birth, and goes online and offline as controller.md 5.12 has it."""
    print(f"seed {seed}")
    cluster = Cluster(decisions=PATIENT)
    history = cluster.controller.controller.history
    moves: Counter[tuple[str, str]] = Counter()
    before = history.latest
    for step in Draw(Random(seed), "t", cluster.side, lambda: history.latest).sequence(150):
        cluster.do(step)
        after = history.latest
        for topic_id, topic_after in after.topics.by_id.items():
            known = before.topics.by_id[topic_id].partitions if topic_id in before.topics.by_id else ()
            for number, partition in enumerate(topic_after.partitions):
                was = known[number] if number < len(known) else None
                moves[(_state(was), _state(partition))] += 1
                _check_move(was, partition)
        before = after
    assert moves[("NonExistent", "Offline")] == 0
    assert all(moves[move] for move in (("NonExistent", "Online"), ("Online", "Offline"), ("Offline", "Online")))


def _state(partition: Partition | None) -> str:
    if partition is None:
        return "NonExistent"
    return "Online" if partition.leader >= 0 else "Offline"


def _check_move(was: Partition | None, now: Partition) -> None:
    assert now.leader in (-1, *now.isr)
    assert set(now.isr) <= set(now.replicas)
    assert not set(now.isr) & set(now.elr)
    if was is None:
        assert (now.leader_epoch, now.partition_epoch) == (0, 0)
    elif now != was:
        assert now.partition_epoch > was.partition_epoch
        assert now.leader_epoch == was.leader_epoch + (now.leader_epoch != was.leader_epoch)
        if now.leader != was.leader:
            assert now.leader_epoch > was.leader_epoch


@pytest.mark.parametrize("seed", range(20))
def test_s05_leaders_and_replicas_are_spread_over_brokers(seed: int) -> None:
    """Four brokers, four partitions, three replicas each: every broker leads once and holds three."""
    cluster = Cluster(incarnation_id=Uuid(seed.to_bytes(16, "big")))
    cluster.do(*(step for broker in (A, B, C, D) for step in arrives(broker, rack="one")))
    cluster.do(create(topic("t", count=4, factor=3)))
    partitions = [cluster.partition("t", number) for number in range(4)]
    assert sorted(one.leader for one in partitions) == [A, B, C, D]
    assert Counter(replica for one in partitions for replica in one.replicas) == dict.fromkeys((A, B, C, D), 3)


@pytest.mark.parametrize("seed", range(20))
def test_s05_replicas_of_a_partition_are_in_different_racks(seed: int) -> None:
    cluster = Cluster(incarnation_id=Uuid(seed.to_bytes(16, "big")))
    racks = {A: "x", B: "x", C: "y", D: "y", E: "z"}
    cluster.do(*(step for broker, rack in racks.items() for step in arrives(broker, rack=rack)))
    cluster.do(create(topic("t", count=30, factor=3)))
    for number in range(30):
        assert len({racks[replica] for replica in cluster.partition("t", number).replicas}) == 3


def test_s14_the_periodic_task_elects_uncleanly_where_the_topic_allows_that() -> None:
    cluster = Cluster(A, B, decisions=PATIENT)
    lose_all_but_the_outsider(cluster)
    cluster.do(returns(B), allow_unclean("t"))
    before = len(cluster.controller.batches)
    cluster.controller.advance(5 * MINUTES_MS - 1000)
    assert (cluster.since(before), cluster.leads("t")) == ([], (-1, ()))
    cluster.controller.advance(1000)
    assert cluster.leads("t") == (B, (B,))


def test_s17_a_broker_is_fenced_when_its_session_expires_and_not_before() -> None:
    """Nine seconds; Kafka takes up to one sweep of 1.125 s more."""
    cluster = Cluster(A, B)
    cluster.do(create(topic("t", [A, B])))
    cluster.beats(8000, B)
    assert cluster.leads("t") == (A, (A, B))
    cluster.beats(4000, B)
    assert cluster.leads("t") == (B, (B,))


def test_s24_preferred_leaders_are_elected_every_five_minutes_up_to_1000_at_once() -> None:
    """Kafka 4.3 knows no percentage any more: one imbalanced partition is enough."""
    cluster = Cluster(A, B, decisions=PATIENT)
    cluster.do(create(topic("t", *([A, B] for _ in range(2500)))), dies(A), returns(A))
    for number in range(2500):
        cluster.do(cluster.in_sync("t", A, B, number=number))
    before = len(cluster.controller.batches)
    cluster.controller.advance(5 * MINUTES_MS + 20)
    assert [len(batch) for batch in cluster.controller.batches[before:]] == [1000, 1000, 500]


@pytest.mark.parametrize("balances", [True, False])
def test_s25_preferred_leaders_return_only_with_automatic_balancing(*, balances: bool) -> None:
    decisions = PATIENT if balances else structs.replace(PATIENT, leader_rebalance_interval_ms=0)
    cluster = Cluster(A, B, decisions=decisions)
    cluster.do(create(topic("t", [A, B])), dies(A), returns(A), cluster.in_sync("t", A, B))
    assert cluster.leads("t")[0] == B
    cluster.controller.advance(5 * MINUTES_MS)
    assert cluster.leads("t")[0] == (A if balances else B)


def test_s29_session_expiry_after_a_controlled_shutdown_writes_one_redundant_record() -> None:
    cluster = Cluster(A, B)
    cluster.do(create(topic("t", [A, B])), stops(A), heartbeat(B), stops(A))
    before = cluster.controller.controller.history.latest
    assert cluster.beats(12_000, B) == [cluster.change(A, fenced=1)]
    assert cluster.controller.controller.history.latest.topics == before.topics


def test_s30_a_silent_broker_is_fenced_by_session_expiry() -> None:
    """As with controlled.shutdown.enable=false: no request to stop, only heartbeats, and then none."""
    cluster = Cluster(A, B)
    cluster.do(create(topic("t", [A, B])))
    cluster.beats(20_000, A, B)
    assert cluster.leads("t") == (A, (A, B))
    assert cluster.beats(12_000, B) == [cluster.moved("t", isr=(B,), leader=B), cluster.change(A, fenced=1)]


def test_s31_a_dead_follower_leaves_the_isr_by_session_expiry_or_alter_partition() -> None:
    cluster = Cluster(A, B, C)
    cluster.do(create(topic("t", [A, B], [A, C])))
    cluster.beats(4000, A)
    cluster.do(cluster.in_sync("t", A))
    assert (cluster.leads("t"), cluster.leads("t", 1)) == ((A, (A,)), (A, (A, C)))
    cluster.beats(8000, A)
    assert cluster.leads("t", 1) == (A, (A,))


# What a change of the controller leaves as it was


def test_s02_a_new_controller_elects_leaders_only_as_brokers_return() -> None:
    stage = Unsteady()
    cluster = Cluster(A, B, stage=stage)
    cluster.do(create(topic("t", [A, B])), dies(B), dies(A))
    before = len(stage.batches)
    stage.change_leader()
    assert cluster.since(before) == []
    assert cluster.leads("t") == (-1, ())
    cluster.do(returns(A))
    assert cluster.leads("t") == (A, (A,))


def test_s26_a_requested_election_is_not_persisted() -> None:
    """The request fails with its controller. A client asks the next one, which knows nothing of it."""
    stage = Unsteady(changes=False)
    cluster = Cluster(A, B, stage=stage)
    cluster.do(create(topic("t", [A, B])), dies(A), returns(A), cluster.in_sync("t", A, B))
    old = stage.cut_off()
    build, version = elections(PREFERRED, ("t", [0]))
    asked = stage.net.request(old, build(cluster.side), version)
    stage.net.elect()
    assert cluster.leads("t")[0] == B
    stage.heal()
    answer = stage.net.answers[asked]
    assert isinstance(answer, ElectLeadersResponse)
    assert Error(answer.error_code) is Error.NOT_CONTROLLER
    assert cluster.leads("t")[0] == B
    cluster.do(elections(PREFERRED, ("t", [0])))
    assert cluster.leads("t")[0] == A


def test_s34_uncommitted_decisions_of_a_deposed_controller_reach_no_node() -> None:
    stage = Unsteady(changes=False)
    cluster = Cluster(A, B, stage=stage)
    cluster.do(create(topic("t", [A, B])))
    old = stage.cut_off()
    build, version = create(topic("lost", [A]))
    asked = stage.net.request(old, build(cluster.side), version)
    stage.net.settle()
    assert "lost" in stage.controller_on(old).history.latest.topics
    assert "lost" not in stage.controller_on(old).history.committed.topics
    stage.net.elect()
    stage.heal()
    answer = stage.net.answers[asked]
    assert isinstance(answer, CreateTopicsResponse)
    assert Error(answer.topics[0].error_code) is Error.NOT_CONTROLLER
    assert all("lost" not in stage.controller_on(node).history.latest.topics for node in stage.net.processes)


def test_s38_a_controller_failover_fences_no_broker_and_applies_nothing_twice() -> None:
    stage = Unsteady()
    cluster = Cluster(A, B, stage=stage)
    cluster.do(create(topic("t", [A, B])))
    for _ in range(3):
        stage.change_leader()
        answer = cluster.do(heartbeat(A), heartbeat(B))
        assert (Error(answer["error_code"]), answer["is_fenced"]) == (Error.NONE, False)
    assert cluster.leads("t") == (A, (A, B))
    assert cluster.partition("t").partition_epoch == 0
    again = cluster.do(create(topic("t", [A, B])))
    assert Error(again["topics"][0]["error_code"]) is Error.TOPIC_ALREADY_EXISTS


def test_s40_of_two_controllers_the_one_without_a_majority_resigns() -> None:
    stage = Unsteady(changes=False)
    old = stage.cut_off()
    stage.net.until(lambda: not stage.net.processes[old].replica.core.is_leader)
    assert stage.controller_on(old).history.latest == stage.controller_on(old).history.committed
    stage.net.elect()
    assert stage.net.leader != old


def test_s45_a_response_waits_for_the_fetch_that_acknowledges_the_records() -> None:
    """The first fetch takes the records, the second says that they are on disk: only then is the topic made."""
    stage = Unsteady(changes=False)
    cluster = Cluster(A, stage=stage)
    net = stage.net
    leader = net.processes[net.leader].replica.core
    followers = [one.replica.core for one in net.processes.values() if one.replica.core is not leader]
    build, version = create(topic("t", [A]))
    asked = net.request(net.leader, build(cluster.side), version)
    was_taken_and_unanswered = False
    while asked not in net.answers and net.once():
        if leader.log.high_watermark < leader.log.end_offset:
            assert asked not in net.answers
            if any(core.log.end_offset == leader.log.end_offset for core in followers):
                was_taken_and_unanswered = True
    assert was_taken_and_unanswered
    assert asked in net.answers
    assert leader.log.high_watermark == leader.log.end_offset


def test_s46_uncommitted_changes_are_invisible_to_reads_and_conflict_with_writes() -> None:
    stage = Unsteady(changes=False)
    cluster = Cluster(A, B, stage=stage)
    cluster.do(create(topic("t", [A])))
    net = stage.net

    def ask(build: Build, version: int) -> int:
        request = build(cluster.side)
        return net.request(net.leader, request, newest(request, version))

    moved, made = ask(*reassign("t", (0, [B]))), ask(*create(topic("u", [A])))
    again, shown = ask(*create(topic("u", [A]))), ask(*reassignments())
    while shown not in net.answers:
        net.queue.popleft()()
    listed = net.answers[shown]
    assert isinstance(listed, ListPartitionReassignmentsResponse)
    assert not listed.topics
    assert not {moved, made, again} & set(net.answers)
    net.settle()
    told = [net.answers[one] for one in (made, again)]
    assert [one.topics[0].error_code for one in told if isinstance(one, CreateTopicsResponse)] == [
        Error.NONE,
        Error.TOPIC_ALREADY_EXISTS,
    ]
    assert cluster.do(reassignments())["topics"]
