"""What an authorizer has denied, as the process takes it."""

from kraft.access.authorizer import Denial
from kraft.access.older_node import OlderNode


def taken(denials: list[Denial | OlderNode]) -> list[Denial | OlderNode]:
    """Empty the list; returns what was in it."""
    found = list(denials)
    denials.clear()
    return found
