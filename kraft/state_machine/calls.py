"""The open calls of the host of a state machine, until its own state machine has done them.

A node sends each entry to the leader (itself, if it leads) again and again until the node has applied the entry. The
sessions in the replicated state ensure that the copies count once. So a call returns only when the caller's own node
has applied the entry, and the caller reads there its own writes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from kraft.calls import Returned
from kraft.limits import FORWARD_BYTES, FORWARD_ENTRIES, SESSION_WINDOW
from kraft.state_machine.log import Command, Entry, Expired, Opened, OpenSession, Outcome, encode
from kraft.state_machine.sessions import Sessions

ENTRY_OVERHEAD: Final = 40
"""More than an entry takes beside its command: tag, session, numbers, length."""
NO_SESSION: Final = -1
_OWN: Final = -1
"""The call that opens the node's own session; it has no caller."""
_TICK: Final = -2
"""The call of the state machine's own command; it has no caller either."""


class SubmitCall(Struct, frozen=True):
    """Apply a command, in the session of a client that numbers its commands, or in the node's own session."""

    command: bytes
    session: int | None = None
    sequence: int = 0


class OpenCall(Struct, frozen=True):
    """Open the session of a client, or find its existing one; the outcome is `Opened`."""

    client: str


class TooLarge(Struct, frozen=True):
    """The command does not fit into a batch."""


class MaybeApplied(Struct, frozen=True):
    """The node was cut off for longer than its session lives; the command may or may not be applied."""


class _Pending(Struct):
    """An entry that this node wants to see applied; a command has a session and a number when it may be sent."""

    ask: SubmitCall | OpenCall
    session: int = NO_SESSION
    sequence: int = 0
    was_sent: bool = False

    @property
    def is_own(self) -> bool:
        """Whether it is a command in the node's own session."""
        return isinstance(self.ask, SubmitCall) and self.ask.session is None

    @property
    def is_numbered(self) -> bool:
        """Whether it may be sent: a command without a session and a number waits for them."""
        return isinstance(self.ask, OpenCall) or self.session != NO_SESSION


Key = str | tuple[int, int]
"""The key of an entry: an attempt to open a session, or a session and a number in it."""


def key_of(entry: Entry) -> Key:
    """The key of the entry."""
    return entry.attempt if isinstance(entry, OpenSession) else (entry.session, entry.sequence)


class Sent(Struct, frozen=True, gc=False):
    """An entry that this node has not applied yet."""

    call_id: int
    key: Key
    entry: bytes


class StateMachineCalls:
    """The entries that are not applied so far, by the ids of their calls, in the order of the calls."""

    def __init__(self, client: str, max_entry_bytes: int, session_ttl_ms: int) -> None:
        self._client = client
        self._max_entry_bytes = max_entry_bytes
        self._session_ttl_ms = session_ttl_ms
        self._pending: dict[int, _Pending] = {}
        self._by_key: dict[Key, tuple[int, ...]] = {}
        self._unnumbered: deque[int] = deque()
        """Commands for the node's own session, which is to be opened first, or has too many under way."""
        self._unsent: deque[int] = deque()
        self._own: dict[int, int] = {}
        """Numbers in the node's own session, ascending, and their calls."""
        self._session = NO_SESSION
        self._last_sequence = 0

    # The host's side

    def begin(self, call_id: int, ask: SubmitCall | OpenCall, sessions: Sessions) -> Returned | None:
        """Take a call; returns its outcome if that is known at once."""
        pending = _Pending(ask)
        if isinstance(ask, SubmitCall):
            if len(ask.command) + ENTRY_OVERHEAD > self._max_entry_bytes:
                return Returned(call_id, TooLarge())
            if ask.session is None:
                self._number_later(call_id, pending)
                return None
            known = sessions.known(ask.session, ask.sequence)
            if known is not None and not isinstance(known, Expired):
                return Returned(call_id, known)
            pending.session, pending.sequence = ask.session, ask.sequence
        self._send_later(call_id, pending)
        return None

    def tick(self, command: bytes) -> None:
        """Submit a command of the state machine itself, unless its last one is still under way."""
        assert len(command) + ENTRY_OVERHEAD <= self._max_entry_bytes, "the command of `tick` is too large"
        if _TICK not in self._pending:
            self._number_later(_TICK, _Pending(SubmitCall(command)))

    def cancel(self, call_id: int) -> None:
        """Drop a call that its caller has cancelled. A sent entry may still be applied, before the session's next."""
        if call_id in self._pending:
            self._end(call_id)
            for queue in (self._unnumbered, self._unsent):
                if call_id in queue:
                    queue.remove(call_id)
            self._number()

    def _number_later(self, call_id: int, pending: _Pending) -> None:
        self._pending[call_id] = pending
        self._unnumbered.append(call_id)
        self._number()

    def _number(self) -> None:
        """Give the node's own commands their numbers, as far as the window goes; open the session if there is none."""
        if self._session == NO_SESSION:
            if self._unnumbered and _OWN not in self._pending:
                self._send_later(_OWN, _Pending(OpenCall(self._client)))
            return
        while self._unnumbered and (not self._own or self._last_sequence < next(iter(self._own)) + SESSION_WINDOW - 1):
            call_id = self._unnumbered.popleft()
            pending = self._pending.get(call_id)
            if pending is not None:
                self._last_sequence += 1
                pending.session, pending.sequence = self._session, self._last_sequence
                self._own[self._last_sequence] = call_id
                self._send_later(call_id, pending)

    def _send_later(self, call_id: int, pending: _Pending) -> None:
        self._pending[call_id] = pending
        key = self._key(call_id, pending)
        self._by_key[key] = (*self._by_key.get(key, ()), call_id)
        self._unsent.append(call_id)

    def _key(self, call_id: int, pending: _Pending) -> Key:
        if isinstance(pending.ask, OpenCall):
            return f"{self._client}/{call_id}"
        return pending.session, pending.sequence

    def _end(self, call_id: int) -> None:
        """End a call, whatever its outcome."""
        pending = self._pending.pop(call_id)
        left = tuple(one for one in self._by_key.pop(self._key(call_id, pending), ()) if one != call_id)
        if left:
            self._by_key[self._key(call_id, pending)] = left
        if pending.is_own:
            self._own.pop(pending.sequence, None)

    # On the way to the leader

    @property
    def is_any_unsent(self) -> bool:
        """Whether to `take`."""
        return bool(self._unsent)

    def take(self) -> tuple[Sent, ...]:
        """The entries to send next, at most as many as one message should have; none of cancelled calls."""
        taken: list[Sent] = []
        size = 0
        while self._unsent and size < FORWARD_BYTES and len(taken) < FORWARD_ENTRIES:
            call_id = self._unsent.popleft()
            pending = self._pending.get(call_id)
            if pending is not None and pending.is_numbered:
                pending.was_sent = True
                sent = Sent(call_id, self._key(call_id, pending), encode(self._entry(call_id, pending)))
                taken.append(sent)
                size += len(sent.entry)
        return tuple(taken)

    def _entry(self, call_id: int, pending: _Pending) -> Entry:
        if isinstance(pending.ask, OpenCall):
            return OpenSession(pending.ask.client, f"{self._client}/{call_id}", self._session_ttl_ms)
        # A caller that numbers its commands itself submits one after the other.
        acknowledged = next(iter(self._own)) if pending.is_own else pending.sequence
        return Command(pending.session, pending.sequence, acknowledged, pending.ask.command)

    def send_again(self, call_ids: Iterable[int]) -> None:
        """Send these entries again, as they may not have arrived."""
        known = (call_id for call_id in reversed(tuple(call_ids)) if call_id in self._pending)
        self._unsent.extendleft(call_id for call_id in known if self._pending[call_id].is_numbered)

    def send_all_again(self) -> None:
        """Send all entries again, as none may have arrived."""
        self._unsent = deque(call_id for call_id, one in self._pending.items() if one.is_numbered)

    # The outcome

    def applied(self, entry: Entry, outcome: Outcome) -> tuple[Returned, ...]:
        """Note that this node has applied the next entry of the log."""
        call_ids = self._by_key.get(key_of(entry), ())
        if not call_ids:
            return ()
        if isinstance(outcome, Expired) and self._pending[call_ids[0]].is_own:
            # No copy was applied before, or it would have been seen here, and none will be.
            self._begin_anew()
            return ()
        for call_id in call_ids:
            self._end(call_id)
        if call_ids == (_OWN,):
            assert isinstance(outcome, Opened), outcome
            self._session, self._last_sequence = outcome.session, outcome.last_sequence
            call_ids = ()
        self._number()
        return tuple(Returned(call_id, outcome) for call_id in call_ids if call_id != _TICK)

    def _begin_anew(self) -> None:
        """The node's own session is gone: what is under way in it goes into the next one."""
        again = tuple(self._own.values())
        for call_id in again:
            pending = self._pending[call_id]
            self._end(call_id)
            self._pending[call_id] = _Pending(pending.ask)
        self._unnumbered.extendleft(reversed(again))
        self._session = NO_SESSION
        self._number()

    def restored(self, sessions: Sessions) -> tuple[Returned, ...]:
        """Note that a snapshot has replaced the state, and entries that this node will not apply."""
        returned: list[Returned] = []
        for call_id, pending in tuple(self._pending.items()):
            if pending.session == NO_SESSION:
                if isinstance(pending.ask, OpenCall) and pending.was_sent:
                    # The session may be open by now; the leader answers a repeated request with that session.
                    pending.was_sent = False
                    self._unsent.append(call_id)
                continue
            known: Outcome | MaybeApplied | None = sessions.known(pending.session, pending.sequence)
            if isinstance(known, Expired) and pending.is_own:
                known = MaybeApplied() if pending.was_sent else None
            if known is not None:
                self._end(call_id)
                if call_id != _TICK:
                    returned.append(Returned(call_id, known))
        if self._session != NO_SESSION and isinstance(sessions.known(self._session, self._last_sequence), Expired):
            self._begin_anew()
        # Where a session was opened is not told by a snapshot: it is asked for once more.
        self.send_all_again()
        self._number()
        return tuple(returned)
