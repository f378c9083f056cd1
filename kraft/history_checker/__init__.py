"""Checks whether a correct quorum could have left these directories."""

from kraft.history_checker.history import Finding, History, check_history

__all__ = ["Finding", "History", "check_history"]
