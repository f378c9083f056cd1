"""A run that goes on moment by moment for somebody who watches, and injects faults as it goes.

Without deeds of the visitor, a session has the digest of `kraft sim run` with the same seed. So far it is
a schedule, which `kraft sim replay` takes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack

from msgspec.structs import replace

from kraft.sim.faults.profiles import QUIET
from kraft.sim.lab.deeds import LONGEST_MS, Deed, check, do
from kraft.sim.lab.link import LabRun
from kraft.sim.lab.moments import LabMoment, LabNotes
from kraft.sim.pictures.diagram import render_diagram
from kraft.sim.pictures.execution import Execution, HeardTrace
from kraft.sim.pictures.wording import readable, violated_invariant
from kraft.sim.runs.scenario import Scenario
from kraft.sim.runs.seeded_run import CALM_MS, begin_reads
from kraft.sim.search.planting import planted
from kraft.sim.search.schedule import BadSchedule, Replayed, Schedule, check_of
from kraft.sim.world.actions import WORLD, Action, Note
from kraft.sim.world.world import World


class Session(ABC):
    """A run so far: its moments, and how it ended if it has. A planted bug stays until `close`."""

    def __init__(self, mutant: str | None) -> None:
        self.mutant = mutant
        self._bugs = ExitStack()
        self._bugs.enter_context(planted(mutant))
        self.failure: Exception | None = None
        self.is_over = False

    scenario: Scenario
    world: World
    notes: LabNotes

    @property
    def now_ms(self) -> int:
        """The virtual time, in ms."""
        return self.world.now_ms

    @property
    def digest(self) -> str:
        """The digest of the trace so far, in hexadecimal."""
        return self.world.trace.digest

    @property
    @abstractmethod
    def schedule(self) -> Schedule:
        """The schedule so far, as `kraft sim replay` takes it."""

    @abstractmethod
    def advance(self, until_ms: int, most: int) -> list[LabMoment]:
        """Go on up to a virtual time, and at most for so many moments; returns the moments."""

    @property
    def verdict(self) -> str:
        """The violated invariant, or what the end of the run means; empty while the run goes on."""
        if self.failure is not None:
            return f"Violated: {violated_invariant(self.failure)}. {readable(str(self.failure))}"
        return "The run is over, and no invariant is violated." if self.is_over else ""

    def diagram(self) -> str:
        """The space-time diagram of what has happened so far, as an HTML page."""
        schedule = self.schedule
        replayed = Replayed(self.world, schedule.actions, self.failure)
        return render_diagram(Execution(schedule, tuple(self.notes.moments), tuple(self.notes.arrows()), replayed))

    def close(self) -> None:
        """End the session; the code of this process has no bug from now on."""
        self._bugs.close()


class LiveSession(Session):
    """A run of a seed, in which the visitor does something now and then."""

    def __init__(self, run: LabRun) -> None:
        """Prepare the run. The deeds of the run are done at their times.

        Raises:
            BadDeed: A deed of the run is not possible.
        """
        super().__init__(run.search.mutant)
        self.run = run
        self.recorded: list[Action] = []
        try:
            self._simulator, chaos_ms = run.search.simulator(run.seed, self.recorded)
            for deed in run.deeds:
                check(deed, self._simulator.node_ids, self.run.search.members)
        except BaseException:
            self.close()
            raise
        if run.search.profile == QUIET.name and run.search.chaos_ms is None:
            chaos_ms = LONGEST_MS
        self.scenario, self.world = self._simulator.scenario, self._simulator.world
        trace = HeardTrace()
        self.world.trace = trace
        self.notes = LabNotes(trace, self._simulator)
        self._simulator.watcher = self.notes
        self._simulator.on_done = self.notes.on_heard
        self._simulator.on_performed = self.notes.on_performed
        self._to_do = list(run.deeds)
        self._done = 0
        begin_reads(self._simulator)
        self._phases = self._simulator.phases(chaos_ms)
        self._end_ms = next(self._phases)
        self._target: int | None = None
        """Once all faults have ended: the offset below which all nodes have to know everything as committed."""

    @property
    def now_ms(self) -> int:
        """The virtual time, in ms."""
        return self._simulator.now_ms

    @property
    def schedule(self) -> Schedule:
        """The schedule so far, as `kraft sim replay` takes it."""
        return Schedule(
            scenario=self.scenario,
            mutant=self.run.search.mutant,
            violated="" if self.failure is None else check_of(self.failure),
            message="" if self.failure is None else str(self.failure),
            actions=tuple(self.recorded),
        )

    def advance(self, until_ms: int, most: int) -> list[LabMoment]:
        """Go on up to a virtual time, and at most for so many moments; returns the moments."""
        first = len(self.notes.told)
        while self._to_do and self._to_do[0].at_ms <= until_ms and not self.is_over:
            if not self._go_on(self._to_do[0].at_ms, first + most):
                return self.notes.told[first:]
            self._do(self._to_do.pop(0))
        self._go_on(until_ms, first + most)
        return self.notes.told[first:]

    def do(self, deed: Deed) -> list[LabMoment]:
        """Do what the visitor wants after all events of the present millisecond; later deeds of the link are dropped.

        Raises:
            BadDeed: The deed is not possible here.
        """
        deed = replace(deed, at_ms=self.now_ms)
        check(deed, self._simulator.node_ids, self.run.search.members)
        first = len(self.notes.told)
        self._to_do.clear()
        self._go_on(deed.at_ms, None)
        deeds = (*self.run.deeds[: self._done], deed)
        if not self.is_over:
            self.run = replace(self.run, deeds=deeds)
            self._do(deed)
        return self.notes.told[first:]

    def _do(self, deed: Deed) -> None:
        if self.is_over:
            return
        self._done += 1
        try:
            self._simulator.run_until(deed.at_ms)
            do(self._simulator, deed, self._done)
        except Exception as failure:
            self._fail(failure)

    def _go_on(self, until_ms: int, most: int | None) -> bool:
        """Process events up to a virtual time; returns whether they all are processed, and no limit has ended it."""
        told, queue = self.notes.told, self._simulator.queue

        def is_done() -> bool:
            return self._has_settled() or queue.next_at_ms > until_ms or (most is not None and len(told) >= most)

        while not self.is_over:
            try:
                self._simulator.run_until(self._end_ms, is_done)
                if queue.next_at_ms <= self._end_ms and not self._has_settled():
                    return queue.next_at_ms > until_ms
                if self._end_ms >= until_ms and not self._has_settled():
                    return True
                self._next_phase()
            except Exception as failure:
                self._fail(failure)
        return True

    def _has_settled(self) -> bool:
        return self._target is not None and self.world.has_settled(self._target)

    def _next_phase(self) -> None:
        """Begin the next part of the run: faults, then the calm, then the end."""
        if self._target is not None:
            self._simulator.conclude(self._target)
            self.is_over = True
            return
        end_ms = next(self._phases, None)
        if end_ms is None:
            self._target = self._simulator.begin_calm()
            end_ms = self.now_ms + CALM_MS
        self._end_ms = end_ms

    def _fail(self, failure: Exception) -> None:
        """The run ends with a violation, which the last action has shown."""
        self.failure, self.is_over = failure, True
        self.notes.on_performed(self.world, self.recorded[-1] if self.recorded else Note(0, WORLD, "nothing"))


class ReplaySession(Session):
    """A saved schedule, step by step."""

    def __init__(self, schedule: Schedule) -> None:
        """Prepare the replay.

        Raises:
            BadSchedule: The kind of nodes is unknown.
        """
        super().__init__(schedule.mutant)
        self._schedule, self.scenario = schedule, schedule.scenario
        self._left = list(reversed(schedule.actions))
        trace = HeardTrace()
        try:
            self.world = schedule.scenario.make_world(trace)
        except KeyError as unknown:
            self.close()
            raise BadSchedule(f"this version has no nodes of the kind {unknown}") from unknown
        self.notes = LabNotes(trace, None)
        self.world.driver = self.notes
        self.is_over = not self._left

    @property
    def schedule(self) -> Schedule:
        """The schedule of the file."""
        return self._schedule

    def advance(self, until_ms: int, most: int) -> list[LabMoment]:
        """Go on up to a virtual time, and at most for so many moments; returns the moments."""
        first = len(self.notes.told)
        while self._left and self._left[-1].at_ms <= until_ms and len(self.notes.told) < first + most:
            action = self._left.pop()
            has_happened = True
            try:
                has_happened = self.world.perform(action)
            except Exception as failure:
                self.failure = failure
                self._left.clear()
            if has_happened:
                self.notes.on_performed(self.world, action)
            self.is_over = not self._left
        return self.notes.told[first:]
