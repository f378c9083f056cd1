"""The simulator in Pyodide has the digests of the simulator here: the page of the lab runs the production code."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
import pytest
from msgspec import Struct

from kraft.sim.faults.profiles import PROFILES
from kraft.sim.runs.seeded_run import Result
from kraft.sim.search.seed_search import SeedSearch
from pyodide_in_node import in_pyodide

MEMBERS: Final = {
    "voters-and-rot": "dynamic",
    "former-selves": "dynamic",
    "records": "data-cluster",
    "small-logs": "data-cluster",
    "full-directories": "data-cluster",
    "overtaking": "data-cluster",
}
"""The kind of nodes that a profile is for; `replica` for the others."""
CODE: Final = """
import json
import msgspec
from kraft.sim.search.seed_search import SeedSearch
runs = json.loads('''{runs}''')
outcomes = [msgspec.convert(one["search"], SeedSearch).run(one["seed"]) for one in runs]
told = json.dumps([getattr(one, "digest", None) or one.message for one in outcomes])
"""


class Run(Struct, frozen=True):
    """The run of one seed."""

    search: SeedSearch
    seed: int


def run_of(profile: str, seed: int, chaos_ms: int = 2000) -> Run:
    members = MEMBERS.get(profile, "replica")
    return Run(SeedSearch(members=members, profile=profile, chaos_ms=chaos_ms), seed)


def here(runs: Iterable[Run]) -> list[str]:
    outcomes = [one.search.run(one.seed) for one in runs]
    return [one.digest if isinstance(one, Result) else one.message for one in outcomes]


def there(folder: Path, runs: Iterable[Run]) -> list[str]:
    told: list[str] = json.loads(in_pyodide(folder, CODE.format(runs=msgspec.json.encode(list(runs)).decode())))
    return told


def test_seeds_have_the_same_digests_in_pyodide(tmp_path: Path) -> None:
    runs = [
        *(run_of(profile, 0, 500) for profile in ("broad", "quiet", "records")),
        run_of("broad", 4),  # a node ends over an error of its disk, whose number is another one there
        Run(SeedSearch(members="core", profile="broad", mutant="raft-figure-8", chaos_ms=500), 0),
    ]
    assert there(tmp_path, runs) == here(runs)


@pytest.mark.soak
@pytest.mark.parametrize("members", ["dynamic", "combined-cluster", "coordinator-cluster", "share-cluster"])
def test_two_hundred_seeds_of_other_members_have_the_same_digests_in_pyodide(tmp_path: Path, members: str) -> None:
    runs = [Run(SeedSearch(members=members, chaos_ms=2000), seed) for seed in range(200)]
    assert there(tmp_path, runs) == here(runs)


@pytest.mark.soak
@pytest.mark.parametrize("profile", PROFILES)
def test_two_hundred_seeds_of_each_profile_have_the_same_digests_in_pyodide(tmp_path: Path, profile: str) -> None:
    runs = [run_of(profile, seed) for seed in range(200)]
    assert there(tmp_path, runs) == here(runs)
