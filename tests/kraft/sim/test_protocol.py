"""The specification of the protocol, its mutations, and simulated runs as its behaviours: TLC judges all three."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from kraft.cli.main import kraft
from kraft.quorum.recorded import ProtocolStep
from kraft.sim.protocol.files import CONFIGURATION, OUTSIDE, within_protocol
from kraft.sim.protocol.trace import Run, Trace, module_of, run_of, without_lost_ends
from kraft.sim.search.seed_search import SeedSearch
from planted_bugs import planted
from support.interop.kafka_or_skip import skip_here
from support.kafka_jars import KafkaUnavailable
from support.protocol_models import MUTATIONS, WHOLE_MODELS, Mutation
from support.tlc import MODULES, Checked, check, explain, jar

OWN = (1, "")


@pytest.fixture(scope="module")
def tlc() -> Path:
    try:
        return jar()
    except KafkaUnavailable as unavailable:
        skip_here(f"TLC cannot be run here: {unavailable}")


def recorded(search: SeedSearch, seed: int) -> Run:
    trace = Trace()
    replace(within_protocol(search, seed), recorder=trace.record).run(seed, [])
    assert not trace.is_cut
    return run_of(f"{search.members} {seed}", trace.turns)


def judged(runs: list[Run], directory: Path) -> Checked:
    return check("QuorumTrace", CONFIGURATION, directory, files={"Runs": module_of(runs)}, heap="3g")


@pytest.mark.parametrize("name", WHOLE_MODELS)
def test_every_state_of_a_small_model_has_the_properties(name: str, tmp_path: Path, tlc: Path) -> None:
    module, configuration, states = WHOLE_MODELS[name]
    found = check(module, configuration, tmp_path)
    assert not found.violated, found.output[-3000:]
    assert found.states == states


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.name.replace(" ", "-"))
def test_the_properties_catch_a_mutation(mutation: Mutation, tmp_path: Path, tlc: Path) -> None:
    text = (MODULES / f"{mutation.module}.tla").read_text()
    assert text.count(mutation.rule) == 1, mutation.rule
    broken = {mutation.module: text.replace(mutation.rule, mutation.broken)}
    found = check(f"{mutation.module}Model", mutation.configuration, tmp_path, files=broken)
    assert found.violated in mutation.caught_by, found.output[-3000:]


@pytest.mark.parametrize(
    ("members", "seed"), [("core", 0), ("replica", 8), ("replica", 5), ("dynamic", 0), ("dynamic", 8)]
)
def test_a_simulated_run_is_a_behaviour(members: str, seed: int, tmp_path: Path, tlc: Path) -> None:
    run = recorded(SeedSearch(members=members), seed)
    found = judged([run], tmp_path)
    assert (found.violated, found.whole) == ("", (1,)), explain(tmp_path, CONFIGURATION, {"Runs": module_of([run])})


def test_the_first_step_that_is_none_is_told(tmp_path: Path, tlc: Path) -> None:
    with planted("vote-without-log-check"):
        run = recorded(SeedSearch(members="core"), 0)
    assert judged([run], tmp_path).whole == ()
    told = explain(tmp_path, CONFIGURATION, {"Runs": module_of([run])})
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
        found = judged(runs, place)
        missing = [run for number, run in enumerate(runs, 1) if number not in found.whole]
        told = [explain(place, CONFIGURATION, {"Runs": module_of([run])}) for run in missing[:1]]
        assert not missing, ([run.name for run in missing], told)
        assert not found.violated


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
        faults = within_protocol(search, seed).faults
        assert faults, seed
        assert not set(faults) & set(OUTSIDE)


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
