"""The rooms of share groups, apart from those of other groups: a broker loads them with the first request of a share
group, or when it becomes a share coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from msgspec import Struct

from kraft.agenda import Agenda
from kraft.coordinators.groups.state import GroupsState
from kraft.coordinators.runtime.runtime import CoordinatorRuntime
from kraft.coordinators.shares.dead_letters import DeadLetters
from kraft.coordinators.shares.group_handler import ShareGroupHandler
from kraft.coordinators.shares.group_states import GroupStates
from kraft.coordinators.shares.leader import ShareLeader
from kraft.coordinators.shares.log_ends import LogEnds
from kraft.coordinators.shares.offsets_handler import ShareOffsetsHandler
from kraft.coordinators.shares.persister import Persister
from kraft.coordinators.shares.share_fetch import ShareFetchHandler
from kraft.coordinators.shares.share_sessions import ShareSessions
from kraft.coordinators.shares.state import ShareStates
from kraft.coordinators.shares.state_calls import StateCalls
from kraft.coordinators.shares.state_handler import ShareStatesHandler
from kraft.handling.quotas import ClientQuotas
from kraft.handling.request_times import RequestTimes
from kraft.handling.rights import Rights
from kraft.handling.settings import RequestSettings
from kraft.partitions.replicas.manager import ReplicaManager


class ShareRooms(Struct, frozen=True):
    """The handlers of requests of share groups, one room for each family, and what they share."""

    persister: Persister
    """By which the other rooms keep the state of share partitions."""
    states: ShareStatesHandler
    fetch: ShareFetchHandler
    groups: ShareGroupHandler
    group_states: GroupStates
    """By which the coordinators of groups ask for states."""
    offsets: ShareOffsetsHandler


def share_rooms(
    settings: RequestSettings,
    rights: Rights,
    quotas: ClientQuotas,
    times: RequestTimes,
    states: CoordinatorRuntime[ShareStates],
    persister: Persister,
    groups: CoordinatorRuntime[GroupsState],
    *,
    agenda: Agenda,
    manager: ReplicaManager,
    ends: LogEnds,
    letters: DeadLetters,
    tell: Callable[[Hashable], None],
) -> ShareRooms:
    """Make the rooms."""
    config = settings.groups.share_leader
    sessions = ShareSessions(config.max_sessions)
    leader = ShareLeader(agenda, manager, persister, config, tell, sessions.of_group.__contains__, letters)
    calls = StateCalls(persister)
    return ShareRooms(
        persister=persister,
        states=ShareStatesHandler(states, rights),
        fetch=ShareFetchHandler(agenda, manager, settings, rights, quotas, times, leader, sessions, tell),
        groups=ShareGroupHandler(groups, settings.groups, rights),
        group_states=GroupStates(groups, calls),
        offsets=ShareOffsetsHandler(groups, settings.groups, rights, calls, ends, tell),
    )
