"""Names that the documentation of the last release gave to users still work, and say what to use now."""

from __future__ import annotations

from importlib import import_module

import pytest
from command_line import run

from kraft.sim import Scenario
from kraft.sim.mutants import FORMER_NAMES, MUTANTS, planted
from kraft.sim.search.schedule import Schedule, decode_schedule, encode_schedule

MOVED = (
    ("kraft.conformance", "kraft.history_checker", "check_history"),
    ("metadata_log.timeline", "metadata_log.reading.timeline", "read_timeline"),
    ("kraft.sim.diagram", "kraft.sim.pictures.diagram", "render_diagram"),
    ("kraft.sim.enabled", "kraft.sim.search.enabled", "enabled"),
    ("kraft.sim.hunt", "kraft.sim.search.seed_search", "Hunt"),
    ("kraft.sim.linearizability", "kraft.sim.workloads.linearizability", "check"),
    ("kraft.sim.machine_member", "kraft.sim.nodes.state_machine_member", "COUNTS"),
    ("kraft.sim.schedule", "kraft.sim.search.schedule", "Schedule"),
    ("kraft.sim.shrink", "kraft.sim.search.shrink", "shrink"),
    ("kraft.sim.story", "kraft.sim.pictures.execution", "story_lines"),
    ("kraft.admin", "kraft.observer", "Follower"),
    ("kraft.admin", "kraft.observer", "read_image"),
)


@pytest.mark.parametrize(("old", "new", "name"), MOVED)
def test_a_documented_name_forwards_for_one_release(old: str, new: str, name: str) -> None:
    with pytest.warns(DeprecationWarning, match=new):
        found = getattr(import_module(old), name)
    assert any(found is each for each in vars(import_module(new)).values())


@pytest.mark.parametrize("old", ["metadata_log.timeline", "kraft.admin"])
def test_a_name_that_never_existed_is_an_attribute_error(old: str) -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        import_module(old).no_such_name  # noqa: B018 (asking is the test)


@pytest.mark.parametrize(
    ("package", "old", "new"),
    [
        ("kraft", "MachineNode", "StateMachineNode"),
        ("kraft.sim", "Trial", "WorkloadSpec"),
        ("kraft.sim", "trial_of", "workload_spec_of"),
    ],
)
def test_a_renamed_public_name_works_for_one_release(package: str, old: str, new: str) -> None:
    module = import_module(package)
    with pytest.warns(DeprecationWarning, match=new):
        found = getattr(module, old)
    assert found is getattr(module, new)
    assert old not in module.__all__


@pytest.mark.parametrize(("former", "present"), FORMER_NAMES.items())
def test_a_mutant_can_be_planted_by_its_former_name(former: str, present: str) -> None:
    assert former not in MUTANTS
    with pytest.warns(DeprecationWarning, match=present), planted(former) as patches:
        where = patches.where
    with planted(present) as patches:
        assert where == patches.where != ()


@pytest.mark.parametrize(("former", "present"), FORMER_NAMES.items())
def test_a_schedule_of_the_last_release_names_a_mutant(former: str, present: str) -> None:
    schedule = Schedule(scenario=Scenario.drawn("core", 3, 0), mutant=former, actions=())
    assert decode_schedule(encode_schedule(schedule), "a schedule").mutant == present


@pytest.mark.parametrize(("former", "present"), FORMER_NAMES.items())
def test_the_command_accepts_the_former_name_of_a_mutant(
    former: str, present: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run(capsys, "sim", "explore", "--nodes", "2", "--depth", "1", "--mutant", former)
    assert done.code == 0, done
    assert f"note: {former} is called {present}" in done.err
