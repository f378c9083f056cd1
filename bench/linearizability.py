"""The cost of the linearizability check: histories of the simulator's clients with a thousand operations and more.

    python bench/linearizability.py [--seeds 10] [--operations 1000] [--nodes 3]

The bench simulates each seed under all faults until clients have sent so many requests, then checks the history by key.
Many operations get no response, because nodes crash, and may have happened or not. The check runs twice: "as run" tries
the order of the log first, as the simulator does, and "no order" knows none. "simulated" is the processor time of the
run, "ratio" the fraction of it that the check as run takes, and "steps" the number of the model's transitions. The exit
code is 1 if a history stays undecided, unless `--allow-undecided` is given.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Hashable, Sequence

from kraft.sim import Scenario, Simulator
from kraft.sim.nodes.member_kinds import MACHINES
from kraft.sim.nodes.state_machine_member import COUNTS
from kraft.sim.workloads.client_history import ClientHistory
from kraft.sim.workloads.linearizability import Finding, Operation, Verdict, check

PIECE_MS = 1000


Witness = list[tuple[Hashable, str]]


def simulate(seed: int, nodes: int, operations: int) -> tuple[list[Operation], Witness, float]:
    """A history of at least so many operations, the order of the log, and the processor time of the simulation."""
    began = time.process_time()
    simulator = Simulator(Scenario.drawn(MACHINES, nodes, seed))
    history = simulator.world.watch
    assert isinstance(history, ClientHistory)
    simulator.chaos(PIECE_MS)
    while len(history.operations()) < operations:
        simulator.run_until(simulator.now_ms + PIECE_MS)
    return history.operations(), history.applied_lines(), time.process_time() - began


def judge(history: Sequence[Operation], witness: Witness) -> tuple[float, Finding]:
    """Seconds, and the verdict, which is no violation."""
    began = time.process_time()
    found = check(history, COUNTS.initial, COUNTS.step, witness=witness)
    assert found.verdict is not Verdict.VIOLATED, found.why
    return time.process_time() - began, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--operations", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--allow-undecided", action="store_true", help="exit with 0 if a history stays undecided")
    options = parser.parse_args()
    undecided = 0
    names = ("seed", "asked", "answered", "simulated s", "as run ms", "ratio", "steps", "no order ms", "steps")
    print("".join(f"{name:>13}" for name in names))
    for seed in range(options.seeds):
        history, witness, simulated = simulate(seed, options.nodes, options.operations)
        answered = sum(one.returned is not None for one in history)
        as_run, found = judge(history, witness)
        alone, found_alone = judge(history, [])
        undecided += Verdict.UNDECIDED in (found.verdict, found_alone.verdict)
        print(
            f"{seed:13}{len(history):13}{answered:13}{simulated:13.1f}{1000 * as_run:13.1f}{as_run / simulated:13.3f}"
            f"{found.steps:13}{1000 * alone:13.1f}{found_alone.steps:13}",
            flush=True,
        )
    print(f"{undecided} of {options.seeds} histories are undecided")
    if undecided and not options.allow_undecided:
        sys.exit(1)


if __name__ == "__main__":
    main()
