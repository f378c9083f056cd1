"""State machines in the simulator: what clients hear under faults is linearizable, and what breaks that is found."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from msgspec.structs import replace

from enabled_actions import enabled
from kraft.cli.run.sim import sim_command
from kraft.quorum import reads
from kraft.quorum.effects import ReadConfirmed
from kraft.quorum.quorum_state import QuorumState
from kraft.quorum.states import LeaderState
from kraft.sim import InvariantViolated, run
from kraft.sim.nodes.member_kinds import MACHINES, MEMBERS
from kraft.sim.runs.scenario import Scenario
from kraft.sim.runs.simulator import Simulator
from kraft.sim.search.schedule import Schedule, check_of, decode_schedule, encode_schedule, replay
from kraft.sim.search.seed_search import SeedSearch
from kraft.sim.workloads import client_history
from kraft.sim.workloads.client_history import ClientHistory, HistoryUndecided
from kraft.sim.world.actions import Action, Crash, Deliver, Fail, Flushed, Resign, Return, Start, Submit, Tick
from kraft.sim.world.trace import Trace
from kraft.state_machine.reads import StateMachineReads
from metadata_log.types import NO_OFFSET
from planted_bugs import planted
from planted_bugs.registry import CLASSIC_FAULTS


def size(seed: int) -> int:
    return 3 if seed % 3 else 5


@pytest.mark.parametrize("seed", [1, 2, 3, *(pytest.param(n, marks=pytest.mark.soak) for n in range(100, 500))])
def test_client_histories_in_simulations_are_linearizable(seed: int) -> None:
    run(seed, size(seed), make_member=MEMBERS[MACHINES])


def test_simulated_client_histories_contain_enough_answers() -> None:
    simulator = Simulator(Scenario.drawn(MACHINES, 3, 4), faults=CLASSIC_FAULTS)
    simulator.chaos(8000)
    simulator.calm(60_000)
    history = simulator.world.watch
    assert isinstance(history, ClientHistory)
    answered = [one for one in history.operations() if one.returned is not None]
    assert len(answered) > 10
    assert {str(one.input).split()[0] for one in answered} == {"add", "read"}


def test_a_recorded_state_machine_schedule_replays_with_the_same_digest() -> None:
    recorded: list[Action] = []
    result = run(2, make_member=MEMBERS[MACHINES], recorded=recorded)
    world = Scenario.drawn(MACHINES, 3, 2).make_world(Trace())
    assert all(world.perform(action) for action in recorded)
    assert world.trace.digest == result.digest


def history_beyond_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the check of linearizability give up after two steps."""
    monkeypatch.setattr(client_history, "check", partial(client_history.check, budget=2))


def test_an_undecided_history_fails_the_run_unless_the_caller_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(1, make_member=MEMBERS[MACHINES]).undecided == 0
    history_beyond_the_budget(monkeypatch)
    with pytest.raises(HistoryUndecided, match=r"\d+ operations of clients are linearizable"):
        run(1, make_member=MEMBERS[MACHINES])
    assert run(1, make_member=MEMBERS[MACHINES], allow_undecided=True).undecided == 1


def test_the_command_counts_undecided_histories_that_the_caller_allows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    history_beyond_the_budget(monkeypatch)
    arguments = ["run", "--members", "state-machine", "--seeds", "1..2", "--jobs", "1", "--out", str(tmp_path)]
    failed = CliRunner().invoke(sim_command, arguments)
    assert failed.exit_code == 1
    assert "HistoryUndecided by ClientHistory.concluded (seed 1, profile slow-disk)" in failed.output
    allowed = CliRunner().invoke(sim_command, [*arguments, "--allow-undecided"])
    assert allowed.exit_code == 0
    assert "2 seeds, no violation (2 client histories not decided)" in allowed.output


def no_voter_is_asked(quorum: QuorumState, leader: LeaderState, now_ms: int) -> None:
    """A leader takes its own word for it that it leads."""
    if leader.waiting_reads and leader.high_watermark != NO_OFFSET:
        quorum.emit(ReadConfirmed(leader.waiting_reads, leader.high_watermark))
        leader.waiting_reads = ()


def nothing_is_waited_for(self: StateMachineReads, offset: int, call_ids: tuple[int, ...]) -> None:
    """A follower answers before it has come as far as the leader."""
    self._until.append((0, call_ids))


@pytest.mark.parametrize(
    ("owner", "name", "broken", "seed"),
    [
        (reads, "advance", no_voter_is_asked, 54),
        (StateMachineReads, "learn", nothing_is_waited_for, 3),
    ],
)
def test_each_mutant_of_state_machines_is_found(
    owner: object, name: str, broken: Callable[..., object], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the ledger at once, and by what clients heard. Each seed that is named passes with the sound code."""
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises(InvariantViolated, match="before it was asked"):
        run(seed, size(seed), make_member=MEMBERS[MACHINES], faults=CLASSIC_FAULTS)
    monkeypatch.setattr(ClientHistory, "_check_read", lambda history, member, asked: None)
    with pytest.raises(InvariantViolated, match=r"linearizable|answered with"):
        run(seed, size(seed), make_member=MEMBERS[MACHINES], faults=CLASSIC_FAULTS)
    monkeypatch.undo()
    run(seed, size(seed), make_member=MEMBERS[MACHINES], faults=CLASSIC_FAULTS)


# Hypothesis chooses what happens to a quorum, event by event, and shrinks what breaks a promise.


MUTANTS = ("vote-in-memory-only", "minority-commits", "fetch-before-flush", "former-epochs-commit")
"""Bugs that a few dozen events show, chosen at random or by Hypothesis."""
A = TypeVar("A", bound=Action)
LOSSES = st.integers(0, 3)
"""Seeds of crashes: each loses another part of what was not fsynced."""
PLACES = st.integers(0, 7)


class QuorumMachine(RuleBasedStateMachine):
    """Three nodes; each rule lets one thing happen, of those that can."""

    members = "core"
    mutant: str | None = None
    file: Path

    def __init__(self) -> None:
        super().__init__()
        self.scenario = SeedSearch(members=self.members).scenario(0)
        self.world = self.scenario.make_world(Trace())
        self.actions: list[Action] = []
        self.submissions = 0

    @initialize()
    def every_node_starts(self) -> None:
        for node_id in self.world.node_ids:
            self.perform(Start(0, node_id, node_id))

    @rule(count=st.integers(1, 20))
    def all_goes_well(self, count: int) -> None:
        """So many messages arrive and fsyncs are done; when there are none, a node's timer fires."""
        for _ in range(count):
            possible = list(enabled(self.world))
            due = [action for action in possible if isinstance(action, (Return, Deliver, Flushed))]
            ticks = [action for action in possible if isinstance(action, Tick)]
            if due:
                self.perform(due[0])
            elif ticks:
                self.perform(min(ticks, key=lambda tick: tick.at_ms))

    @rule(place=PLACES)
    def a_request_arrives(self, place: int) -> None:
        self.one_of(Deliver, place)

    @rule(place=PLACES)
    def an_answer_arrives(self, place: int) -> None:
        self.one_of(Return, place)

    @rule(place=PLACES)
    def a_request_fails(self, place: int) -> None:
        self.one_of(Fail, place)

    @rule(place=PLACES)
    def an_fsync_is_done(self, place: int) -> None:
        self.one_of(Flushed, place)

    @rule(place=PLACES)
    def time_passes(self, place: int) -> None:
        self.one_of(Tick, place)

    @rule(place=PLACES, seed=LOSSES)
    def a_node_dies(self, place: int, seed: int) -> None:
        self.one_of(Crash, place, lambda crash: replace(crash, seed=seed))

    @rule(place=PLACES)
    def a_node_starts(self, place: int) -> None:
        self.one_of(Start, place)

    @rule(place=PLACES)
    def a_leader_resigns(self, place: int) -> None:
        self.one_of(Resign, place)

    @precondition(lambda self: self.world.leaders())
    @rule()
    def some_node_writes(self) -> None:
        self.submissions += 1
        node_id = self.world.leaders()[0]
        self.perform(Submit(self.world.now_ms, node_id, self.submissions, f"value-{self.submissions}"))

    def one_of(self, kind: type[A], place: int, drawn: Callable[[A], A] = lambda action: action) -> None:
        """Let one thing of this kind happen, if any can."""
        possible = [action for action in enabled(self.world) if isinstance(action, kind)]
        if possible:
            self.perform(drawn(possible[place % len(possible)]))

    def perform(self, action: Action) -> None:
        """Let something happen; if that breaks a promise, save how it came to that."""
        self.actions.append(action)
        try:
            self.world.perform(action)
        except Exception as failure:
            schedule = Schedule(
                scenario=self.scenario,
                mutant=self.mutant,
                violated=check_of(failure),
                message=str(failure),
                actions=tuple(self.actions),
            )
            self.file.write_bytes(encode_schedule(schedule))
            raise


def _run(machine: type[QuorumMachine], *, examples: int, steps: int, file: Path | None = None, **more: Any) -> None:
    """Let Hypothesis search; the file holds the found schedule, as short as Hypothesis could make it."""
    machine.file = file or Path(tempfile.gettempdir()) / "kraft-sim-machine.json"
    wanted = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        **more,
    )
    try:
        run_state_machine_as_test(machine, settings=wanted)
    except AssertionError as failure:
        failure.add_note(f"replay with: kraft sim replay {machine.file}")
        raise


def test_invariants_of_cores_hold_for_any_actions() -> None:
    _run(QuorumMachine, examples=60, steps=40)


def test_invariants_of_replicas_hold_for_any_actions() -> None:
    class ReplicaMachine(QuorumMachine):
        members = "replica"

    _run(ReplicaMachine, examples=20, steps=40)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_invariants_of_replicas_hold_for_many_actions(part: int) -> None:
    """Hypothesis draws other examples in each part, also with CI=true, where Hypothesis repeats the same otherwise."""

    class ReplicaMachine(QuorumMachine):
        members = "replica"

    _run(ReplicaMachine, examples=200, steps=150, derandomize=False)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_violation_is_shrunk_and_saved(mutant: str, tmp_path: Path) -> None:
    class BrokenMachine(QuorumMachine):
        pass

    BrokenMachine.mutant = mutant
    file = tmp_path / "schedule.json"
    phases = (Phase.generate, Phase.shrink)
    with planted(mutant), pytest.raises(AssertionError) as found:
        _run(BrokenMachine, examples=200, steps=30, file=file, derandomize=True, database=None, phases=phases)
    assert f"kraft sim replay {file}" in "".join(found.value.__notes__)
    schedule = decode_schedule(file.read_bytes(), str(file))
    print(f"{mutant}: {len(schedule.actions)} events")
    assert len(schedule.actions) < 30
    assert check_of(found.value) == schedule.violated
    replayed = replay(schedule)
    assert replayed.failure is not None
    assert check_of(replayed.failure) == schedule.violated
