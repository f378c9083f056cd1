"""Explores all histories of a small quorum, breadth first, so that the schedule of a violation is a shortest one
(Kafka: the TLA+ models of KRaft and their checker).

The exploration ignores times: a timer may expire at any moment, and states that differ only in times are one state. A
request and its response are one step, unless the scope allows late or lost responses. States that differ only in node
ids are one state, although the first peer that a node queries depends on its id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from hashlib import blake2b
from itertools import groupby, permutations, product
from operator import itemgetter
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from kraft.quorum.values import QuorumConfig
from kraft.sim.nodes.canonical_core import CanonicalCore
from kraft.sim.runs.scenario import Scenario
from kraft.sim.search.planting import planted
from kraft.sim.search.schedule import Schedule, check_of
from kraft.sim.state.forking import forked
from kraft.sim.world.actions import Action, Crash, Deliver, Flushed, Return, SetClock, Start, Submit, Tick
from kraft.sim.world.driver import Exchange
from kraft.sim.world.host import START_MS, Host
from kraft.sim.world.member_interface import Changed
from kraft.sim.world.trace import Trace
from kraft.sim.world.world import World
from metadata_log.types import NEVER_MS

FIRST_ID: Final = 101
"""The first node id. All offsets and epochs are smaller, so that a text shows which number is a node id."""
MOST_NODES: Final = 9
MOST_TIMERS: Final = 8
TEXTS: Final = 10_000
"""The number of cached texts; a step changes one or two of them."""
LOSES_ALL: Final = 2
"""The seed of a crash that loses all data without fsync, and of one that loses none."""
LOSES_NOTHING: Final = 17
AT_ONCE: Final = QuorumConfig(
    retry_backoff_ms=0, append_linger_ms=0, election_backoff_max_ms=0, lost_leader_backoff_max_ms=0
)
"""Settings without backoffs: every remaining timer ends a leadership or begins an election."""
_ID: Final = re.compile(r"(?<!\d)10[1-9](?!\d)")
_NOISE: Final = re.compile(r"\b1[67]\d{11}\b|request_id=\d+|voters=\([\d, ]+\)|VoterSet\(.*|, directory_id=Uuid\(A+\)")


class Scope(Struct, frozen=True, kw_only=True):
    """The bounds of an exploration."""

    nodes: int = 3
    last_epoch: int = 2
    """The exploration stops beyond this epoch."""
    submissions: int = 1
    crashes: int = 1
    timeouts: int = 2
    """The maximal number of timeouts: of followers, of elections, and of leaders without a majority."""
    repeats: int = 0
    """The maximal number of repeated requests."""
    late_answers: int = 0
    """The maximal number of late or lost responses."""
    depth: int | None = None
    """The maximal number of steps, counted from a quorum with all nodes started."""


class Budget(Struct, frozen=True):
    """The rest of the bounds of one history."""

    submissions: int
    crashes: int
    timeouts: int
    repeats: int
    late_answers: int


class Explored(Struct, frozen=True, kw_only=True):
    """The result of an exploration: the number of states, or the schedule that violates an invariant."""

    states: int
    steps: int
    """The number of steps, including those to known states."""
    depth: int
    """The length of the longest path to a new state."""
    is_complete: bool
    """Whether the exploration has reached every state of the scope."""
    elections: int
    """The maximal number of leaders in one history."""
    committed: int
    """The maximal number of committed records in one history."""
    schedule: Schedule | None = None


class _State(Struct):
    world: World
    budget: Budget
    facts: dict[int, str]
    """The result of `_facts_of` for each node."""
    place: int
    """The index of its path in the list of paths."""


class _Silence(Trace):
    """A trace without lines."""

    def add(self, now_ms: int, node_id: int, what: str) -> None:
        """Drop the line."""


def explore(
    scope: Scope,
    *,
    mutant: str | None = None,
    most_states: int | None = None,
    on_depth: Callable[[int, int, int], None] = lambda depth, states, waiting: None,
) -> Explored:
    """Explore a scope until a failure, until no new state is left, or up to a number of states.

    `on_depth` receives the depth, the number of states and the number of new states after each round.
    """
    scenario = Scenario(members="steady-core", nodes=scope.nodes, first_id=FIRST_ID, config=AT_ONCE)
    with planted(mutant):
        return _Walk(scope, scenario, mutant, most_states).walk(on_depth)


class _Walk:
    """A breadth-first search, one depth at a time."""

    def __init__(self, scope: Scope, scenario: Scenario, mutant: str | None, most_states: int | None) -> None:
        self._scope = scope
        self._scenario = scenario
        self._mutant = mutant
        self._most_states = most_states
        self._seen: set[bytes] = set()
        self._ways: list[tuple[int, tuple[Action, ...]]] = []
        """For each state the index of the state before it, and the actions in between."""
        self._steps = 0
        self._elections = 0
        self._committed = 0

    def walk(self, on_depth: Callable[[int, int, int], None]) -> Explored:
        scope = self._scope
        budget = Budget(scope.submissions, scope.crashes, scope.timeouts, scope.repeats, scope.late_answers)
        world = self._scenario.make_world(Trace())
        world.trace = _Silence()
        starts: list[Action] = [Start(0, node_id, 0) for node_id in world.node_ids]
        for action in starts:
            world.perform(action)
        self._ways.append((-1, tuple(starts)))
        facts = {node_id: _facts_of(host) for node_id, host in world.hosts.items()}
        waiting = [_State(world, budget, facts, 0)]
        self._seen.add(_key(world, budget, facts))
        depth = 0
        while waiting and (scope.depth is None or depth < scope.depth):
            depth += 1
            following: list[_State] = []
            for state in waiting:
                for actions, budget in _steps(state.world, state.budget):
                    schedule = self._take(state, actions, budget, following)
                    if schedule is not None or len(self._seen) == self._most_states:
                        return self._explored(depth, is_complete=False, schedule=schedule)
            waiting = following
            on_depth(depth, len(self._seen), len(waiting))
        return self._explored(depth, is_complete=not waiting, schedule=None)

    def _take(
        self, state: _State, actions: tuple[Action, ...], budget: Budget, following: list[_State]
    ) -> Schedule | None:
        """Take one step, and add a new state to `following`."""
        self._steps += 1
        node_ids = {action.node for action in actions}
        world = _fork(state.world, node_ids)
        done: list[Action] = []
        try:
            for action in actions:
                done.append(action)
                if not world.perform(action):
                    done.pop()
        except Exception as failure:
            return self._schedule(state.place, tuple(done), failure)
        _drop_unawaited_exchanges(world)
        if _is_beyond(world, self._scope.last_epoch):
            return None
        facts = state.facts | {node_id: _facts_of(world.hosts[node_id]) for node_id in sorted(node_ids)}
        key = _key(world, budget, facts)
        if key not in self._seen:
            self._seen.add(key)
            self._ways.append((state.place, tuple(done)))
            following.append(_State(world, budget, facts, len(self._ways) - 1))
            self._elections = max(self._elections, len(world.invariants.votes.leaders))
            self._committed = max(self._committed, world.invariants.commits.end_offset)
        return None

    def _schedule(self, place: int, last: tuple[Action, ...], failure: Exception) -> Schedule:
        parts = [last]
        while place >= 0:
            place, actions = self._ways[place]
            parts.append(actions)
        return Schedule(
            scenario=self._scenario,
            mutant=self._mutant,
            violated=check_of(failure),
            message=str(failure),
            actions=tuple(action for part in reversed(parts) for action in part),
        )

    def _explored(self, depth: int, *, is_complete: bool, schedule: Schedule | None) -> Explored:
        return Explored(
            states=len(self._seen),
            steps=self._steps,
            depth=depth,
            is_complete=is_complete,
            elections=self._elections,
            committed=self._committed,
            schedule=schedule,
        )


# The possible steps


def _steps(world: World, budget: Budget) -> Iterator[tuple[tuple[Action, ...], Budget]]:
    """The possible next steps, each with the rest of the bounds after it."""
    for node_id, host in world.hosts.items():
        if not host.is_running:
            yield (Start(0, node_id, 0),), budget
            continue
        if host.flushing:
            yield (Flushed(0, node_id, min(host.flushing)),), budget
        if budget.timeouts or budget.repeats:
            yield from _ticks(node_id, host, budget)
        if budget.submissions and host.view is not None and host.view.state == "Leader":
            number = budget.submissions
            less = replace(budget, submissions=number - 1)
            yield (Submit(0, node_id, number, f"value-{number}"),), less
        if budget.crashes:
            less = replace(budget, crashes=budget.crashes - 1)
            yield (Crash(0, node_id, LOSES_ALL),), less
            if host.flushing:
                yield (Crash(0, node_id, LOSES_NOTHING),), less
    for exchange in world.exchanges.values():
        yield from _steps_of(world, exchange, budget)


def _ticks(node_id: int, host: Host, budget: Budget) -> Iterator[tuple[tuple[Action, ...], Budget]]:
    """The next timers of a node expire one after the other: up to a repeated request, and up to a change of state."""
    member = forked(_member(host))
    clock_ms = START_MS + host.clock_offset_ms
    actions: tuple[Action, ...] = ()
    repeats = budget.repeats
    for _ in range(MOST_TIMERS):
        deadline_ms = member.deadline_ms()
        if deadline_ms >= NEVER_MS:
            return
        clock_ms = max(clock_ms, deadline_ms)
        actions = (*actions, SetClock(0, node_id, clock_ms - START_MS), Tick(0, node_id))
        outputs = member.tick(clock_ms)
        if any(isinstance(output, Changed) for output in outputs):
            if budget.timeouts:
                yield actions, replace(budget, timeouts=budget.timeouts - 1)
            return
        if outputs and repeats:
            repeats = 0
            yield actions, replace(budget, repeats=budget.repeats - 1)


def _steps_of(world: World, exchange: Exchange, budget: Budget) -> Iterator[tuple[tuple[Action, ...], Budget]]:
    sender, number, target = exchange.sender, exchange.number, exchange.target
    answer = Return(0, sender, target, number, kind=exchange.kind)
    if exchange.answers:
        if exchange.answers[0] is not None:
            yield (answer,), budget
    elif world.hosts[target].is_running:
        request = Deliver(0, target, sender, number, exchange.kind)
        yield (request, answer), budget
        if budget.late_answers:
            yield (request,), replace(budget, late_answers=budget.late_answers - 1)


def _drop_unawaited_exchanges(world: World) -> None:
    world.exchanges = {name: one for name, one in world.exchanges.items() if _is_awaited(world, one)}


def _is_awaited(world: World, exchange: Exchange) -> bool:
    host = world.hosts[exchange.sender]
    return exchange.number in host.waiting and _member(host).awaits(exchange.request_id)


def _is_beyond(world: World, last_epoch: int) -> bool:
    return any(host.view is not None and host.view.epoch > last_epoch for host in world.hosts.values())


def _fork(world: World, node_ids: set[int]) -> World:
    """A copy in which only these nodes may take a step; it shares the others with its original."""
    hosts = {}
    for node_id, host in world.hosts.items():
        facts = msgspec.structs.asdict(host)
        member, waiting, asked = facts.pop("member"), facts.pop("waiting"), facts.pop("asked")
        member = forked(member) if node_id in node_ids else member
        hosts[node_id] = Host(**forked(facts), member=member, waiting=waiting, asked=asked)
    copy = object.__new__(World)
    copy.__dict__.update(forked({name: value for name, value in vars(world).items() if name not in ("hosts", "trace")}))
    copy.hosts, copy.trace = hosts, world.trace
    exchanges = copy.exchanges
    for host in hosts.values():
        # Sender and receiver refer to the same exchange object in the copy.
        host.waiting = {number: exchanges.get((one.sender, number), one) for number, one in host.waiting.items()}
        host.asked = {
            request_id: (exchanges.get((one.sender, one.number), one), number)
            for request_id, (one, number) in host.asked.items()
        }
    return copy


def _member(host: Host) -> CanonicalCore:
    assert isinstance(host.member, CanonicalCore), host.member
    return host.member


# The identity of states


def _key(world: World, budget: Budget, facts: dict[int, str]) -> bytes:
    """A digest of 16 bytes. States that differ only in node ids, ids of requests, and times have equal digests."""
    asked: dict[int, list[str]] = {node_id: [] for node_id in facts}
    for one in world.exchanges.values():
        asked[one.sender].append(f"{one.sender} asks {one.target} {one.message!r} {one.answers!r}")
    texts = {node_id: "\n".join((fact, *asked[node_id])) for node_id, fact in facts.items()}
    history = f"{world.invariants.votes.leaders} {world.invariants.commits.batches} {budget}"
    unnamed = sorted((_unnamed(text, node_id), node_id) for node_id, text in texts.items())
    groups = [[node_id for _, node_id in group] for _, group in groupby(unnamed, itemgetter(0))]
    keys = []
    for orders in product(*map(permutations, groups)):
        order = tuple(node_id for group in orders for node_id in group)
        parts = (*(texts[node_id] for node_id in order), history)
        renamed = "\n\n".join([_renamed(part, order) for part in parts])
        keys.append(blake2b(renamed.encode(), digest_size=16).digest())
    return min(keys)


@lru_cache(TEXTS)
def _unnamed(text: str, node_id: int) -> str:
    """The text with `own` for the id of the node, and `other` for all other ids."""
    own = str(node_id)
    return _in_order(_ID.sub(lambda found: "own" if found.group() == own else "other", text))


@lru_cache(TEXTS)
def _renamed(text: str, order: tuple[int, ...]) -> str:
    """The text with the positions of nodes in `order` in place of their ids."""
    names = {str(node_id): f"#{at}" for at, node_id in enumerate(order)}
    return _in_order(_ID.sub(lambda found: names[found.group()], text))


def _in_order(text: str) -> str:
    return "\n".join(sorted(text.split("\n")))


def _facts_of(host: Host) -> str:
    """The facts that determine the future behaviour of a node, as unordered lines."""
    lines = [f"up {host.is_running} {len(host.flushing)}"]
    for at, fact in enumerate(_member(host).facts()):
        _explode(f"{at}", fact, lines)
    return _NOISE.sub("", "\n".join(lines))


def _explode(label: str, fact: object, lines: list[str]) -> None:
    """Add the lines of a fact. A fact about another node gets a line of its own, as nodes may change positions."""
    if not isinstance(fact, (tuple, list)):
        lines.append(f"{label} {fact!r}")
        return
    for at, part in enumerate(fact):
        first = part[0] if isinstance(part, tuple) and part else part
        if isinstance(first, int) and FIRST_ID <= first < FIRST_ID + MOST_NODES:
            lines.append(f"{label} {part!r}")
        else:
            _explode(f"{label}.{at}", part, lines)
