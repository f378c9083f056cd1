"""The network in memory and its plan of faults must be what a real network does."""

from __future__ import annotations

from random import Random

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from conversation import Node, echo, numbered
from transport import Cause, Endpoint, Listener, MemoryNetwork, MemoryTransport, Reply
from transport.faults import LOST, FaultPlan, Faults, Kind
from transport.protocol.messages import VoteResponse


class Pair:
    """A client on host 1 and a server on host 2."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.network = network
        self.client = Node(MemoryTransport(network, "1"))
        self.server = Node(MemoryTransport(network, "2"))
        self.server.answer_with = echo
        self.endpoint = self.server.transport.listen(Listener("CONTROLLER", "", 0))

    async def cause(self, timeout_ms: int = 1000) -> Cause | None:
        """Why a request gets no reply; None if it gets one."""
        outcome = await self.client.call(self.endpoint, numbered(1), timeout_ms=timeout_ms)
        return None if isinstance(outcome, Reply) else outcome.cause


async def test_partitioned_hosts_time_out_until_the_partition_heals(autojump_clock: trio.testing.MockClock):
    """Hosts behind a partition time out; a reset or refusal would tell a follower what it cannot know."""
    pair = Pair(MemoryNetwork())
    async with pair.server.running(), pair.client.running():
        assert await pair.cause() is None
        pair.network.partition({1}, {2})
        before = trio.current_time()
        assert await pair.cause() is Cause.TIMEOUT
        assert trio.current_time() - before == pytest.approx(1.0)
        pair.network.heal()
        assert await pair.cause() is None
        pair.network.isolate(2)
        assert await pair.cause() is Cause.TIMEOUT
        pair.network.heal(2)
        assert await pair.cause() is None


async def test_a_stopped_process_behind_a_partition_times_out(autojump_clock: trio.testing.MockClock):
    pair = Pair(MemoryNetwork())
    pair.server.answer_with = None
    async with pair.client.running():
        async with pair.server.running() as scope:
            token = pair.client.ask(pair.endpoint, timeout_ms=1000)
            await pair.server.next_request()
            pair.network.isolate(2)
            scope.cancel()
        assert (await pair.client.outcome(token)).cause is Cause.TIMEOUT
        assert await pair.cause() is Cause.TIMEOUT
        pair.network.heal()
        assert await pair.cause() is Cause.REFUSED
        pair.network.cut([2], [1], [Kind.REPLY])
        assert await pair.cause() is Cause.TIMEOUT


async def test_a_host_can_restart_under_its_address(autojump_clock: trio.testing.MockClock):
    pair = Pair(MemoryNetwork())
    async with pair.client.running():
        async with pair.server.running():
            assert await pair.cause() is None
        assert await pair.cause() is Cause.REFUSED
        again = Node(MemoryTransport(pair.network, "2"))
        again.answer_with = echo
        assert again.transport.listen(Listener("CONTROLLER", "2", pair.endpoint.port)) == pair.endpoint
        async with again.running():
            assert await pair.cause() is None


async def test_messages_may_skip_the_codec():
    network = MemoryNetwork(use_codec=False)
    pair = Pair(network)
    pair.server.answer_with = None
    async with pair.server.running(), pair.client.running():
        token = pair.client.ask(pair.endpoint, message := numbered(1))
        request = await pair.server.next_request()
        assert request.message is message
        assert request.size == 0
        pair.server.transport.answer(request, answer := VoteResponse())
        assert (await pair.client.outcome(token)).message is answer


async def test_an_address_without_a_host_is_refused(autojump_clock: trio.testing.MockClock):
    pair = Pair(MemoryNetwork())
    async with pair.client.running():
        pair.endpoint = Endpoint("absent", 1)
        assert await pair.cause() is Cause.REFUSED
        pair.network.isolate("absent")
        assert await pair.cause() is Cause.TIMEOUT


# FaultPlan.


HOSTS = ["a", "b", "c", "d"]


def fates(seed: int, faults: Faults, count: int = 200) -> list[tuple[int, ...]]:
    plan = FaultPlan(Random(seed), faults)
    return [plan.decide("a", "b", Kind.REQUEST) for _ in range(count)]


def test_without_faults_messages_arrive_once_and_immediately():
    assert set(fates(1, Faults())) == {(0,)}


def test_fault_decisions_are_determined_by_the_seed():
    faults = Faults(drop=0.2, duplicate=0.2, delay_ms=(1, 50), slow=0.1, slow_ms=(100, 200))
    assert fates(7, faults) == fates(7, faults)
    assert fates(7, faults) != fates(8, faults)


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        (Faults(drop=1.0), LOST),
        (Faults(duplicate=1.0), (0, 0)),
        (Faults(delay_ms=(5, 5)), (5,)),
        (Faults(delay_ms=(5, 5), slow=1.0, slow_ms=(20, 20)), (25,)),
    ],
)
def test_faults_with_probability_one_always_happen(faults: Faults, expected: tuple[int, ...]):
    assert set(fates(3, faults, 20)) == {expected}


def test_fault_rates_are_near_the_configured_ones():
    seen = fates(11, Faults(drop=0.25, duplicate=0.25, delay_ms=(10, 20)), 4000)
    lost = seen.count(LOST) / len(seen)
    twice = sum(len(copies) == 2 for copies in seen) / len(seen)
    assert 0.22 < lost < 0.28
    assert 0.15 < twice < 0.23
    delays = [delay for copies in seen for delay in copies]
    assert min(delays) == 10
    assert max(delays) == 20


@given(
    cuts=st.lists(st.tuples(st.sampled_from(HOSTS), st.sampled_from(HOSTS))),
    isolated=st.lists(st.sampled_from(HOSTS), max_size=2),
)
def test_fault_plan_cuts_exactly_the_requested_links(cuts: list[tuple[str, str]], isolated: list[str]):
    """A fault plan that cut more, or less, than asked would make a scenario test something else than it says."""
    plan = FaultPlan(Random(0))
    for source, target in cuts:
        plan.cut([source], [target])
    for host in isolated:
        plan.isolate(host)
    for source in HOSTS:
        for target in HOSTS:
            expected = source != target and ((source, target) in cuts or source in isolated or target in isolated)
            assert plan.is_cut(source, target, Kind.REPLY) == expected


def test_a_slow_link_delays_both_directions_until_healed():
    plan = FaultPlan(Random(1), Faults(delay_ms=(5, 5)))
    plan.slow_down("a", "b", (100, 100))
    assert plan.decide("a", "b", Kind.REQUEST) == plan.decide("b", "a", Kind.REPLY) == (105,)
    assert plan.decide("a", "c", Kind.REQUEST) == (5,)
    plan.heal("c")
    assert plan.decide("a", "b", Kind.REQUEST) == (105,)
    plan.heal("b")
    assert plan.decide("a", "b", Kind.REQUEST) == (5,)
