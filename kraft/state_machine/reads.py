"""The waiting reads of a state machine: a read waits for the leader's read index, then for the log up to that index."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from msgspec import Struct


class Reader(Struct, frozen=True, gc=False):
    """A call of this node's host, or the request of another node."""

    id: int
    is_remote: bool = False


class StateMachineReads:
    """Reads of this node wait to be asked for, then for an offset. At a leader, all that ask at a time share a token,
    by which the quorum's word on it is known.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, None] = {}
        """In order. A dict, as any read may be cancelled."""
        self._asked: dict[int, tuple[Reader, ...]] = {}
        self._next_token = 1
        self._until: deque[tuple[int, tuple[int, ...]]] = deque()
        """Offsets that have to be applied, and the calls that wait for that."""

    @property
    def is_any_waiting(self) -> bool:
        """Whether a read waits for a read index."""
        return bool(self._waiting)

    def wait(self, call_id: int) -> None:
        """Add a read of this node."""
        self._waiting[call_id] = None

    def wait_again(self, call_ids: Iterable[int]) -> None:
        """Put reads back, as the asked node could not report a read index; another node must be asked."""
        self._waiting = dict.fromkeys((*call_ids, *self._waiting))

    def take_waiting(self) -> tuple[int, ...]:
        """Take all waiting reads, for one common read index request."""
        taken, self._waiting = tuple(self._waiting), {}
        return taken

    def cancel(self, call_id: int) -> None:
        """Drop a waiting read after its caller has cancelled it; a read with a request in flight is answered anyway."""
        self._waiting.pop(call_id, None)

    # A leader's

    def ask_for(self, *readers: Reader) -> int:
        """The token of a new read index request for these reads."""
        token = self._next_token
        self._next_token += 1
        self._asked[token] = readers
        return token

    def ask_for_all(self) -> int:
        """The token of a new read index request for all waiting reads."""
        return self.ask_for(*map(Reader, self.take_waiting()))

    def take_asked(self, token: int) -> tuple[Reader, ...]:
        """Take the reads of a read index request."""
        return self._asked.pop(token)

    # A follower's

    def learn(self, offset: int, call_ids: tuple[int, ...]) -> None:
        """The leader says that these may read once everything below `offset` is applied here."""
        self._until.append((offset, call_ids))

    def release(self, applied_offset: int) -> list[int]:
        """Take the reads that may proceed now. The read indexes of successive requests never fall."""
        released: list[int] = []
        while self._until and self._until[0][0] <= applied_offset:
            released += self._until.popleft()[1]
        return released
