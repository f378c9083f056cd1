"""The network in memory: its faults must be what a real network does, or tests on it would prove nothing."""

from __future__ import annotations

import pytest
import trio

from support.transport.conversation import Node, echo, numbered
from transport import Cause, Endpoint, Listener, MemoryNetwork, MemoryTransport, Reply
from transport.faults import Kind
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
