"""The speed of the simulator: events, elections and simulated seconds per second of processor time; or calls an event.

    python bench/sim.py [--seeds 40] [--nodes 3] [--first-seed 0] [--rounds 3] [--only replica] [--profile]
    python bench/sim.py --calls [--seeds 40] [--only replica] [--json]

One event is one input to one node with its whole effect: the node's work, the checks after it, and the events that it
schedules. All checks are on. Each row runs the same seeds. "steady" is a quorum without faults and with a write every
few milliseconds. "elections" are bare cores with a leader that resigns. Its events and time are those from the
resignation until another node leads, with pre-votes, votes and all other concurrent work. They do not include the first
commit of the new leader, before it resigns in turn. The least time of all rounds counts for each seed: the first round
compiles codecs, and other load only adds time. The garbage collector runs as seldom as in `kraft sim run`.

`--calls` counts in place of timing, so that every host prints the same figures with one release of Python: the calls of
functions of `kraft`, `metadata_log` and `transport`, compiled codecs and resumed generators included, for each event
of whole runs with all faults, by the kind of the nodes. A run of the same seed before the count compiles the codecs.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Final

from msgspec import Struct, to_builtins

sys.path.append(str(Path(__file__).parent.parent / "tests"))

from kraft.cli.run.sim import garbage_collected_seldom
from kraft.quorum.values import QuorumConfig
from kraft.sim import Scenario, Simulator, core_member, replica_member, run, run_cluster
from kraft.sim.runs.seeded_run import Result
from kraft.sim.search.seed_search import KINDS, SeedSearch
from support.work_counted import is_ours

STEADY_MS: Final = 10_000
ELECTIONS: Final = 200
LONGEST_MS: Final = 60_000
PROFILE_ROWS: Final = 40


class Count(Struct, frozen=True):
    """The events of one run."""

    events: int
    elapsed_ms: int
    elections: int
    aside_s: float = 0.0
    """Processor time to subtract."""


def with_replicas(seed: int, nodes: int) -> Count:
    """Whole replicas with all faults, then the calm phase."""
    result = run(seed, nodes, make_member=replica_member)
    return Count(result.events, result.elapsed_ms, len(result.leaders))


def with_cores(seed: int, nodes: int) -> Count:
    """The same with bare cores over logs in memory."""
    result = run(seed, nodes, make_member=core_member)
    return Count(result.events, result.elapsed_ms, len(result.leaders))


def with_cluster(seed: int, nodes: int) -> Count:
    """Controllers, three brokers, and an administrator."""
    result, _ = run_cluster(seed, nodes)
    return Count(result.events, result.elapsed_ms, len(result.leaders))


def steady(seed: int, nodes: int) -> Count:
    """Whole replicas without faults, with writes."""
    scenario = Scenario.drawn("replica", nodes, seed, config=QuorumConfig())
    simulator = Simulator(scenario, faults=())
    simulator.chaos(STEADY_MS)
    return count(simulator)


def has_another_leader(simulator: Simulator, elections_before: int) -> bool:
    """Whether there were more elections than these."""
    return simulator.world.invariants.votes.elections > elections_before


def elections(seed: int, nodes: int) -> Count:
    """Bare cores: repeatedly from a leader's resignation until another node leads."""
    start = time.process_time()
    scenario = Scenario.drawn("core", nodes, seed, config=QuorumConfig())
    simulator = Simulator(scenario, faults=())
    simulator.begin()
    ledger = simulator.world.invariants.votes
    events = elapsed_ms = 0
    seconds = 0.0
    for _ in range(ELECTIONS):
        simulator.run_until(simulator.now_ms + LONGEST_MS, lambda: has_committed(simulator))
        events_before, led_before, since_ms = simulator.world.events, ledger.elections, simulator.now_ms
        resigned = time.process_time()
        simulator.resign(simulator.leaders()[0])
        simulator.run_until(simulator.now_ms + LONGEST_MS, partial(has_another_leader, simulator, led_before))
        seconds += time.process_time() - resigned
        events += simulator.world.events - events_before
        elapsed_ms += simulator.now_ms - since_ms
    return Count(events, elapsed_ms, ELECTIONS, time.process_time() - start - seconds)


def has_committed(simulator: Simulator) -> bool:
    """Whether there is a leader that has committed its whole log."""
    views = [host.view for host in simulator.world.hosts.values() if host.view is not None]
    return any(view.state == "Leader" and view.high_watermark == view.log_end_offset for view in views)


def count(simulator: Simulator) -> Count:
    """The counts so far."""
    return Count(simulator.world.events, simulator.now_ms, len(simulator.world.invariants.votes.leaders))


SCOPES: Final[dict[str, Callable[[int, int], Count]]] = {
    "replica": with_replicas,
    "core": with_cores,
    "cluster": with_cluster,
    "steady": steady,
    "elections": elections,
}


def measure(scope: Callable[[int, int], Count], seeds: range, nodes: int, rounds: int) -> tuple[list[Count], float]:
    """The runs of these seeds and their processor time in seconds, the least for each seed."""
    counts: dict[int, Count] = {}
    seconds: dict[int, float] = {}
    with garbage_collected_seldom():
        for _ in range(rounds):
            for seed in seeds:
                start = time.process_time()
                counts[seed] = one = scope(seed, nodes)
                took_s = time.process_time() - start - one.aside_s
                seconds[seed] = min(took_s, seconds.get(seed, took_s))
    return list(counts.values()), sum(seconds.values())


class Calls(Struct, frozen=True):
    """The calls of our functions in the runs of one kind of nodes."""

    kind: str
    seeds: int
    events: int
    calls: int

    @property
    def per_event(self) -> float:
        """Calls for each event."""
        return self.calls / self.events


def count_calls(kind: str, seeds: range, nodes: int) -> Calls:
    """Count the calls of the runs of these seeds; raises `AssertionError` if a run violates an invariant."""
    search = SeedSearch(members=kind, nodes=nodes, profile="broad")
    search.run(seeds[0])
    profile = cProfile.Profile(subcalls=False, builtins=False)
    events = 0
    for seed in seeds:
        result = profile.runcall(search.run, seed)
        assert isinstance(result, Result), result
        events += result.events
    calls = sum(one.callcount for one in profile.getstats() if isinstance(one.code, CodeType) and is_ours(one.code))
    return Calls(kind, len(seeds), events, calls)


def show_calls(options: argparse.Namespace) -> None:
    """Print the calls of each kind."""
    found: list[Calls] = []
    if not options.json:
        print(f"{'':<20}{'seeds':>6}{'events':>10}{'calls':>13}{'calls/event':>12}")
    for kind in options.only or KINDS:
        one = count_calls(kind, range(options.first_seed, options.first_seed + options.seeds), options.nodes)
        found.append(one)
        if not options.json:
            print(f"{kind:<20}{one.seeds:6}{one.events:10,}{one.calls:13,}{one.per_event:12.1f}", flush=True)
    if options.json:
        print(json.dumps([to_builtins(one) | {"per_event": one.per_event} for one in found]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=40, help="the number of seeds, for cluster a quarter of it")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=3, help="voters")
    parser.add_argument("--rounds", type=int, default=3, help="the number of runs of each seed")
    parser.add_argument("--only", action="append", help="measure only this; may be repeated")
    parser.add_argument("--profile", action="store_true", help="also print a profile")
    parser.add_argument("--calls", action="store_true", help="count calls in place of timing")
    parser.add_argument("--json", action="store_true", help="print the calls as JSON")
    options = parser.parse_args()
    choices = KINDS if options.calls else tuple(SCOPES)
    if unknown := set(options.only or ()) - set(choices):
        parser.error(f"--only {', '.join(sorted(unknown))}: choose of {', '.join(choices)}")
    if options.calls:
        show_calls(options)
        return
    print(f"{'':<10}{'seeds':>6}{'events':>10}{'events/s':>10}{'virtual s/s':>12}{'elections/s':>12}{'ms/seed':>9}")
    for name in options.only or SCOPES:
        scope = SCOPES[name]
        number = max(options.seeds // 4, 1) if name in ("cluster", "elections") else options.seeds
        seeds = range(options.first_seed, options.first_seed + number)
        profile = cProfile.Profile()
        counts, seconds = (
            profile.runcall(measure, scope, seeds, options.nodes, options.rounds)
            if options.profile
            else measure(scope, seeds, options.nodes, options.rounds)
        )
        events = sum(one.events for one in counts)
        virtual = sum(one.elapsed_ms for one in counts) / 1000
        led = sum(one.elections for one in counts)
        print(
            f"{name:<10}{number:6}{events:10,}{events / seconds:10,.0f}{virtual / seconds:12,.0f}"
            f"{led / seconds:12,.0f}{1000 * seconds / number:9.1f}",
            flush=True,
        )
        if options.profile:
            pstats.Stats(profile).sort_stats("tottime").print_stats(PROFILE_ROWS)


if __name__ == "__main__":
    main()
