"""Is what a quorum left behind a legal history? Over files that are being written, and over whole directories."""

from kraft.conformance.history import Finding, History, check_history
from kraft.conformance.ledger import InvariantBroken, Ledger

__all__ = ["Finding", "History", "InvariantBroken", "Ledger", "check_history"]
