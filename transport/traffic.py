"""What has passed through the connections of one direction, for metrics."""

from __future__ import annotations

from msgspec import Struct


class Traffic(Struct):
    """Numbers since the start of the transport."""

    created: int = 0
    """Connections begun or accepted."""
    closed: int = 0
    requests: int = 0
    responses: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0

    @property
    def open(self) -> int:
        """The connections that are open now."""
        return self.created - self.closed
