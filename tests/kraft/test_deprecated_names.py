"""Module names that the documentation of the last release gave to users still work, and say where the module is now."""

from __future__ import annotations

from importlib import import_module

import pytest

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
