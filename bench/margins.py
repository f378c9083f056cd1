"""How near do requests come to what they may cost, seed by seed?

    python bench/margins.py [--seeds 5] [--first 1] [--from 0.77]

The tests of `tests/hostile/test_amplified_*` count instructions of requests that are drawn by a seed, always one
in CI and a new one under soak: a request that comes near its limit with one seed is beyond it with another.
For each API and shape this prints the highest share of its limit that it reached in all seeds, from `--from` on, the
highest one first. Above 0.77 a limit has a margin of less than 1.3, and wants its cause or a higher figure.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from typing import Final
from unittest import mock

import trio

ROOT: Final = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "hostile")]

import test_amplified_coordinators as coordinators  # noqa: E402
import test_amplified_requests as requests  # noqa: E402

from support.hostile.amplified import Amplified  # noqa: E402
from support.hostile.coordinated import APIS, SITUATIONS  # noqa: E402
from support.hostile.counted_nodes import CASES, DEARER, TURN  # noqa: E402
from support.hostile.instructions import InstructionClock, Work  # noqa: E402
from support.work_counted import instructions_run  # noqa: E402


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--from", dest="least", type=float, default=0.77, help="the share of a limit")
    arguments = parser.parse_args()
    shares: dict[str, float] = defaultdict(float)

    def note(place: str, one: Amplified, work: int, turn: int, per_request: int, per_byte: int) -> list[str]:
        for what, share in (("cost", work / one.allowed(per_request, per_byte)), ("turn", turn / TURN)):
            name = f"{place}, {one.key.name}, {one.shape}: {what}"
            shares[name] = max(shares[name], round(share, 3))
        return []

    def asked(one: Amplified, outcome: str, work: Work) -> list[str]:
        per_byte = DEARER.get(one.key, requests.PER_BYTE)
        return note("node", one, work.instructions, work.longest_turn, requests.PER_REQUEST, per_byte)

    def coordinated(one: Amplified, situation: str) -> list[str]:
        _, turns = coordinators.turns_of(one, situation)
        work = [instructions_run(turn) for turn in turns]
        per_byte = coordinators.DEARER.get(one.key, coordinators.PER_BYTE)
        return note(situation, one, sum(work), max(work), coordinators.PER_REQUEST, per_byte)

    with mock.patch.object(requests, "offences", asked):
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            for role, rights in CASES:
                clock = InstructionClock()
                trio.run(
                    requests.attack, clock, role, rights, requests.SLICE_BYTES, seed, clock=clock, instruments=[clock]
                )
            for situation in SITUATIONS:
                coordinators.check(APIS, situation, coordinators.SLICE_BYTES, coordinated, seed)
    for name, share in sorted(shares.items(), key=lambda one: -one[1]):
        if share >= arguments.least:
            print(f"{share:.2f}  {name}")


if __name__ == "__main__":
    main()
