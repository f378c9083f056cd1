"""How the connections of a transport log in: as a server by listener, and as a client at each peer.

The exchanges are in `transport.protocol.sasl`. This module adds the clock and the nonces.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping

from msgspec import Struct

from transport.protocol.sasl.client import SaslClient, SaslLogin
from transport.protocol.sasl.server import SaslListener, SaslServer

LOGIN_TIMEOUT_MS = 10_000
"""A peer that has not logged in after this time is disconnected. Kafka has no such limit."""
_NONCE_BYTES = 24
RENEW_AT = 0.85
"""The part of a session's lifetime after which a client logs in again; Kafka's clients draw one from 0.85 to 0.95."""


class Sasl(Struct, frozen=True, kw_only=True):
    """The logins of a transport.

    Args:
        listeners: How peers log in, by the name of the listener. Other listeners have no login.
        outgoing: How this side logs in at its peers, by the kind of peers; None for peers without login. A kind that is
            not named has that of `PEERS`.
        timeout_ms: The time in milliseconds after which a peer without a complete login is disconnected.
    """

    listeners: Mapping[str, SaslListener] = {}
    outgoing: Mapping[str, SaslLogin | None] = {}
    timeout_ms: int = LOGIN_TIMEOUT_MS


NO_SASL = Sasl()


def wall_clock_ms() -> int:
    """Milliseconds since 1970. Expiry times of tokens are in this time."""
    return time.time_ns() // 1_000_000


def nonce() -> str:
    """A fresh nonce."""
    return secrets.token_urlsafe(_NONCE_BYTES)


def server_of(sasl: Sasl, listener: str, now_ms: Callable[[], int]) -> SaslServer | None:
    """The login of a new connection to this listener, if the listener has one; `now_ms` is the time since 1970."""
    options = sasl.listeners.get(listener)
    return None if options is None else SaslServer(options, now_ms=now_ms, nonce=nonce)


def client_of(login: SaslLogin | None, client_id: str) -> SaslClient | None:
    """The login of a new connection to a peer, if peers have one."""
    return None if login is None else SaslClient(login, client_id=client_id, nonce=nonce)
