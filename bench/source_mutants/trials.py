"""One trial: a fork of the warm process that plants a mutant and runs the checks which reach its lines."""

from __future__ import annotations

import os
import resource
import selectors
import signal
import time
from collections.abc import Iterator
from typing import Final

from msgspec import Struct, field
from source_mutants.changes import Source, SourceMutant
from source_mutants.checks import Check, Examination, silence

MOST_MEMORY: Final = 6 << 30
"""The address space of a trial, in bytes: an endless loop that collects things ends there."""
STALLED_SECONDS: Final = 60.0
"""A check that uses no processor time and does not end within this time has stopped."""
END: Final = b"\0"


class Outcome(Struct, frozen=True):
    """The outcome of a mutant: `killed`, `timed out`, `survived`, `not reached` or `not planted`; by what, or why."""

    mutant: str
    digest: str
    """Of the function that was changed: the outcome holds only for this source."""
    result: str
    by: str = ""
    checks: int = 0
    """How many checks have run."""
    seconds: float = 0.0


class _Trial(Struct):
    source: Source
    mutant: SourceMutant
    process: int
    reading: int
    begin: float
    heard: float
    """When the last check has begun."""
    told: bytearray = field(default_factory=bytearray)


def run_trials(
    examination: Examination,
    checks: list[Check],
    mutants: Iterator[tuple[Source, SourceMutant]],
    *,
    jobs: int,
    budget: float,
) -> Iterator[Outcome]:
    """Try mutants, several at a time.

    Args:
        examination: The warm session.
        checks: The checks of the package.
        mutants: The mutants; the next one is taken when a process is free.
        jobs: The number of processes.
        budget: How much processor time of checks a mutant meets at most, in seconds on the sound code.
    """
    running: dict[int, _Trial] = {}
    with selectors.DefaultSelector() as selector:
        is_more = True
        while is_more or running:
            while is_more and len(running) < jobs:
                pair = next(mutants, None)
                if pair is None:
                    is_more = False
                    break
                source, mutant = pair
                chosen = _checks_of(mutant, checks, budget)
                if not chosen:
                    yield Outcome(mutant.key, source.digests[mutant.function], "not reached")
                    continue
                trial = _begin(examination, source, mutant, chosen)
                running[trial.reading] = trial
                selector.register(trial.reading, selectors.EVENT_READ)
            for key, _ in selector.select(1.0):
                trial = running[key.fd]
                chunk = os.read(trial.reading, 1 << 16)
                trial.told += chunk
                trial.heard = time.monotonic()
                if not chunk:
                    selector.unregister(trial.reading)
                    del running[trial.reading]
                    yield _end(trial)
            for trial in running.values():
                if time.monotonic() - trial.heard > STALLED_SECONDS:
                    os.killpg(trial.process, signal.SIGPROF)


def _checks_of(mutant: SourceMutant, checks: list[Check], budget: float) -> list[Check]:
    """The checks that reach a mutant, the fastest first, up to a sum of their times."""
    reaching = sorted(
        (one for one in checks if one.passed and one.reaches(mutant.module, *mutant.lines)),
        key=lambda one: (one.seconds, one.name),
    )
    chosen: list[Check] = []
    for one in reaching:
        budget -= one.seconds
        if budget < 0 and chosen:
            break
        chosen.append(one)
    return chosen


def _begin(examination: Examination, source: Source, mutant: SourceMutant, checks: list[Check]) -> _Trial:
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            os.setsid()
            os.close(reading)
            silence()
            os.write(writing, END + _examined(examination, source, mutant, checks, writing).encode() + END)
        finally:
            os._exit(0)
    os.close(writing)
    now = time.monotonic()
    return _Trial(source, mutant, process, reading, now, now)


def _examined(examination: Examination, source: Source, mutant: SourceMutant, checks: list[Check], writing: int) -> str:
    """The result in the child: its kind, the check and the failure, one in a line."""
    try:
        source.plant(mutant)
    except ValueError as failure:
        return f"not planted\n\n{failure}"
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    seconds = {check.name: check.seconds for check in checks}
    now = ""

    def begins(name: str) -> None:
        nonlocal now
        now = name
        os.write(writing, f"{name}\n".encode())
        signal.setitimer(signal.ITIMER_PROF, 2.0 + 8.0 * seconds[name])

    try:
        for name, why in examination.run([check.name for check in checks], begins):
            if why:
                return f"killed\n{name}\n{why}"
    except BaseException as failure:
        return f"killed\n{now}\n{type(failure).__name__}"
    return "survived\n\n"


def _end(trial: _Trial) -> Outcome:
    _, status = os.waitpid(trial.process, 0)
    os.close(trial.reading)
    begun, _, end = bytes(trial.told).partition(END)
    names = begun.decode().splitlines()
    digest = trial.source.digests[trial.mutant.function]
    took = round(time.monotonic() - trial.begin, 2)
    if end.endswith(END):
        result, by, _ = end.rstrip(END).decode().split("\n", 2)
    else:
        by = names[-1] if names else "the start"
        is_late = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF
        result = "timed out" if is_late else "killed"
    return Outcome(trial.mutant.key, digest, result, by, len(names), took)
