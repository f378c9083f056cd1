"""Lists the enabled actions of a world for a driver with its own choice, such as Hypothesis (TLA+: ENABLED)."""

from __future__ import annotations

from collections.abc import Iterator

from kraft.quorum.events import FailureCause
from kraft.sim.world.actions import Action, Crash, Deliver, Fail, Flushed, Resign, Return, Start, Tick
from kraft.sim.world.driver import Exchange
from kraft.sim.world.host import Host
from kraft.sim.world.world import World

NEVER_MS = 10**9


def enabled(world: World) -> Iterator[Action]:
    """The enabled actions of a world: every awaited event, and every possible fault.

    A tick is enabled at the node's deadline, or now if the deadline has passed. The seeds in the actions are 0; the
    caller draws others.

    Args:
        world: The world, which stays as it is.
    """
    for node_id, host in world.hosts.items():
        if host.is_running:
            yield from _at_node(world, node_id, host)
        else:
            yield Start(world.now_ms, node_id, 0)


def _at_node(world: World, node_id: int, host: Host) -> Iterator[Action]:
    now_ms = world.now_ms
    for exchange in host.waiting.values():
        yield from _of_exchange(world, exchange)
    for number in host.flushing:
        yield Flushed(now_ms, node_id, number)
    deadline_ms = max(world.deadline_ms(node_id), now_ms)
    if deadline_ms < now_ms + NEVER_MS:
        yield Tick(deadline_ms, node_id)
    if host.view is not None and host.view.state == "Leader":
        yield Resign(now_ms, node_id)
    yield Crash(now_ms, node_id, 0)


def _of_exchange(world: World, exchange: Exchange) -> Iterator[Action]:
    sender, number, target, kind = exchange.sender, exchange.number, exchange.target, exchange.kind
    if not exchange.answers and world.hosts[target].is_running:
        yield Deliver(world.now_ms, target, sender, number, kind)
    for copy, answer in enumerate(exchange.answers):
        if answer is not None:
            yield Return(world.now_ms, sender, target, number, copy, kind)
    yield Fail(world.now_ms, sender, target, number, FailureCause.TIMEOUT, kind)
