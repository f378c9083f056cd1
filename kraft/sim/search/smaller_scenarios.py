"""The failure of a cluster in one with fewer nodes: one controller in place of all, and no brokers without a part.

Most failures of brokers need no second controller. One controller is leader at once, and commits without messages, so
that a reader has fewer events to follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from kraft.sim.nodes.cluster import CLUSTER, DATA_CLUSTER, broker_ids
from kraft.sim.search.schedule import Schedule
from kraft.sim.search.seed_search import SeedSearch
from kraft.sim.world.actions import Action, Corrupt, Deliver, Fail, Forge, Return, RoundTrip, Start

_STATIC: tuple[str, ...] = (CLUSTER, DATA_CLUSTER)
"""The kinds of clusters with static voters: another number of voters does not change the brokers."""

_STARTS: Final = 30
"""The number of seeds for the starts of the only voter."""
_RUNS: Final = 8
"""The number of runs with one controller, for each number of brokers."""
_BROKERS: Final = (2, 3)


def smaller_run(schedule: Schedule) -> Schedule | None:
    """A run with one controller and few brokers that fails the same check, the shortest of some; None if there is none.

    The failures of brokers with data are frequent once a bug is there, so that other seeds show the bug, too. Such a
    run has a tenth of the actions.
    """
    scenario = schedule.scenario
    if scenario.members != DATA_CLUSTER or scenario.nodes == 1:
        return None
    for brokers in _BROKERS:
        search = SeedSearch(
            members=scenario.members, nodes=1, brokers=brokers, mutant=schedule.mutant, profile=scenario.profile
        )
        outcomes = [search.run(seed) for seed in range(_RUNS)]
        failed = [one for one in outcomes if isinstance(one, Schedule) and one.violated == schedule.violated]
        if failed:
            return min((*failed, schedule), key=lambda one: len(one.actions))
    return None


def with_one_voter(schedule: Schedule) -> Iterator[Schedule]:
    """The same actions with the first voter in place of each voter, with several seeds for its starts: the seeds decide
    which brokers lead.

    A replay drops the actions that are not possible now, such as the second start of the only voter.
    """
    scenario = schedule.scenario
    if scenario.members not in _STATIC or scenario.nodes == 1:
        return
    only = scenario.first_id
    voters = range(only, only + scenario.nodes)
    actions = tuple(_with_one_voter(schedule.actions, voters, only))
    scenario = replace(scenario, nodes=1)
    for seed in range(_STARTS):
        started = (replace(one, seed=seed) if isinstance(one, Start) and one.node == only else one for one in actions)
        yield replace(schedule, scenario=scenario, actions=tuple(started))


def without_last_broker(schedule: Schedule) -> Schedule | None:
    """The same actions in a cluster without its last broker, if that broker has no action; else None."""
    scenario = schedule.scenario
    if scenario.members not in _STATIC or not scenario.brokers:
        return None
    last = broker_ids(scenario.brokers)[-1]
    if any(last in _nodes_of(action) for action in schedule.actions):
        return None
    return replace(schedule, scenario=replace(scenario, brokers=scenario.brokers - 1))


def _with_one_voter(actions: tuple[Action, ...], voters: range, only: int) -> Iterator[Action]:
    for action in actions:
        nodes = _nodes_of(action)
        if len(nodes) > 1 and all(one in voters for one in nodes):
            continue
        renamed = replace(action, node=only) if action.node in voters else action
        match renamed:
            case Deliver(sender=sender) if sender in voters:
                yield replace(renamed, sender=only)
            case Return(peer=peer) | RoundTrip(peer=peer) | Fail(peer=peer) | Forge(peer=peer) | Corrupt(peer=peer) if (
                peer in voters
            ):
                yield replace(renamed, peer=only)
            case _:
                yield renamed


def _nodes_of(action: Action) -> tuple[int, ...]:
    """The node of an action, and the node at the other end of its message."""
    match action:
        case Deliver():
            return action.node, action.sender
        case Return() | RoundTrip() | Fail() | Forge() | Corrupt():
            return action.node, action.peer
        case _:
            return (action.node,)
