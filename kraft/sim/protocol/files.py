"""The steps of simulated runs as files for the model checker."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from msgspec.structs import replace

from kraft.sim.protocol.trace import Trace, module_of, run_of
from kraft.sim.runs.seeded_run import Result
from kraft.sim.search.schedule import Schedule
from kraft.sim.search.seed_search import SeedSearch

OUTSIDE: Final = (
    "disk-rot",
    "disk-wiped",
    "disk-swapped",
    "quorum-state-damaged",
    "batch-epochs-damaged",
    "forged-frames",
)
"""The faults that the specification does not allow: disks that lose what an fsync has covered, and forged messages."""
CONFIGURATION: Final = """SPECIFICATION TraceSpec
CONSTANTS
  None = None
  Replicas <- RunReplicas
  First <- RunFirst
  NoPreVotes <- RunReplicas
VIEW Place
INVARIANTS OneLeaderPerEpoch
"""
"""The configuration of QuorumTrace.tla: every replica may be of an old release, and the trace says if one was."""


def within_protocol(search: SeedSearch, seed: int) -> SeedSearch:
    """The search for the run of a seed with its profile, without the faults outside of the specification."""
    profile = search.profile_of(seed)
    faults = profile.faults if search.faults is None else search.faults
    return replace(search, profile=profile.name, faults=tuple(one for one in faults if one not in OUTSIDE))


def run_and_write(search: SeedSearch, seed: int, *, directory: Path) -> Result | Schedule:
    """Simulate the run of a seed, and write its steps below a directory."""
    trace = Trace()
    outcome = replace(within_protocol(search, seed), recorder=trace.record).run(seed, [])
    place = directory / f"{search.members}-{seed}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "Runs.tla").write_text(module_of([run_of(place.name, trace.turns)]))
    (place / "QuorumTrace.cfg").write_text(CONFIGURATION)
    return outcome
