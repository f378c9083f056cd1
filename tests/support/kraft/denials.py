"""What an authorizer has denied, as the process takes it."""

from typing import Any


def taken(denials: list[Any]) -> list[Any]:
    """Empty the list; returns what was in it."""
    found = list(denials)
    denials.clear()
    return found
