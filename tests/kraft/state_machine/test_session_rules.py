"""The rules of one client session, which every node applies to the same entries of the log."""

from __future__ import annotations

import pytest

from kraft.state_machine import sessions as module
from kraft.state_machine.log import Command, Expired, OpenSession, Result, Superseded
from kraft.state_machine.sessions import Sessions

TTL_MS = 1000


def with_a_session() -> tuple[Sessions, int]:
    sessions = Sessions()
    return sessions, sessions.open(OpenSession("client", "attempt", TTL_MS), 7).session


def test_a_session_keeps_the_results_that_its_client_has_not_acknowledged() -> None:
    sessions, session = with_a_session()
    for sequence in (1, 2):
        assert sessions.admit(Command(session, sequence, 1, b"")) is None
        sessions.keep(Command(session, sequence, 1, b""), Result(b"%d" % sequence))
    assert sessions.admit(Command(session, 3, 2, b"")) is None
    assert sessions.known(session, 1) == Superseded()
    assert sessions.known(session, 2) == Result(b"2")
    (state,) = sessions.states()
    assert state.kept == {2: Result(b"2")}, "a snapshot holds no result that the client knows"
    assert sessions.admit(Command(session, 2, 2, b"")) == Result(b"2")


def test_a_session_ends_when_its_client_is_silent_for_longer_than_its_time_to_live() -> None:
    sessions, session = with_a_session()
    sessions.pass_time(TTL_MS)
    assert sessions.known(session, 1) is None
    sessions.pass_time(TTL_MS + 1)
    assert sessions.known(session, 1) == Expired()
    assert sessions.admit(Command(session, 1, 0, b"")) == Expired()


def test_a_command_prolongs_the_session_of_its_client() -> None:
    sessions, session = with_a_session()
    sessions.pass_time(TTL_MS)
    assert sessions.admit(Command(session, 1, 0, b"")) is None
    sessions.pass_time(2 * TTL_MS)
    assert sessions.known(session, 1) is None


def test_a_command_beyond_the_window_of_its_session_is_not_applied() -> None:
    sessions, session = with_a_session()
    assert sessions.admit(Command(session, 4096, 0, b"")) == Superseded()
    assert sessions.admit(Command(session, 4096, 1, b"")) is None


@pytest.mark.parametrize("use", ["command", "open"])
def test_beyond_the_maximum_the_session_that_was_silent_for_longest_ends(
    use: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MACHINE_SESSIONS", 2)
    sessions = Sessions()
    first, second = (sessions.open(OpenSession(client, "1", TTL_MS), at).session for at, client in ((1, "a"), (2, "b")))
    if use == "command":
        assert sessions.admit(Command(first, 1, 0, b"")) is None
    else:
        assert sessions.open(OpenSession("a", "2", TTL_MS), 3).session == first
    third = sessions.open(OpenSession("c", "1", TTL_MS), 4).session
    assert [one.id for one in sessions.states()] == [first, third]
    assert sessions.known(second, 1) == Expired()
    assert (len(sessions), sessions.known(first, 9), sessions.known(third, 1)) == (2, None, None)


def test_a_client_that_goes_on_may_change_the_time_to_live_of_its_session() -> None:
    sessions, session = with_a_session()
    assert sessions.open(OpenSession("client", "again", 3 * TTL_MS), 8).session == session
    sessions.pass_time(3 * TTL_MS)
    assert sessions.known(session, 1) is None
    assert sessions.open(OpenSession("client", "again", TTL_MS), 9).session == session
    sessions.pass_time(4 * TTL_MS + 1)
    assert sessions.known(session, 1) == Expired()
