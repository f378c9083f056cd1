"""The exception for a violated invariant of consensus or of the metadata."""

from __future__ import annotations


class InvariantViolated(AssertionError):
    """An invariant does not hold; the message states which one, at which node and how."""
