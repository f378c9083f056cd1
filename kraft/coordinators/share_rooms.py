"""The rooms of share groups, apart from those of other groups: a broker loads them with the first request of a share
group, or when it becomes a share coordinator.
"""

from __future__ import annotations

from msgspec import Struct

from kraft.coordinators.runtime.runtime import CoordinatorRuntime
from kraft.coordinators.shares.persister import Persister
from kraft.coordinators.shares.state import ShareStates
from kraft.coordinators.shares.state_handler import ShareStatesHandler
from kraft.handling.rights import Rights


class ShareRooms(Struct, frozen=True):
    """The handlers of requests of share groups, one room for each family, and what they share."""

    persister: Persister
    """By which the other rooms keep the state of share partitions."""
    states: ShareStatesHandler


def share_rooms(rights: Rights, states: CoordinatorRuntime[ShareStates], persister: Persister) -> ShareRooms:
    """Make the rooms."""
    return ShareRooms(persister=persister, states=ShareStatesHandler(states, rights))
