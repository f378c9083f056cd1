"""Counters of traffic through connections, and of how peers have authenticated, for metrics."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

SUCCESS: Final = "success"
TIMEOUT: Final = "timeout"
TLS: Final = "TLS"
"""The mechanism of a peer that shows a certificate, or of a listener with TLS and without a login."""
NO_MECHANISM: Final = "none"
"""The mechanism of a peer that has not chosen one."""


class Traffic(Struct):
    """Numbers since the start of the transport."""

    created: int = 0
    """Connections begun or accepted."""
    closed: int = 0
    requests: int = 0
    responses: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    refused: int = 0
    """Connections that ended because one side refused the certificate or the login of the other."""

    @property
    def open(self) -> int:
        """The connections that are open now."""
        return self.created - self.closed


class AuthenticationOutcome(Struct, frozen=True):
    """How a peer has authenticated: a listener, the mechanism, and `success` or the kind of the failure.

    The last two are constants of the program, so that peers cannot make new ones.
    """

    listener: str
    mechanism: str
    result: str


class Authentications:
    """The numbers of outcomes since the start of the transport (Kafka: `Selector.SelectorMetrics`).

    A peer of a listener with TLS and SASL succeeds once, after its login. Renewals of a login count only if they fail.
    """

    def __init__(self) -> None:
        self.counts: dict[AuthenticationOutcome, int] = {}

    def note(self, listener: str, mechanism: str, result: str) -> None:
        """Count one outcome."""
        outcome = AuthenticationOutcome(listener, mechanism, result)
        self.counts[outcome] = self.counts.get(outcome, 0) + 1
