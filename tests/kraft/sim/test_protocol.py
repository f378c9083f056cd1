"""The specification of the protocol, its mutations, and simulated runs as its behaviours: TLC judges all three."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from kraft.cli.main import kraft
from kraft.quorum.recorded import ProtocolStep
from kraft.sim.protocol.files import (
    CONFIGURATION,
    GROUP,
    OUTSIDE,
    OUTSIDE_OF_QUORUM,
    PARTITION,
    QUORUM,
    TRANSACTION,
    group_runs,
    grouped,
    partition_runs,
    quorum_run,
    transaction_runs,
    within_protocol,
)
from kraft.sim.protocol.partition_steps import Epochs, common_end
from kraft.sim.protocol.trace import MOST_STEPS, Run, without_lost_ends
from kraft.sim.runs.seeded_run import Result
from kraft.sim.search.seed_search import SeedSearch
from planted_bugs import planted
from support.interop.kafka_or_skip import skip_here
from support.kafka_jars import KafkaUnavailable
from support.protocol_models import MUTATIONS, WHOLE_MODELS, Mutation
from support.tlc import Model, explain, jar, judge, kept_verdicts

OWN = (1, "")


@pytest.fixture(scope="module")
def tlc() -> Path:
    try:
        return jar()
    except KafkaUnavailable as unavailable:
        skip_here(f"TLC cannot be run here: {unavailable}")


def recorded(search: SeedSearch, seed: int) -> Run:
    run, outcome = quorum_run(search, seed)
    assert isinstance(outcome, Result), outcome
    assert len(run.steps) < MOST_STEPS
    return run


def verdict(model: Model, directory: Path) -> tuple[str, int]:
    """What TLC has said of these texts; it judges a text that has changed since anew."""
    kept = kept_verdicts().get(model.digest)
    if kept is None:
        found = model.check(directory)
        assert found.states, found.output[-3000:]
        kept = found.violated, found.states
    return kept


@pytest.mark.parametrize("name", WHOLE_MODELS)
def test_every_state_of_a_small_model_has_the_properties(name: str, tmp_path: Path, tlc: Path) -> None:
    module, configuration, states = WHOLE_MODELS[name]
    found = Model(module, configuration).check(tmp_path)
    assert (found.violated, found.states) == ("", states), found.output[-3000:]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.name.replace(" ", "-"))
def test_the_properties_catch_a_mutation(mutation: Mutation, tmp_path: Path, tlc: Path) -> None:
    assert verdict(mutation.model, tmp_path)[0] in mutation.caught_by


def test_tlc_says_what_is_kept(tmp_path: Path, tlc: Path) -> None:
    """Of the smallest broken model; another text has another digest."""
    kept = kept_verdicts()
    known = (one.model for one in MUTATIONS if one.model.digest in kept)
    model = min(known, key=lambda model: kept[model.digest][1])
    found = model.check(tmp_path)
    assert kept[model.digest] == (found.violated, found.states)
    assert Model(model.module, model.configuration).digest != model.digest


@pytest.mark.soak
def test_tlc_says_of_every_mutation_what_is_kept(tmp_path: Path, tlc: Path) -> None:
    for mutation in MUTATIONS:
        (place := tmp_path / mutation.model.digest).mkdir()
        found = mutation.model.check(place)
        assert kept_verdicts()[mutation.model.digest] == (found.violated, found.states), mutation.name


@pytest.mark.parametrize(
    ("members", "seed"), [("core", 0), ("replica", 8), ("replica", 5), ("dynamic", 0), ("dynamic", 8)]
)
def test_a_simulated_run_is_a_behaviour(members: str, seed: int, tmp_path: Path, tlc: Path) -> None:
    run = recorded(SeedSearch(members=members), seed)
    found = judge(QUORUM, [run], tmp_path)
    assert (found.violated, found.whole) == ("", (1,)), explain(tmp_path, QUORUM, [run])
    assert any('"AnswerChange"' in step for step in run.steps) == ((members, seed) == ("dynamic", 8))


def test_the_first_step_that_is_none_is_told(tmp_path: Path, tlc: Path) -> None:
    with planted("vote-without-log-check"):
        run, _ = quorum_run(SeedSearch(members="core"), 0)
    assert judge(QUORUM, [run], tmp_path).whole == ()
    told = explain(tmp_path, QUORUM, [run])
    assert '"refused", 1,' in told
    assert '"before"' in told
    assert "fails" in told
    assert any(f'"formula", "Grant{kind}", "fails"' in told for kind in ("Vote", "PreVote")), told


@pytest.mark.soak
@pytest.mark.parametrize("members", ["core", "replica", "controller", "dynamic", "dynamic-controller"])
@pytest.mark.parametrize("first", range(0, 300, 25))
def test_simulated_runs_are_behaviours(members: str, first: int, tmp_path: Path, tlc: Path) -> None:
    groups: dict[object, list[Run]] = {}
    for seed in range(first, first + 25):
        run = recorded(SeedSearch(members=members), seed)
        groups.setdefault(run.group, []).append(run)
    for at, runs in enumerate(groups.values()):
        place = tmp_path / str(at)
        place.mkdir()
        found = judge(QUORUM, runs, place)
        missing = [run for number, run in enumerate(runs, 1) if number not in found.whole]
        told = [explain(place, QUORUM, [run]) for run in missing[:1]]
        assert not missing, ([run.name for run in missing], told)
        assert not found.violated


def assert_partitions_behave(search: SeedSearch, seeds: range, directory: Path) -> None:
    runs = [run for seed in seeds for run in partition_runs(search, seed)[0]]
    assert len(runs) > len(seeds)
    for at, group in enumerate(grouped(runs)):
        place = directory / str(at)
        place.mkdir()
        found = judge(PARTITION, group, place)
        missing = [run for number, run in enumerate(group, 1) if number not in found.whole]
        told = [explain(place, PARTITION, [run]) for run in missing[:1]]
        assert not missing, ([run.name for run in missing], told)
        assert not found.violated


@pytest.mark.parametrize(("members", "seed"), [("data-cluster", 2), ("combined-cluster", 1)])
def test_partitions_of_a_simulated_run_are_behaviours(members: str, seed: int, tmp_path: Path, tlc: Path) -> None:
    assert_partitions_behave(SeedSearch(members=members, chaos_ms=8_000), range(seed, seed + 1), tmp_path)


def test_a_leader_that_ends_as_it_proposes_is_within_the_specification(tmp_path: Path, tlc: Path) -> None:
    runs, _ = partition_runs(SeedSearch(members="data-cluster", profile="overtaking"), 5)
    [run] = [one for one in runs if one.name.endswith(" t3-2")]
    proposes, ends = ('what |-> "Propose", who |-> "b3"', 'what |-> "Crash", who |-> "b3"')
    assert any(proposes in one and ends in later for one, later in pairwise(run.steps))
    found = judge(PARTITION, [run], tmp_path)
    assert (found.violated, found.whole) == ("", (1,)), explain(tmp_path, PARTITION, [run])


def assert_groups_behave(search: SeedSearch, seeds: Iterable[int], directory: Path) -> None:
    runs = [run for seed in seeds for run in group_runs(search, seed)[0]]
    found = judge(GROUP, runs, directory)
    missing = [run for number, run in enumerate(runs, 1) if number not in found.whole]
    told = [explain(directory, GROUP, [run]) for run in missing[:1]]
    assert not missing, ([run.name for run in missing], told)
    assert not found.violated


def test_a_simulated_group_is_a_behaviour(tmp_path: Path, tlc: Path) -> None:
    assert_groups_behave(SeedSearch(members="coordinator-cluster", chaos_ms=8_000), [7], tmp_path)


def test_a_step_that_is_none_of_a_group_is_told(tmp_path: Path, tlc: Path) -> None:
    with planted("partitions-change-hands-at-once"):
        [run], _ = group_runs(SeedSearch(members="coordinator-cluster", chaos_ms=8_000), 7)
    assert judge(GROUP, [run], tmp_path).whole == ()
    told = explain(tmp_path, GROUP, [run])
    assert '"formula", "Reconcile", "fails"' in told


def assert_transactions_behave(search: SeedSearch, seeds: Iterable[int], directory: Path) -> None:
    runs = [run for seed in seeds for run in transaction_runs(search, seed)[0]]
    assert any('what |-> "Told"' in step for run in runs for step in run.steps)
    for group in grouped(runs):
        place = directory / f"version-{group[0].group}"
        place.mkdir()
        found = judge(TRANSACTION, group, place)
        missing = [run for number, run in enumerate(group, 1) if number not in found.whole]
        told = [explain(place, TRANSACTION, [run]) for run in missing[:1]]
        assert not missing, ([run.name for run in missing], told)
        assert not found.violated


def test_simulated_transactions_of_both_versions_are_behaviours(tmp_path: Path, tlc: Path) -> None:
    search = SeedSearch(members="coordinator-cluster", chaos_ms=8_000)
    assert_transactions_behave(search, [1], tmp_path)
    assert {one.name for one in tmp_path.iterdir()} == {"version-1", "version-2"}


def test_a_step_that_is_none_of_a_transaction_is_told(tmp_path: Path, tlc: Path) -> None:
    with planted("ends-of-any-epoch-count"):
        runs, _ = transaction_runs(SeedSearch(members="coordinator-cluster", chaos_ms=8_000), 1)
    [run] = [one for one in runs if one.name.endswith("worker-2")]
    assert judge(TRANSACTION, [run], tmp_path).whole == ()
    told = explain(tmp_path, TRANSACTION, [run])
    assert '"formula", "End", "fails"' in told
    assert told.count('"refused"') == 1


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 100, 10))
def test_coordinators_of_simulated_runs_behave(first: int, tmp_path: Path, tlc: Path) -> None:
    search, seeds = SeedSearch(members="coordinator-cluster"), range(first, first + 10)
    assert_transactions_behave(search, seeds, tmp_path)
    (tmp_path / "groups").mkdir()
    assert_groups_behave(search, seeds, tmp_path / "groups")


@pytest.mark.soak
@pytest.mark.parametrize("members", ["data-cluster", "dynamic-data-cluster", "combined-cluster"])
@pytest.mark.parametrize("first", range(0, 100, 10))
def test_partitions_of_simulated_runs_are_behaviours(members: str, first: int, tmp_path: Path, tlc: Path) -> None:
    profile = "records" if first % 20 else "broad"
    assert_partitions_behave(SeedSearch(members=members, profile=profile), range(first, first + 10), tmp_path)


def test_a_step_that_is_none_of_a_partition_is_told(tmp_path: Path, tlc: Path) -> None:
    runs, _ = partition_runs(SeedSearch(members="data-cluster", chaos_ms=8_000), 2)
    run = next(one for one in runs if any('what |-> "Take"' in step for step in one.steps))
    at = next(number for number, one in enumerate(run.steps) if 'what |-> "Take"' in one)
    steps = (*run.steps[:at], run.steps[at].replace('"Take"', '"Write"'))
    forged = replace(run, steps=steps)
    assert judge(PARTITION, [forged], tmp_path).whole == ()
    told = explain(tmp_path, PARTITION, [forged])
    assert f'"refused", 1, {at + 1}>>' in told
    assert '"formula", "Write", "fails"' in told


@pytest.mark.parametrize(
    ("ours", "our_end", "theirs", "their_end", "kept"),
    [
        ((), 0, (), 0, 0),
        (((1, 0),), 5, ((1, 0),), 8, 5),
        (((1, 0), (2, 4)), 6, ((1, 0), (3, 4)), 7, 4),
        (((1, 0), (2, 4)), 6, ((1, 0), (2, 3)), 7, 3),
        (((1, 0), (2, 4)), 6, ((2, 5),), 7, 6),
        (((1, 0), (2, 4)), 6, (), 6, 6),
    ],
)
def test_two_logs_part_where_their_epochs_do(
    ours: Epochs, our_end: int, theirs: Epochs, their_end: int, kept: int
) -> None:
    assert common_end(ours, our_end, theirs, their_end) == kept


def test_the_command_writes_a_module_for_each_seed(tmp_path: Path) -> None:
    asked = ["sim", "run", "--seeds", "0..1", "--members", "core", "--jobs", "1", "--chaos-ms", "2000"]
    done = CliRunner().invoke(kraft, [*asked, "--protocol", str(tmp_path)])
    assert done.exit_code == 0, done.output
    for seed in (0, 1):
        text = (tmp_path / f"core-{seed}" / "Runs.tla").read_text()
        assert 'what |-> "Win"' in text
        assert (tmp_path / f"core-{seed}" / "QuorumTrace.cfg").read_text() == CONFIGURATION


def test_a_run_has_no_faults_outside_of_the_protocol() -> None:
    search = SeedSearch(members="replica")
    for seed in range(60):
        for outside in (OUTSIDE, OUTSIDE_OF_QUORUM):
            faults = within_protocol(search, seed, outside).faults
            assert faults, seed
            assert not set(faults) & set(outside)


def step(what: str, role: str, epoch: int, *, end: int = 0, disk: tuple[int, int, int] | None = None) -> ProtocolStep:
    return ProtocolStep(OWN, what, role, epoch, end, on_disk=disk)


def test_what_a_crash_within_a_turn_has_left_undone_is_no_step() -> None:
    stood = [step("Nominate", "Prospective", 1), step("Stand", "Candidate", 2, disk=(2, -1, 1))]
    before = [step("Restart", "Unattached", 1, disk=(1, -1, -1))]
    again = [step("Restart", "Unattached", 1, disk=(1, -1, -1))]
    assert without_lost_ends([before, stood, again]) == [before, again]
    later = [step("Restart", "Candidate", 2, disk=(2, -1, 1))]
    assert without_lost_ends([before, stood, later]) == [before, stood, later]


def test_offsets_are_ranks_in_a_trace() -> None:
    run = recorded(SeedSearch(members="core"), 0)
    assert len(run.steps) == len(run.shown) > 100
    assert run.group[0] == ("n1", ("n1", "n2", "n3"))
    assert 'who |-> "n' in run.steps[0]
