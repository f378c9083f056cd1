"""The sessions of a simulated state machine, as its clients know them. As in a real client, a client opens a session
once, and its commands belong to that session. After the session has expired, the client begins anew under another
name.
"""

from __future__ import annotations

from random import Random
from typing import Final

FOREVER_MS: Final = 2**62
"""A lifetime that no jump of a clock exceeds."""
LIFETIMES_MS: Final = (700, 2500, 10_000, FOREVER_MS)
"""The lifetime of the sessions in a run; one of these is drawn."""


def draw_lifetime_ms(seed: int) -> int:
    """Draw the lifetime of the sessions in a run, from a stream of its own."""
    return Random(f"sessions:{seed}").choice(LIFETIMES_MS)


class ClientSessions:
    """The sessions of all clients of one run, which outlive the nodes."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._expired: set[str] = set()

    def __len__(self) -> int:
        return len(self._ids)

    def id_of(self, client: str) -> int | None:
        """The session of a client; None before the client has opened one."""
        return self._ids.get(client)

    def opened(self, client: str, session_id: int) -> bool:
        """A node tells a client its session. Returns False if the client had another session, which has expired."""
        if self._ids.setdefault(client, session_id) != session_id:
            self._expired.add(client)
        return client not in self._expired

    def expired(self, client: str) -> None:
        """A client is told that its session has expired."""
        self._expired.add(client)

    def has_expired(self, client: str) -> bool:
        """Whether a client knows that its session has expired."""
        return client in self._expired

    @property
    def expired_count(self) -> int:
        """The number of clients that know that their session has expired."""
        return len(self._expired)
