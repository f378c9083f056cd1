"""Quorums with voters that come and go under faults, and with snapshots; a failure says how to replay it."""

from __future__ import annotations

import pytest

from kraft.invariants.violation import InvariantViolated
from kraft.invariants.voters import AnsweredChange
from kraft.quorum.values import ReplicaKey
from kraft.sim.faults.profiles import VOTERS
from kraft.sim.runs.scenario import Scenario
from kraft.sim.runs.seeded_run import Result
from kraft.sim.runs.simulator import Simulator
from kraft.sim.runs.voter_change_run import Reconfiguration, run_dynamic
from kraft.sim.search.schedule import Schedule, decode_schedule, encode_schedule, replay
from kraft.sim.search.seed_search import SeedSearch
from kraft.sim.workloads.voter_watch import VoterWatch, change_of, is_success
from kraft.sim.world.actions import Action, Move, Wipe
from metadata_log.serde import Message
from metadata_log.types import Uuid
from planted_bugs.registry import CLASSIC_FAULTS
from transport.protocol.errors import Error
from transport.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from transport.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from transport.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

SLICE = 8


def _run_slice(first: int, count: int, nodes: int = 5, kind: str = "dynamic") -> list[Result]:
    print(f"seeds {first} to {first + count - 1}, {nodes} nodes, {kind}")
    return [run_dynamic(seed, nodes, kind=kind) for seed in range(first, first + count)]


def test_invariants_of_replicas_hold_while_voters_change() -> None:
    """Majorities of the right set, one change at a time, snapshots that say what the log says; calm brings progress."""
    results = _run_slice(0, SLICE)
    assert sum(result.voter_sets for result in results) > 4 * SLICE, "runs without changes of voters test nothing"
    assert sum(result.snapshots for result in results) > 5 * SLICE


def test_invariants_of_controllers_hold_while_voters_change() -> None:
    _run_slice(100, 2, kind="dynamic-controller")


def test_a_static_quorum_becomes_a_dynamic_one_under_faults() -> None:
    """kraft.version goes from 0 to 1 while leaders come and go, and then voters do."""
    results = _run_slice(0, 20, nodes=3, kind="upgraded-controller")
    assert sum(result.voter_sets for result in results) > 10


def test_a_disk_lost_before_all_have_the_voters_record_loses_committed_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A majority has the record, so the upgrade is done. A node without the record knows the others by their ids alone,
    and becomes leader by the vote of one that has lost its disk. docs/howto/dynamic-quorum.md warns of this, and runs
    do not let it happen.
    """
    seed = 1887
    faults = CLASSIC_FAULTS
    assert run_dynamic(seed, 3, kind="upgraded-controller", faults=faults).committed > 40
    monkeypatch.setattr("kraft.sim.workloads.voter_workload._is_static_somewhere", lambda world: False)
    actions: list[Action] = []
    with pytest.raises(InvariantViolated, match=r"without the committed .*CONTROLLER"):
        run_dynamic(seed, 3, kind="upgraded-controller", recorded=actions, faults=faults)
    assert Wipe in set(map(type, actions))


def test_a_node_with_a_pending_addition_does_not_lose_its_disk() -> None:
    """The leader may add the node all the same, and of two voters one would be lost for good."""
    assert run_dynamic(700_518, 3, kind="dynamic-controller", faults=CLASSIC_FAULTS).committed > 40


def test_the_operator_is_not_left_with_two_damaged_disks_of_four_voters() -> None:
    """Once a removal left four voters: one with damage that nothing had noticed, and one that died of such damage. The
    operator could restart neither of the two by the rules, so that the second one stayed down for ever.
    """
    run_dynamic(2000017, kind="dynamic-controller", profile=VOTERS)


def test_a_leader_may_count_what_a_start_has_found() -> None:
    """The flush of a batch fails, and the disk has the batch all the same: the start flushes it, and the first Fetch is
    from its end, before any other step of that node.
    """
    assert run_dynamic(32, 3, chaos_ms=10_000).committed > 40


@pytest.mark.parametrize("nodes", [2, 3])
def test_invariants_of_small_quorums_hold_while_voters_change(nodes: int) -> None:
    """Where one voter more or less changes the majority."""
    _run_slice(200, 4, nodes)


@pytest.mark.soak
@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 7])
@pytest.mark.parametrize("first", range(1000, 3000, 100))
def test_invariants_hold_while_voters_change_in_ten_thousand_runs(first: int, nodes: int) -> None:
    _run_slice(first, 70, nodes)
    _run_slice(first + 70, 15, nodes, "dynamic-controller")
    _run_slice(first + 85, 15, nodes, "upgraded-controller")


def _seed_with_a_loss() -> int:
    """The first seed with a run in which a disk is lost and a node moves."""
    for seed in range(100):
        actions: list[Action] = []
        run_dynamic(seed, 3, chaos_ms=10_000, recorded=actions)
        if {Wipe, Move} <= set(map(type, actions)):
            return seed
    pytest.fail("nothing is ever lost")


def test_a_schedule_with_lost_disks_and_moved_nodes_replays_its_run() -> None:
    actions: list[Action] = []
    search, seed = SeedSearch(members="dynamic", nodes=3, chaos_ms=10_000, profile="broad"), _seed_with_a_loss()
    result = search.run(seed, actions)
    assert isinstance(result, Result)
    schedule = Schedule(scenario=search.scenario(seed), actions=tuple(actions))
    replayed = replay(decode_schedule(encode_schedule(schedule), "memory"))
    assert replayed.failure is None
    assert replayed.digest == result.digest


# What the ledgers of voters and snapshots find


def test_the_watch_reads_what_a_request_asks_for() -> None:
    directory = Uuid(bytes(15) + b"\x03")
    added = change_of(AddRaftVoterRequest(voter_id=3, voter_directory_id=directory, ack_when_committed=False))
    assert added is not None
    assert (added.kind, added.key, added.is_committed) == ("addition", ReplicaKey(3, directory), False)
    removed = change_of(RemoveRaftVoterRequest(voter_id=3, voter_directory_id=directory))
    assert removed == AnsweredChange("removal", ReplicaKey(3, directory))
    assert change_of(_features("metadata.version")) is None
    assert change_of(_features("kraft.version")) == AnsweredChange("upgrade")
    assert is_success(AddRaftVoterResponse())
    assert not is_success(AddRaftVoterResponse(error_code=Error.REQUEST_TIMED_OUT))


def _features(name: str) -> Message:
    return UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature=name, max_version_level=1, upgrade_type=1)])


def test_runs_contain_changes_that_are_answered_with_success() -> None:
    """Otherwise the watch of the answers sees nothing."""
    confirmed = 0
    for seed in range(SLICE):
        scenario = Scenario.drawn("dynamic", 5, seed)
        simulator = Simulator(scenario, work=Reconfiguration(scenario))
        simulator.chaos(20_000)
        watch = simulator.world.watch
        assert isinstance(watch, VoterWatch)
        confirmed += watch.confirmed
    assert confirmed > 2 * SLICE


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(1_000_756, id="rot in directory.id makes another voter"),
        pytest.param(1_001_150, id="a leader resigns before a new voter knows that it votes"),
    ],
)
def test_runs_that_a_check_took_for_violations_pass(seed: int) -> None:
    assert isinstance(SeedSearch(members="dynamic").run(seed), Result)
