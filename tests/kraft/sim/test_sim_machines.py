"""State machines in the simulator: what clients hear under faults is linearizable, and what breaks that is found."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from kraft.cli.run.sim import sim_command
from kraft.quorum import reads
from kraft.quorum.effects import ReadConfirmed
from kraft.quorum.quorum_state import QuorumState
from kraft.quorum.states import LeaderState
from kraft.sim import InvariantViolated, run
from kraft.sim.nodes.member_kinds import MACHINES, MEMBERS
from kraft.sim.runs.scenario import Scenario
from kraft.sim.runs.simulator import Simulator
from kraft.sim.workloads import client_history
from kraft.sim.workloads.client_history import ClientHistory, HistoryUndecided
from kraft.sim.world.actions import Action
from kraft.sim.world.trace import Trace
from kraft.state_machine.reads import StateMachineReads
from metadata_log.types import NO_OFFSET
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
