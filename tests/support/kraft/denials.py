"""What an authorizer has denied, as the process takes it."""

from kraft.access.authorizer import Denial


def taken(denials: list[Denial]) -> list[Denial]:
    """Empty the list; returns what was in it."""
    found = list(denials)
    denials.clear()
    return found
