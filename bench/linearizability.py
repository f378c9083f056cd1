"""The cost of the linearizability check: histories of the simulator's clients with a thousand operations and more.

    python bench/linearizability.py [--seeds 10] [--operations 1000] [--nodes 3]

The bench simulates each seed under all faults until clients have sent so many requests, then checks the history by key.
Many operations get no response, because nodes crash, and may have happened or not. "simulated" is the processor time of
the run, "ratio" the fraction of it that the check takes, and "steps" the number of the model's transitions. The exit
code is 1 if a history stays undecided, unless `--allow-undecided` is given.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from kraft.sim import Scenario, Simulator
from kraft.sim.nodes.member_kinds import MACHINES
from kraft.sim.nodes.state_machine_member import COUNTS
from kraft.sim.workloads.client_history import ClientHistory
from kraft.sim.workloads.linearizability import Finding, Operation, Verdict, check

PIECE_MS = 1000


def simulate(seed: int, nodes: int, operations: int) -> tuple[list[Operation], float]:
    """A history of at least so many operations, and the processor time of its simulation."""
    began = time.process_time()
    simulator = Simulator(Scenario.drawn(MACHINES, nodes, seed))
    history = simulator.world.watch
    assert isinstance(history, ClientHistory)
    simulator.chaos(PIECE_MS)
    while len(history.operations()) < operations:
        simulator.run_until(simulator.now_ms + PIECE_MS)
    return history.operations(), time.process_time() - began


def judge(history: Sequence[Operation]) -> tuple[float, Finding]:
    """Seconds, and the verdict, which is no violation."""
    began = time.process_time()
    found = check(history, COUNTS.initial, COUNTS.step)
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
    print(f"{'seed':>6}{'asked':>8}{'answered':>10}{'simulated s':>13}{'check ms':>10}{'ratio':>8}{'steps':>8}")
    for seed in range(options.seeds):
        history, simulated = simulate(seed, options.nodes, options.operations)
        checked, found = judge(history)
        undecided += found.verdict is Verdict.UNDECIDED
        answered = sum(one.returned is not None for one in history)
        print(
            f"{seed:6}{len(history):8}{answered:10}{simulated:13.1f}{1000 * checked:10.1f}{checked / simulated:8.3f}"
            f"{found.steps:8}",
            flush=True,
        )
    print(f"{undecided} of {options.seeds} histories are undecided")
    if undecided and not options.allow_undecided:
        sys.exit(1)


if __name__ == "__main__":
    main()
