"""Limits on a peer's share of a node: memory, turns, connections, descriptors. Over TCP, by both kinds of sockets."""

from __future__ import annotations

import logging
import os
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest
import trio

from conversation import LISTENER, Node, echo
from tcp_frames import connect, framed, no_free_descriptors, read_frames, read_to_end, serving, vote
from transport import Endpoint, Request, TcpTransport, WireTransport
from transport.limited_log import LimitedLog
from transport.limits import ANSWER_TURN_BYTES, BULK_BYTES, QUANTUM, UNSENT_PER_CONNECTION
from transport.protocol.apis import ApiKey
from transport.protocol.frames import FrameReader
from transport.protocol.headers import encode_request
from transport.protocol.inbound import ANY_SIZE
from transport.protocol.messages import EnvelopeRequest, EnvelopeResponse
from transport.protocol.server_connection import FIRST_EXPECTED_BYTES, ServerConnection
from transport.server_channel import ServerChannel
from transport.serving import address_of
from transport.shares import Shares

NewNode = Callable[..., Node]
MIB = 1 << 20
STRANGER, OTHER = "127.0.0.2", "127.0.0.3"
ASK_MUCH = framed(encode_request(ApiKey.ENVELOPE, 0, 1, "raw", EnvelopeRequest()))
"""A small request that may have a large answer."""
FIRST_AT_ONCE = BULK_BYTES // FIRST_EXPECTED_BYTES
"""How many such requests a node deals with at once before it knows how large their answers are."""


@pytest.fixture(autouse=True)
def strangers_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other loopback addresses play other machines."""
    monkeypatch.setattr("transport.serving.is_loopback", lambda address: address == "127.0.0.1")


@pytest.fixture(params=["epoll", "streams"])
def new_node(request: pytest.FixtureRequest) -> NewNode:
    return lambda **options: Node(TcpTransport(use_epoll=request.param == "epoll", **options))


@asynccontextmanager
async def connected_from(address: str, endpoint: Endpoint) -> AsyncIterator[trio.SocketStream]:
    """A connection by another address of this machine, which is a stranger's."""
    raw = trio.socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await raw.bind((address, 0))
    await raw.connect((endpoint.host, endpoint.port))
    async with trio.SocketStream(raw) as stream:
        yield stream


def answer_when_settled(node: Node, answer_bytes: int) -> list[Request]:
    """Have the node deal with requests as a quorum does: after a burst. Returns the requests in their order."""
    data, delivered, tell = bytes(answer_bytes), [], node.batch_delivered

    def batch_delivered() -> bool:
        waiting, node.requests = node.requests, []
        for request in waiting:
            delivered.append(request)
            is_vote = request.api_key == ApiKey.VOTE
            node.transport.answer(request, echo(request) if is_vote else EnvelopeResponse(response_data=data))
        return tell()

    node.batch_delivered = batch_delivered
    return delivered


class NoSockets:
    """A socket, and the loop around it, that does nothing."""

    unsent = 0

    def write(self, data: bytes) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None: ...


def nothing() -> Any:
    """Neither a whole `Sockets` nor a whole `Socket`: what the test of a transport without a loop needs."""
    return NoSockets()


class Gate:
    """Listeners that wait, one connection after the other, and addresses that are held."""

    def __init__(self, waits: Sequence[float] = (), holds: Mapping[str, float] | None = None) -> None:
        self.waits = list(waits)
        self.holds = holds or {}
        self.asked: list[str] = []

    def wait_s(self, listener: str) -> float:
        assert listener == LISTENER.name
        return self.waits.pop(0) if self.waits else 0.0

    def hold_s(self, listener: str, address: str) -> float:
        self.asked.append(address)
        return self.holds.get(address, 0.0)


async def send_and_keep(stream: trio.SocketStream, data: bytes) -> None:
    """Send what the other side takes, until either side closes."""
    with suppress(trio.ClosedResourceError, trio.BrokenResourceError):
        await stream.send_all(data)


class TestMemory:
    async def test_pipelined_requests_wait_until_the_client_reads_responses(self, new_node: NewNode):
        """Two hundred of ninety bytes each made a node hold 1.6 GB."""
        node = new_node()
        delivered = answer_when_settled(node, 8 * MIB)
        async with serving(node) as endpoint, connected_from(STRANGER, endpoint) as greedy:
            await greedy.send_all(ASK_MUCH * 200)
            await node.until(lambda: len(delivered) > 0)
            await trio.testing.wait_all_tasks_blocked(0.02)
            _, unsent = node.transport.serving.held_bytes
            assert unsent < UNSENT_PER_CONNECTION + 8 * MIB
            assert len(delivered) <= 2
            assert len(await read_frames(greedy, 5)) >= 5
            await node.until(lambda: len(delivered) >= 5)
            await greedy.aclose()
            await node.until(lambda: node.transport.serving.held_bytes == (0, 0))

    async def test_unread_responses_of_all_connections_are_bounded(self, new_node: NewNode):
        """Those beyond wait in their sockets, another address still has room, and so has a voter."""
        node = new_node(max_unsent_bytes=32 * MIB)
        delivered = answer_when_settled(node, 4 * MIB)
        async with serving(node) as endpoint, AsyncExitStack() as stack:
            node.transport.keep_connected([Endpoint("127.0.0.1", 1)], "raft-client-1")
            await trio.testing.wait_all_tasks_blocked(0.02)
            greedy = [await stack.enter_async_context(connected_from(STRANGER, endpoint)) for _ in range(40)]
            for stream in greedy:
                await stream.send_all(ASK_MUCH * 3)
            await trio.testing.wait_all_tasks_blocked(0.05)
            held = 4 * MIB * len(delivered)
            assert 16 * MIB <= held <= 16 * MIB + (FIRST_AT_ONCE + 40) * MIB, "what sockets hold counts for nothing"
            assert node.transport.serving.held_bytes[1] <= 16 * MIB + 4 * FIRST_AT_ONCE * MIB
            node.transport.serving._let_some_read()  # as each second
            other = await stack.enter_async_context(connected_from(OTHER, endpoint))
            voter = await stack.enter_async_context(await connect(endpoint))
            for stream in (other, voter):
                await stream.send_all(ASK_MUCH)
                assert len(await read_frames(stream, 1)) == 1
            await greedy[-1].send_all(vote(7))  # what is small passes behind nothing large of its own connection
            for stream in greedy[:-1]:
                await stream.aclose()
            assert len(await read_frames(greedy[-1], 4)) == 4

    async def test_an_answer_above_the_bound_holds_up_no_other_address(self, new_node: NewNode):
        """The size of an answer is not known before; the next ones learn how much room is left."""
        node = new_node(max_unsent_bytes=MIB)
        delivered = answer_when_settled(node, 6 * MIB)
        async with serving(node) as endpoint, AsyncExitStack() as stack:
            slow = await stack.enter_async_context(connected_from(STRANGER, endpoint))
            await slow.send_all(ASK_MUCH)
            await node.until(lambda: node.transport.serving.held_bytes[1] > MIB)
            other = await stack.enter_async_context(connected_from(OTHER, endpoint))
            await other.send_all(ASK_MUCH)
            assert len(await read_frames(other, 1)) == 1
            assert [request.room for request in delivered] == [ANY_SIZE, 0]

    async def test_unfinished_requests_are_bounded(self, new_node: NewNode):
        """Connections beyond the budget are not read from; a voter's is."""
        node = new_node(max_frame_bytes=2 * MIB, max_received_bytes=8 * MIB)
        node.answer_with = lambda request: EnvelopeResponse()
        whole = framed(encode_request(ApiKey.ENVELOPE, 0, 1, "raw", EnvelopeRequest(request_data=bytes(MIB))))
        async with serving(node) as endpoint, AsyncExitStack() as stack, trio.open_nursery() as nursery:
            node.transport.keep_connected([Endpoint("127.0.0.1", 1)], "raft-client-1")
            await trio.testing.wait_all_tasks_blocked(0.02)
            for address in (STRANGER, OTHER):
                for _ in range(12):
                    half = await stack.enter_async_context(connected_from(address, endpoint))
                    nursery.start_soon(send_and_keep, half, whole[:-1])
            await trio.testing.wait_all_tasks_blocked(0.1)
            received, _ = node.transport.serving.held_bytes
            assert 4 * MIB < received <= 10 * MIB
            async with await connect(endpoint) as voter:
                await voter.send_all(whole)
                assert len(await read_frames(voter, 1)) == 1
            await stack.aclose()
            await node.until(lambda: node.transport.serving.held_bytes == (0, 0))

    async def test_large_requests_of_one_address_end_one_after_the_other(self, new_node: NewNode):
        """Four halves that shared the memory of their address kept each other from their ends."""
        node = new_node(max_frame_bytes=2 * MIB, max_received_bytes=4 * MIB)
        node.answer_with = lambda request: EnvelopeResponse()
        body = EnvelopeRequest(request_data=bytes(2 * MIB - 100))
        whole = framed(encode_request(ApiKey.ENVELOPE, 0, 1, "raw", body))
        async with serving(node) as endpoint, AsyncExitStack() as stack, trio.open_nursery() as nursery:
            large = [await stack.enter_async_context(connected_from(STRANGER, endpoint)) for _ in range(4)]
            for stream in large:
                await stream.send_all(whole[: 400 * 1024])
            await node.until(lambda: node.transport.serving.held_bytes[0] >= 4 * 400 * 1024)
            for stream in large:
                nursery.start_soon(send_and_keep, stream, whole[400 * 1024 :])
            with trio.fail_after(10):
                for stream in large:
                    assert len(await read_frames(stream, 1)) == 1
                # The last bytes of an answer leave in the node's own time.
                while node.transport.serving.held_bytes != (0, 0):
                    await trio.lowlevel.checkpoint()

    async def test_unfinished_large_requests_leave_room_for_small_ones_of_their_address(self, new_node: NewNode):
        node = new_node(max_frame_bytes=2 * MIB, max_received_bytes=16 * MIB)
        node.answer_with = echo
        body = EnvelopeRequest(request_data=bytes(2 * MIB - 100))
        whole = framed(encode_request(ApiKey.ENVELOPE, 0, 1, "raw", body))
        async with serving(node) as endpoint, AsyncExitStack() as stack, trio.open_nursery() as nursery:
            for _ in range(12):
                half = await stack.enter_async_context(connected_from(STRANGER, endpoint))
                nursery.start_soon(send_and_keep, half, whole[:-1])
            await node.until(lambda: node.transport.serving.held_bytes[0] >= 8 * MIB)
            await trio.testing.wait_all_tasks_blocked(0.1)
            small = await stack.enter_async_context(connected_from(STRANGER, endpoint))
            with trio.fail_after(0.5):  # a look at those that wait for memory comes each second
                for number in range(20):
                    await small.send_all(vote(number))
                    assert len(await read_frames(small, 1)) == 1
            assert node.transport.serving.held_bytes[0] <= 16 * MIB + 2 * MIB
            await stack.aclose()
            await node.until(lambda: node.transport.serving.held_bytes == (0, 0))

    async def test_a_request_of_the_largest_size_fits_beside_others(self, new_node: NewNode):
        node = new_node(max_frame_bytes=2 * MIB, max_received_bytes=2 * MIB)
        node.answer_with = lambda request: EnvelopeResponse()
        whole = framed(encode_request(ApiKey.ENVELOPE, 0, 1, "raw", EnvelopeRequest(request_data=bytes(2 * MIB - 100))))
        async with serving(node) as endpoint, connected_from(STRANGER, endpoint) as stream:
            for _ in range(3):
                await stream.send_all(whole)
                assert len(await read_frames(stream, 1)) == 1

    def test_a_request_received_byte_by_byte_holds_only_its_bytes(self):
        reader = FrameReader()
        for byte in framed(bytes(3000))[:-1]:
            assert reader.feed(bytes([byte])) == []
        assert reader.held == 3003
        assert isinstance(reader.partial, bytearray), "a list of bytes would take forty times as much"
        assert reader.feed(b"\x00\x00") == [bytes(3000)]
        assert (reader.held, reader.missing) == (1, 3)

    def test_memory_is_shared_among_addresses(self):
        shares = Shares(1000)
        for address in ("a", "b", "c"):
            while shares.admits(address):
                shares.charge(address, 10)
        assert [shares._held[address] for address in "abc"] == [500, 250, 130]
        shares.charge("a", -500)
        assert shares.admits("b")
        assert "a" not in shares._held

    def test_bytes_of_a_request_are_counted_until_it_is_answered(self):
        connection = ServerConnection(handle=None, listener="CONTROLLER", peer="10.0.0.1:5")
        connection.receive(vote(1) + vote(2)[:9])
        assert 0 < connection.held_bytes < 200
        request = connection.take()
        assert isinstance(request, Request)
        assert connection.held_bytes > 2000
        connection.answer(request, echo(request))
        assert connection.held_bytes == 9
        connection.receive(vote(2)[9:] + vote(3))
        later = [connection.take() for _ in range(2)]
        assert connection.lost() == tuple(later)


class TestStalled:
    @pytest.mark.parametrize("steady", [False, True])
    async def test_a_peer_that_leaves_answers_unread_is_closed(
        self, new_node: NewNode, mock_clock: trio.testing.MockClock, steady: bool
    ):
        node = new_node(stalled_ms=30_000)
        answer_when_settled(node, 32 * MIB)
        async with serving(node) as endpoint, connected_from(STRANGER, endpoint) as stream:
            await stream.send_all(ASK_MUCH)
            await node.until(lambda: node.transport.serving.held_bytes[1] > 0)
            for _ in range(60):
                mock_clock.jump(1)
                await trio.testing.wait_all_tasks_blocked(0.001)
                left = 256 * 1024 if steady else 1000
                while left > 0:
                    left -= len(await stream.receive_some(left))
            assert (node.transport.serving.held_bytes[1] > 0) is steady

    async def test_a_client_reading_a_few_bytes_at_a_time_is_closed(self):
        """With a socket that takes what the test says, as the system takes answers in large pieces."""
        transport = WireTransport(lambda _: nothing())
        transport.serving.deliver = lambda _: None
        taking = nothing()
        channel = transport.accepted(taking, LISTENER, "10.0.0.1:5")
        assert isinstance(channel, ServerChannel)
        taking.unsent = 8 * MIB
        channel._written = 8 * MIB
        stalled = []
        for second in range(1, 100):
            taking.unsent -= 1000 if second < 40 else 3000
            stalled.append(channel.has_stalled(channel.last_active + second, 30.0))
        assert stalled.index(True) == 29
        assert not any(stalled[70:])

    @pytest.mark.parametrize("sent", [0, 1])
    async def test_a_peer_that_does_not_finish_a_request_is_closed(
        self, new_node: NewNode, mock_clock: trio.testing.MockClock, sent: int
    ):
        """A byte now and then is no progress."""
        node = new_node(stalled_ms=30_000)
        async with serving(node) as endpoint, await connect(endpoint) as stream:
            await stream.send_all((1000).to_bytes(4, "big") + vote(1)[4:9])
            await trio.testing.wait_all_tasks_blocked(0.02)
            for second in range(60):
                mock_clock.jump(1)
                await trio.testing.wait_all_tasks_blocked(0.001)
                if second < 25:
                    assert node.transport.serving.connections == 1
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(b"\x00" * sent)
            assert node.transport.serving.connections == 0

    async def test_a_peer_that_waits_for_a_response_is_not_closed(
        self, new_node: NewNode, mock_clock: trio.testing.MockClock
    ):
        node = new_node(stalled_ms=30_000)
        async with serving(node) as endpoint, await connect(endpoint) as stream:
            await stream.send_all(vote(1) + vote(2)[:9])
            request = await node.next_request()
            for _ in range(40):
                mock_clock.jump(1)
                await trio.testing.wait_all_tasks_blocked(0.001)
            node.transport.answer(request, echo(request))
            assert len(await read_frames(stream, 1)) == 1


class TestTurns:
    async def test_another_connection_waits_for_a_few_large_answers_only(self, new_node: NewNode):
        """Three hundred at a time of one connection made every other client wait for all of them."""
        node = new_node()
        size = MIB // 4
        delivered = answer_when_settled(node, size)
        async with serving(node) as endpoint, AsyncExitStack() as stack, trio.open_nursery() as nursery:
            greedy = [await stack.enter_async_context(await connect(endpoint)) for _ in range(100)]
            other = await stack.enter_async_context(connected_from(OTHER, endpoint))
            for stream in greedy:
                nursery.start_soon(read_to_end, stream)
                os.write(stream.socket.fileno(), ASK_MUCH * 300)
            most, before = 0, len(delivered)
            while before < 400:
                await trio.lowlevel.checkpoint()
                most, before = max(most, len(delivered) - before), len(delivered)
            assert most <= 2 * (ANSWER_TURN_BYTES // size + FIRST_AT_ONCE), (
                "other tasks of the node have their turns, too"
            )
            for number in range(1, 6):
                await node.until(lambda number=number: len(delivered) >= 400 + 100 * number)
                os.write(other.socket.fileno(), vote(number))
                before = len(delivered)
                assert len(await read_frames(other, 1)) == 1
                at = next(
                    place for place, one in enumerate(delivered) if one.correlation_id == number and place >= before
                )
                assert at - before <= 3 * (ANSWER_TURN_BYTES // size + FIRST_AT_ONCE)
            nursery.cancel_scope.cancel()

    @pytest.mark.parametrize(("answer_bytes", "votes"), [(1000, 0), (MIB, 0), (MIB, 20)])
    async def test_large_answers_are_made_one_at_a_time(self, answer_bytes: int, votes: int):
        """Each connection has its turn, whatever small requests others send. Small answers are made together."""
        transport = WireTransport(lambda _: nothing())
        later, bursts, waiting = deque[Any](), list[Any](), list[Any]()
        transport.serving._later = lambda action, _delay: later.append(action)
        transport.serving.deliver = waiting.append

        def batch_delivered() -> bool:
            requests, waiting[:] = waiting[:], []
            bursts.append([request.peer for request in requests if request.api_key == ApiKey.ENVELOPE])
            for request in requests:
                is_vote = request.api_key == ApiKey.VOTE
                transport.answer(
                    request, echo(request) if is_vote else EnvelopeResponse(response_data=bytes(answer_bytes))
                )
            return True

        transport.serving.batch_delivered = batch_delivered
        peers = [f"10.0.0.1:{port}" for port in range(6)]
        for peer in peers:
            channel = transport.accepted(nothing(), LISTENER, peer)
            assert isinstance(channel, ServerChannel)
            channel.on_data((ASK_MUCH + vote(1) * votes) * 20)
        transport.serving.settle()
        for _ in range(1000):
            if later:
                later.popleft()()
        order = [peer for burst in bursts for peer in burst]
        assert sorted(order) == sorted(peers * 20)
        if answer_bytes == MIB:
            for at in range(1, len(order)):
                counts = [order[:at].count(peer) for peer in peers]
                assert max(counts) - min(counts) <= 3, counts
            seen: set[str] = set()
            for burst in bursts:
                assert len(burst) <= (1 if seen == set(peers) else FIRST_AT_ONCE)
                seen |= set(burst)
        else:
            assert max(len(burst) for burst in bursts) == FIRST_AT_ONCE

    async def test_waiting_small_requests_are_answered_a_few_at_a_time(self):
        """Eight connections kept a leader from its followers for 25 ms at a time."""
        transport = WireTransport(lambda _: nothing())
        later, waiting, dealt_with = deque[Any](), list[Any](), 0
        transport.serving._later = lambda action, _delay: later.append(action)
        transport.serving.deliver = waiting.append

        def batch_delivered() -> bool:
            nonlocal dealt_with
            requests, waiting[:] = waiting[:], []
            dealt_with += len(requests)
            for request in requests:
                is_vote = request.api_key == ApiKey.VOTE
                transport.answer(request, echo(request) if is_vote else EnvelopeResponse())
            return True

        transport.serving.batch_delivered = batch_delivered
        for port in range(8):
            channel = transport.accepted(nothing(), LISTENER, f"10.0.0.1:{port}")
            assert isinstance(channel, ServerChannel)
            channel.on_data((ASK_MUCH + vote(1)) * 100)
        transport.serving.settle()
        turns = []
        while dealt_with < 8 * 200:
            before = dealt_with
            later.popleft()()
            turns.append(dealt_with - before)
        assert max(turns) <= 48

    @pytest.mark.parametrize("most", [1, 3, 40, 500])
    async def test_no_more_requests_than_allowed_wait_for_the_node(self, most: int):
        """Kafka's `queued.max.requests`, for a node that needs a turn for each request."""
        transport = WireTransport(lambda _: nothing(), max_queued_requests=most)
        later, waiting, longest, done = deque[Any](), deque[Any](), 0, 0
        transport.serving._later = lambda action, _delay: later.append(action)

        def deliver(request: object) -> None:
            nonlocal longest
            waiting.append(request)
            longest = max(longest, len(waiting))

        def batch_delivered() -> bool:
            nonlocal done
            if waiting:
                request = waiting.popleft()
                transport.answer(request, echo(request))
                done += 1
            return not waiting

        transport.serving.deliver, transport.serving.batch_delivered = deliver, batch_delivered
        channels = [transport.accepted(nothing(), LISTENER, f"10.0.0.1:{port}") for port in range(40)]
        for round_ in range(3):
            for channel in channels:
                assert channel is not None
                assert channel is not None
                channel.on_data(vote(1) * (1 + 20 * round_))
            transport.serving.settle()
        for _ in range(10 * 40 * 63):
            if later:
                later.popleft()()
            transport.serving.settle()
        assert done == 40 * 63
        assert most // 2 < longest <= most

    async def test_addresses_are_served_round_robin(self, new_node: NewNode):
        """Not one that has many connections and then one that has one."""
        node, delivered = new_node(), list[Any]()
        node.deliver = delivered.append
        async with serving(node) as endpoint, AsyncExitStack() as stack:
            many = [await stack.enter_async_context(await connect(endpoint)) for _ in range(50)]
            one = await stack.enter_async_context(connected_from(OTHER, endpoint))
            for stream in (*many, one):
                os.write(stream.socket.fileno(), vote(1) * (4 * QUANTUM))
            await node.until(lambda: len(delivered) == 51 * 4 * QUANTUM)
            done = [place for place, each in enumerate(delivered) if address_of(each.peer) == OTHER]
            assert done[-1] < len(delivered) - 20 * QUANTUM

    async def test_small_requests_are_read_behind_a_parked_one(self, new_node: NewNode):
        """A candidate sends its Vote over the connection on which its fetch is parked at the leader."""
        node = new_node()
        async with serving(node) as endpoint, await connect(endpoint) as stream:
            await stream.send_all(ASK_MUCH + vote(1) + ASK_MUCH + vote(2))
            await node.until(lambda: len(node.requests) == 2)
            await trio.testing.wait_all_tasks_blocked(0.01)
            first, second = node.requests
            assert (first.api_key, second.api_key) == (ApiKey.ENVELOPE, ApiKey.VOTE)
            node.transport.answer(first, EnvelopeResponse())
            await node.until(lambda: len(node.requests) == 4)
            for request in node.requests[1:]:
                is_vote = request.api_key == ApiKey.VOTE
                node.transport.answer(request, echo(request) if is_vote else EnvelopeResponse())
            assert len(await read_frames(stream, 4)) == 4


async def is_turned_away(stream: trio.SocketStream) -> None:
    with trio.fail_after(20):
        assert await read_to_end(stream) == b""


class TestConnections:
    async def test_connections_are_reserved_for_loopback_and_voters(self, new_node: NewNode):
        node = new_node(max_connections=32, max_connections_per_ip=1000)
        node.answer_with = echo
        async with serving(node) as endpoint, AsyncExitStack() as stack:
            node.transport.keep_connected([Endpoint(OTHER, 1)], "raft-client-1")
            await trio.testing.wait_all_tasks_blocked(0.02)
            for _ in range(30):
                await stack.enter_async_context(connected_from(STRANGER, endpoint))
            refused = await stack.enter_async_context(connected_from(STRANGER, endpoint))
            await is_turned_away(refused)
            for address in ("127.0.0.1", OTHER):
                stream = await stack.enter_async_context(connected_from(address, endpoint))
                await stream.send_all(vote(1))
                assert len(await read_frames(stream, 1)) == 1

    @pytest.mark.parametrize(
        ("options", "most"),
        [
            ({"max_connections_per_ip": 3}, 3),
            ({"max_connections_per_ip": 3, "max_connections_per_ip_overrides": {STRANGER: 5}}, 5),
            ({"max_connections": 12}, 6),
        ],
    )
    async def test_connections_per_address_are_bounded(self, new_node: NewNode, options: dict[str, object], most: int):
        """Kafka: `max.connections.per.ip`, and its overrides. Where neither is set, half of all."""
        node = new_node(**options)
        node.answer_with = echo
        async with serving(node) as endpoint, AsyncExitStack() as stack:
            await trio.testing.wait_all_tasks_blocked(0.02)
            streams = [await stack.enter_async_context(connected_from(STRANGER, endpoint)) for _ in range(most)]
            async with connected_from(STRANGER, endpoint) as refused:
                await is_turned_away(refused)
            async with connected_from(OTHER, endpoint) as other:
                await other.send_all(vote(1))
                assert len(await read_frames(other, 1)) == 1
            await streams[0].aclose()
            await node.until(lambda: node.transport.serving.refusal(STRANGER, LISTENER.name) is None)

    async def test_a_listener_accepts_nothing_while_connections_come_too_fast(self, new_node: NewNode):
        node, gate = new_node(), Gate(waits=[0.0, 0.1])
        node.answer_with = echo
        node.transport.gate = gate
        async with serving(node) as endpoint, AsyncExitStack() as stack:
            began = trio.current_time()
            for at in range(3):
                stream = await stack.enter_async_context(connected_from("127.0.0.1", endpoint))
                await stream.send_all(vote(at))
                assert len(await read_frames(stream, 1)) == 1
                took = trio.current_time() - began
                assert (took >= 0.1) is (at > 0)
            assert gate.asked == ["127.0.0.1"] * 3
            assert node.transport.serving.open_connections == 3

    async def test_a_connection_of_an_address_that_makes_too_many_is_held_and_closed(self, new_node: NewNode):
        node, gate = new_node(), Gate(holds={STRANGER: 0.1})
        node.answer_with = echo
        node.transport.gate = gate
        async with serving(node) as endpoint, AsyncExitStack() as stack:
            began = trio.current_time()
            held = await stack.enter_async_context(connected_from(STRANGER, endpoint))
            # Others come in meanwhile.
            other = await stack.enter_async_context(connected_from(OTHER, endpoint))
            await other.send_all(vote(1))
            assert len(await read_frames(other, 1)) == 1
            await is_turned_away(held)
            assert trio.current_time() - began >= 0.1
            assert node.transport.serving.open_connections == 1

    async def test_so_many_connections_are_held_and_all_are_closed_at_the_end(
        self, new_node: NewNode, monkeypatch: pytest.MonkeyPatch
    ):
        for module in ("transport.epoll", "transport.streams"):
            monkeypatch.setattr(f"{module}.HELD_AT_ONCE", 2)
        node, gate = new_node(), Gate(holds={STRANGER: 3600.0})
        node.transport.gate = gate
        async with AsyncExitStack() as stack:
            async with serving(node) as endpoint:
                streams = [await stack.enter_async_context(connected_from(STRANGER, endpoint)) for _ in range(3)]
                await is_turned_away(streams[2])
                assert node.transport.serving.open_connections == 0
            for stream in streams[:2]:
                await is_turned_away(stream)

    async def test_a_listener_may_have_a_limit_of_its_own(self, new_node: NewNode):
        node = new_node()
        node.answer_with = echo
        async with serving(node) as endpoint, AsyncExitStack() as stack:
            node.transport.limit_connections(1000, 1000, {"127.0.0.1": 1}, {LISTENER.name: 2})
            for _ in range(2):
                stream = await stack.enter_async_context(connected_from(STRANGER, endpoint))
                await stream.send_all(vote(1))
                assert len(await read_frames(stream, 1)) == 1
            await is_turned_away(await stack.enter_async_context(connected_from(OTHER, endpoint)))
            node.transport.limit_connections(1000, 1000, {STRANGER: 2}, {})
            await node.until(lambda: node.transport.serving.per_ip == {STRANGER: 2})
            await is_turned_away(await stack.enter_async_context(connected_from(STRANGER, endpoint)))
            other = await stack.enter_async_context(connected_from(OTHER, endpoint))
            await other.send_all(vote(1))
            assert len(await read_frames(other, 1)) == 1

    async def test_without_descriptors_only_loopback_connections_are_accepted(self, new_node: NewNode):
        node = new_node()
        node.answer_with = echo
        async with serving(node) as endpoint:
            strangers = [trio.socket.socket() for _ in range(20)]
            for raw in strangers:
                await raw.bind((STRANGER, 0))
            operator = trio.socket.socket()
            with no_free_descriptors():
                for raw in strangers:
                    await raw.connect((endpoint.host, endpoint.port))
                await operator.connect((endpoint.host, endpoint.port))
                stream = trio.SocketStream(operator)
                with trio.fail_after(20):
                    await stream.send_all(vote(1))
                    assert len(await read_frames(stream, 1)) == 1
                for raw in strangers:
                    await is_turned_away(trio.SocketStream(raw))
            await stream.aclose()


def test_repeated_log_lines_are_counted_beyond_a_rate(caplog: pytest.LogCaptureFixture):
    moments = [0.0]
    log = LimitedLog(logging.getLogger("transport"), lambda: moments[0])
    with caplog.at_level(logging.WARNING, "transport"):
        for number in range(500):
            log.write(logging.WARNING, "refused", "turning away %s", f"10.0.{number}.1")
        log.write(logging.WARNING, "other", "something else")
        moments[0] = 1.0
        log.write(logging.WARNING, "refused", "turning away %s", "10.1.0.1")
    assert caplog.messages == [
        "turning away 10.0.0.1",
        "something else",
        "turning away 10.1.0.1 (499 more like this were not written)",
    ]


@pytest.mark.parametrize("use_epoll", [True, False])
async def test_a_flood_of_invalid_requests_logs_one_line(use_epoll: bool, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", "transport")
    node = Node(TcpTransport(use_epoll=use_epoll))
    async with serving(node) as endpoint:
        for _ in range(30):
            async with await connect(endpoint) as stream:
                await stream.send_all(framed(b"nonsense"))
                assert await read_to_end(stream) == b""
    assert 1 <= len([message for message in caplog.messages if "closing the connection" in message]) <= 3


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("10.0.0.1:5", "10.0.0.1"),
        ("[::1]:5", "::1"),
        ("[::ffff:10.0.0.1]:5", "10.0.0.1"),
        ("[fe80::1]:5", "fe80::1"),
        ("a neighbour", "a neighbour"),
    ],
)
def test_the_address_in_the_name_of_a_peer(peer: str, address: str):
    assert address_of(peer) == address
