"""Bugs planted on purpose: each must be found, and what finds it must not be found in sound code."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from inspect import signature
from itertools import takewhile
from pathlib import Path
from types import FunctionType

import pytest
from msgspec.structs import replace

from kraft.quorum.states import VotedState
from kraft.sim.runs import brokers, seeded_run, voter_change_run
from kraft.sim.runs.seeded_run import Result
from kraft.sim.search.schedule import Schedule, check_of, decode_schedule, function_of, replay
from kraft.sim.search.seed_search import SeedSearch
from planted_bugs import MUTANTS, Mutant, Scope, planted
from planted_bugs.registry import CLASSIC_FAULTS, search_for
from support import DATA

DOCS = Path(__file__).parents[3] / "docs"
SCHEDULES = sorted((DOCS / "schedules").glob("*.json"))
FOUND = [name for name, mutant in MUTANTS.items() if mutant.budget]
"""Those that a seed finds."""
SEEDS = {name: int(seed) for seed, name in map(str.split, (DATA / "mutant_seeds.txt").read_text().splitlines())}
"""The seed that found a mutant last time, where that is not seed 0; without a line the search begins there, too."""
SLOW = {
    "groups-with-members-are-deleted",
    "offsets-that-expressions-want-are-forgotten",
    "offsets-that-members-want-are-forgotten",
    "classic-members-wait-for-no-former-owner",
    "downgraded-groups-begin-their-generations-anew",
    "replicas-that-nobody-may-lead-are-given-up",
    "upgraded-groups-begin-their-epochs-anew",
    "upgraded-groups-forget-what-members-own",
    "directories-are-not-compared",
    "former-epochs-outlive-a-snapshot",
    "fetches-confirm-the-leader",
    "later-epoch-beats-a-snapshot",
    "own-commands-acknowledged-early",
    "reads-confirmed-by-former-voters",
    "result-dropped-at-acknowledged",
    "no-record-at-the-start-of-an-epoch",
    "vote-in-a-past-epoch",
    "truncation-keeps-the-epochs",
    "election-timeouts-are-equal",
    "observers-count-for-check-quorum",
    "refused-fetch-restarts-the-fetch-timer",
    "removed-leader-counts-itself-for-check-quorum",
    "snapshot-of-former-epochs-is-not-needed",
    "new-voter-counts-as-caught-up",
    "voter-added-before-it-has-caught-up",
    "voters-outlive-a-snapshot",
    "backoff-leaves-the-fetch-session",
    "checkpointed-watermark-above-the-log-end",
    "truncated-logs-keep-their-epochs",
    "any-end-is-acknowledged",
    "coordinators-survive-their-leadership",
    "ends-of-any-epoch-count",
}
"""Runs with these take long, as no node makes progress in them, or take many seeds."""
RANGES = range(0, 50_000, 10_000)
"""Where the soak begins to look for each."""


SOUGHT = [mutant for mutant in MUTANTS.values() if mutant.survival is None]
"""Those that a seed or a schedule shows."""
SURVIVORS = [mutant for mutant in MUTANTS.values() if mutant.survival is not None]


def _rows(head: str = "| mutant | what is broken | runs | found by |") -> list[str]:
    """The lines of one of the page's tables, after the line that begins so."""
    lines = (DOCS / "reference" / "mutants.md").read_text().partition(f"{head}")[2].splitlines()[2:]
    return list(takewhile(lambda line: line.startswith("| `"), lines))


def _cells() -> dict[str, list[str]]:
    """The content of each mutant's line."""
    return {row.split("`")[1]: [cell.strip() for cell in row.split("|")[1:-1]] for row in _rows()}


@cache
def _is_sound(members: str, faults: tuple[str, ...] | None, profile: str, seed: int) -> bool:
    """Whether the sound code passes the run of a seed; many mutants are found by the same one."""
    return isinstance(SeedSearch(members=members, faults=faults, profile=profile).run(seed), Result)


@pytest.fixture
def short_calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of the usual calm: the sound code settles in it, and what makes no progress shows that, too."""
    calm_ms = seeded_run.CALM_MS // 3
    for module in (seeded_run, voter_change_run, brokers):
        monkeypatch.setattr(module, "CALM_MS", calm_ms)


def _found(mutant: Mutant) -> Schedule | None:
    """The schedule of the seed that found it last time; else of the first seed within its budget."""
    known = search_for(mutant).run(SEEDS.get(mutant.name, 0), [])
    return known if isinstance(known, Schedule) else _hunt(mutant)[0]


def _hunt(mutant: Mutant, first: int = 0) -> tuple[Schedule | None, int]:
    """The schedule found within the mutant's budget of seeds, and after how many."""
    search = search_for(mutant)
    print(f"{mutant.name}: {mutant.scope}, seeds from {first}")
    for count in range(1, mutant.budget + 1):
        outcome = search.run(first + count - 1)
        if isinstance(outcome, Schedule):
            print(f"seed {first + count - 1}: {outcome.violated}: {outcome.message}")
            return outcome, count
    return None, mutant.budget


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.soak] if name in SLOW else []) for name in FOUND]
)
@pytest.mark.usefixtures("short_calm")
def test_a_mutant_is_found(name: str) -> None:
    """A simulation that does not find these would be worth nothing, nor one that finds something without them."""
    mutant = MUTANTS[name]
    found = _found(mutant)
    assert found is not None, f"{mutant.budget} seeds found nothing"
    assert _is_sound(mutant.scope, mutant.faults, mutant.profile, found.scenario.seed), found.message
    by = "no progress in the end" if found.violated.startswith("NoProgress") else function_of(found.violated)
    assert by in _cells()[name][3], "the page says that something else finds it"


@pytest.mark.soak
@pytest.mark.parametrize("name", FOUND)
def test_a_mutant_is_found_from_any_first_seed(name: str) -> None:
    """From whichever seed one looks for it, its budget is enough; `bench/mutants.py` says how many it takes."""
    assert all(_hunt(MUTANTS[name], first)[0] is not None for first in RANGES)


@pytest.mark.parametrize("path", SCHEDULES, ids=lambda path: path.stem)
def test_a_saved_schedule_still_violates_its_invariant(path: Path) -> None:
    """And breaks nothing without the mutant, where the same events may not even be possible."""
    schedule = decode_schedule(path.read_bytes(), path.name)
    assert schedule.mutant == path.stem
    assert len(schedule.actions) < 30, "no person reads so much"
    failure = replay(schedule).failure
    assert failure is not None
    assert check_of(failure) == schedule.violated
    assert replay(replace(schedule, mutant=None)).failure is None


def test_each_mutant_without_a_seed_has_a_schedule_or_is_a_survivor() -> None:
    assert {mutant.name for mutant in SOUGHT} - set(FOUND) <= {path.stem for path in SCHEDULES}
    assert all(mutant.budget == 0 for mutant in SURVIVORS)


def test_each_survivor_is_killed_by_the_test_that_the_registry_names() -> None:
    """Each named test runs with the bug planted, in a process of its own, and must fail there."""
    named = [one.name for one in SURVIVORS if one.survival is not None and one.survival.killed_by is not None]
    command = [sys.executable, str(DOCS.parent / "bench" / "mutants.py"), *named, "--tests"]
    done = subprocess.run(command, cwd=DOCS.parent, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split(": killed")[0] for line in done.stdout.splitlines()] == named


@pytest.mark.soak
@pytest.mark.parametrize("name", [mutant.name for mutant in SURVIVORS])
def test_a_survivor_is_not_found_by_the_seeds_that_the_page_counts(name: str) -> None:
    """A survivor that a search finds belongs into the other table."""
    mutant = MUTANTS[name]
    assert mutant.survival is not None
    for faults, tried in ((None, mutant.survival.tried), (CLASSIC_FAULTS, mutant.survival.tried_classic)):
        search = SeedSearch(members=mutant.scope, mutant=name, faults=faults)
        outcomes = (search.run(seed) for seed in range(tried))
        assert next((one.violated for one in outcomes if isinstance(one, Schedule)), None) is None


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_removed_after_its_block(name: str) -> None:
    with planted(name) as patches:
        replaced = patches.replaced
        assert all(vars(owner)[attribute] is not sound for owner, attribute, sound in replaced)
    assert all(vars(owner)[attribute] is sound for owner, attribute, sound in replaced)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_takes_what_the_sound_function_takes(name: str) -> None:
    """Else it is found by the error of a call, and nobody learns whether a check would find it."""
    with planted(name) as patches:
        for owner, attribute, sound in patches.replaced:
            broken = vars(owner)[attribute]
            if isinstance(sound, FunctionType) and isinstance(broken, FunctionType):
                given = signature(sound).parameters.values()
                by_place = [one.name for one in given if one.kind <= one.POSITIONAL_OR_KEYWORD]
                by_name = {one.name: one.name for one in given if one.kind is one.KEYWORD_ONLY}
                signature(broken).bind(*by_place, **by_name)


def test_a_mutant_is_removed_after_an_exception() -> None:
    """Nothing else in this process may run on broken code; nor does an unknown mutant break anything."""
    sound = VotedState.can_grant
    with pytest.raises(KeyError), planted("vote-again"), planted("no-such-thing"):
        pytest.fail("nothing can have been planted")
    assert VotedState.can_grant is sound


def test_mutants_cover_every_scope() -> None:
    assert len(MUTANTS) >= 120
    assert {mutant.scope for mutant in MUTANTS.values()} == set(Scope)


def test_the_page_names_every_mutant() -> None:
    """With what is broken, and the runs in which that shows."""
    survivors = _rows("| mutant | what is broken | runs | seeds tried |")
    for mutants, rows in ((SOUGHT, _rows()), (SURVIVORS, survivors)):
        wanted = [f"| `{mutant.name}` | {mutant.what} | {mutant.scope} |" for mutant in mutants]
        assert len(rows) == len(wanted)
        assert [row for row in wanted if not any(line.startswith(row) for line in rows)] == []
