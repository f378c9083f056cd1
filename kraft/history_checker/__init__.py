"""Could a quorum that keeps its promises have left these directories?"""

from kraft.history_checker.history import Finding, History, check_history

__all__ = ["Finding", "History", "check_history"]
