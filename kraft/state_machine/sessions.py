"""The client sessions, as part of the replicated state: a command that arrives twice is applied once (Raft
dissertation §6.3, RIFL).

Every rule depends on the log alone, its clock included: the largest timestamp of a batch so far. So all nodes forget a
session at the same entry.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from kraft.limits import MACHINE_SESSIONS, SESSION_WINDOW
from kraft.state_machine.log import Command, Expired, Kept, Opened, OpenSession, Outcome, SessionState, Superseded


class Sessions:
    """The sessions that are alive, those that have been silent for longest first."""

    def __init__(self, now_ms: int = 0, sessions: Iterable[SessionState] = ()) -> None:
        self.now_ms = now_ms
        """The clock of the log."""
        self._by_id = {one.id: one for one in sessions}
        self._by_client = {one.client: one.id for one in self._by_id.values()}

    def __len__(self) -> int:
        return len(self._by_id)

    def states(self) -> tuple[SessionState, ...]:
        """Their present state."""
        return tuple(replace(one, kept=one.kept.copy()) for one in self._by_id.values())

    def pass_time(self, timestamp_ms: int) -> None:
        """Set the clock for the next entry, which has this timestamp."""
        self.now_ms = max(self.now_ms, timestamp_ms)

    def open(self, entry: OpenSession, offset: int) -> Opened:
        """Open a session of a client at this offset, or resume its existing one."""
        for dead in [one.id for one in self._by_id.values() if not self._is_alive(one)]:
            self._drop(dead)
        session_id = self._by_client.get(entry.client)
        if session_id is None:
            if len(self._by_id) >= MACHINE_SESSIONS:
                self._drop(next(iter(self._by_id)))
            session_id = self._by_client[entry.client] = offset
            self._by_id[offset] = SessionState(offset, entry.client, entry.ttl_ms, self.now_ms, 0, 0, {})
        session = self._by_id[session_id]
        session.ttl_ms = entry.ttl_ms
        self._touch(session)
        return Opened(session_id, session.last_sequence)

    def known(self, session_id: int, sequence: int) -> Outcome | None:
        """The known outcome of a command; None if it has not been applied."""
        session = self._by_id.get(session_id)
        if session is None or not self._is_alive(session):
            return Expired()
        return Superseded() if sequence < session.acknowledged else session.kept.get(sequence)

    def admit(self, entry: Command) -> Outcome | None:
        """The outcome of a command that must not be applied; None for one to apply, whose result goes to `keep`.

        The session counts as used now, and forgets the results that its client has acknowledged.
        """
        known = self.known(entry.session, entry.sequence)
        if isinstance(known, Expired):
            return known
        session = self._by_id[entry.session]
        self._touch(session)
        if entry.acknowledged > session.acknowledged:
            session.acknowledged = entry.acknowledged
            session.kept = {number: kept for number, kept in session.kept.items() if number >= entry.acknowledged}
        if known is None and not session.acknowledged <= entry.sequence < session.acknowledged + SESSION_WINDOW:
            return Superseded()
        return known

    def keep(self, entry: Command, kept: Kept) -> None:
        """Keep the result of an applied command."""
        session = self._by_id[entry.session]
        session.kept[entry.sequence] = kept
        session.last_sequence = max(session.last_sequence, entry.sequence)

    def _is_alive(self, session: SessionState) -> bool:
        return self.now_ms - session.touched_ms <= session.ttl_ms

    def _touch(self, session: SessionState) -> None:
        session.touched_ms = self.now_ms
        self._by_id[session.id] = self._by_id.pop(session.id)

    def _drop(self, session_id: int) -> None:
        del self._by_client[self._by_id.pop(session_id).client]
