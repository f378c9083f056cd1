"""Faults that only sockets have: hostile bytes, slow readers, broken peers, leaked descriptors."""

from __future__ import annotations

import gc
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from conversation import LISTENER, Node, echo, numbered, versions_of
from tcp_frames import connect, framed, no_free_descriptors, read_frames, read_to_end, serving, vote
from transport import Cause, Endpoint, Gone, Listener, Reply, Request, TcpTransport
from transport.addresses import clearer, refuse_itself
from transport.interface import Inbound
from transport.limits import UNANSWERED_PER_CONNECTION, UNSENT_PER_CONNECTION
from transport.protocol.apis import APIS, ApiKey
from transport.protocol.frames import FrameReader
from transport.protocol.headers import encode_request, encode_response
from transport.protocol.messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    EnvelopeRequest,
    EnvelopeResponse,
    VoteResponse,
)
from transport.protocol.messages.alter_partition import AlterPartitionRequestPartitionData as PartitionData
from transport.protocol.messages.alter_partition import AlterPartitionRequestTopicData as TopicData
from transport.protocol.messages.alter_partition import BrokerState

NewNode = Callable[..., Node]
UNRESOLVABLE = Endpoint("no..such..host", 9093)
"""A name that needs no name server to be wrong."""


@pytest.fixture(params=["epoll", "streams"])
def new_node(request: pytest.FixtureRequest) -> NewNode:
    return lambda **options: Node(TcpTransport(use_epoll=request.param == "epoll", **options))


class TestHostileClients:
    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", "text that begins with 'GET '"),
            (b"\x7f\xff\xff\xff", "frame of 2147483647 bytes"),
            (b"\x80\x00\x00\x00", "frame of -2147483648 bytes"),
            (b"\x00\x00\x00\x00", "shorter than any header"),
            (framed(b"\x27\x0f\x00\x00\x00\x00\x00\x01\x00\x02me"), "9999"),
            (framed(b"\x00\x34\x00\x63\x00\x00\x00\x01\x00\x02me\x00"), "Vote"),
            (framed(vote(1)[4:-2]), "VoteRequest"),
        ],
    )
    async def test_invalid_bytes_close_the_connection(
        self, new_node: NewNode, data: bytes, reason: str, caplog: pytest.LogCaptureFixture
    ):
        """As Apache Kafka does; an operator finds the reason and the peer in the log."""
        caplog.set_level("INFO", "transport")
        node = new_node()
        async with serving(node) as endpoint, await connect(endpoint) as stream:
            await stream.send_all(data)
            assert await read_to_end(stream) == b""
            peer = "{}:{}".format(*stream.socket.getsockname())
            assert [record for record in caplog.messages if reason in record and peer in record], caplog.messages
        assert node.requests == []

    async def test_requests_before_the_invalid_bytes_are_answered(self, new_node: NewNode):
        node = new_node()
        async with serving(node) as endpoint, await connect(endpoint) as stream:
            await stream.send_all(vote(7) + vote(8) + framed(b"nonsense"))
            await node.until(lambda: len(node.requests) == 2)
            for request in reversed(node.requests):
                node.transport.answer(request, echo(request))
            answers = FrameReader().feed(await read_to_end(stream))
            assert [int.from_bytes(answer[:4], "big") for answer in answers] == [7, 8]

    async def test_an_unknown_version_of_api_versions_is_answered_as_kafka_does(self, new_node: NewNode):
        """The bytes are those of a real controller, of 4.4."""
        node = new_node()
        async with serving(node) as endpoint, await connect(endpoint) as stream:
            await stream.send_all(framed(bytes.fromhex("0012006300000550000570726f626500")))
            assert await read_frames(stream, 1) == [bytes.fromhex("00000550002300000001001200000005")]

    async def test_nothing_is_delivered_of_a_connection_that_was_dropped(self, new_node: NewNode):
        """The requests after it may already have been read; a user that drops a peer gets no more of its requests."""
        node = new_node()
        seen: list[Request] = []

        def drop(inbound: Inbound) -> None:
            if isinstance(inbound, Gone):
                assert inbound.requests == ()
                return
            assert isinstance(inbound, Request)
            seen.append(inbound)
            node.transport.drop(inbound)

        node.deliver = drop
        async with serving(node) as endpoint, await connect(endpoint) as stream:
            await stream.send_all(vote(1) + vote(2) + vote(3))
            assert await read_to_end(stream) == b""
        assert len(seen) == 1

    async def test_frames_may_come_byte_by_byte(self, new_node: NewNode):
        node = new_node()
        node.answer_with = echo
        async with serving(node) as endpoint, await connect(endpoint) as stream:
            for byte in vote(5) + vote(6):
                await stream.send_all(bytes([byte]))
            assert await read_frames(stream, 2) == [
                encode_response(ApiKey.VOTE, 2, number, VoteResponse(error_code=number)) for number in (5, 6)
            ]

    async def test_a_client_with_too_many_unanswered_requests_waits(self, new_node: NewNode):
        """Unanswered requests of one connection are bounded, and nothing is lost by waiting."""
        node, count = new_node(), 20_000
        async with serving(node) as endpoint, await connect(endpoint) as stream, trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, b"".join(vote(number % 1000) for number in range(count)))
            answered = 0
            while answered < count:
                await node.until(lambda: bool(node.requests))
                await trio.testing.wait_all_tasks_blocked(0.001)
                assert len(node.requests) < UNANSWERED_PER_CONNECTION + 65536 // len(vote(0)) + 1
                waiting, node.requests = node.requests, []
                for request in waiting:
                    node.transport.answer(request, echo(request))
                frames = await read_frames(stream, len(waiting))
                assert len(frames) == len(waiting)
                answered += len(waiting)

    async def test_a_client_that_does_not_read_is_paused(self, new_node: NewNode):
        """Answers that pile up are bounded, and all arrive once it reads."""
        node, count = new_node(), 400
        data = bytes(200_000)
        served: list[Request] = []

        def answer(request: Request) -> EnvelopeResponse:
            served.append(request)
            return EnvelopeResponse(response_data=data)

        node.answer_with = answer
        frame = framed(encode_request(ApiKey.ENVELOPE, 0, 1, "raw", EnvelopeRequest(request_data=bytes(20_000))))
        async with serving(node) as endpoint, await connect(endpoint) as stream, trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, frame * count)
            await node.until(lambda: len(served) > 0)
            await trio.testing.wait_all_tasks_blocked(0.01)
            in_sockets = 8_000_000
            assert len(served) * len(data) < UNSENT_PER_CONNECTION + in_sockets + 4 * len(data)
            frames = await read_frames(stream, count)
            assert len(frames) == len(served) == count

    async def test_other_connections_are_served_while_a_long_frame_is_decoded(self, new_node: NewNode):
        """A broker that changes the ISR of all its partitions must not keep a vote waiting."""
        node, isr = new_node(), [BrokerState(broker_id=number) for number in range(3)]
        partitions = [PartitionData(partition_index=number, new_isr_with_epochs=isr) for number in range(20_000)]
        message = AlterPartitionRequest(topics=[TopicData(partitions=partitions)])
        frame = framed(encode_request(ApiKey.ALTER_PARTITION, 3, 1, "broker", message))
        async with serving(node) as endpoint, await connect(endpoint) as broker, await connect(endpoint) as voter:
            await broker.send_all(frame[:-1])
            await trio.testing.wait_all_tasks_blocked(0.01)
            os.write(broker.socket.fileno(), frame[-1:] + vote(1))
            os.write(voter.socket.fileno(), vote(2))
            await node.until(lambda: len(node.requests) == 3)
        asked = [(request.api_key, request.correlation_id) for request in node.requests]
        assert asked == [(ApiKey.VOTE, 2), (ApiKey.ALTER_PARTITION, 1), (ApiKey.VOTE, 1)]
        assert node.requests[1].message == message

    async def test_a_long_frame_that_is_damaged_closes_its_connection(self, new_node: NewNode):
        node, states = new_node(), [BrokerState(broker_id=number) for number in range(50_000)]
        message = AlterPartitionRequest(topics=[TopicData(partitions=[PartitionData(new_isr_with_epochs=states)])])
        content = encode_request(ApiKey.ALTER_PARTITION, 3, 1, "broker", message)
        async with serving(node) as endpoint, await connect(endpoint) as broker:
            await broker.send_all(framed(content[:-8]))
            assert await read_to_end(broker) == b""
        assert node.requests == []

    async def test_a_connection_is_paused_while_its_next_request_is_already_there(self, new_node: NewNode):
        """Answering one client from the request of another must not lose what the first one has just sent."""
        node = new_node()
        ask_much = framed(encode_request(ApiKey.ENVELOPE, 0, 1, "raw", EnvelopeRequest()))

        def answer_the_other(request: Request) -> VoteResponse:
            [parked] = node.requests
            node.transport.answer(parked, EnvelopeResponse(response_data=bytes(16_000_000)))
            node.answer_with = echo
            return echo(request)

        async with serving(node) as endpoint, await connect(endpoint) as slow, await connect(endpoint) as other:
            await slow.send_all(ask_much)
            await node.until(lambda: len(node.requests) == 1)
            node.answer_with = answer_the_other
            for stream in (other, slow):  # without a checkpoint, so that both are there in one burst
                os.write(stream.socket.fileno(), vote(2))
            assert len(await read_frames(other, 1)) == 1
            big, small = await read_frames(slow, 2)
            assert len(big) > 16_000_000
            assert small == encode_response(ApiKey.VOTE, 2, 2, VoteResponse(error_code=2))

    async def test_a_client_that_disconnects_within_a_request_is_forgotten(self, new_node: NewNode):
        node = new_node()
        async with serving(node) as endpoint:
            before = count_descriptors()
            for _ in range(5):
                async with await connect(endpoint) as stream:
                    await stream.send_all(vote(1) + b"\x00\x00\x10\x00half")
                    request = await node.next_request()
                await until_descriptors(before)
                node.transport.answer(request, VoteResponse())

    async def test_connections_are_bounded(self, new_node: NewNode):
        node = new_node(max_connections=3)
        node.answer_with = echo
        async with serving(node) as endpoint:
            streams = [await connect(endpoint) for _ in range(3)]
            for stream in streams:
                await stream.send_all(vote(1))
                assert len(await read_frames(stream, 1)) == 1
            async with await connect(endpoint) as fourth:
                assert await read_to_end(fourth) == b""
            before = count_descriptors()
            await streams.pop().aclose()
            await until_descriptors(before - 2)
            async with await connect(endpoint) as fifth:
                await fifth.send_all(vote(1))
                assert len(await read_frames(fifth, 1)) == 1
            for stream in streams:
                await stream.aclose()


def count_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def until_descriptors(count: int) -> None:
    with trio.fail_after(20):
        while count_descriptors() > count:
            await trio.lowlevel.checkpoint()


class TestIdle:
    async def test_an_idle_connection_is_closed_and_a_waiting_one_is_not(
        self, new_node: NewNode, mock_clock: trio.testing.MockClock
    ):
        node = new_node(max_idle_ms=60_000)
        async with serving(node) as endpoint, await connect(endpoint) as idle, await connect(endpoint) as waiting:
            await idle.send_all(b"\x00")
            await waiting.send_all(vote(4))
            request = await node.next_request()
            for _ in range(5):
                mock_clock.jump(20)
                await trio.testing.wait_all_tasks_blocked()
            assert await read_to_end(idle) == b""
            node.transport.answer(request, echo(request))
            assert len(await read_frames(waiting, 1)) == 1

    async def test_an_idle_connection_to_a_peer_is_opened_again_when_needed(
        self, new_node: NewNode, mock_clock: trio.testing.MockClock
    ):
        server, client = new_node(), new_node(max_idle_ms=1000)
        server.answer_with = echo
        async with serving(server) as endpoint, client.running():
            assert isinstance(await client.call(endpoint, numbered(1)), Reply)
            before = count_descriptors()
            for _ in range(6):
                mock_clock.jump(0.25)
                await trio.testing.wait_all_tasks_blocked()
            await until_descriptors(before - 2)
            assert isinstance(await client.call(endpoint, numbered(1)), Reply)


class RawServer:
    """A listening socket that a test plays the peer on."""

    def __init__(self) -> None:
        self.socket = trio.socket.socket()

    async def open(self) -> Endpoint:
        await self.socket.bind(("127.0.0.1", 0))
        self.socket.listen()
        return Endpoint(*self.socket.getsockname()[:2])

    async def accept(self) -> trio.SocketStream:
        accepted, _ = await self.socket.accept()
        return trio.SocketStream(accepted)

    async def accept_and_shake_hands(self) -> trio.SocketStream:
        stream = await self.accept()
        [frame] = await read_frames(stream, 1)
        correlation_id = int.from_bytes(frame[4:8], "big")
        await stream.send_all(framed(encode_response(ApiKey.API_VERSIONS, 4, correlation_id, versions_of(APIS))))
        return stream


@asynccontextmanager
async def raw_server() -> AsyncIterator[tuple[RawServer, Endpoint]]:
    server = RawServer()
    with server.socket:
        yield server, await server.open()


class TestKeptConnections:
    async def test_are_there_before_the_first_request_and_again_after_they_were_lost(
        self, new_node: NewNode, mock_clock: trio.testing.MockClock
    ):
        client = new_node()
        async with raw_server() as (server, endpoint), client.running():
            client.transport.keep_connected([endpoint], "raft-client-1")
            for _ in range(2):
                async with await server.accept_and_shake_hands():
                    pass
                await trio.testing.wait_all_tasks_blocked(0.01)
                mock_clock.jump(0.5)
            async with await server.accept_and_shake_hands() as stream:
                client.ask(endpoint)
                assert len(await read_frames(stream, 1)) == 1
        assert list(client.outcomes) == [1]

    async def test_are_made_again_when_a_peer_connects(self, new_node: NewNode, mock_clock: trio.testing.MockClock):
        """A connection from a peer that was away shows that the peer is back."""
        client = new_node()
        async with raw_server() as (server, endpoint), serving(client) as own:
            client.transport.keep_connected([endpoint], "raft-client-1")
            await (await server.accept()).aclose()
            await trio.testing.wait_all_tasks_blocked(0.01)
            mock_clock.jump(0.1)
            async with await connect(own), await server.accept():
                pass

    async def test_are_given_up_without_a_handshake(self, new_node: NewNode, mock_clock: trio.testing.MockClock):
        """The peer takes the connection and says nothing, as a host does that died meanwhile."""
        client = new_node()
        async with raw_server() as (server, endpoint), client.running():
            client.transport.keep_connected([endpoint], "raft-client-1")
            async with await server.accept() as stream:
                assert len(await read_frames(stream, 1)) == 1
                for _ in range(5):
                    await trio.testing.wait_all_tasks_blocked(0.01)
                    mock_clock.jump(0.5)
                assert await read_to_end(stream) == b""
            await (await server.accept_and_shake_hands()).aclose()

    async def test_are_forgotten_when_others_replace_them(self, new_node: NewNode, mock_clock: trio.testing.MockClock):
        client = new_node()
        async with raw_server() as (first, former), raw_server() as (second, latter), client.running():
            client.transport.keep_connected([former], "raft-client-1")
            await (await first.accept()).aclose()
            client.transport.keep_connected([latter], "raft-client-1")
            await (await second.accept()).aclose()
            await trio.testing.wait_all_tasks_blocked(0.01)
            mock_clock.jump(0.5)
            await (await second.accept()).aclose()
            with trio.move_on_after(1) as waiting:
                mock_clock.jump(1)
                await first.accept()
            assert waiting.cancelled_caught


class TestBrokenPeers:
    @pytest.mark.parametrize(
        "answer", [b"\xff\xff\xff\xff", b"HTTP/1.1 400 Bad Request\r\n", framed(b"\x00\x00\x00\x63"), framed(b"")]
    )
    async def test_an_invalid_response_fails_the_request(self, new_node: NewNode, answer: bytes):
        client = new_node()
        async with raw_server() as (server, endpoint), client.running():
            token = client.ask(endpoint)
            async with await server.accept_and_shake_hands() as stream:
                assert len(await read_frames(stream, 1)) == 1
                await stream.send_all(answer)
                assert (await client.outcome(token)).cause is Cause.BAD_BYTES
                assert await read_to_end(stream) == b""

    async def test_a_connection_closed_within_a_response_fails_the_request(self, new_node: NewNode):
        client = new_node()
        async with raw_server() as (server, endpoint), client.running():
            token = client.ask(endpoint)
            async with await server.accept_and_shake_hands() as stream:
                await read_frames(stream, 1)
                await stream.send_all(b"\x00\x00\x00\x10\x00\x00")
            assert (await client.outcome(token)).cause is Cause.RESET

    async def test_a_peer_that_never_answers_the_handshake(self, new_node: NewNode, mock_clock: trio.testing.MockClock):
        client = new_node()
        async with raw_server() as (server, endpoint), client.running():
            token = client.ask(endpoint, timeout_ms=2000)
            async with await server.accept():
                mock_clock.jump(2)
                assert (await client.outcome(token)).cause is Cause.TIMEOUT

    async def test_a_peer_that_has_answered_is_not_judged_by_its_closings(
        self, new_node: NewNode, mock_clock: trio.testing.MockClock
    ):
        """A proxy accepts and closes while the node behind it restarts; a client that follows it tries on."""
        client = new_node()
        async with raw_server() as (server, endpoint), client.running():
            token = client.ask(endpoint)
            async with await server.accept_and_shake_hands() as stream:
                [frame] = await read_frames(stream, 1)
                correlation_id = int.from_bytes(frame[4:8], "big")
                api_key, version = (int.from_bytes(frame[at : at + 2], "big") for at in (0, 2))
                await stream.send_all(framed(encode_response(api_key, version, correlation_id, VoteResponse())))
                assert isinstance(await client.outcome(token), Reply)
                token = client.ask(endpoint)
                await read_frames(stream, 1)
            assert (await client.outcome(token)).cause is Cause.RESET
            for _ in range(6):
                token = client.ask(endpoint)
                await (await server.accept()).aclose()
                assert (await client.outcome(token)).cause is Cause.RESET
                mock_clock.jump(1)

    async def test_failed_attempts_back_off_exponentially(self, new_node: NewNode, mock_clock: trio.testing.MockClock):
        """Kafka's reconnect back-off, 50 ms doubling to 500 ms: meanwhile requests fail at once, without an attempt."""
        client = new_node()
        async with raw_server() as (server, endpoint), client.running():
            for number, pause_ms in enumerate((50, 100, 200, 400, 500, 500)):
                cause = Cause.RESET if number < 2 else Cause.FOREIGN  # two closings may be those of a node that stops
                token = client.ask(endpoint)
                await (await server.accept()).aclose()
                assert (await client.outcome(token)).cause is cause
                mock_clock.jump((pause_ms - 1) / 1000)
                failed = await client.call(endpoint)
                assert failed.cause is cause
                assert "not tried again yet" in failed.detail
                mock_clock.jump(2 / 1000)
            token = client.ask(endpoint)
            async with await server.accept_and_shake_hands() as stream:
                await read_frames(stream, 1)
            assert (await client.outcome(token)).cause is Cause.RESET
            token = client.ask(endpoint)
            await (await server.accept()).aclose()
            await client.outcome(token)
            mock_clock.jump(51 / 1000)  # a connection that was of use has ended the long pauses
            client.ask(endpoint)
            await (await server.accept()).aclose()

    @pytest.mark.parametrize(
        ("endpoint", "reason"),
        [
            (UNRESOLVABLE, "cannot be resolved"),
            (Endpoint("x" * 64, 9093), "cannot be resolved"),
            (Endpoint("a\0b", 9093), "cannot be resolved"),
            (Endpoint("127.0.0.1", 0), "no port 0"),
            (Endpoint("127.0.0.1", 70_000), "no port 70000"),
            (Endpoint("::1", -1), "no port -1"),
        ],
    )
    async def test_an_invalid_endpoint_fails_the_request(self, new_node: NewNode, endpoint: Endpoint, reason: str):
        """Endpoints come over the wire: an invalid endpoint from another node must not stop this one."""
        client = new_node()
        async with client.running():
            failed = await client.call(endpoint)
            is_impossible = reason == "cannot be resolved" and endpoint != UNRESOLVABLE
            # Without a server for names, none is known not to exist.
            assert failed.cause in ({Cause.UNKNOWN_HOST} if is_impossible else {Cause.TIMEOUT, Cause.UNKNOWN_HOST})
            assert reason in failed.detail

    async def test_closing_a_peer_while_its_name_is_looked_up(self, new_node: NewNode):
        client = new_node()
        async with client.running():
            token = client.ask(UNRESOLVABLE)
            client.transport.close_peer(UNRESOLVABLE)
            assert (await client.outcome(token)).cause is Cause.CLOSED


class TestAddresses:
    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost", ""])
    async def test_names_numbers_and_every_address(self, new_node: NewNode, host: str):
        server, client = new_node(), new_node()
        server.answer_with = echo
        endpoint = server.transport.listen(Listener("CONTROLLER", host, 0))
        async with server.running(), client.running():
            for name in ("127.0.0.1", "localhost"):
                assert isinstance(await client.call(Endpoint(name, endpoint.port), numbered(1)), Reply)

    @pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
    async def test_ipv6(self, new_node: NewNode):
        server, client = new_node(), new_node()
        endpoint = server.transport.listen(Listener("CONTROLLER", "::1", 0))
        assert str(endpoint) == f"[::1]:{endpoint.port}"
        async with server.running(), client.running():
            client.ask(endpoint)
            assert (await server.next_request()).peer.startswith("[::1]:")

    def test_a_refusal_is_reported_before_other_connection_errors(self):
        """A refusal comes from the host itself, even if the host's other address is not routed here."""
        silence, refusal, later = (Cause.TIMEOUT, "a"), (Cause.REFUSED, "b"), (Cause.TIMEOUT, "c")
        assert clearer(None, silence) == silence
        assert clearer(silence, refusal) == refusal
        assert clearer(refusal, later) == refusal

    async def test_listeners_of_the_constructor_are_bound_by_run(self, new_node: NewNode):
        server, client = new_node(listeners=[LISTENER]), new_node()
        server.answer_with = echo
        async with server.running(), client.running():
            assert isinstance(await client.call(server.transport.endpoints["CONTROLLER"], numbered(1)), Reply)

    def test_a_connection_to_itself_is_refused(self):
        """A connection to a free ephemeral port can connect to itself: there is no listener, so no peer."""
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            one.connect(one.getsockname())
            with pytest.raises(ConnectionRefusedError):
                refuse_itself(one.getsockname(), one.getpeername())


class TestPatience:
    """A transport that keeps the thread while it waits for the next message."""

    async def test_other_tasks_run_while_messages_arrive(self):
        node = Node(TcpTransport(patience_ms=2))
        node.answer_with = echo
        enough = threading.Event()

        def ask_on(endpoint: Endpoint) -> None:
            with socket.create_connection((endpoint.host, endpoint.port), timeout=20) as asking:
                while not enough.is_set():
                    asking.sendall(vote(1))
                    assert asking.recv(1024)

        async with serving(node) as endpoint, trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, ask_on, endpoint)
            with trio.fail_after(20):
                for _ in range(20):
                    await trio.lowlevel.checkpoint()
            enough.set()

    async def test_a_busy_caller_is_not_blocked_by_the_wait(self):
        node = Node(TcpTransport(patience_ms=3_600_000))
        node.answer_with = echo
        node.batch_delivered = lambda: False
        async with serving(node) as endpoint, await connect(endpoint) as stream:
            await stream.send_all(vote(1))
            assert len(await read_frames(stream, 1)) == 1

    async def test_another_thread_ends_the_wait(self):
        node = Node(TcpTransport(patience_ms=3_600_000))
        threads = []

        def batch_delivered() -> bool:
            threads.append(threading.Thread(target=node.transport.wake))
            threads[-1].start()
            return len(threads) == 1

        node.batch_delivered = batch_delivered
        async with serving(node) as endpoint, await connect(endpoint) as stream:
            await stream.send_all(vote(1))
            with trio.fail_after(20):
                while len(threads) < 2:
                    await trio.lowlevel.checkpoint()
        for thread in threads:
            thread.join()

    async def test_poll_nowait_delivers_available_messages(self):
        node = Node(TcpTransport())
        async with serving(node) as endpoint, await connect(endpoint) as stream:
            await stream.send_all(vote(1))
            await node.next_request()
            await stream.send_all(vote(2))
            while not node.requests:
                node.transport.poll_nowait()
            assert node.requests.pop().correlation_id == 2


class TestDescriptors:
    async def test_cancelling_closes_everything(self, new_node: NewNode):
        gc.collect()
        before = count_descriptors()
        async with trio.open_nursery() as nursery:
            server, clients = new_node(), [new_node() for _ in range(5)]
            endpoint = server.transport.listen(LISTENER)
            for node in (server, *clients):
                await nursery.start(partial(node.transport.run, node.deliver, batch_delivered=node.batch_delivered))
            for client in clients:
                client.ask(endpoint)
                client.ask(Endpoint("localhost", endpoint.port))
                client.ask(UNRESOLVABLE)
            await server.until(lambda: len(server.requests) == 10)
            stream = await connect(endpoint)
            await stream.send_all(b"\x00\x00")
            nursery.cancel_scope.cancel()
        await stream.aclose()
        assert count_descriptors() == before

    async def test_without_free_descriptors_connections_wait(
        self, new_node: NewNode, mock_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
    ):
        """Running out of descriptors must not end the node, nor burn its processor."""
        node = new_node()
        node.answer_with = echo
        async with serving(node) as endpoint:
            raw = trio.socket.socket()
            with no_free_descriptors():
                await raw.connect((endpoint.host, endpoint.port))
                await trio.testing.wait_all_tasks_blocked(0.01)
                assert len([message for message in caplog.messages if "cannot accept" in message]) == 1
            mock_clock.jump(0.2)
            async with trio.SocketStream(raw) as stream:
                await stream.send_all(vote(1))
                assert len(await read_frames(stream, 1)) == 1


async def test_an_answer_with_a_throttle_time_mutes_its_connection(new_node: NewNode):
    node = new_node()
    async with serving(node) as endpoint, await connect(endpoint) as stream:
        ask = framed(encode_request(ApiKey.ALTER_PARTITION, 2, 1, "raw", AlterPartitionRequest()))
        await stream.send_all(ask)
        await node.until(lambda: len(node.requests) == 1)
        node.transport.answer(node.requests.pop(), AlterPartitionResponse(throttle_time_ms=200))
        assert len(await read_frames(stream, 1)) == 1
        began = trio.current_time()
        await stream.send_all(ask)
        await node.until(lambda: len(node.requests) == 1)
        assert trio.current_time() - began >= 0.15
