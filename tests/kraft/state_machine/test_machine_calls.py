"""The calls of a state machine's host on their way into the log: which entries are sent, and when a call returns."""

from __future__ import annotations

import pytest

from kraft.calls import Returned
from kraft.state_machine import calls as module
from kraft.state_machine.calls import ENTRY_OVERHEAD, MaybeApplied, OpenCall, StateMachineCalls, SubmitCall, TooLarge
from kraft.state_machine.log import Command, Opened, OpenSession, Result, SessionState, decode_entry
from kraft.state_machine.reads import Reader, StateMachineReads
from kraft.state_machine.sessions import Sessions


def new_calls() -> StateMachineCalls:
    return StateMachineCalls("node", 1000, 60_000)


def taken(calls: StateMachineCalls) -> list[tuple[int, int]]:
    """The calls of the commands that are sent next, and the numbers of the commands."""
    entries = [(sent.call_id, decode_entry(sent.entry)) for sent in calls.take()]
    return [(call_id, entry.sequence) for call_id, entry in entries if isinstance(entry, Command)]


def with_a_session(calls: StateMachineCalls) -> None:
    (sent,) = calls.take()
    entry = decode_entry(sent.entry)
    assert isinstance(entry, OpenSession)
    assert calls.applied(entry, Opened(7, 0)) == ()


def test_a_cancelled_command_makes_room_for_the_next_one_of_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SESSION_WINDOW", 2)
    calls = new_calls()
    for call_id in (1, 2, 3):
        assert calls.begin(call_id, SubmitCall(b"%d" % call_id), Sessions()) is None
    with_a_session(calls)
    assert taken(calls) == [(1, 1), (2, 2)]
    calls.cancel(1)
    assert taken(calls) == [(3, 3)]
    assert calls.applied(Command(7, 2, 2, b"2"), Result(b"r")) == (Returned(2, Result(b"r")),)
    calls.cancel(4)
    assert not calls.is_any_unsent


def test_two_calls_with_one_number_return_together_and_one_may_be_cancelled() -> None:
    """A client that repeats its command at the same node while the first copy is on its way."""
    calls, sessions = new_calls(), Sessions()
    session = sessions.open(OpenSession("client", "a", 60_000), 3).session
    for call_id in (1, 2, 3):
        assert calls.begin(call_id, SubmitCall(b"x", session, 1), sessions) is None
    assert taken(calls) == [(1, 1), (2, 1), (3, 1)]
    calls.cancel(2)
    returned = calls.applied(Command(session, 1, 1, b"x"), Result(b"r"))
    assert returned == (Returned(1, Result(b"r")), Returned(3, Result(b"r")))
    assert calls.applied(Command(session, 1, 1, b"x"), Result(b"r")) == ()


def test_a_cancelled_call_is_not_sent_and_does_not_return() -> None:
    calls = new_calls()
    assert calls.begin(1, OpenCall("client"), Sessions()) is None
    calls.cancel(1)
    assert (calls.is_any_unsent, calls.take()) == (False, ())
    assert calls.applied(OpenSession("client", "node/1", 60_000), Opened(7, 0)) == ()


def test_a_message_to_the_leader_has_so_many_bytes_of_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FORWARD_BYTES", 100)
    calls, sessions = new_calls(), Sessions()
    session = sessions.open(OpenSession("client", "a", 60_000), 3).session
    for number in range(1, 6):
        assert calls.begin(number, SubmitCall(bytes(60), session, number), sessions) is None
    assert [len(taken(calls)) for _ in range(4)] == [2, 2, 1, 0]
    calls.send_all_again()
    (first, *_) = calls.take()
    calls.send_all_again()
    monkeypatch.setattr(module, "FORWARD_BYTES", len(first.entry) + 1)
    assert len(taken(calls)) == 2
    calls.send_all_again()
    monkeypatch.setattr(module, "FORWARD_BYTES", len(first.entry))
    assert len(taken(calls)) == 1


def test_a_cancelled_read_is_not_asked_for() -> None:
    reads = StateMachineReads()
    for call_id in (1, 2, 3):
        reads.wait(call_id)
    reads.cancel(2)
    reads.cancel(9)
    token = reads.ask_for_all()
    assert not reads.is_any_waiting
    assert reads.take_asked(token) == (Reader(1), Reader(3))
    reads.wait(4)
    reads.cancel(4)
    assert not reads.is_any_waiting


def test_a_snapshot_lets_all_entries_be_sent_again() -> None:
    """The snapshot does not say which of them it holds the effects of, unless the session kept the result."""
    calls = new_calls()
    for call_id in (1, 2):
        assert calls.begin(call_id, SubmitCall(b"x"), Sessions()) is None
    with_a_session(calls)
    assert taken(calls) == [(1, 1), (2, 2)]
    sessions = Sessions(0, [SessionState(7, "node", 60_000, 0, 1, 1, {1: Result(b"r")})])
    assert calls.restored(sessions) == (Returned(1, Result(b"r")),)
    assert taken(calls) == [(2, 2)]


def test_a_snapshot_without_the_own_session_leaves_open_whether_sent_commands_were_applied() -> None:
    calls = new_calls()
    for call_id in (1, 2):
        assert calls.begin(call_id, SubmitCall(b"x"), Sessions()) is None
    with_a_session(calls)
    assert taken(calls) == [(1, 1), (2, 2)]
    assert calls.begin(3, SubmitCall(b"x"), Sessions()) is None
    assert calls.restored(Sessions()) == (Returned(1, MaybeApplied()), Returned(2, MaybeApplied()))
    with_a_session(calls)
    assert taken(calls) == [(3, 1)], "a command that was not sent goes into the next session"


def test_a_message_to_the_leader_has_so_many_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FORWARD_ENTRIES", 2)
    calls, sessions = new_calls(), Sessions()
    session = sessions.open(OpenSession("client", "a", 60_000), 3).session
    for number in range(1, 6):
        assert calls.begin(number, SubmitCall(b"", session, number), sessions) is None
    assert [len(taken(calls)) for _ in range(4)] == [2, 2, 1, 0]


def test_a_snapshot_with_the_first_result_of_the_window_makes_room_for_the_next_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SESSION_WINDOW", 2)
    calls = new_calls()
    for call_id in (1, 2, 3):
        assert calls.begin(call_id, SubmitCall(b"x"), Sessions()) is None
    with_a_session(calls)
    assert taken(calls) == [(1, 1), (2, 2)]
    sessions = Sessions(0, [SessionState(7, "node", 60_000, 0, 1, 1, {1: Result(b"r")})])
    assert calls.restored(sessions) == (Returned(1, Result(b"r")),)
    assert taken(calls) == [(2, 2), (3, 3)]


def test_a_command_that_fits_into_no_batch_returns_at_once() -> None:
    calls = StateMachineCalls("node", 100, 60_000)
    most = 100 - ENTRY_OVERHEAD
    assert calls.begin(1, SubmitCall(bytes(most)), Sessions()) is None
    assert calls.begin(2, SubmitCall(bytes(most + 1)), Sessions()) == Returned(2, TooLarge())
