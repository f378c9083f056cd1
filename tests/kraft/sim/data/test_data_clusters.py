"""Seeded runs of clusters with data: producers and consumers, brokers that crash, lose power and move partitions."""

from __future__ import annotations

import errno
import re

import pytest

from kraft.broker import NoLogDirectory
from kraft.partitions.replicas.topic_settings import topic_settings
from kraft.sim import Result
from kraft.sim.nodes.cluster import COMBINED_CLUSTER, DATA_CLUSTER
from kraft.sim.nodes.data_broker import DataBroker, DataSpec
from kraft.sim.runs.brokers import Administration, AdministrationAndMore
from kraft.sim.runs.record_work import RecordWork
from kraft.sim.runs.scenario import Scenario
from kraft.sim.runs.seeded_run import CALM_MS, whole_run
from kraft.sim.runs.simulator import Simulator
from kraft.sim.search.seed_search import SeedSearch
from kraft.sim.workloads.record_watch import RecordWatch
from kraft.sim.world.actions import CALM, Action, FillDirectory, LimitDisk, Note
from metadata_log.image import MetadataImage
from support.kraft.hash_seeds import outputs_of


def _run(seed: int, chaos_ms: int, recorded: list[Action] | None = None) -> RecordWatch:
    print(f"seed {seed} of {DATA_CLUSTER}")
    work = AdministrationAndMore(Administration(seed, 3, invents_isrs=False), RecordWork(seed, 3))
    simulator = Simulator(Scenario.drawn(DATA_CLUSTER, 3, seed, 3), work=work, recorded=recorded)
    whole_run(simulator, chaos_ms, CALM_MS, again=f"run_cluster({seed}, kind={DATA_CLUSTER!r})")
    watch = simulator.world.watch
    assert isinstance(watch, RecordWatch), watch
    return watch


def test_requests_of_brokers_are_told_from_those_of_the_quorum() -> None:
    """A broker's request is no sign of life of a voter, and may be late where a profile says so."""
    work = AdministrationAndMore(Administration(2, 3, invents_isrs=False), RecordWork(2, 3))
    simulator = Simulator(Scenario.drawn(DATA_CLUSTER, 3, 2, 3), work=work)
    whole_run(simulator, 3000, CALM_MS, again="")
    kinds: dict[bool, set[str]] = {True: set(), False: set()}
    for exchange in simulator.world.exchanges.values():
        kinds[exchange.is_of_quorum].add(exchange.kind)
    assert {"BrokerHeartbeat", "AlterPartition", "Fetch"} <= kinds[False]
    assert kinds[True] & kinds[False] == {"Fetch"}
    assert "Vote" in kinds[True]


def test_records_survive_under_faults() -> None:
    """Committed records are on every replica in the end, and no client has seen any other."""
    watches = [_run(seed, 12_000) for seed in (2, 11)]
    assert sum(watch.records.acknowledgements for watch in watches) > 40, "nothing is written"
    assert sum(watch.records.consumed for watch in watches) > 40, "nothing is read"


def test_transactions_end_under_faults() -> None:
    """In the run of this seed a partition of some transactions stays without a leader."""
    watch = _run(2030, 8_000)
    assert watch.records.ended > 10, "no transaction has ended"


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1000, 1400, 20))
def test_records_survive_under_faults_in_four_hundred_runs(first: int) -> None:
    search = SeedSearch(members=DATA_CLUSTER)
    outcomes = [search.run(seed) for seed in range(first, first + 20)]
    assert [one for one in outcomes if not hasattr(one, "digest")] == []


def test_a_seed_with_data_gives_the_same_run_in_every_process() -> None:
    """A failure that another process cannot repeat cannot be mended."""
    script = "from kraft.sim import run_cluster; print(run_cluster(6, kind='data-cluster', chaos_ms=6000)[0].digest)"
    assert len(outputs_of(script)) == 1


def _broker_without_directories(*, was_full: bool) -> Simulator:
    """All log directories of broker 101 have failed, and the broker has yet to notice. Its disk has room again."""
    work = AdministrationAndMore(Administration(3, 3, invents_isrs=False), RecordWork(3, 3))
    simulator = Simulator(Scenario.drawn(DATA_CLUSTER, 3, 3, 3), work=work, faults=())
    world = simulator.world
    broker = world.hosts[101].member
    assert isinstance(broker, DataBroker), broker
    simulator.begin()
    simulator.run_until(20_000, lambda: broker.manager is not None and broker.manager.is_loaded)
    assert broker.manager is not None
    if was_full:
        assert world.perform(LimitDisk(simulator.now_ms, 101, 7, 0))
        assert world.perform(LimitDisk(simulator.now_ms, 101, 7))
    store = broker.manager.hosting.store
    for directory in list(store.online):
        store.fail(directory, OSError(errno.ENOSPC, "no space left on device"))
    return simulator


def test_a_broker_may_end_without_a_log_directory_after_its_disk_was_full() -> None:
    simulator = _broker_without_directories(was_full=True)
    world = simulator.world
    simulator.run_until(simulator.now_ms + 5000, lambda: 101 not in world.running())
    assert 101 not in world.running()
    assert not world.hosts[101].was_disk_limited, "the next life has no excuse"


def test_others_lead_at_once_when_the_last_log_directory_of_a_broker_fails() -> None:
    """After the session of 3 s without the farewell, and of 9 s by default."""
    work = AdministrationAndMore(Administration(3, 3, invents_isrs=False), RecordWork(3, 3))
    simulator = Simulator(Scenario.drawn(DATA_CLUSTER, 3, 3, 3), work=work, faults=())
    world = simulator.world
    broker, other = world.hosts[101].member, world.hosts[102].member
    assert isinstance(broker, DataBroker), broker
    assert isinstance(other, DataBroker), other

    def is_fenced() -> bool:
        known = None if other.agent is None else other.agent.image.brokers.by_id.get(101)
        return known is None or known.fenced

    def is_running() -> bool:
        return broker.agent is not None and not broker.agent.lifecycle.is_fenced and not is_fenced()

    simulator.begin()
    simulator.run_until(20_000, is_running)
    assert is_running()
    assert broker.manager is not None
    assert world.perform(LimitDisk(simulator.now_ms, 101, 7, 0))
    assert world.perform(LimitDisk(simulator.now_ms, 101, 7))
    for directory in list(broker.manager.hosting.store.online):
        broker.manager.hosting.store.fail(directory, OSError(errno.ENOSPC, "no space left on device"))
    simulator.run_until(simulator.now_ms + 500, lambda: is_fenced() and 101 not in world.running())
    assert is_fenced()
    assert 101 not in world.running()


def test_a_broker_may_not_end_without_a_log_directory_while_its_disk_is_well() -> None:
    simulator = _broker_without_directories(was_full=False)
    with pytest.raises(NoLogDirectory):
        simulator.run_until(simulator.now_ms + 5000)


@pytest.mark.parametrize(("members", "seed"), [(DATA_CLUSTER, 12), (COMBINED_CLUSTER, 2)])
def test_nothing_waits_for_ever_when_a_directory_is_full(members: str, seed: int) -> None:
    """The last records are acknowledged though one of two log directories of a broker fills up."""
    actions: list[Action] = []
    outcome = SeedSearch(members=members, profile="full-directories").run(seed, actions)
    assert isinstance(outcome, Result), outcome.message
    calm = next(at for at, one in enumerate(actions) if isinstance(one, Note) and one.text == CALM)
    assert "/data" in [one.path for one in actions[calm:] if isinstance(one, FillDirectory)]


def test_segments_are_as_small_as_the_seed_draws() -> None:
    """Kafka's least value of log.segment.bytes is 1 MiB: with such segments a short run rolls none."""
    spec = DataSpec(0, 300, 50, has_small_logs=True)
    static = spec.serving(101, 2).data.static
    assert topic_settings("t1", MetadataImage().configs, 101, static).log.segment_bytes == 1200


def test_replicas_that_have_not_caught_up_are_named_for_a_reader() -> None:
    work = AdministrationAndMore(Administration(3, 3, invents_isrs=False), RecordWork(3, 3))
    simulator = Simulator(Scenario.drawn(DATA_CLUSTER, 3, 3, 3), work=work, faults=())
    watch = simulator.world.watch
    assert isinstance(watch, RecordWatch), watch
    simulator.begin()
    said = ""

    def is_said() -> bool:
        nonlocal said
        said = watch.unsettled(simulator.world)
        return "have not caught up" in said

    simulator.run_until(20_000, is_said)
    replica = r"broker 10\d (leads|follows in) epoch \d+, log from \d+ to \d+, high watermark \d+"
    assert re.fullmatch(rf"the replicas of \S+-\d have not caught up: {replica}(; {replica})+", said), said
