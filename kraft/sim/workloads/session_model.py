"""What the committed log says of the sessions of clients, by rules of its own, so that a node with other sessions is
found out (RIFL; Raft dissertation §6.3).

A session lives until it has not been used for longer than its lifetime, by the clock of the log. A session keeps the
result of each command that its client has not acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from kraft.replica.hosts.state_machine_log import Command, OpenSession, SessionState, decode_entry


class _Session(Struct):
    """One session. `numbers` are the applied commands with results that the session keeps."""

    client: str
    lifetime_ms: int
    used_ms: int
    acknowledged: int = 0
    numbers: set[int] = set()


class SessionModel:
    """The sessions after the committed commands below `end_offset`."""

    def __init__(self) -> None:
        self.end_offset = 0
        self.places = 0
        """The number of committed batches that the model has taken."""
        self.expired_count = 0
        """The number of sessions that have expired so far."""
        self.applied: list[bytes] = []
        """The commands that the machine applies, in the order of the log: no repeated ones."""
        self._now_ms = 0
        self._sessions: dict[int, _Session] = {}

    def take(self, base_offset: int, next_offset: int, timestamp_ms: int, values: Iterable[bytes]) -> None:
        """The next committed batch: commands and openings of sessions. `next_offset` is behind the last one; the clock
        of the log never goes back.
        """
        self._now_ms = max(self._now_ms, timestamp_ms)
        for offset, value in enumerate(values, base_offset):
            self._expire()
            entry = decode_entry(value)
            if isinstance(entry, OpenSession):
                self._open(entry, offset)
            else:
                self._command(entry)
        self.end_offset = next_offset

    def _expire(self) -> None:
        dead = [at for at, one in self._sessions.items() if self._now_ms > one.used_ms + one.lifetime_ms]
        for at in dead:
            del self._sessions[at]
        self.expired_count += len(dead)

    def _open(self, entry: OpenSession, offset: int) -> None:
        session = next((one for one in self._sessions.values() if one.client == entry.client), None)
        if session is None:
            session = self._sessions[offset] = _Session(entry.client, entry.ttl_ms, self._now_ms)
        session.lifetime_ms, session.used_ms = entry.ttl_ms, self._now_ms

    def _command(self, entry: Command) -> None:
        session = self._sessions.get(entry.session)
        if session is None:
            return
        session.used_ms = self._now_ms
        session.acknowledged = max(session.acknowledged, entry.acknowledged)
        session.numbers = {number for number in session.numbers if number >= session.acknowledged}
        if entry.sequence >= session.acknowledged and entry.sequence not in session.numbers:
            session.numbers.add(entry.sequence)
            self.applied.append(entry.command)

    def problem_of(self, states: Iterable[SessionState]) -> str | None:
        """What is wrong if a node that has applied the same commands has these sessions.

        A node may keep a session that has expired until the next one is opened.
        """
        self._expire()
        found = {one.id: one for one in states}
        for at, session in self._sessions.items():
            has = found.get(at)
            if has is None or self._now_ms > has.touched_ms + has.ttl_ms:
                silent_ms = self._now_ms - session.used_ms
                return f"session {at} of {session.client} has ended, which was used {silent_ms} ms ago"
            if session.numbers != has.kept.keys():
                missing, other = session.numbers - has.kept.keys(), has.kept.keys() - session.numbers
                return (
                    f"session {at} of {session.client} lacks the results {sorted(missing)} and keeps {sorted(other)},"
                    f" and the client has acknowledged those below {session.acknowledged}"
                )
        revived = [
            at for at, one in found.items() if at not in self._sessions and self._now_ms <= one.touched_ms + one.ttl_ms
        ]
        return f"sessions {revived} go on, and should have ended" if revived else None
