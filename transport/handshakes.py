"""The unfinished handshakes of a transport: their number, their deadline and their turns.

Kafka bounds none of these. The limits here are those of `docs/decisions/0043-tls-between-sockets-and-frames.md`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from msgspec import Struct

from transport.limits import HANDSHAKE_STEPS_PER_TURN, UNSECURED_CONNECTIONS, UNSECURED_PER_ADDRESS

_SWEEP_SECONDS: Final = 0.5


class Handshake(Protocol):
    """A connection before the end of its handshake."""

    @property
    def is_silent(self) -> bool:
        """Whether the peer has sent nothing yet."""

    def step(self) -> None:
        """Continue the handshake with the bytes that have arrived."""

    def expire(self) -> None:
        """The deadline has passed."""


class _Entry(Struct, frozen=True):
    deadline: float
    address: str | None
    """None for a handshake of this side as a client."""
    is_reserved: bool


class Handshakes:
    """The unfinished handshakes, and those with bytes that wait for their turn."""

    def __init__(
        self,
        *,
        timeout_s: float,
        later: Callable[[Callable[[], None], float], None],
        now: Callable[[], float],
        has_reserve: Callable[[str], bool],
        what: str = "finished their TLS handshake",
    ) -> None:
        """`later` runs an action in the transport's own task after so many seconds; `now` is a clock in seconds.

        `what` is what the connections have not done, for texts.
        """
        self._what = what
        self._timeout_s = timeout_s
        self._later = later
        self._now = now
        self._has_reserve = has_reserve
        self._open: dict[Handshake, _Entry] = {}
        """Oldest first."""
        self._per_address: dict[str, int] = {}
        self._pending = {False: 0, True: 0}
        """The number of handshakes of peers: of unknown ones, and of those with a reserve."""
        self._queue: deque[Handshake] = deque()
        self._will_work = False
        self._will_sweep = False

    def __len__(self) -> int:
        """The number of unfinished handshakes."""
        return len(self._open)

    def __contains__(self, handshake: Handshake) -> bool:
        """Whether this handshake has begun and not left."""
        return handshake in self._open

    def make_room(self, address: str) -> str | None:
        """Close a connection if a new one from this address would be one too many; returns why, as a text, if so.

        The oldest silent one goes, else the oldest one: of this address, or of the address that has the most.
        """
        is_reserved = self._has_reserve(address)
        pending, held = self._pending[is_reserved], self._per_address.get(address, 0)
        if held >= UNSECURED_PER_ADDRESS and not is_reserved:
            self._close_one({address})
            return f"{held} connections from that address have not {self._what}"
        if pending < UNSECURED_CONNECTIONS:
            return None
        addresses = {
            entry.address
            for entry in self._open.values()
            if entry.is_reserved is is_reserved and entry.address is not None
        }
        most = max(self._per_address[one] for one in addresses)
        self._close_one({one for one in addresses if self._per_address[one] == most})
        return f"{pending} connections have not {self._what}"

    def _close_one(self, addresses: set[str]) -> None:
        of_these = [one for one, entry in self._open.items() if entry.address in addresses]
        gone = next((one for one in of_these if one.is_silent), of_these[0])
        self.leave(gone)
        self._later(gone.expire, 0.0)

    def enter(self, handshake: Handshake, address: str | None = None) -> None:
        """A handshake begins: of a peer at this address, or of this side."""
        is_reserved = address is not None and self._has_reserve(address)
        self._open[handshake] = _Entry(self._now() + self._timeout_s, address, is_reserved)
        if address is not None:
            self._pending[is_reserved] += 1
            self._per_address[address] = self._per_address.get(address, 0) + 1
        if not self._will_sweep:
            self._will_sweep = True
            self._later(self._sweep, _SWEEP_SECONDS)

    def leave(self, handshake: Handshake) -> None:
        """A handshake is done, or its connection is closed."""
        entry = self._open.pop(handshake, None)
        if entry is None or (address := entry.address) is None:
            return
        self._pending[entry.is_reserved] -= 1
        left = self._per_address[address] - 1
        if left:
            self._per_address[address] = left
        else:
            del self._per_address[address]

    def queue(self, handshake: Handshake) -> None:
        """Give this handshake a turn."""
        self._queue.append(handshake)
        self._work_later()

    def _work_later(self) -> None:
        if not self._will_work:
            self._will_work = True
            self._later(self._work, 0.0)

    def _work(self) -> None:
        self._will_work = False
        for _ in range(min(HANDSHAKE_STEPS_PER_TURN, len(self._queue))):
            self._queue.popleft().step()
        if self._queue:
            self._work_later()

    def _sweep(self) -> None:
        now = self._now()
        for handshake, entry in list(self._open.items()):
            if entry.deadline > now:
                break
            handshake.expire()
        self._will_sweep = bool(self._open)
        if self._will_sweep:
            self._later(self._sweep, _SWEEP_SECONDS)
