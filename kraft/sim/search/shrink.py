"""Shrinks the schedule of a failure (Zeller's ddmin; actions refer to messages that replay identifies again).

The search removes parts, large ones first. Then it merges requests and responses into round trips where the failure
remains, and removes pairs of actions. The search repeats these steps while they shorten the schedule.

Removing an action changes the numbers of later messages: the third Vote of node 2 may become its second. The search
therefore looks up the message of each action again, and the shortened schedule contains the new numbers. The failure of
a cluster is first sought in one with fewer nodes: one controller in place of all, and no brokers without a part. Most
failures of brokers need no second controller, which is leader at once, and commits without messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from kraft.sim.nodes.cluster import CLUSTER, CLUSTERS, COORDINATOR_CLUSTER, DATA_CLUSTER, SHARE_CLUSTER, broker_ids
from kraft.sim.nodes.dynamic import DYNAMIC
from kraft.sim.nodes.member_kinds import MACHINES, STORE
from kraft.sim.nodes.workload_spec import WorkloadSpec
from kraft.sim.search.planting import planted
from kraft.sim.search.schedule import Replayed, Schedule, check_of, perform_all, replay
from kraft.sim.search.seed_search import SeedSearch
from kraft.sim.workloads.record_watch import RecordWatch
from kraft.sim.world.actions import (
    CALM,
    WORLD,
    Action,
    Administer,
    Corrupt,
    Deliver,
    Fail,
    Flushed,
    Forge,
    Note,
    Return,
    RoundTrip,
    SetClock,
    Start,
    Submit,
    Tick,
)
from kraft.sim.world.driver import Exchange
from kraft.sim.world.trace import Trace
from kraft.sim.world.world import NoProgress, World
from metadata_log.image import MetadataImage

_OF_DATA: tuple[str, ...] = (DATA_CLUSTER, COORDINATOR_CLUSTER, SHARE_CLUSTER)
_STATIC: tuple[str, ...] = (CLUSTER, *_OF_DATA)
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
    if scenario.members not in _OF_DATA or scenario.nodes == 1:
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


MOST_EVENTS: Final = 2_000_000
"""The default limit of a search, in inputs to nodes; the search then takes some minutes."""
_RECENT: Final = 20
"""The number of a node's last requests in which the search looks for the message of an action."""
_FEW_ACTIONS: Final = 60
"""Up to this length, no pair of the remaining actions can be left out."""
_NEAR: Final = 12
"""In a longer schedule, the largest distance of the actions of a pair."""
_CALM_MS: Final = 20_000
"""A quorum without progress in a calm of this length is stuck."""


class _Spent(Exception):
    """The search has exceeded its budget."""


def shrink(
    schedule: Schedule,
    *,
    workload_spec: WorkloadSpec | None = None,
    most_events: int = MOST_EVENTS,
    on_shorter: Callable[[int], None] = lambda length: None,
) -> Schedule:
    """Find a schedule that fails the same check with fewer actions, fewer clock errors and shorter pauses.

    A schedule of a stuck quorum ends with the end of all faults, and each replay runs a new calm after that. With a
    mutant, the correct code must make progress in that calm, and survive each other schedule as it survives this one.

    Args:
        schedule: The schedule of a failure.
        workload_spec: The state machine of the nodes, if not counters.
        most_events: The limit on inputs to nodes in all replays.
        on_shorter: Receives the number of actions of each shorter schedule.

    Returns:
        The shortest schedule found within the limit.
    """
    smaller = smaller_run(schedule) if most_events > 0 else None
    shortened = _without_calm(smaller or schedule)
    if shortened is None:
        return schedule
    search = _Search(shortened, workload_spec, most_events, on_shorter)
    try:
        search.leave_out_nodes()
        search.leave_out_groups()
        search.leave_out_exchanges()
        search.leave_out()
        length = len(schedule.actions) + 1
        while len(search.best.actions) < length:
            length = len(search.best.actions)
            search.simplify()
            search.join()
            search.leave_out()
            search.leave_out_pairs()
            search.leave_out_nodes()
    except _Spent:
        pass
    return search.best


def _without_calm(schedule: Schedule) -> Schedule | None:
    """The schedule up to the end of all faults, if the lack of progress after that is its only failure.

    None if progress needs more than a calm, such as clients that continue. None, too, if a shorter schedule may rightly
    be stuck, as with changes of voters, and there is no correct code to compare with.
    """
    if not _is_stuck(schedule) or schedule.calm_ms:
        return schedule
    ends = [place for place, action in enumerate(schedule.actions) if isinstance(action, Note) and action.text == CALM]
    members = schedule.scenario.members
    is_other_cluster = members in CLUSTERS and (members not in _OF_DATA or schedule.mutant is None)
    if is_other_cluster or members in (MACHINES, STORE) or (members in DYNAMIC and schedule.mutant is None) or not ends:
        return None
    ended = replace(schedule, actions=schedule.actions[: ends[-1]], calm_ms=_CALM_MS)
    failure = replay(ended).failure
    return ended if failure is not None and check_of(failure) == schedule.violated else None


def _is_stuck(schedule: Schedule) -> bool:
    return schedule.violated.startswith(NoProgress.__name__)


class _Search:
    """The shortest schedule so far, and the cost of the search."""

    def __init__(
        self,
        schedule: Schedule,
        workload_spec: WorkloadSpec | None,
        most_events: int,
        on_shorter: Callable[[int], None],
    ) -> None:
        self.best = schedule
        self._workload_spec = workload_spec
        self._events_left = most_events
        self._on_shorter = on_shorter
        self._topics = _Topics()
        self._is_survived = schedule.mutant is not None and self._survives(schedule)

    @property
    def _actions(self) -> tuple[Action, ...]:
        return self.best.actions

    def leave_out_nodes(self) -> None:
        """Try to do without all voters but one, and without the last brokers."""
        for smaller in with_one_voter(self.best):
            if self._try_schedule(smaller):
                break
        while (fewer := without_last_broker(self.best)) is not None and self._try_schedule(fewer):
            pass

    def leave_out_groups(self) -> None:
        """Try to remove all actions of one kind, all actions at one node, and all messages of one kind and one way."""
        for name in (_kind_of, _node_of, _message_of, _way_of):
            for group in dict.fromkeys(map(name, self._actions)):
                if group is not None:
                    self._try([action for action in self._actions if name(action) != group])

    def leave_out_exchanges(self) -> None:
        """Remove ever smaller parts of the exchanges, the last ones first: a request goes with its answers."""
        part = max(len(_exchanges_of(self._actions)) // 2, 1)
        while True:
            exchanges = _exchanges_of(self._actions)
            end = len(exchanges)
            while end > 0:
                begin = max(end - part, 0)
                gone = {place for places in exchanges[begin:end] for place in places}
                if self._try([action for place, action in enumerate(self._actions) if place not in gone]):
                    exchanges = _exchanges_of(self._actions)
                end = min(begin, len(exchanges))
            if part == 1:
                return
            part = max(part // 2, 1)

    def leave_out(self) -> None:
        """Remove ever smaller parts, the last ones first, until every remaining action is necessary."""
        part = max(len(self._actions) // 2, 1)
        while True:
            before = len(self._actions)
            end = len(self._actions)
            while end > 0:
                begin = max(end - part, 0)
                self._try([*self._actions[:begin], *self._actions[end:]])
                end = min(begin, len(self._actions))
            if part == 1 and len(self._actions) == before:
                return
            part = max(part // 2, 1)

    def leave_out_pairs(self) -> None:
        """Remove pairs of actions, near ones first, until every remaining pair is necessary.

        A long schedule has too many pairs: there only near ones are tried.
        """
        apart = 1
        while apart < len(self._actions) and (apart <= _NEAR or len(self._actions) <= _FEW_ACTIONS):
            first, is_shorter = len(self._actions) - 1 - apart, False
            while first >= 0:
                pair = first, first + apart
                if self._try([action for place, action in enumerate(self._actions) if place not in pair]):
                    is_shorter = True
                    first = min(first, len(self._actions) - apart)
                first -= 1
            if is_shorter:
                self.leave_out()
            apart = 1 if is_shorter and len(self._actions) <= _FEW_ACTIONS else apart + 1

    def join(self) -> None:
        """Join a request and its answer to a round trip, at the time of the request or of the answer."""
        place = 0
        while place < len(self._actions):
            action = self._actions[place]
            if not isinstance(action, Deliver) or not self._join(action, place):
                place += 1

    def _join(self, request: Deliver, place: int) -> bool:
        asked = request.sender, request.number
        for end in range(place + 1, len(self._actions)):
            answer = self._actions[end]
            if isinstance(answer, Return) and (answer.node, answer.number) == asked:
                before, between, after = self._actions[:place], self._actions[place + 1 : end], self._actions[end + 1 :]
                trip = RoundTrip(request.at_ms, answer.node, request.node, request.number, request.kind)
                return self._try([*before, trip, *between, *after]) or self._try(
                    [*before, *between, replace(trip, at_ms=answer.at_ms), *after]
                )
        return False

    def simplify(self) -> None:
        """Correct the clocks, count submissions from one, replace actions by ticks, and shorten pauses."""
        self._try([_with_right_clock(action) for action in self._actions])
        self._try(_renumbered(self._actions))
        for place in range(len(self._actions)):
            self._let_time_pass(place)
            self._close_gap(place)

    def _let_time_pass(self, place: int) -> None:
        """Try to replace an action by a tick of its node: only the time may matter."""
        if place < len(self._actions):
            action = self._actions[place]
            if not isinstance(action, Tick) and action.node != WORLD:
                self._try([*self._actions[:place], Tick(action.at_ms, action.node), *self._actions[place + 1 :]])

    def _close_gap(self, place: int) -> None:
        """Move all actions from this one on to their earliest possible times."""
        if place >= len(self._actions):
            return
        gap_ms = self._actions[place].at_ms - (self._actions[place - 1].at_ms if place else 0)
        saved_ms = gap_ms
        while saved_ms > 0:
            earlier = [replace(action, at_ms=action.at_ms - saved_ms) for action in self._actions[place:]]
            if self._try([*self._actions[:place], *earlier]):
                return
            saved_ms //= 2

    def _try(self, actions: Sequence[Action]) -> bool:
        """Perform these actions; if they fail the same check and are no longer, they become the best schedule."""
        return self._try_schedule(replace(self.best, actions=tuple(actions)))

    def _try_schedule(self, wanted: Schedule) -> bool:
        if self._events_left <= 0:
            raise _Spent
        shortened = self._perform(wanted)
        performed, failure = shortened.performed, shortened.failure
        if failure is None or check_of(failure) != self.best.violated or len(performed) > len(self._actions):
            return False
        candidate = replace(wanted, actions=performed, message=str(failure))
        is_to_survive = candidate.mutant is not None and (self._is_survived or _is_stuck(candidate))
        if is_to_survive and not self._survives(candidate):
            return False
        is_shorter = len(performed) < len(self._actions)
        self.best = candidate
        if is_shorter:
            self._on_shorter(len(performed))
        return True

    def _survives(self, schedule: Schedule) -> bool:
        """Whether the correct code fails no check in a schedule."""
        return self._perform(replace(schedule, mutant=None)).failure is None

    def _perform(self, schedule: Schedule) -> Replayed:
        """Replay a schedule in a new world: the performed actions and the failure."""
        world = schedule.scenario.make_world(Trace(), None, self._workload_spec)
        with planted(schedule.mutant):
            replayed = perform_all(world, schedule, find=self._found_again)
        self._events_left -= world.events
        return replayed

    def _found_again(self, world: World, action: Action) -> Action | None:
        """The corresponding action in another world; None if there is none."""
        if isinstance(action, Administer) and isinstance(world.watch, RecordWatch):
            return self._topics.translated(action, world.watch.ledger.image)
        return _found_again(world, action)


class _Topics:
    """The ids of topics in all replays: a controller that starts otherwise draws other ids for the same names."""

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}

    def translated(self, action: Administer, image: MetadataImage) -> Administer:
        """The request of a client with the present ids of its topics."""
        for topic in image.topics.by_id.values():
            self._names.setdefault(topic.id, topic.name)
        body = action.body
        for known, name in self._names.items():
            if known in body:
                present = image.topics.by_name.get(name)
                if present is not None and present != known:
                    body = body.replace(known, present)
        return action if body is action.body else replace(action, body=body)


def _found_again(world: World, action: Action) -> Action | None:
    """The action with its own message or fsync, or else with the newest one of that kind; None if there is none."""
    match action:
        case Deliver(node=target, sender=sender, kind=kind) | RoundTrip(node=sender, peer=target, kind=kind):
            own = world.exchanges.get((sender, action.number))
            if own is not None and own.target == target and own.kind == kind:
                return action
            newest = _newest(world, sender, target, kind, lambda exchange: not exchange.answers)
            return None if newest is None else replace(action, number=newest.number)
        case Return(node=sender, peer=target, kind=kind) | Corrupt(node=sender, peer=target, kind=kind):
            own = world.exchanges.get((sender, action.number))
            if own is not None and own.kind == kind and own.target == target and _has_answer(own, action.copy):
                return action
            newest = _newest(world, sender, target, kind, lambda exchange: _has_answer(exchange, 0))
            return None if newest is None else replace(action, number=newest.number, copy=0)
        case Fail(node=sender, peer=target, kind=kind) | Forge(node=sender, peer=target, kind=kind):
            own = world.exchanges.get((sender, action.number))
            if own is not None and own.kind == kind and own.target == target and not own.is_settled:
                return action
            newest = _newest(world, sender, target, kind, lambda exchange: True)
            return None if newest is None else replace(action, number=newest.number)
        case Flushed(node=node_id):
            flushing = world.hosts[node_id].flushing
            if action.number in flushing or not flushing:
                return action
            return replace(action, number=min(flushing))
        case _:
            return action


def _newest(world: World, sender: int, target: int, kind: str, fits: Callable[[Exchange], bool]) -> Exchange | None:
    """The newest pending request of this kind that fits."""
    newest = world.hosts[sender].requests
    for number in range(newest, max(newest - _RECENT, 0), -1):
        exchange = world.exchanges[sender, number]
        if exchange.target == target and exchange.kind == kind and not exchange.is_settled and fits(exchange):
            return exchange
    return None


def _has_answer(exchange: Exchange, copy: int) -> bool:
    return not exchange.is_settled and copy < len(exchange.answers) and exchange.answers[copy] is not None


def _kind_of(action: Action) -> object:
    return type(action)


def _node_of(action: Action) -> object:
    return action.node


def _message_of(action: Action) -> object:
    """The kind of a message; None for an action without a message."""
    match action:
        case Deliver() | Return() | RoundTrip() | Fail():
            return action.kind
        case Administer():
            return action.api_key
        case _:
            return None


def _way_of(action: Action) -> object:
    """The kind of a message, with its sender and its target; None for an action without a message between nodes."""
    match action:
        case Deliver():
            return action.kind, action.sender, action.node
        case Return() | RoundTrip() | Fail():
            return action.kind, action.node, action.peer
        case _:
            return None


def _exchanges_of(actions: Sequence[Action]) -> list[list[int]]:
    """The places of the actions of each exchange, in the order of their first actions; one place for other actions."""
    exchanges: dict[object, list[int]] = {}
    for place, action in enumerate(actions):
        match action:
            case Deliver():
                exchange: object = action.sender, action.number
            case Return() | RoundTrip() | Fail() | Corrupt() | Forge():
                exchange = action.node, action.number
            case _:
                exchange = place
        exchanges.setdefault(exchange, []).append(place)
    return list(exchanges.values())


def _with_right_clock(action: Action) -> Action:
    match action:
        case Start():
            return replace(action, clock_offset_ms=0)
        case SetClock():
            return replace(action, offset_ms=0)
        case _:
            return action


def _renumbered(actions: Sequence[Action]) -> list[Action]:
    """The same actions with submissions counted from one."""
    numbers: dict[int, int] = {}
    renumbered: list[Action] = []
    for action in actions:
        if isinstance(action, Submit):
            number = numbers.setdefault(action.submit_id, len(numbers) + 1)
            renumbered.append(replace(action, submit_id=number, value=f"value-{number}"))
        else:
            renumbered.append(action)
    return renumbered
