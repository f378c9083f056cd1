"""Seeded runs of brokers that coordinate groups and transactions, and their simulated clients."""

from __future__ import annotations

from random import Random

import pytest

from kraft.sim.faults.profiles import SMALL_LOGS
from kraft.sim.nodes.cluster import COORDINATOR_CLUSTER
from kraft.sim.runs.brokers import CHAOS_MS, cluster_simulator
from kraft.sim.runs.seeded_run import CALM_MS, whole_run
from kraft.sim.search.seed_search import SeedSearch
from kraft.sim.workloads.coordinator_clients import ClassicMember, World
from kraft.sim.workloads.coordinator_watch import CoordinatorWatch
from kraft.sim.workloads.record_clients import TransactionalProducer
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.records import metadata as records
from metadata_log.types import OffsetAndEpoch, Uuid
from support.kraft.hash_seeds import outputs_of
from transport.protocol.messages.init_producer_id import InitProducerIdResponse
from transport.protocol.messages.offset_commit import OffsetCommitRequest
from transport.protocol.messages.produce import ProduceRequest
from transport.protocol.messages.write_txn_markers import WriteTxnMarkersRequest


def _run(seed: int) -> CoordinatorWatch:
    print(f"seed {seed} of {COORDINATOR_CLUSTER}")
    search = SeedSearch(members=COORDINATOR_CLUSTER)
    profile = search.profile_of(seed)
    simulator = cluster_simulator(seed, search.nodes_of(seed), kind=COORDINATOR_CLUSTER, profile=profile)
    whole_run(simulator, CHAOS_MS, CALM_MS, again=f"run_cluster({seed}, kind={COORDINATOR_CLUSTER!r})")
    watch = simulator.world.watch
    assert isinstance(watch, CoordinatorWatch), watch
    assert not watch.is_void, "records were lost, and nothing is judged"
    return watch


def test_groups_go_on_under_faults() -> None:
    """Members are assigned partitions and commit, and the invariants hold."""
    groups = _run(16).groups
    assert groups.assignments > 20, "no group has come together"
    assert groups.commits > 10, "nothing is committed"


def test_groups_and_transactions_go_on_under_faults() -> None:
    """Workers end transactions, too."""
    both = _run(10)
    assert both.groups.fetches > 20, "nobody looks"
    assert both.transactions.ended >= 3, "no transaction has ended"


def test_offsets_are_forgotten_in_some_runs() -> None:
    assert _run(25).groups.forgotten > 3, "nothing is forgotten"


def _cleaned(seed: int) -> CoordinatorWatch:
    print(f"seed {seed} of {COORDINATOR_CLUSTER}, profile {SMALL_LOGS.name}")
    simulator = cluster_simulator(seed, kind=COORDINATOR_CLUSTER, profile=SMALL_LOGS)
    whole_run(simulator, CHAOS_MS, CALM_MS, again=f"run_cluster({seed}, kind={COORDINATOR_CLUSTER!r}), SMALL_LOGS")
    watch = simulator.world.watch
    assert isinstance(watch, CoordinatorWatch), watch
    return watch


def test_coordinators_go_on_with_cleaned_logs() -> None:
    """Cleaners take what was replaced, while the ledgers judge the coordinators that load the rest."""
    watch = _cleaned(2)
    assert watch.compaction.cleaned > 50, "nothing was cleaned"
    assert watch.transactions.ended >= 3, "no transaction has ended"


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_coordinators_go_on_with_cleaned_logs_in_two_hundred_runs(first: int) -> None:
    assert sum(_cleaned(seed).compaction.cleaned for seed in range(first, first + 20)) > 0


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 400, 20))
def test_groups_and_transactions_go_on_under_faults_in_four_hundred_runs(first: int) -> None:
    search = SeedSearch(members=COORDINATOR_CLUSTER)
    outcomes = [search.run(seed) for seed in range(first, first + 20)]
    assert [one for one in outcomes if not hasattr(one, "digest")] == []


@pytest.mark.soak
def test_a_seed_with_coordinators_gives_the_same_run_in_every_process() -> None:
    """A failure that another process cannot repeat cannot be mended."""
    script = (
        "from kraft.sim import run_cluster; print(run_cluster(5, kind='coordinator-cluster', chaos_ms=9000)[0].digest)"
    )
    assert len(outputs_of(script)) == 1


# What a simulated member of a group sends late.


TOPIC = Uuid(bytes(15) + b"\x07")


@pytest.mark.parametrize(
    ("is_mixed", "commits"), [(False, [("a", 4), ("a", 5), ("b", 6)]), (True, [("a", 5)])], ids=["classic", "mixed"]
)
def test_no_commit_is_late_where_a_consumer_group_takes_it(is_mixed: bool, commits: list[tuple[str, int]]) -> None:
    """A consumer group takes a commit of a former epoch of its member, over a newer one (`coordinator-cluster` seed
    5032).
    """
    member = ClassicMember(Random(1), World(MetadataImage()), "group", 0, is_mixed=is_mixed)
    member._former = [("a", 4, {0: 7}), ("a", 5, {0: 9}), ("b", 6, {0: 10})]
    member._member_id, member._epoch = "b", 7
    late = [
        (member_id, epoch)
        for member_id, epoch, positions in member._former * 20
        if isinstance(member._late(TOPIC, member_id, epoch, positions), OffsetCommitRequest)
    ]
    assert sorted(set(late)) == commits


# A simulated producer of transactions ends each transaction, wherever its partitions are led.


def image(leader: int) -> MetadataImage:
    delta = MetadataDelta(MetadataImage())
    partition = records.PartitionRecord(partition_id=0, topic_id=TOPIC, replicas=(101,), isr=(101,), leader=leader)
    delta.replay(records.TopicRecord(name="t", topic_id=TOPIC), 0)
    delta.replay(partition, 1)
    return delta.apply(OffsetAndEpoch(epoch=1, offset=2))


def test_a_transaction_is_aborted_in_the_end_if_a_partition_has_no_leader() -> None:
    """Otherwise readers of the other partitions wait for ever (`data-cluster` seed 1000125)."""
    producer = TransactionalProducer(Random(1), "one")
    producer.next_request(image(101), 0, is_over=False)
    producer.on_answer(InitProducerIdResponse(producer_id=5))
    asked = producer.next_request(image(101), 0, is_over=False)
    assert asked is not None
    assert isinstance(asked[1], ProduceRequest)
    again = producer.next_request(image(101), 0, is_over=True)
    assert again is not None
    assert isinstance(again[1], ProduceRequest), "a partition with a leader gets its batch"
    ended = producer.next_request(image(-1), 0, is_over=True)
    assert ended is not None
    request = ended[1]
    assert isinstance(request, WriteTxnMarkersRequest)
    assert [(one.producer_id, one.transaction_result) for one in request.markers] == [(5, False)]
