"""Quorums with voters that come and go under faults, and with snapshots; a failure says how to replay it."""

from __future__ import annotations

import pytest

from kraft.invariants.observation import LogBatch, SnapshotContent
from kraft.invariants.snapshots import Registers, SnapshotLedger
from kraft.invariants.violation import InvariantViolated
from kraft.invariants.voters import AnsweredChange, VoterLedger, VotersInLog
from kraft.quorum.values import ReplicaKey
from kraft.quorum.voters import QuorumChange, Voter, VoterSet
from kraft.sim.faults.profiles import VOTERS
from kraft.sim.nodes.addresses import endpoints_of
from kraft.sim.runs.scenario import Scenario
from kraft.sim.runs.seeded_run import Result
from kraft.sim.runs.simulator import Simulator
from kraft.sim.runs.voter_change_run import Reconfiguration, run_dynamic
from kraft.sim.search.schedule import Schedule, decode_schedule, encode_schedule, replay
from kraft.sim.search.seed_search import SeedSearch
from kraft.sim.workloads.voter_watch import VoterWatch, change_of, is_success
from kraft.sim.world.actions import Action, Move, Wipe
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch, Uuid
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


def _voters(*ids: int) -> VoterSet:
    return VoterSet(tuple(Voter(ReplicaKey(one, Uuid(bytes(15) + bytes([one]))), endpoints_of(one)) for one in ids))


@pytest.mark.parametrize(
    ("former", "latter", "is_fine"),
    [
        ((1, 2, 3), (1, 2), True),
        ((1, 2), (1, 2, 3), True),
        ((1, 2), (1, 2), True),
        ((1, 2, 3), (1, 2, 4), False),
        ((1, 2, 3), (1,), False),
        ((1,), (1, 2, 3), False),
    ],
)
def test_voters_change_one_at_a_time(former: tuple[int, ...], latter: tuple[int, ...], is_fine: bool) -> None:
    problem = VoterLedger(_voters(*former)).appended(1, [], 0, _voters(*latter))
    assert (problem is None) == is_fine, problem


def test_configured_voters_may_become_the_recorded_ones() -> None:
    """Their directories become known, and no voter is added or removed."""
    static = VoterSet(tuple(Voter(ReplicaKey(one), endpoints_of(one)) for one in (1, 2)))
    assert VoterLedger(static).appended(1, [], 0, _voters(1, 2)) is None


@pytest.mark.parametrize(("committed", "is_fine"), [(10, True), (6, True), (5, True), (4, False), (0, False)])
def test_at_most_one_voter_change_is_uncommitted(committed: int, is_fine: bool) -> None:
    found: VotersInLog = [(0, _voters(1, 2)), (4, _voters(1, 2, 3)), (5, _voters(1, 2))]
    problem = VoterLedger(_voters(1, 2)).uncommitted(1, found, committed)
    assert (problem is None) == is_fine, problem


def test_the_voters_of_a_node_are_those_of_its_log() -> None:
    ledger = VoterLedger(_voters(1, 2))
    assert ledger.believed(3, [], ()) is None, "a node that joins knows nothing yet"
    assert ledger.believed(1, [], _voters(1, 2).keys) is None
    assert ledger.believed(1, [(0, _voters(1))], _voters(1, 2).keys)


def _change(kind: str, node_id: int, port: int = 9000, *, is_committed: bool = True) -> AnsweredChange:
    (voter,) = _voters(node_id).voters
    endpoints = None if kind == "removal" else endpoints_of(node_id, port)
    return AnsweredChange(kind, voter.key, endpoints=endpoints, is_committed=is_committed)


@pytest.mark.parametrize(
    ("change", "committed", "is_fine"),
    [
        (_change("addition", 3), 5, True),
        (_change("addition", 3), 4, False),
        (_change("addition", 3, is_committed=False), 4, True),
        (_change("addition", 3, port=9001), 5, False),
        (_change("addition", 4), 5, False),
        (_change("removal", 1), 8, True),
        (_change("removal", 1), 7, False),
        (_change("update", 2, is_committed=False), 0, True),
        (_change("update", 2, port=9001, is_committed=False), 8, False),
        (AnsweredChange("upgrade"), 4, True),
        (AnsweredChange("upgrade"), 0, False),
    ],
)
def test_a_change_that_is_answered_with_success_is_in_the_log(
    change: AnsweredChange, committed: int, is_fine: bool
) -> None:
    """The voters of an addition are at place 4 of the log, and those of a removal at place 7."""
    static = VoterSet(tuple(Voter(ReplicaKey(one), endpoints_of(one)) for one in (1, 2)))
    found: VotersInLog = [(0, _voters(1, 2)), (4, _voters(1, 2, 3)), (7, _voters(2, 3))]
    problem = VoterLedger(static).not_made(1, found, committed, change)
    assert (problem is None) == is_fine, problem


def test_an_update_of_a_static_voter_need_not_be_in_the_log() -> None:
    static = VoterSet(tuple(Voter(ReplicaKey(one), endpoints_of(one)) for one in (1, 2)))
    change = _change("update", 2, port=9001, is_committed=False)
    assert VoterLedger(static).not_made(1, [], 0, change) is None


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


def _committed(*values: bytes) -> tuple[list[LogBatch], list[tuple[bytes, ...]]]:
    """One value a batch, in epoch 1."""
    return [LogBatch(at, at + 1, 1, value) for at, value in enumerate(values)], [(value,) for value in values]


def _content(*values: bytes, voters: VoterSet | None = None) -> SnapshotContent:
    registers = Registers()
    registers.apply(values)
    keys = () if voters is None else voters.keys
    return SnapshotContent(0, 0 if voters is None else 1, keys, registers.values(), is_of_registers=True)


def test_a_snapshot_has_the_content_of_the_log() -> None:
    batches, values = _committed(b"a", b"b", b"c")
    ledger = SnapshotLedger(VoterLedger(_voters(1)))
    two, three = OffsetAndEpoch(epoch=1, offset=2), OffsetAndEpoch(epoch=1, offset=3)
    assert ledger.wrong_content(three, _content(b"a", b"b", b"c"), batches, values) is None
    assert ledger.wrong_content(two, _content(b"a", b"b"), batches, values) is None
    other = SnapshotLedger(VoterLedger(_voters(1)))
    assert other.wrong_content(three, _content(b"a", b"b"), batches, values)
    assert ledger.wrong_content(two, _content(b"a"), batches, values), "two with one id say the same"


def test_a_snapshot_has_the_voters_at_its_end() -> None:
    batches, values = _committed(b"a", b"b")
    voters = VoterLedger(_voters(1))
    voters.written(1, 1, (QuorumChange(1, _voters(1, 2)),))
    voters.committed.append((1, _voters(1, 2)))
    ledger = SnapshotLedger(voters)
    one, two = OffsetAndEpoch(epoch=1, offset=1), OffsetAndEpoch(epoch=1, offset=2)
    assert ledger.wrong_content(one, _content(b"a", voters=_voters(1)), batches, values) is None
    assert ledger.wrong_content(two, _content(b"a", b"b", voters=_voters(1)), batches, values)


@pytest.mark.parametrize(
    ("snapshot", "is_fine"),
    [
        (OffsetAndEpoch(epoch=0, offset=0), True),
        (OffsetAndEpoch(epoch=1, offset=2), True),
        (OffsetAndEpoch(epoch=2, offset=2), False),
        (OffsetAndEpoch(epoch=1, offset=3), False),
    ],
)
def test_a_snapshot_ends_at_the_end_of_a_committed_batch(snapshot: OffsetAndEpoch, is_fine: bool) -> None:
    batches, _ = _committed(b"a", b"b")
    assert (SnapshotLedger(VoterLedger(_voters(1))).wrong_id(snapshot, batches) is None) == is_fine


def test_a_log_begins_where_its_first_snapshot_ends() -> None:
    ledger, at = SnapshotLedger(VoterLedger(_voters(1))), (OffsetAndEpoch(epoch=1, offset=5),)
    assert ledger.listed(1, (), 0, is_moved=True) is None
    assert ledger.listed(1, at, 5, is_moved=True) is None
    assert ledger.listed(1, at, 4, is_moved=False) is None, "after a restart with the segment that holds the record"
    assert ledger.listed(1, at, 4, is_moved=True)
    assert ledger.listed(1, at, 6, is_moved=False)
    assert ledger.listed(1, (), 5, is_moved=False)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(1_000_756, id="rot in directory.id makes another voter"),
        pytest.param(1_001_150, id="a leader resigns before a new voter knows that it votes"),
    ],
)
def test_runs_that_a_check_took_for_violations_pass(seed: int) -> None:
    assert isinstance(SeedSearch(members="dynamic").run(seed), Result)
