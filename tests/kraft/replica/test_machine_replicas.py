"""State machines on replicas: commands count once, reads are never stale, snapshots stand for the state."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Struct
from msgspec.msgpack import decode, encode

from kraft.calls import CancelCall
from kraft.limits import SESSION_WINDOW
from kraft.process.hosting import host_state_machine
from kraft.quorum.events import BeginShutdown
from kraft.replica.interface.options import SnapshotOptions
from kraft.sim.state.fingerprints import fingerprint
from kraft.sim.state.forking import forked
from kraft.state_machine import CommandRefused, Position, StateMachine
from kraft.state_machine import server as state_machine_host
from kraft.state_machine.calls import MaybeApplied, OpenCall, StateMachineCalls, SubmitCall
from kraft.state_machine.log import (
    Command,
    Entry,
    Expired,
    Opened,
    OpenSession,
    Outcome,
    Refusal,
    Result,
    Superseded,
    decode_entry,
)
from kraft.state_machine.server import Changes, ReadCall, ReadReady, Skipped, StateMachineServer
from kraft.state_machine.sessions import Sessions
from metadata_log.log.retention import Retention
from support.kraft.replica_net import Net
from support.kraft.simulated_quorum import follower_of

TTL_MS = 60_000


class Append(Struct, frozen=True):
    what: str


class Words(StateMachine[Append, int]):
    """A list of words; how many there are."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def apply(self, command: Append, at: Position) -> int:
        if command.what == "no":
            raise CommandRefused(f"not at {at.offset}")
        self.words.append(command.what)
        return len(self.words)

    def snapshot(self) -> bytes:
        return encode(self.words)

    def restore(self, data: bytes) -> None:
        self.words = decode(data, type=list[str])


def machines(count: int = 3, **changes: Any) -> Net:
    return Net(count, application=host_state_machine(Words, session_ttl_ms=TTL_MS), **changes)


def forgetful() -> Net:
    """Three machines with logs that soon begin at a snapshot."""
    retention = Retention(max_bytes=1, max_ms=1)
    return machines(snapshots=SnapshotOptions(max_bytes=500, retention=retention), segment_bytes=500)


def host(net: Net, node: int) -> StateMachineServer:
    application = net.processes[node].application
    assert isinstance(application, StateMachineServer)
    return application


def words(net: Net, node: int) -> list[str]:
    machine = host(net, node).machine
    assert isinstance(machine, Words)
    return machine.words


def submit(net: Net, node: int, what: str, session: int | None = None, sequence: int = 0) -> int:
    return net.call(node, SubmitCall(encode(Append(what)), session, sequence))


def outcome(net: Net, call_id: int, most_ms: int = 20_000) -> Struct:
    net.until(lambda: call_id in net.returned, most_ms)
    return net.returned[call_id]


def result(net: Net, call_id: int) -> int:
    got = outcome(net, call_id)
    assert isinstance(got, Result), got
    return decode(got.result, type=int)


def open_session(net: Net, node: int, client: str) -> Opened:
    opened = outcome(net, net.call(node, OpenCall(client)))
    assert isinstance(opened, Opened)
    return opened


def test_commands_submitted_without_a_leader_wait_for_one() -> None:
    net = machines()
    call = submit(net, 1, "early")
    assert result(net, call) == 1


def test_a_refused_command_changes_nothing_and_returns_the_refusal() -> None:
    net = machines()
    net.elect()
    assert outcome(net, submit(net, follower_of(net), "no")) == Refusal("not at 2")
    assert result(net, submit(net, net.leader, "yes")) == 1


def test_a_numbered_command_repeated_at_any_node_gets_the_same_result() -> None:
    net = machines()
    leader = net.elect()
    session = open_session(net, leader, "till-7")
    assert session.last_sequence == 0
    assert result(net, submit(net, leader, "sold", session.session, 1)) == 1
    for node in net.processes:
        assert result(net, submit(net, node, "sold", session.session, 1)) == 1
        assert open_session(net, node, "till-7") == Opened(session.session, 1)
    assert result(net, submit(net, follower_of(net), "sold", session.session, 2)) == 2
    net.advance(1000)
    for node in net.processes:
        assert outcome(net, submit(net, node, "sold", session.session, 1)) == Superseded()
        assert words(net, node) == ["sold", "sold"]


def test_sessions_survive_their_nodes_and_the_snapshot() -> None:
    net = machines(snapshots=SnapshotOptions(max_bytes=1))
    session = open_session(net, net.elect(), "till-7").session
    assert result(net, submit(net, net.leader, "sold", session, 1)) == 1
    net.advance(1000)
    for node in list(net.processes):
        net.kill(node)
    for node in net.disks:
        net.start(node)
    net.elect()
    assert net.processes[1].replica.log.start_offset == 0
    for node in net.processes:
        assert result(net, submit(net, node, "sold", session, 1)) == 1
    assert words(net, net.leader) == ["sold"]


def test_all_nodes_expire_a_session_at_the_same_entry() -> None:
    net = machines()
    leader = net.elect()
    session = open_session(net, leader, "till-7").session
    assert result(net, submit(net, leader, "sold", session, 1)) == 1
    net.advance(TTL_MS + 1)
    assert result(net, submit(net, leader, "another's")) == 2
    assert outcome(net, submit(net, follower_of(net), "sold", session, 2)) == Expired()
    again = open_session(net, follower_of(net), "till-7")
    assert again.session > session
    assert again.last_sequence == 0
    net.advance(1000)
    assert len({tuple(map(repr, host(net, node).sessions.states())) for node in net.processes}) == 1


def test_a_node_with_an_expired_session_opens_a_new_one() -> None:
    net = machines()
    leader = net.elect()
    assert result(net, submit(net, leader, "one")) == 1
    net.advance(TTL_MS + 1)
    calls = [submit(net, leader, "two"), submit(net, leader, "three")]
    assert [result(net, call) for call in calls] == [2, 3]
    net.advance(1000)
    assert words(net, leader) == ["one", "two", "three"]


def test_commands_beyond_the_session_window_wait() -> None:
    net = machines(1)
    net.elect()
    calls = [submit(net, 1, "x") for _ in range(SESSION_WINDOW + 100)]
    net.settle()
    assert {result(net, call) for call in calls} == set(range(1, SESSION_WINDOW + 101))
    assert len(host(net, 1).sessions.states()[0].kept) <= SESSION_WINDOW


def test_a_cancelled_command_does_not_hold_up_others() -> None:
    net = machines()
    leader = net.elect()
    net.cut = {leader}
    lost = submit(net, leader, "lost")
    net.settle()
    net.step(leader, CancelCall(lost))
    unsent = submit(net, leader, "never sent")
    net.step(leader, CancelCall(unsent))
    net.elect()
    net.cut = set()
    net.elect()
    assert result(net, submit(net, leader, "kept")) == 1
    assert words(net, leader) == ["kept"]
    assert {lost, unsent}.isdisjoint(net.returned)


def test_a_read_waits_for_what_was_committed_before_it() -> None:
    net = machines()
    leader = net.elect()
    assert result(net, submit(net, leader, "done")) == 1
    for node in net.processes:
        assert outcome(net, net.call(node, ReadCall())) == ReadReady()
        assert words(net, node) == ["done"], node


def test_a_read_waits_for_no_command_that_was_committed_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where each turn of the machine ends in the middle of a batch."""
    monkeypatch.setattr(state_machine_host, "COMMANDS_PER_TURN", 2)
    net = machines(1)
    outcome(net, submit(net, net.elect(), "first"))
    machine = host(net, 1)

    for word in "abcdef":
        submit(net, 1, word)
    while not machine.is_applying:
        assert net.once()
    read = net.call(1, ReadCall())
    for word in "ghi":
        submit(net, 1, word)
    while words(net, 1)[-1] != "h":
        assert machine.is_applying, "a turn ends between two batches"
        net.advance(1)
    assert machine.is_applying
    assert isinstance(net.returned.get(read), ReadReady)


def test_reading_writes_nothing() -> None:
    net = machines()
    leader = net.elect()
    end = net.processes[leader].replica.status().log_end_offset
    for node in net.processes:
        assert outcome(net, net.call(node, ReadCall())) == ReadReady()
    assert net.processes[leader].replica.status().log_end_offset == end


def test_an_unaware_deposed_leader_answers_no_stale_read() -> None:
    net = machines()
    old = net.elect()
    assert result(net, submit(net, old, "before")) == 1
    net.cut = {old}
    read = net.call(old, ReadCall())
    new = net.elect()
    assert result(net, submit(net, new, "after")) == 2
    assert net.processes[old].replica.core.epoch < net.processes[new].replica.core.epoch
    assert read not in net.returned
    assert words(net, old) == ["before"]
    net.cut = set()
    assert outcome(net, read) == ReadReady()
    assert words(net, old) == ["before", "after"]


def test_reads_succeed_while_the_leader_changes() -> None:
    net = machines()
    old = net.elect()
    reads = [net.call(node, ReadCall()) for node in net.processes for _ in range(3)]
    net.step(old, BeginShutdown())
    assert {repr(outcome(net, read)) for read in reads} == {repr(ReadReady())}


def test_the_only_voter_reads_at_once() -> None:
    net = machines(1)
    net.elect()
    read = net.call(1, ReadCall())
    net.settle()
    assert net.returned[read] == ReadReady()


def test_an_empty_node_loads_a_snapshot_and_reports_skipped_changes() -> None:
    retention = Retention(max_bytes=1, max_ms=1)
    net = machines(snapshots=SnapshotOptions(max_bytes=2000, retention=retention), segment_bytes=1000)
    leader = net.elect()
    late = follower_of(net)
    net.kill(late)
    for at in range(300):
        assert result(net, submit(net, leader, f"word {at}")) == at + 1
    net.advance(200_000)
    assert net.processes[leader].replica.log.start_offset > 0
    net.start(late)
    net.elect()
    net.until(lambda: len(words(net, late)) == 300)
    assert words(net, late) == words(net, leader)
    assert any(node == late and isinstance(what, Skipped) for node, what in net.noted)
    assert repr(host(net, late).sessions.states()) == repr(host(net, leader).sessions.states())
    assert result(net, submit(net, late, "more")) == 301


def test_a_session_opened_within_a_snapshot_is_opened_again() -> None:
    net = forgetful()
    leader = net.elect()
    slow = follower_of(net)
    asked, command = net.call(slow, OpenCall("till-7")), submit(net, slow, "waits for the node's own session")
    net.once()
    net.cut = {slow}
    for at in range(100):
        assert result(net, submit(net, leader, f"word {at}")) == at + 1
    net.advance(70_000)
    assert asked not in net.returned
    assert net.processes[leader].replica.log.start_offset > 5
    net.cut = set()
    opened = outcome(net, asked)
    assert isinstance(opened, Opened)
    assert result(net, command) == 101


def test_a_command_of_an_expired_session_has_an_unknown_outcome() -> None:
    net = forgetful()
    leader = net.elect()
    slow = follower_of(net)
    assert result(net, submit(net, slow, "first")) == 1
    asked = submit(net, slow, "second")
    net.once()
    net.cut = {slow}
    net.advance(TTL_MS + 1)
    open_session(net, net.elect(), "a session")
    for at in range(100):
        assert outcome(net, submit(net, leader, f"word {at}"))
    net.advance(200_000)
    net.cut = set()
    assert outcome(net, asked) == MaybeApplied()
    assert isinstance(outcome(net, submit(net, slow, "third")), Result)


def test_a_command_is_not_sent_between_two_sessions() -> None:
    """Its session has expired while the command waits to be sent again: it waits for a number in the next session."""
    calls, sessions = StateMachineCalls("node", 1000, TTL_MS), Sessions()
    calls.begin(1, SubmitCall(b"command"), sessions)
    assert _applied(calls, Opened(5, 0)) == OpenSession("node", "node/-1", TTL_MS)
    (sent,) = calls.take()
    calls.send_again([1])
    assert calls.applied(decode_entry(sent.entry), Expired()) == ()
    calls.send_again([1])
    assert _applied(calls, Opened(9, 0)) == OpenSession("node", "node/-1", TTL_MS)
    assert _applied(calls, Result(b"result")) == Command(9, 1, 1, b"command")
    assert calls.take() == ()


def _applied(calls: StateMachineCalls, outcome: Outcome) -> Entry:
    """The only entry that a node sends next; it is applied with this outcome."""
    (sent,) = calls.take()
    entry = decode_entry(sent.entry)
    calls.applied(entry, outcome)
    return entry


def test_changes_are_reported_once_and_in_order_without_refused_commands() -> None:
    net = machines()
    leader = net.elect()
    session = open_session(net, leader, "till-7").session
    for sequence, what in enumerate(("a", "no", "b"), 1):
        for node in net.processes:
            outcome(net, submit(net, node, what, session, sequence))
    net.advance(1000)
    for node in net.processes:
        told = [one for at, what in net.noted if at == node and isinstance(what, Changes) for one in what.changes]
        assert [(one.command.what, one.result) for one in told] == [("a", 1), ("b", 2)]
        assert [one.at for one in told] == sorted(one.at for one in told)


def test_a_fork_of_a_state_machine_replica_is_independent() -> None:
    net = machines(1)
    net.elect()
    assert result(net, submit(net, 1, "both")) == 1
    fork = forked(net.processes[1])
    assert fingerprint(fork) == fingerprint(net.processes[1])
    assert result(net, submit(net, 1, "one")) == 2
    application = fork.application
    assert isinstance(application, StateMachineServer)
    assert isinstance(application.machine, Words)
    assert application.machine.words == ["both"]


class Broken(Words):
    def apply(self, command: Append, at: Position) -> int:
        raise KeyError("a bug")


def test_an_exception_in_apply_stops_the_node_and_names_the_offset() -> None:
    net = Net(1, application=host_state_machine(Broken))
    net.elect()
    submit(net, 1, "x")
    with pytest.raises(KeyError) as stopped:
        net.settle()
    assert "while applying the command at offset 2" in stopped.value.__notes__[0]
