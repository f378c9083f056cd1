"""The interfaces of a login to its connection, the same for every mechanism (Kafka: `Authenticator`).

`transport.protocol.sasl` implements both interfaces.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from transport.protocol.inbound import Principal


class LoginRefused(Exception):
    """A login is refused.

    Args:
        why: The reason for the log of this side. Never a secret.
        told: The text for the peer; None for the text without detail that each mechanism has.
    """

    def __init__(self, why: str, told: str | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.told = told


class Refusal(StrEnum):
    """The kind of a refusal, for metrics."""

    CREDENTIALS = "bad-credentials"
    MECHANISM = "unsupported-mechanism"
    STATE = "illegal-state"
    """The peer sends what is not due, or its session has ended."""


class PeerRefused(Exception):
    """The connection of a peer ends.

    Args:
        why: The reason for the log of this side.
        answer: The frame that still goes to the peer, if any.
        is_delayed: Whether answer and close wait for `failed_delay_ms`: credentials or the mechanism were wrong.
        kind: The kind of the refusal.
    """

    def __init__(
        self, why: str, answer: bytes | None = None, *, is_delayed: bool = False, kind: Refusal = Refusal.STATE
    ) -> None:
        super().__init__(why)
        self.why = why
        self.answer = answer
        self.is_delayed = is_delayed
        self.kind = kind


class ServerLogin(Protocol):
    """The login of a peer at this side. The login judges each frame of the connection first."""

    principal: Principal | None
    """The identity of the peer; None until the first login is complete."""

    @property
    def mechanism(self) -> str:
        """The mechanism of the login in progress, or else of the last one; empty before the first."""

    @property
    def max_receive_bytes(self) -> int:
        """The most bytes of a frame before the first login is complete."""

    @property
    def failed_delay_ms(self) -> int:
        """The delay of a refusal in milliseconds."""

    def judge(self, frame: bytes) -> bytes | None:
        """The frame that answers this one; None if the frame is a request for the user of the connection.

        Raises:
            PeerRefused: The connection ends.
        """


class ClientLogin(Protocol):
    """The login of this side at a peer."""

    is_done: bool
    lifetime_ms: int
    """After these milliseconds the peer expects a new login; 0 for never."""

    def begin(self) -> bytes:
        """The first frame of a new connection."""

    def begin_again(self) -> bytes:
        """The first frame of another login on the same connection."""

    def answer(self, frame: bytes) -> bytes | None:
        """The next frame, after this answer of the peer; None if the login is complete.

        Raises:
            LoginRefused: The peer refused the login, or is not the right peer.
            DecodeError: The answer is malformed, or is no answer to the last frame.
        """
