"""The network in memory: its faults must be what a real network does, or tests on it would prove nothing."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from metadata_log.serde import Message
from support.transport.conversation import LISTENER, Node, echo, numbered
from transport import Cause, Endpoint, Faults, Listener, MemoryNetwork, MemoryTransport, Reply
from transport.faults import Kind
from transport.interface import Request
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


async def test_a_memory_transport_creates_its_own_network(autojump_clock: trio.testing.MockClock):
    node = Node(MemoryTransport(seed=3, faults=Faults(delay_ms=(5, 5))))
    node.answer_with = echo
    endpoint = node.transport.listen(LISTENER)
    async with node.running():
        assert isinstance(await node.call(endpoint, numbered(1)), Reply)


async def test_delays_pass_in_virtual_time(autojump_clock: trio.testing.MockClock):
    pair = Pair(MemoryNetwork(faults=Faults(delay_ms=(100, 100))))
    async with pair.server.running(), pair.client.running():
        before = trio.current_time()
        assert await pair.cause() is None
        assert trio.current_time() - before == pytest.approx(0.2)


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


async def test_one_way_cuts(autojump_clock: trio.testing.MockClock):
    """A lost request was never seen; a lost reply was seen and acted upon."""
    pair = Pair(MemoryNetwork())
    seen: list[int] = []

    def note(request: Request) -> Message:
        seen.append(request.sequence)
        return echo(request)

    pair.server.answer_with = note
    async with pair.server.running(), pair.client.running():
        pair.network.cut([1], [2], [Kind.REQUEST])
        assert await pair.cause() is Cause.TIMEOUT
        assert seen == []
        pair.network.heal()
        pair.network.cut([2], [1], [Kind.REPLY])
        assert await pair.cause() is Cause.TIMEOUT
        assert seen == [0]


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


async def test_drops_become_time_outs_and_duplicates_one_reply(autojump_clock: trio.testing.MockClock):
    pair = Pair(MemoryNetwork(seed=1, faults=Faults(drop=0.3, duplicate=0.3, delay_ms=(1, 20))))
    async with pair.server.running(), pair.client.running():
        causes = [await pair.cause() for _ in range(200)]
    lost = causes.count(Cause.TIMEOUT)
    assert 70 < lost < 130
    assert causes.count(None) == 200 - lost


@pytest.mark.parametrize("reorder", [False, True])
async def test_requests_are_reordered_only_by_the_fault(autojump_clock: trio.testing.MockClock, reorder: bool):
    """TCP keeps the order of a connection, and so does Kafka's protocol build on it."""
    pair = Pair(MemoryNetwork(seed=2, faults=Faults(delay_ms=(1, 500), reorder=reorder)))
    pair.server.answer_with = None
    async with pair.server.running(), pair.client.running():
        for number in range(50):
            pair.client.ask(pair.endpoint, numbered(number))
        await pair.server.until(lambda: len(pair.server.requests) == 50)
        asked: list[Any] = [request.message for request in pair.server.requests]
        seen = [int(message.cluster_id) for message in asked]
        assert sorted(seen) == list(range(50))
        assert (seen == list(range(50))) is not reorder


async def test_message_fates_are_determined_by_the_seed(autojump_clock: trio.testing.MockClock):
    async def fates(seed: int) -> list[Cause | None]:
        pair = Pair(MemoryNetwork(seed=seed, faults=Faults(drop=0.4)))
        async with pair.server.running(), pair.client.running():
            return [await pair.cause() for _ in range(60)]

    assert await fates(1) == await fates(1)
    assert await fates(1) != await fates(2)


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
