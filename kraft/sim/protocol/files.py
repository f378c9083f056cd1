"""The steps of runs as files for the model checker: of simulated ones, and of real nodes (`kraft serve --protocol`)."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from kraft.quorum.recorded import ProtocolStep
from kraft.sim.protocol.trace import Run, Trace, module_of, run_of
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


def run_of_nodes(name: str, files: Iterable[Path]) -> Run:
    """The run of real nodes of one machine, from the file of each node."""
    lines = msgspec.json.Decoder(tuple[int, list[ProtocolStep]])
    # The last line of a process that was killed while it wrote has no end.
    whole = (line for file in files for line in file.read_bytes().splitlines(keepends=True) if line.endswith(b"\n"))
    return run_of(name, [turn for _, turn in sorted(map(lines.decode, whole), key=itemgetter(0))])
