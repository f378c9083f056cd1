"""The one exception for a broken promise of consensus, or of the metadata."""

from __future__ import annotations


class InvariantViolated(AssertionError):
    """An invariant does not hold; the text says which one, at which node and how."""
