"""The contract of transports, run against all of them: a node cannot tell which transport it has, so none may differ.

The network of the simulator is one of them, but for what the tests say. What it does instead is in
`test_simulated_network`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
import trio

from conversation import LISTENER, Node, echo, logins, numbered
from metadata_log.serde import Message, Versions
from simulated_transport import SimulatedTransport, Talk
from support.interop.certificates import tls
from transport import Cause, Endpoint, Failed, Listener, MemoryNetwork, MemoryTransport, Reply, TcpTransport
from transport.interface import Request
from transport.memory_sockets import MemoryStreams
from transport.protocol.apis import APIS, ApiKey
from transport.protocol.messages import (
    ElectLeadersRequest,
    EnvelopeRequest,
    EnvelopeResponse,
    FetchRequest,
    VoteResponse,
)
from transport.protocol.messages.elect_leaders import TopicPartitions
from transport.protocol.messages.vote import (
    VoteRequest,
    VoteRequestPartitionData,
    VoteRequestTopicData,
    VoteResponseTopicData,
)
from unix_transport import unix_transport

NewNode = Callable[..., Node]
Test = Callable[..., Any]
MOST_NODES = 41
TRANSPORTS = ["epoll", "streams", "unix", "memory", "epoll-tls", "streams-tls", "unix-tls", "memory-tls"]
TRANSPORTS += ["epoll-sasl", "streams-sasl", "memory-sasl", "memory-tls-sasl"]


def not_simulated(why: str) -> Callable[[Test], Test]:
    """Skip the simulator's network, which does not promise what the test checks, for this reason."""

    def mark(test: Test) -> Test:
        vars(test)["not_simulated"] = why
        return test

    return mark


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    simulated = [] if "not_simulated" in vars(metafunc.function) else ["simulated"]
    metafunc.parametrize("new_node", TRANSPORTS + simulated, indirect=True)


@pytest.fixture
def new_node(request: pytest.FixtureRequest) -> Iterator[NewNode]:
    network, talk = MemoryNetwork(seed=5), Talk(MOST_NODES) if request.param == "simulated" else None
    streams = MemoryStreams()
    hosts, node_ids = iter(range(1000)), iter(range(1, 1 + MOST_NODES))

    def make(**options: Any) -> Node:
        served = options.get("served", APIS)
        kind, *secured = request.param.split("-")
        if "tls" in secured:
            options["tls"] = tls()
        if "sasl" in secured:
            options["sasl"] = logins()
        if kind == "memory" and secured:
            return Node(streams.transport(**options), served)
        if kind == "memory":
            return Node(MemoryTransport(network, f"host{next(hosts)}", **options), served)
        if talk is not None:
            return Node(SimulatedTransport(talk, next(node_ids), **options))
        if kind == "unix":
            return Node(unix_transport(Path(directory), **options), served)
        return Node(TcpTransport(use_epoll=kind == "epoll", **options), served)

    with TemporaryDirectory() as directory:  # a socket's path may have 107 bytes, which leaves too few in pytest's own
        yield make


async def test_a_request_gets_its_reply(new_node: NewNode):
    server, client = new_node(), new_node()
    endpoint = server.transport.listen(LISTENER)
    async with server.running(), client.running():
        token = client.ask(endpoint, numbered(3))
        request = await server.next_request()
        assert (request.api_key, request.version, request.listener) == (ApiKey.VOTE, 2, "CONTROLLER")
        assert request.client_id == "raft-client-1"
        assert request.message == numbered(3)
        server.transport.answer(request, VoteResponse(error_code=3))
        assert await client.outcome(token) == Reply(token, VoteResponse(error_code=3))


@not_simulated("an answer does not wait there for those to earlier requests: nodes must bear worse, `reorder`")
async def test_responses_given_in_any_order_arrive_in_request_order(new_node: NewNode):
    server, client = new_node(), new_node()
    endpoint = server.transport.listen(LISTENER)
    async with server.running(), client.running():
        tokens = [client.ask(endpoint, numbered(number)) for number in range(6)]
        await server.until(lambda: len(server.requests) == 6)
        for number in (3, 5, 4, 1):
            server.transport.answer(server.requests[number], echo(server.requests[number]))
        for number in (0, 2):
            server.transport.answer(server.requests[number], echo(server.requests[number]))
        await client.until(lambda: len(client.outcomes) == 6)
    assert list(client.outcomes) == tokens
    assert [reply.message.error_code for reply in client.outcomes.values()] == list(range(6))


@pytest.mark.parametrize("other", [{"client_id": "1"}, {"lane": 1}])
async def test_another_client_id_or_lane_uses_another_connection(new_node: NewNode, other: dict[str, Any]):
    """Otherwise a node's fetch would wait behind its own request at the leader, which needs that fetch to commit."""
    server, client = new_node(), new_node()
    endpoint = server.transport.listen(LISTENER)
    async with server.running(), client.running():
        long_in_coming = client.ask(endpoint, numbered(1), **other)
        await server.until(lambda: len(server.requests) == 1)
        token = client.ask(endpoint, numbered(2), client_id="raft-client-1")
        await server.until(lambda: len(server.requests) == 2)
        server.transport.answer(server.requests[1], echo(server.requests[1]))
        assert await client.outcome(token) == Reply(token, VoteResponse(error_code=2))
        assert long_in_coming not in client.outcomes
        client.transport.close_peer(endpoint)
        assert await client.outcome(long_in_coming) == Failed(
            long_in_coming, Cause.CLOSED, client.outcomes[long_in_coming].detail
        )


async def test_many_requests_in_flight_on_one_connection(new_node: NewNode):
    server, client = new_node(), new_node()
    server.answer_with = echo
    endpoint = server.transport.listen(LISTENER)
    async with server.running(), client.running():
        tokens = [client.ask(endpoint, numbered(number)) for number in range(3000)]
        await client.until(lambda: len(client.outcomes) == 3000)
    assert [client.outcomes[token].message.error_code for token in tokens] == list(range(3000))


async def test_many_connections(new_node: NewNode):
    server, clients = new_node(), [new_node() for _ in range(40)]
    server.answer_with = echo
    endpoint = server.transport.listen(LISTENER)

    async def converse(number: int) -> None:
        async with clients[number].running():
            for _ in range(5):
                reply = await clients[number].call(endpoint, numbered(number))
                assert reply.message.error_code == number

    async with server.running(), trio.open_nursery() as nursery:
        for number in range(len(clients)):
            nursery.start_soon(converse, number)


@not_simulated("a run has one thread, in which nothing waits")
async def test_another_thread_can_wake_the_transport(new_node: NewNode):
    node, woken = new_node(), trio.Event()
    node.batch_delivered = lambda: woken.set() is None
    async with node.running():
        thread = threading.Thread(target=node.transport.wake)
        thread.start()
        with trio.fail_after(20):
            await woken.wait()
        thread.join()


async def test_two_nodes_talk_both_ways_and_to_themselves(new_node: NewNode):
    """A Kafka node without a leader does fetch from itself."""
    nodes = [new_node(), new_node()]
    endpoints = [node.transport.listen(LISTENER) for node in nodes]
    for node in nodes:
        node.answer_with = echo
    async with nodes[0].running(), nodes[1].running():
        for node in nodes:
            for number, endpoint in enumerate(endpoints):
                assert (await node.call(endpoint, numbered(number))).message.error_code == number


async def test_big_messages_both_ways(new_node: NewNode):
    server, client = new_node(), new_node()

    def reversed_data(request: Request) -> Message:
        assert isinstance(request.message, EnvelopeRequest)
        return EnvelopeResponse(response_data=request.message.request_data[::-1])

    server.answer_with = reversed_data
    endpoint = server.transport.listen(LISTENER)
    data = bytes(range(256)) * 20_000
    async with server.running(), client.running():
        outcomes = [client.ask(endpoint, EnvelopeRequest(request_data=data + bytes([number]))) for number in range(3)]
        for number, token in enumerate(outcomes):
            reply = await client.outcome(token)
            assert reply.message.response_data == bytes([number]) + data[::-1]


@not_simulated("a refusal may be lost there, or look like a reset")
async def test_a_connection_without_a_listener_is_refused(new_node: NewNode):
    server, client = new_node(), new_node()
    endpoint = server.transport.listen(LISTENER)
    async with server.running():
        pass
    async with client.running():
        failed = await client.call(endpoint)
        assert isinstance(failed, Failed)
        assert failed.cause is Cause.REFUSED
        assert str(endpoint) in failed.detail


@not_simulated("there are no connections there that could be kept")
async def test_kept_connections_serve_requests_like_others(new_node: NewNode):
    """A connection that could not be made beforehand fails no request."""
    server, client = new_node(), new_node()
    endpoint = server.transport.listen(LISTENER)
    async with server.running(), client.running():
        client.transport.keep_connected([endpoint, Endpoint("127.0.0.1", 1)], "raft-client-1")
        for number in range(2):
            token = client.ask(endpoint, numbered(number))
            server.transport.answer(await server.next_request(), VoteResponse(error_code=number))
            assert await client.outcome(token) == Reply(token, VoteResponse(error_code=number))
    assert len(client.outcomes) == 2


@not_simulated("a node that drops a request of another one is a bug there, and ends the run")
async def test_a_dropped_request_resets_its_connection(new_node: NewNode):
    server, client = new_node(), new_node()
    endpoint = server.transport.listen(LISTENER)
    async with server.running(), client.running():
        tokens = [client.ask(endpoint) for _ in range(3)]
        await server.until(lambda: len(server.requests) == 3)
        server.transport.drop(server.requests[1])
        for token in tokens:
            assert (await client.outcome(token)).cause is Cause.RESET
        server.transport.answer(server.requests[0], VoteResponse())
        server.answer_with = echo
        assert isinstance(await client.call(endpoint, numbered(1)), Reply)


@not_simulated("each exchange ends by itself there; there is no connection that could end")
async def test_requests_of_a_closed_connection_are_reported(new_node: NewNode):
    """A user that parks requests must not hold them for peers that have gone."""
    server, client = new_node(), new_node()
    endpoint = server.transport.listen(LISTENER)
    async with server.running(), client.running():
        tokens = [client.ask(endpoint, numbered(number)) for number in range(3)]
        await server.until(lambda: len(server.requests) == 3)
        for request in server.requests[::2]:
            server.transport.answer(request, echo(request))
        await client.outcome(tokens[0])
        client.transport.close_peer(endpoint)
        await server.until(lambda: bool(server.gone))
        assert server.gone == [server.requests[1]]
        server.transport.answer(server.requests[1], VoteResponse())
        server.requests.clear()
        server.answer_with = echo
        assert isinstance(await client.call(endpoint, numbered(1)), Reply)


@not_simulated("a node that drops a request of another one is a bug there, and ends the run")
async def test_a_dropped_request_is_not_reported_and_the_others_are(new_node: NewNode):
    server, client = new_node(), new_node()
    endpoint = server.transport.listen(LISTENER)
    async with server.running(), client.running():
        for number in range(3):
            client.ask(endpoint, numbered(number))
        await server.until(lambda: len(server.requests) == 3)
        server.transport.drop(server.requests[1])
        await server.until(lambda: bool(server.gone))
        assert server.gone == server.requests[::2]


@not_simulated("whether and how a sender notices is drawn there")
async def test_a_stopping_peer_resets_and_then_refuses_connections(new_node: NewNode):
    """The difference between these and a time-out is what lets a follower notice a killed leader at once."""
    server, client = new_node(), new_node()
    endpoint = server.transport.listen(LISTENER)
    async with client.running():
        async with server.running() as scope:
            token = client.ask(endpoint)
            await server.next_request()
            scope.cancel()
        assert (await client.outcome(token)).cause is Cause.RESET
        assert (await client.call(endpoint)).cause is Cause.REFUSED


async def test_a_request_without_an_answer_times_out(new_node: NewNode, mock_clock: trio.testing.MockClock):
    server, client = new_node(), new_node()
    endpoint = server.transport.listen(LISTENER)
    async with server.running(), client.running():
        token = client.ask(endpoint, timeout_ms=500)
        request = await server.next_request()
        mock_clock.jump(0.499)
        await trio.testing.wait_all_tasks_blocked()
        assert token not in client.outcomes
        mock_clock.jump(0.001)
        assert (await client.outcome(token)).cause is Cause.TIMEOUT
        server.transport.answer(request, VoteResponse())
        server.answer_with = echo
        assert isinstance(await client.call(endpoint, numbered(1)), Reply)


@not_simulated("each exchange ends by itself there; a struck connection is a fault, `reset-connections`")
async def test_requests_behind_a_timed_out_one_fail_with_it(new_node: NewNode, mock_clock: trio.testing.MockClock):
    """Answers leave a connection in order, so the later answers could only follow the one that timed out."""
    server, client = new_node(), new_node()
    endpoint = server.transport.listen(LISTENER)
    async with server.running(), client.running():
        tokens = [client.ask(endpoint, timeout_ms=timeout_ms) for timeout_ms in (500, 9000, 9000)]
        await server.until(lambda: len(server.requests) == 3)
        mock_clock.jump(0.5)
        for token in tokens:
            assert (await client.outcome(token)).cause is Cause.TIMEOUT


@not_simulated("the members of a run state their versions, without a handshake")
async def test_an_api_that_the_peer_does_not_serve(new_node: NewNode):
    server = new_node(served={key: APIS[key] for key in (ApiKey.API_VERSIONS, ApiKey.VOTE)})
    client = new_node()
    server.answer_with = echo
    endpoint = server.transport.listen(LISTENER)
    async with server.running(), client.running():
        assert isinstance(await client.call(endpoint, numbered(1)), Reply)
        failed = await client.call(endpoint, FetchRequest())
        assert failed.cause is Cause.UNSUPPORTED_VERSION
        assert "Fetch" in failed.detail
        assert isinstance(await client.call(endpoint, numbered(1)), Reply)


async def test_a_request_may_have_a_lower_version_than_both_know(new_node: NewNode):
    server, client = new_node(), new_node()
    endpoint = server.transport.listen(LISTENER)
    async with server.running(), client.running():
        for highest, expected in ((1, 1), (2, 2), (7, 2)):
            token = client.ask(endpoint, highest=highest)
            request = await server.next_request()
            assert request.version == expected
            server.transport.answer(request, VoteResponse())
            assert isinstance(await client.outcome(token), Reply)


@not_simulated("the members of a run state their versions, without a handshake")
async def test_a_field_missing_in_the_common_version_fails_the_request(new_node: NewNode):
    """Asking an older peer for a pre-vote must fail by name, not turn into a real vote."""
    older = {**APIS, ApiKey.VOTE: msgspec.structs.replace(APIS[ApiKey.VOTE], versions=Versions(0, 1))}
    server, client = new_node(served=older), new_node()
    endpoint = server.transport.listen(LISTENER)
    pre_vote = VoteRequest(topics=[VoteRequestTopicData(partitions=[VoteRequestPartitionData(pre_vote=True)])])
    async with server.running(), client.running():
        token = client.ask(endpoint, numbered(1))
        request = await server.next_request()
        assert request.version == 1
        server.transport.answer(request, VoteResponse())
        await client.outcome(token)
        for _ in range(2):
            assert (await client.call(endpoint, pre_vote)).cause is Cause.UNSUPPORTED_VERSION


@not_simulated("an answer that cannot be written is a bug there, and ends the run")
async def test_an_answer_that_cannot_be_written_closes_the_connection(
    new_node: NewNode, caplog: pytest.LogCaptureFixture
):
    """A client must not be able to stop a node by asking in an old version."""
    server, client = new_node(), new_node()
    endpoint = server.transport.listen(LISTENER)
    async with server.running(), client.running():
        token = client.ask(endpoint)
        server.transport.answer(await server.next_request(), VoteResponse(error_code=1 << 20))
        assert (await client.outcome(token)).cause is Cause.RESET
    assert "cannot be written" in caplog.text


async def test_closing_a_peer_fails_its_outstanding_requests(new_node: NewNode):
    server, client = new_node(), new_node()
    endpoint = server.transport.listen(LISTENER)
    async with server.running(), client.running():
        tokens = [client.ask(endpoint), client.ask(endpoint)]
        request = await server.next_request()
        client.transport.close_peer(endpoint)
        assert not client.outcomes
        for token in tokens:
            assert (await client.outcome(token)).cause is Cause.CLOSED
        server.transport.answer(request, VoteResponse())
        server.requests.clear()
        server.answer_with = echo
        assert isinstance(await client.call(endpoint, numbered(1)), Reply)
        client.transport.close_peer(Endpoint("absent", 1))


@not_simulated("a node that ends there has crashed, and no caller is left for a report")
async def test_stopping_the_transport_fails_outstanding_requests(new_node: NewNode):
    """A caller that waits for an outcome must not wait for ever."""
    server, client = new_node(), new_node()
    endpoint = server.transport.listen(LISTENER)
    async with server.running():
        async with client.running():
            token = client.ask(endpoint)
            await server.next_request()
        assert client.outcomes[token].cause is Cause.CLOSED


@not_simulated("nodes are known by their ids there")
async def test_an_address_in_use_is_refused(new_node: NewNode):
    first, second = new_node(), new_node()
    endpoint = first.transport.listen(LISTENER)
    with pytest.raises(OSError, match=f"cannot listen on {endpoint}: Address already in use"):
        second.transport.listen(Listener("CONTROLLER", endpoint.host, endpoint.port))
    async with first.running():
        pass


@not_simulated("a node has one listener there")
async def test_one_node_with_several_listeners(new_node: NewNode):
    server, client = new_node(), new_node()
    endpoints = [server.transport.listen(Listener(name, "127.0.0.1", 0)) for name in ("CONTROLLER", "OTHER")]
    async with server.running(), client.running():
        for endpoint, name in zip(endpoints, ("CONTROLLER", "OTHER"), strict=True):
            client.ask(endpoint)
            assert (await server.next_request()).listener == name


@not_simulated("a failure in a node ends the whole run there")
async def test_an_exception_of_a_callback_stops_the_transport(new_node: NewNode):
    """If one part of a node fails, all stop."""
    server, client = new_node(), new_node()
    endpoint = server.transport.listen(LISTENER)

    def fail(_: object) -> VoteResponse:
        raise ZeroDivisionError

    server.answer_with = fail
    async with client.running():
        with pytest.RaisesGroup(ZeroDivisionError, flatten_subgroups=True):
            async with server.running():
                token = client.ask(endpoint)
                await trio.sleep_forever()
        assert (await client.outcome(token)).cause is Cause.RESET


@not_simulated("its frames are small, or the simulator's own")
async def test_a_request_beyond_a_limit_closes_only_its_connection(new_node: NewNode):
    server, client = new_node(), new_node()
    server.answer_with = echo
    endpoint = server.transport.listen(LISTENER)
    too_many = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t")] * 60_000)
    too_long = VoteRequest(cluster_id="c" * 20_000)
    async with server.running(), client.running():
        for message in (too_many, too_long):
            outcome = await client.call(endpoint, message)
            assert isinstance(outcome, Failed)
            assert outcome.cause is Cause.RESET
            assert isinstance(await client.call(endpoint, numbered(1)), Reply)


@not_simulated("its frames are small, or the simulator's own")
async def test_an_answer_beyond_a_limit_is_bad_bytes(new_node: NewNode):
    server, client = new_node(), new_node()
    server.answer_with = lambda request: VoteResponse(topics=[VoteResponseTopicData(topic_name="t")] * 20_000)
    endpoint = server.transport.listen(LISTENER)
    async with server.running(), client.running():
        outcome = await client.call(endpoint, numbered(1))
        assert isinstance(outcome, Failed)
        assert outcome.cause is Cause.BAD_BYTES
