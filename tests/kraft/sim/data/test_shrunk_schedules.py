"""The shrunk schedules of planted bugs of brokers with data, and how such a schedule is shrunk and told."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from msgspec.structs import replace

from kraft.sim.pictures.execution import execution_lines, execution_of
from kraft.sim.search.schedule import Replayed, Schedule, check_of, decode_schedule, replay
from kraft.sim.search.seed_search import SeedSearch
from kraft.sim.search.shrink import shrink
from kraft.sim.world.actions import Start
from kraft.sim.world.world import World
from planted_bugs import MUTANTS
from support import DATA

FILE = DATA / "shrunk_schedules.jsonl.gz"
SHRUNK = [decode_schedule(line, FILE.name) for line in gzip.decompress(FILE.read_bytes()).splitlines()]
PAGE = Path(__file__).parents[4] / "docs" / "reference" / "shrunk-schedules.md"


@pytest.mark.parametrize("schedule", SHRUNK, ids=lambda one: one.mutant)
def test_a_shrunk_schedule_violates_its_invariant_only_with_its_bug(schedule: Schedule) -> None:
    replayed = replay(schedule)
    assert replayed.failure is not None
    assert check_of(replayed.failure) == schedule.violated
    assert replayed.performed == schedule.actions, "what cannot happen does not stand in it"
    assert replay(replace(schedule, mutant=None)).failure is None


def test_the_page_has_the_length_of_each_saved_schedule() -> None:
    rows = [line.split("|")[1:-1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    lengths = {cells[0].strip(" `"): int(cells[4]) for cells in rows}
    assert lengths == {one.mutant: len(one.actions) for one in SHRUNK}
    assert set(lengths) <= set(MUTANTS)


def test_a_story_names_partitions_records_and_watermarks() -> None:
    schedule = next(one for one in SHRUNK if one.mutant == "acknowledged-by-the-leader-alone")
    text = "\n".join(execution_lines(execution_of(schedule)))
    assert "gets Produce for t3-0: 2 records" in text
    assert "committed: t3-0 has leader" in text
    assert "leads t3-0 in epoch 0: log end 2, high watermark" in text


def test_shrinking_finds_a_cluster_with_one_controller() -> None:
    search = SeedSearch(members="data-cluster", mutant="acknowledged-by-the-leader-alone")
    found = search.run(0)
    assert isinstance(found, Schedule)
    shrunk = shrink(found, most_events=30_000)
    assert shrunk.violated == found.violated
    assert shrunk.scenario.nodes == 1
    assert len(shrunk.actions) < len(found.actions) // 10


def test_shrinking_keeps_what_the_correct_code_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for replays: the bug fails any schedule, and the correct code one in which node 1 does not start."""
    schedule = replace(next(iter(SHRUNK)), violated="ValueError by perform_all")

    def perform_all(world: World, tried: Schedule, **_: object) -> Replayed:
        starts = any(isinstance(one, Start) and one.node == schedule.scenario.first_id for one in tried.actions)
        has_failed = tried.mutant is not None or not starts
        return Replayed(world, tried.actions, ValueError("x") if has_failed else None)

    monkeypatch.setattr("kraft.sim.search.shrink.perform_all", perform_all)
    monkeypatch.setattr("kraft.sim.search.shrink.check_of", lambda _: schedule.violated)
    (only,) = shrink(schedule).actions
    assert isinstance(only, Start)
