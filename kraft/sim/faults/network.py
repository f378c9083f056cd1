"""The network between simulated nodes. The `FaultPlan` decides whether a message is delivered, lost, repeated or late.
Each request ends at its sender with exactly one reply or failure, as `transport.interface` guarantees.

The network has every behaviour of a transport, and more: `tests/transport/test_simulated_network.py` tests the
differences. Beside it stand two faults: leaders that are cut off until they have a successor, and responses that are
corrupted in transit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final, Protocol

from kraft.quorum.events import FailureCause
from kraft.sim.world.actions import Action, Corrupt, Deliver, Fail, Return
from kraft.sim.world.driver import Exchange
from kraft.sim.world.world import World
from transport.faults import FaultPlan, Kind

_WITH_RECORDS: Final = frozenset(("Fetch", "FetchSnapshot"))
_SEED_BITS: Final = 32


class Calls(Protocol):
    """The scheduled calls, by virtual time."""

    now_ms: int

    def schedule(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Schedule a call after this much virtual time."""


class Corruptor:
    """The nodes with corrupted responses, and how many are still to come."""

    def __init__(self, rng: Random, agenda: Calls, perform: Callable[[Action], bool]) -> None:
        """`perform` performs an action in the world."""
        self._rng = rng
        self._agenda = agenda
        self._perform = perform
        self._left: dict[int, int] = {}

    def lie_in_wait(self, node_id: int, answers: int) -> None:
        """Corrupt the next responses with records to a node, in this number."""
        self._left[node_id] = answers

    def end(self) -> None:
        """Corrupt no more responses."""
        self._left.clear()

    def answered(self, exchange: Exchange, copy: int) -> None:
        """A node has answered a delivery: corrupt the response before it arrives, if that is due."""
        if exchange.kind not in _WITH_RECORDS or not self._left.get(exchange.sender):
            return
        seed, now_ms = self._rng.getrandbits(_SEED_BITS), self._agenda.now_ms
        action = Corrupt(now_ms, exchange.sender, exchange.target, exchange.number, seed, copy, exchange.kind)
        self._agenda.schedule(0, partial(self._corrupt, action))

    def _corrupt(self, action: Corrupt) -> None:
        if self._left.get(action.node) and self._perform(action):
            self._left[action.node] -= 1


class StrandedLeaders:
    """The leader that is cut off. Its successor then alone has the end of its own log."""

    def __init__(self, plan: FaultPlan, world: World) -> None:
        self._plan = plan
        self._world = world
        self.waiting: int | None = None
        """The leader that is cut off and has no successor yet."""

    def strand(self) -> None:
        """Cut a leader off, if there is one."""
        leaders = self._world.leaders()
        if leaders:
            self.waiting = leaders[0]
            self._plan.isolate(leaders[0])

    def succeeded_by(self, node_id: int, *, is_calm: bool) -> str:
        """If a node has succeeded the leader, cut off that node instead, unless all faults have ended. Returns a
        description for the trace; empty if nothing has changed.
        """
        former, view = self.waiting, self._world.hosts[node_id].view
        if former is None or node_id == former or view is None or view.state != "Leader":
            return ""
        self.waiting = None
        if is_calm:
            return ""
        self._plan.heal(former)
        self._plan.isolate(node_id)
        return f"stranded-leaders {former} is back, and its successor {node_id} cut off"


_LATE: Final = {
    ("AlterPartition", Kind.REQUEST): 0.4,
    ("AlterPartition", Kind.REPLY): 0.7,
    ("Fetch", Kind.REQUEST): 0.2,
}
"""How often messages to leaders of partitions are late, so that they overtake each other."""
_OF_QUORUM: Final = frozenset(("PreVote", "Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "Fetch", "FetchSnapshot"))
"""The kinds of requests on one connection; the requests of the application use another connection."""


class Agenda(Protocol):
    """The scheduled actions, by virtual time."""

    now_ms: int

    def plan(self, action: Action) -> None:
        """Schedule an action at its time."""


class Network:
    """Decides when the messages of exchanges arrive, if at all."""

    def __init__(self, rng: Random, plan: FaultPlan, agenda: Agenda, *, late_ms: int = 0) -> None:
        """`late_ms` is the most by which some of the messages to leaders of partitions are late."""
        self._late_ms = late_ms
        self._rng = rng
        self._plan = plan
        self._agenda = agenda
        self._refusing: dict[tuple[int, int], None] = {}
        """The refused connections, by sender and target, at the address that the target advertises."""
        self._latest: dict[tuple[int, int, bool, Kind], tuple[Exchange, int]] = {}
        """The last message and its time of arrival, by connection and direction, where messages keep their order."""

    def refuse_connections(self, sender: int, target: int) -> None:
        """From now on the address that a node advertises refuses connections of another node."""
        self._refusing[sender, target] = None

    def accept_connections(self, sender: int, target: int) -> None:
        """End the refusal."""
        self._refusing.pop((sender, target), None)

    def send(self, exchange: Exchange) -> None:
        """Schedule the deliveries and the timeout of a request."""
        sender, target = exchange.sender, exchange.target
        if (sender, target) in self._refusing and not exchange.is_indirect:
            self._agenda.plan(failure_of(exchange, self._agenda.now_ms + 1, FailureCause.REFUSED))
            return
        for at_ms in self._arrivals(exchange, Kind.REQUEST):
            self._agenda.plan(Deliver(at_ms, target, sender, exchange.number, exchange.kind))
        self._agenda.plan(failure_of(exchange, self._agenda.now_ms + exchange.timeout_ms, FailureCause.TIMEOUT))

    def refuse(self, exchange: Exchange) -> None:
        """Schedule the failure of a request to an address without a node: a refused connection or a timeout."""
        is_refused = self._rng.random() < 0.5
        cause = FailureCause.REFUSED if is_refused else FailureCause.TIMEOUT
        wait_ms = 1 if is_refused else exchange.timeout_ms
        self._agenda.plan(failure_of(exchange, self._agenda.now_ms + wait_ms, cause))

    def answer(self, exchange: Exchange, copy: int) -> None:
        """Schedule the arrivals of the reply to one delivery."""
        sender, target = exchange.sender, exchange.target
        for at_ms in self._arrivals(exchange, Kind.REPLY):
            self._agenda.plan(Return(at_ms, sender, target, exchange.number, copy, exchange.kind))

    def _arrivals(self, exchange: Exchange, kind: Kind) -> list[int]:
        """The times of arrival of the copies of a message that is sent now. With `Faults.reorder`, messages may arrive
        in another order.

        The first failed request ends its connection. Messages of the next connection do not wait for earlier ones.
        """
        sender, target, plan, now_ms = exchange.sender, exchange.target, self._plan, self._agenda.now_ms
        decided = plan.decide(sender, target, kind) if kind is Kind.REQUEST else plan.decide(target, sender, kind)
        may_be_late = self._late_ms and plan.faults.reorder and not exchange.is_of_quorum
        often = _LATE.get((exchange.kind, kind), 0) if may_be_late else 0
        if often and self._rng.random() < often:
            decided = tuple(delay_ms + self._rng.randint(0, self._late_ms) for delay_ms in decided)
        keeps_order = not plan.faults.reorder
        earliest_ms = now_ms
        if keeps_order:
            connection = sender, target, exchange.kind in _OF_QUORUM, kind
            before = self._latest.get(connection)
            if before is not None and not before[0].is_settled:
                earliest_ms = before[1]
        arrivals: list[int] = []
        for delay_ms in decided:
            at_ms = now_ms + delay_ms
            arrivals.append(at_ms if at_ms > earliest_ms else earliest_ms)
        if keeps_order and arrivals:
            self._latest[connection] = exchange, arrivals[0] if len(arrivals) == 1 else max(arrivals)
        return arrivals

    def break_off(self, exchange: Exchange) -> None:
        """The target is stopped, or has crashed during the request. The sender may learn this before its timeout."""
        if self._rng.random() < 0.5:
            cause = self._rng.choice((FailureCause.REFUSED, FailureCause.RESET))
            self._agenda.plan(failure_of(exchange, self._agenda.now_ms + 1, cause))


def failure_of(exchange: Exchange, at_ms: int, cause: FailureCause) -> Fail:
    """The failure of a request at its sender."""
    return Fail(at_ms, exchange.sender, exchange.target, exchange.number, cause, exchange.kind)
