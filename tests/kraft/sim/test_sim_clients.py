"""The answers that clients get in simulated runs: reads, results of commands in sessions, and acknowledgements."""

from __future__ import annotations

from random import Random

import pytest

from kraft.invariants.commits import CommitLedger
from kraft.invariants.observation import LogBatch, View
from kraft.invariants.quorum import Invariants
from kraft.invariants.violation import InvariantViolated
from kraft.quorum.values import LeaderAndEpoch, ReplicaKey
from kraft.quorum.voters import Voter, VoterSet
from kraft.sim.nodes.addresses import endpoints_of
from kraft.sim.nodes.member_kinds import MACHINES, MEMBERS
from kraft.sim.nodes.replica_member import ReplicaMember
from kraft.sim.nodes.state_machine_member import Count
from kraft.sim.runs.scenario import Scenario
from kraft.sim.runs.seeded_run import SHARES, begin_reads, run
from kraft.sim.runs.simulator import Simulator
from kraft.sim.runs.voter_change_run import Reconfiguration
from kraft.sim.workloads.client_history import ClientHistory
from kraft.sim.world.actions import Action, Read, Submit
from kraft.sim.world.read_watch import ReadWatch
from kraft.sim.world.trace import Trace
from kraft.state_machine.log import Command, OpenSession, encode
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import ConfigRecord

# Reads


def _ledger() -> Invariants:
    """Records 0 to 4 are committed, in epoch 2."""
    ledger = Invariants(VoterSet((Voter(ReplicaKey(1), endpoints_of(1)),)))
    ledger.commits.add(LogBatch(0, 5, 2, b"batch"), (b"value",), 2)
    return ledger


def _leader(epoch: int) -> View:
    return View(epoch, "Leader", LeaderAndEpoch(epoch=epoch, leader_id=1), 5, 5, 5)


@pytest.mark.parametrize(("offset", "is_fine"), [(5, True), (6, True), (4, False), (0, False)])
def test_a_read_sees_what_was_committed_before_it_began(offset: int, is_fine: bool) -> None:
    watch, ledger = ReadWatch(), _ledger()
    watch.begun(1, ledger)
    ledger.commits.add(LogBatch(5, 9, 2, b"later"), (b"value",), 2)
    if is_fine:
        watch.answered(1, 1, offset, _leader(2))
    else:
        with pytest.raises(InvariantViolated, match="though everything below 5 was committed before it was asked"):
            watch.answered(1, 1, offset, _leader(2))


def test_a_deposed_leader_that_answers_a_read_is_a_violation() -> None:
    watch, ledger = ReadWatch(), _ledger()
    watch.begun(1, ledger)
    watch._begun[1] = type(watch._begun[1])(values_end=0, epoch=3)
    with pytest.raises(InvariantViolated, match="a majority had come to epoch 3"):
        watch.answered(1, 1, 5, _leader(2))


def test_a_read_has_one_answer() -> None:
    watch = ReadWatch()
    watch.begun(1, _ledger())
    watch.answered(1, 1, 5, _leader(2))
    with pytest.raises(InvariantViolated, match="an answer already"):
        watch.answered(1, 1, 5, _leader(2))


@pytest.mark.parametrize("kind", ["core", "replica", "dynamic"])
def test_runs_contain_reads_that_are_answered(kind: str) -> None:
    """Every run with voter changes, and a share of the others."""
    answered = {seed: _answered_reads(kind, seed) for seed in range(11, 20)}
    assert sum(answered.values()) > 20
    unread = [seed for seed, count in answered.items() if not count]
    assert (len(unread) > 3) == (SHARES[kind] < 1), unread


def _answered_reads(kind: str, seed: int) -> int:
    scenario = Scenario.drawn(kind, 3, seed)
    work = Reconfiguration(scenario) if kind == "dynamic" else None
    simulator = Simulator(scenario, work=work)
    begin_reads(simulator)
    simulator.chaos(4000)
    return simulator.world.reads.answered_count


def test_a_schedule_with_reads_replays_with_the_same_digest() -> None:
    seed = next(seed for seed in range(11, 20) if _answered_reads("core", seed))
    recorded: list[Action] = []
    result = run(seed, make_member=MEMBERS["core"], recorded=recorded)
    assert any(isinstance(action, Read) for action in recorded)
    world = Scenario.drawn("core", 3, seed).make_world(Trace())
    assert all(world.perform(action) for action in recorded)
    assert world.trace.digest == result.digest


# Sessions


def test_sessions_expire_and_clients_have_commands_outstanding_in_runs() -> None:
    expired = under_way = 0
    for seed in range(12):
        simulator = Simulator(Scenario.drawn(MACHINES, 3, seed))
        simulator.chaos(8000)
        history = simulator.world.watch
        assert isinstance(history, ClientHistory)
        expired += history.model.expired_count
        under_way += len({one.client for one in history.operations() if one.returned is None}) > 0
    assert expired > 20
    assert under_way > 0


def test_numbered_requests_overlap_in_runs() -> None:
    """A client sends a number before it has an answer to the one before."""
    recorded: list[Action] = []
    run(1, make_member=MEMBERS[MACHINES], recorded=recorded)
    numbers = [action.value.rpartition(" | ")[2] for action in recorded if isinstance(action, Submit)]
    sent = [text.rpartition(" ") for text in numbers if text.startswith("client-")]
    last: dict[str, int] = {}
    repeated = 0
    for client, _, number in sent:
        repeated += int(number) < last.get(client, 0)
        last[client] = max(last.get(client, 0), int(number))
    assert repeated > 0


# Acknowledgements


def _committed(*records: bytes) -> CommitLedger:
    ledger = CommitLedger()
    ledger.add(LogBatch(0, len(records), 1, b"batch"), records, 1)
    return ledger


def _config(name: str) -> bytes:
    return encode_record(ConfigRecord(resource_type=16, resource_name=name, name="interval.ms", value="1000"), 0)


def _member(kind: str) -> ReplicaMember:
    scenario = Scenario.drawn(kind, 1, 0)
    member = scenario.make_world(Trace()).hosts[1].member
    assert isinstance(member, ReplicaMember)
    member.start(Random(0), 0)
    return member


@pytest.mark.parametrize(("submission", "is_fine"), [(b"value-12", True), (b"value-1", False), (b"interval.ms", False)])
def test_a_configuration_is_acknowledged_by_its_name(submission: bytes, is_fine: bool) -> None:
    """Another name with the same beginning is another submission."""
    ledger = _committed(_config("value-12"))
    problem = ledger.acknowledged(1, submission, None, _member("controller").is_record_of)
    assert (problem is None) == is_fine


@pytest.mark.parametrize(("session", "number", "is_fine"), [(10, 2, True), (10, 1, False), (11, 2, False)])
def test_a_command_is_acknowledged_by_its_session_and_number(session: int, number: int, is_fine: bool) -> None:
    """Any other command with the same content is another submission."""
    member = _member(MACHINES)
    command = encode(Count("k1"))
    ledger = _committed(encode(OpenSession("a", "1", 1000)), encode(Command(10, 2, 1, command)))
    problem = ledger.acknowledged(1, encode((session, number, command)), None, member.is_record_of)
    assert (problem is None) == is_fine
