"""`kraft sim`: searches for bugs of the protocol in simulated quorums, and replays the findings (Kafka:
`RaftEventSimulationTest`, which prints a seed).
"""

from __future__ import annotations

import gc
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from kraft.cli.progress import LongJob, progress_option
from kraft.cli.text import count, echo_lines
from kraft.config import UsageError
from kraft.operate.interrupts import without_ctrl_c
from kraft.sim.faults.nemesis import FAULTS, FOCUSED_STRIKES, FORGED_FRAMES, ONLY_BY_NAME
from kraft.sim.faults.profiles import BY_TURNS, PROFILES
from kraft.sim.lab.link import LabRun, fragment_of
from kraft.sim.pictures.diagram import render_diagram
from kraft.sim.pictures.execution import execution_lines, execution_of
from kraft.sim.protocol.files import run_and_write
from kraft.sim.runs.seeded_run import Result
from kraft.sim.search.explore import Explored, Scope, explore
from kraft.sim.search.planting import Bug, bugs
from kraft.sim.search.schedule import Schedule, decode_schedule, encode_schedule
from kraft.sim.search.seed_search import KINDS, SURVIVORS, SeedSearch
from kraft.sim.search.shrink import shrink
from kraft.sim.workloads.client_history import HistoryUndecided

SEEDS_AT_ONCE: Final = 4
"""The number of seeds in one task of a worker."""
OBJECTS_AT_ONCE: Final = 50_000
"""The number of added objects after which garbage is collected."""
LAB: Final = "docs/lab/index.html"
"""Where the page of the lab is in the built site."""
AHEAD: Final = 3
"""The number of waiting tasks for each worker."""


@click.group("sim", short_help="Look for bugs of the protocol in simulated quorums.")
def sim_command() -> None:
    """Simulate whole quorums under faults, in virtual time: the production code, on a network and disks that fail as a
    seed determines. The simulator checks the invariants after every event.

    \b
    Example:
        kraft sim run --seeds 0..999 --jobs 2
    """


@sim_command.command("run", short_help="Look at many seeds.")
@click.option("--seeds", default="0..99", show_default=True, metavar="A..B", help="The seeds, the last included.")
@click.option(
    "--nodes", type=click.IntRange(1, 9), metavar="N", help="How many voters. By default 3 to 7, as the profile draws."
)
@click.option(
    "--members",
    type=click.Choice(KINDS),
    metavar="KIND",
    help="Bare cores (quickest), replicas or controllers, the latter two also with changing voters, controllers with "
    "many decisions (loaded), or a cluster with brokers, which hold records in data-cluster, dynamic-data-cluster and "
    f"combined-cluster: {', '.join(KINDS)}. "
    "Default: replica, or the mutant's own.",
)
@click.option("--brokers", type=click.IntRange(0, 9), default=3, show_default=True, help="In a cluster.")
@click.option(
    "--faults",
    metavar="LIST",
    help="Only these faults, such as crash,disk-rot; `none` for no faults. By default all but forged-frames.",
)
@click.option(
    "--profile",
    type=click.Choice([BY_TURNS, *PROFILES]),
    metavar="NAME",
    help=f"Only runs of this profile: {', '.join(PROFILES)}. By default the profiles of the members take turns.",
)
@click.option("--chaos-ms", type=click.IntRange(min=0), metavar="MS", help="How long faults occur in each run.")
@click.option("--mutant", metavar="NAME", help="Plant this bug first; `kraft sim mutants` names them.")
@click.option(
    "--allow-undecided",
    is_flag=True,
    help="Pass state machines with histories that the check of linearizability does not decide, and count them.",
)
@click.option(
    "--protocol", type=click.Path(file_okay=False), metavar="DIR", help="Write the steps of each run for TLC there."
)
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes; as many as processors by default.")
@click.option("--out", type=click.Path(file_okay=False), default=".", metavar="DIR", help="Where schedules are saved.")
@click.option(
    "--lab",
    default=LAB,
    show_default=True,
    envvar="KRAFT_LAB",
    show_envvar=True,
    metavar="ADDRESS",
    help="Where the page of the lab is, for the link to a run.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each seed, and one at the end.")
@progress_option
@click.pass_context
def run_command(
    context: click.Context,
    *,
    seeds: str,
    nodes: int | None,
    members: str | None,
    brokers: int,
    chaos_ms: int | None,
    faults: str | None,
    profile: str | None,
    mutant: str | None,
    allow_undecided: bool,
    protocol: str | None,
    jobs: int | None,
    out: str,
    lab: str,
    as_json: bool,
) -> None:
    """Simulate one quorum for each seed, until one run breaks an invariant.

    Then the command shrinks the schedule of that run, saves it, and ends with exit code 1.

    \b
    Example:
        kraft sim run --seeds 0..999 --nodes 5
        kraft sim run --mutant vote-without-log-check
    """
    bug = _bug(mutant)
    members = members or ("replica" if bug is None else str(bug.scope))
    if faults is not None and profile is not None:
        hint = "A profile has faults of its own."
        raise UsageError("--faults and --profile exclude each other", where="--profile", hint=hint)
    drawn = _faults(faults, None if bug is None or profile is not None else bug.faults)
    if drawn is not None and FORGED_FRAMES in drawn and members not in SURVIVORS:
        hint = f"Choose --members {', '.join(SURVIVORS)}."
        raise UsageError(f"{FORGED_FRAMES} cannot be simulated with {members}", where="--faults", hint=hint)
    search = SeedSearch(
        members=members,
        nodes=nodes,
        brokers=brokers,
        mutant=mutant,
        chaos_ms=chaos_ms,
        profile=profile or (BY_TURNS if bug is None or faults is not None else bug.profile),
        faults=drawn,
        allow_undecided=allow_undecided,
    )
    wanted = _seeds(seeds)
    begin = time.perf_counter()
    done: list[Result] = []
    schedule: Schedule | None = None
    with LongJob("Simulating", len(wanted), unit="seeds", prints=as_json) as job:
        for outcome in _outcomes(search, wanted, jobs or os.cpu_count() or 1, protocol):
            job.advance(1)
            if isinstance(outcome, Schedule):
                schedule = outcome
                break
            done.append(outcome)
            if as_json:
                click.echo(msgspec.json.encode(_result_json(outcome)))
    summary = _summary(done, time.perf_counter() - begin) | {"profiles": _profiles(done, search)}
    if schedule is None:
        click.echo(msgspec.json.encode(summary | {"violation": None}) if as_json else _summary_line(summary))
        return
    name = f"kraft-sim-{schedule.mutant or members}-{schedule.scenario.seed}.json"
    violation = _save(_shrink(schedule), Path(out) / name, len(schedule.actions))
    violation["lab"] = f"{lab}#{fragment_of(LabRun(search, schedule.scenario.seed))}"
    if as_json:
        click.echo(msgspec.json.encode(summary | {"violation": violation}))
    else:
        echo_lines(_violation_lines(violation))
    context.exit(1)


@sim_command.command("replay", short_help="Replay a saved schedule.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False), metavar="FILE")
@click.option("--without-mutant", is_flag=True, help="Do not plant the bug that the file names.")
@click.option("--quiet", is_flag=True, help="Print only the result.")
@click.option(
    "--html", type=click.Path(dir_okay=False), metavar="OUT", help="Write a drawing, as a page that needs no network."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@progress_option
@click.pass_context
def replay_command(
    context: click.Context, file: str, *, without_mutant: bool, quiet: bool, html: str | None, as_json: bool
) -> None:
    """Print the events of a schedule step by step; the exit code is 1 if an invariant is broken.

    The same file yields the same history on every machine, to the last line, as the digest shows.

    \b
    Example:
        kraft sim replay kraft-sim-vote-without-log-check-0.json --html picture.html
    """
    schedule = decode_schedule(Path(file).read_bytes(), file)
    if without_mutant:
        schedule = msgspec.structs.replace(schedule, mutant=None)
    with LongJob("Replaying", None, unit="actions"):
        story = execution_of(schedule)
    replayed = story.replayed
    if html is not None:
        Path(html).write_text(render_diagram(story), encoding="utf-8")
    skipped = len(schedule.actions) - len(replayed.performed)
    if as_json:
        report = {"digest": replayed.digest, "actions": len(replayed.performed), "skipped": skipped}
        failure = None if replayed.failure is None else str(replayed.failure)
        click.echo(msgspec.json.encode(report | {"failure": failure, "recorded": schedule.message or None}))
    else:
        if not quiet:
            echo_lines(execution_lines(story))
        echo_lines(_replay_lines(schedule, skipped, replayed.digest, replayed.failure))
    context.exit(0 if replayed.failure is None else 1)


@sim_command.command("explore", short_help="Explore all states of two or three nodes.")
@click.option("--nodes", type=click.IntRange(1, 5), default=2, show_default=True, help="How many voters, bare cores.")
@click.option("--depth", type=click.IntRange(min=1), metavar="N", help="The limit on steps from the start.")
@click.option("--epochs", type=click.IntRange(min=1), default=2, show_default=True, help="The last epoch.")
@click.option("--timeouts", type=click.IntRange(min=0), default=2, show_default=True, help="Timeouts, in all.")
@click.option("--submissions", type=click.IntRange(min=0), default=1, show_default=True, help="Records written.")
@click.option("--crashes", type=click.IntRange(min=0), default=1, show_default=True, help="Crashes of nodes.")
@click.option("--repeats", type=click.IntRange(min=0), default=0, show_default=True, help="Duplicated requests.")
@click.option("--late", type=click.IntRange(min=0), default=0, show_default=True, help="Responses that may be late.")
@click.option("--most-states", type=click.IntRange(min=1), metavar="N", help="Give up after so many states.")
@click.option("--mutant", metavar="NAME", help="Plant this bug first; `kraft sim mutants` names them.")
@click.option("--out", type=click.Path(file_okay=False), default=".", metavar="DIR", help="Where a schedule is saved.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as one JSON object.")
@progress_option
@click.pass_context
def explore_command(
    context: click.Context,
    *,
    nodes: int,
    depth: int | None,
    epochs: int,
    timeouts: int,
    submissions: int,
    crashes: int,
    repeats: int,
    late: int,
    most_states: int | None,
    mutant: str | None,
    out: str,
    as_json: bool,
) -> None:
    """Explore each order of events within these bounds, the shortest schedules first.

    States that differ only in the names of nodes or in times count as one. If an invariant is broken, the command saves
    the schedule and ends with exit code 1: no schedule with fewer steps breaks an invariant.

    \b
    Example:
        kraft sim explore --nodes 2
        kraft sim explore --nodes 3 --depth 8 --mutant vote-again
    """
    scope = Scope(
        nodes=nodes,
        last_epoch=epochs,
        submissions=submissions,
        crashes=crashes,
        timeouts=timeouts,
        repeats=repeats,
        late_answers=late,
        depth=depth,
    )
    _bug(mutant)
    with LongJob("Exploring", most_states, unit="states") as job:
        known = 0

        def on_depth(_depth: int, states: int, _new: int) -> None:
            nonlocal known
            job.advance(states - known)
            known = states

        explored = explore(scope, mutant=mutant, most_states=most_states, on_depth=on_depth)
    facts = msgspec.structs.asdict(explored) | {"schedule": None}
    if explored.schedule is None:
        click.echo(msgspec.json.encode(facts | {"violation": None}) if as_json else _explored_line(explored))
        return
    name = f"kraft-explore-{mutant or 'core'}.json"
    violation = _save(explored.schedule, Path(out) / name, len(explored.schedule.actions))
    if as_json:
        click.echo(msgspec.json.encode(facts | {"violation": violation}))
    else:
        echo_lines([f"after {count(explored.states, 'state')}, {count(explored.depth, 'step')} deep:"])
        echo_lines(_violation_lines(violation))
    context.exit(1)


@sim_command.command("mutants", short_help="List the bugs that can be planted.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each.")
def mutants_command(*, as_json: bool) -> None:
    """List the bugs that `kraft sim run --mutant` plants, and the members that each affects.

    A checkout of Trio-kraft has these bugs; an installed wheel has none.

    \b
    Example:
        kraft sim mutants
    """
    for mutant in _bugs().values():
        if as_json:
            facts = {"name": mutant.name, "what": mutant.what, "members": mutant.scope, "budget": mutant.budget}
            click.echo(msgspec.json.encode(facts))
        else:
            click.echo(f"{mutant.name} (--members {mutant.scope})\n    {mutant.what}")


def _seeds(text: str) -> range:
    first, dots, last = text.partition("..")
    try:
        seeds = range(int(first), int(last if dots else first) + 1)
    except ValueError:
        raise UsageError(f"{text!r} is no range of seeds such as 0..99", where="--seeds") from None
    if not seeds:
        raise UsageError(f"no seed is from {first} to {last}", where="--seeds")
    return seeds


def _bugs() -> Mapping[str, Bug]:
    known = bugs()
    if not known:
        hint = "Run the command in a checkout of Trio-kraft: a wheel has no bugs to plant."
        raise UsageError("there are no mutants here", hint=hint)
    return known


def _bug(name: str | None) -> Bug | None:
    if name is None:
        return None
    known = _bugs()
    if name not in known:
        raise UsageError(f"there is no mutant {name}", where="--mutant", hint="`kraft sim mutants` names them all.")
    return known[name]


def _faults(text: str | None, usual: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if text is None:
        return usual
    known = (*FAULTS, *FOCUSED_STRIKES, *ONLY_BY_NAME)
    names = () if text == "none" else tuple(text.split(","))
    for name in names:
        if name not in known:
            raise UsageError(f"there is no fault {name!r}", where="--faults", hint=f"There are {', '.join(known)}.")
    return names


# Workers


def _outcomes(search: SeedSearch, seeds: range, jobs: int, protocol: str | None) -> Iterator[Result | Schedule]:
    """The outcome of each run, in the order of seeds."""
    if jobs == 1 or len(seeds) == 1:
        with garbage_collected_seldom():
            yield from map(_run(search, protocol), seeds)
        return
    parts = (seeds[first : first + SEEDS_AT_ONCE] for first in range(0, len(seeds), SEEDS_AT_ONCE))
    with _workers(jobs) as workers:

        def begun(count: int) -> Iterator[Future[list[Result | Schedule]]]:
            for part in islice(parts, count):
                with without_ctrl_c():
                    one = workers.submit(_run_part, search, part, protocol)
                yield one

        waiting = deque(begun(AHEAD * jobs))
        while waiting:
            outcomes = waiting.popleft().result()
            waiting.extend(begun(1))
            yield from outcomes


@contextmanager
def _workers(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end with the block, even during a run; Ctrl-C reaches only the parent process."""
    workers = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    try:
        yield workers
    finally:
        for process in list((workers._processes or {}).values()):
            process.terminate()
        # Without the wait, the executor's thread would close a pipe that the interpreter writes to at exit.
        workers.shutdown(wait=True, cancel_futures=True)


def _run(search: SeedSearch, protocol: str | None) -> Callable[[int], Result | Schedule]:
    return search.run if protocol is None else partial(run_and_write, search, directory=Path(protocol))


def _run_part(search: SeedSearch, seeds: range, protocol: str | None) -> list[Result | Schedule]:
    """The runs of some seeds, up to the first that breaks an invariant."""
    outcomes: list[Result | Schedule] = []
    with garbage_collected_seldom():
        for seed in seeds:
            outcome = _run(search, protocol)(seed)
            outcomes.append(outcome)
            if isinstance(outcome, Schedule):
                break
    return outcomes


@contextmanager
def garbage_collected_seldom() -> Iterator[None]:
    """Collect garbage seldom: most objects of a run live until its end, and collections would take a tenth of the
    time."""
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(OBJECTS_AT_ONCE)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def _shrink(found: Schedule) -> Schedule:
    """The shortest schedule of a violation. A schedule with an undecided history shows no violation, and stays."""
    if found.violated.startswith(HistoryUndecided.__name__):
        return found
    with LongJob("Shrinking", len(found.actions), unit="actions") as job:
        length = len(found.actions)

        def on_shorter(shorter: int) -> None:
            nonlocal length
            job.advance(length - shorter)
            length = shorter

        return shrink(found, on_shorter=on_shorter)


def _save(schedule: Schedule, path: Path, length: int) -> dict[str, Any]:
    """Write and report a schedule that breaks an invariant; `length` is its length before it was shrunk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_schedule(schedule))
    return {
        "seed": schedule.scenario.seed,
        "profile": schedule.scenario.profile,
        "violated": schedule.violated,
        "message": schedule.message,
        "actions": length,
        "shrunk": len(schedule.actions),
        "schedule": str(path),
    }


# What is printed


def _explored_line(found: Explored) -> str:
    walked = "the whole scope" if found.is_complete else "no end was reached"
    return (
        f"{count(found.states, 'state')}, {count(found.steps, 'step')}, {found.depth} deep ({walked}): no violation\n"
        f"ways with up to {count(found.elections, 'election')} and {count(found.committed, 'record')} committed"
    )


def _result_json(result: Result) -> dict[str, Any]:
    return {
        "seed": result.seed,
        "digest": result.digest,
        "events": result.events,
        "virtual_ms": result.elapsed_ms,
        "elections": len(result.leaders),
        "committed": result.committed,
        "acknowledged": result.acknowledged,
        "documented": result.documented,
        "undecided": result.undecided,
    }


def _summary(done: list[Result], seconds: float) -> dict[str, Any]:
    events = sum(result.events for result in done)
    return {
        "seeds": len(done),
        "documented": sum(bool(result.documented) for result in done),
        "events": events,
        "elections": sum(len(result.leaders) for result in done),
        "committed": sum(result.committed for result in done),
        "undecided": sum(result.undecided for result in done),
        "virtual_seconds": sum(result.elapsed_ms for result in done) // 1000,
        "seconds": round(seconds, 1),
        "seeds_per_second": round(len(done) / seconds, 1),
        "events_per_second": round(events / seconds),
    }


def _summary_line(summary: dict[str, Any]) -> str:
    broken = summary["documented"]
    outcome = f"no violation but {broken} that the operator has caused" if broken else "no violation"
    undecided = summary["undecided"]
    allowed = f" ({count(undecided, 'client history', 'client histories')} not decided)" if undecided else ""
    return (
        f"{count(summary['seeds'], 'seed')}, {outcome}{allowed}: {count(summary['elections'], 'election')}, "
        f"{count(summary['committed'], 'record')} committed in {summary['virtual_seconds']:,} s of virtual time\n"
        f"{summary['seeds_per_second']:,} seeds/s, {summary['events_per_second']:,} events/s\n"
        f"seeds of each profile, of its budget: {_budgets(summary['profiles'])}"
    )


def _profiles(done: list[Result], search: SeedSearch) -> dict[str, dict[str, int]]:
    """How many seeds and events each profile had, and the budget of seeds that it should have."""
    by_profile: dict[str, dict[str, int]] = {}
    for result in done:
        profile = search.profile_of(result.seed)
        counts = by_profile.setdefault(profile.name, {"seeds": 0, "budget": profile.budget, "events": 0})
        counts["seeds"] += 1
        counts["events"] += result.events
    return by_profile


def _budgets(profiles: dict[str, dict[str, int]]) -> str:
    return ", ".join(f"{name} {one['seeds']:,} of {one['budget']:,}" for name, one in sorted(profiles.items()))


def _violation_lines(violation: dict[str, Any]) -> list[str]:
    length, shrunk = violation["actions"], violation["shrunk"]
    shorter = count(length, "action") + (f", shrunk to {shrunk:,}" if shrunk < length else "")
    lab = [f"lab:      {violation['lab']}"] if "lab" in violation else []
    return [
        f"{violation['violated']} (seed {violation['seed']}, profile {violation['profile']})",
        f"    {violation['message']}",
        f"schedule: {violation['schedule']} ({shorter})",
        f"replay:   kraft sim replay {violation['schedule']}",
        *lab,
    ]


def _why_skipped(schedule: Schedule) -> str:
    """Why actions of a file have no subject, such as a message: the nodes have gone another way than in the file."""
    if schedule.violated and schedule.mutant is None:
        return "without the bug, the nodes do not send the messages or reach the states that these need"
    return "this version does not send the messages or reach the states that these need"


def _replay_lines(schedule: Schedule, skipped: int, digest: str, failure: Exception | None) -> list[str]:
    lines = [f"digest {digest}"]
    if skipped and failure is None:
        lines.append(f"{count(skipped, 'action')} could not happen: {_why_skipped(schedule)}")
    if failure is None:
        lines.append("no invariant was broken" + (f"; the file says: {schedule.message}" if schedule.violated else ""))
    else:
        lines.append(f"broken: {failure}")
    return lines
