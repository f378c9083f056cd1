"""Connections that want to take a node for themselves: slow readers, parked fetches, old offsets. Over TCP."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio

from embedded_quorum import configs, leader_of, quorum
from kraft.node.node import Node
from metadata_log.records.batch import scan
from metadata_log.types import Uuid
from own_time import OwnTime
from support.loopback import free_ports
from support.wire import framed
from transport import TcpTransport
from transport.protocol.apis import ApiKey
from transport.protocol.frames import FrameReader
from transport.protocol.headers import decode_response, encode_request
from transport.protocol.messages import ApiVersionsRequest, FetchRequest, FetchResponse
from transport.protocol.messages import fetch as wire

STRANGER = "127.0.0.2"
MIB = 1 << 20


def fetch(node: Node, offset: int, *, max_wait_ms: int = 0, high_watermark: int = 2**62) -> bytes:
    """A Fetch that the leader finds valid; its sender counts for nothing."""
    epoch = node.status().leader.epoch
    part = wire.FetchPartition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=epoch,
        high_watermark=high_watermark,
    )
    message = FetchRequest(
        replica_state=wire.ReplicaState(replica_id=-1),
        max_wait_ms=max_wait_ms,
        max_bytes=2**31 - 1,
        topics=[wire.FetchTopic(topic_id=Uuid.METADATA_TOPIC, partitions=[part])],
    )
    return framed(encode_request(ApiKey.FETCH, 18, 1, "x", message))


def api_versions() -> bytes:
    message = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    return framed(encode_request(ApiKey.API_VERSIONS, 3, 1, "v", message))


@asynccontextmanager
async def connected(node: Node, address: str = STRANGER) -> AsyncIterator[trio.SocketStream]:
    raw = trio.socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await raw.bind((address, 0))
    await raw.connect((node.endpoints[0].host, node.endpoints[0].port))
    async with trio.SocketStream(raw) as stream:
        yield stream


async def read_frame(stream: trio.SocketStream) -> bytes:
    reader = FrameReader()
    while data := await stream.receive_some():
        if frames := reader.feed(data):
            return frames[0]
    raise AssertionError("closed without an answer")


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await trio.lowlevel.checkpoint()


def held(node: Node) -> tuple[int, int]:
    assert isinstance(node._transport, TcpTransport)
    return node._transport.serving.held_bytes


@pytest.fixture(autouse=True)
def strangers_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another loopback address plays another machine."""
    monkeypatch.setattr("transport.serving.is_loopback", lambda address: address == "127.0.0.1")


@pytest.fixture
def own_time() -> OwnTime:
    """The clock of the nodes: a busy machine lets this process wait for longer than their timeouts."""
    return OwnTime()


async def test_clients_that_do_not_read_cost_bounded_memory_and_no_leadership(
    tmp_path: Path, own_time: OwnTime
) -> None:
    """Two connections with two hundred pipelined fetches each ended a quorum (r6)."""
    with trio.fail_after(60):
        async with quorum(configs(tmp_path, free_ports(3))) as nodes, AsyncExitStack() as stack:
            leader = await leader_of(nodes)
            first = await leader.append([bytes(500_000)])
            for _ in range(17):
                await leader.append([bytes(500_000)])
            epoch = leader.status().leader.epoch
            for _ in range(20):
                stream = await stack.enter_async_context(connected(leader))
                await stream.send_all(fetch(leader, first) * 200)
            most = 0
            for number in range(40):
                await leader.append([b"%d" % number])
                most = max(most, held(leader)[1])
                await trio.testing.wait_all_tasks_blocked(0.005)
            assert 1 * MIB < most < 64 * MIB
            assert leader.status().leader.epoch == epoch
            await stack.aclose()
            await until(lambda: held(leader)[1] == 0)


async def test_parked_fetches_do_not_block_other_clients(tmp_path: Path) -> None:
    """Those of connections that had gone counted for ever, and requests of voters were dropped (r9)."""
    patient = {"controller.quorum.fetch.timeout.ms": "60000"}
    with trio.fail_after(60):
        async with quorum(configs(tmp_path, free_ports(1), **patient)) as [node], AsyncExitStack() as stack:
            await leader_of([node])
            await node.append([b"x"])
            parked = fetch(node, node.status().log_end_offset, max_wait_ms=2**31 - 1)
            greedy = [await stack.enter_async_context(connected(node)) for _ in range(16)]
            for stream in greedy:
                await stream.send_all(parked * 1024)
            await until(lambda: len(node._inbound.unanswered) >= 16)
            assert len(node._inbound.unanswered) == 16
            async with connected(node) as other:
                await other.send_all(api_versions())
                assert len(await read_frame(other)) > 4
            for stream in greedy:
                await stream.aclose()
            await until(lambda: not node._inbound.unanswered)
            assert not node._replica.core._quorum.purgatory.parked


async def test_a_fetch_waits_no_longer_than_a_followers_fetch(tmp_path: Path) -> None:
    with trio.fail_after(30):
        async with quorum(configs(tmp_path, free_ports(1))) as [node], connected(node) as stream:
            await leader_of([node])
            end = await node.append([b"x"]) + 1
            await stream.send_all(fetch(node, end, max_wait_ms=2**31 - 1))
            _, answer = decode_response(ApiKey.FETCH, 18, await read_frame(stream))
            assert isinstance(answer, FetchResponse)
            assert not answer.responses[0].partitions[0].records


async def test_records_are_not_copied_for_all_parked_fetches_at_once(tmp_path: Path) -> None:
    """Those beyond some megabytes are answered without records, and ask again when it suits."""
    with trio.fail_after(60):
        async with quorum(configs(tmp_path, free_ports(1), **{"controller.quorum.fetch.timeout.ms": "20000"})) as [
            node
        ]:
            await leader_of([node])
            end = await node.append([b"x"]) + 1
            async with AsyncExitStack() as stack:
                streams = [await stack.enter_async_context(connected(node)) for _ in range(40)]
                for stream in streams:
                    await stream.send_all(fetch(node, end, max_wait_ms=15_000))
                await until(lambda: len(node._inbound.unanswered) == 40)
                await node.append([bytes(2 * MIB)])
                sizes = []
                for stream in streams:
                    _, answer = decode_response(ApiKey.FETCH, 18, await read_frame(stream))
                    assert isinstance(answer, FetchResponse)
                    part = answer.responses[0].partitions[0]
                    assert part.error_code == 0
                    sizes.append(len(part.records or b""))
                assert max(sizes) > 2 * MIB
                assert 16 * MIB < sum(sizes) < 20 * MIB


async def test_hundreds_of_fetches_of_old_offsets_do_not_delay_other_clients(tmp_path: Path) -> None:
    """One connection that asked for three hundred at a time made all other clients wait for all of them."""
    with trio.fail_after(60):
        async with quorum(configs(tmp_path, free_ports(1))) as [node], AsyncExitStack() as stack:
            await leader_of([node])
            first = await node.append([bytes(200_000)])
            await node.append([bytes(200_000)])
            answered = [0]
            async with trio.open_nursery() as nursery:

                async def read_on(stream: trio.SocketStream) -> None:
                    while data := await stream.receive_some(1 << 20):
                        answered[0] += len(data)

                for _ in range(10):
                    raw = trio.socket.socket()
                    await raw.bind((STRANGER, 0))
                    await raw.connect((node.endpoints[0].host, node.endpoints[0].port))
                    stream = await stack.enter_async_context(trio.SocketStream(raw))
                    nursery.start_soon(read_on, stream)
                    nursery.start_soon(stream.send_all, fetch(node, first) * 300)
                await until(lambda: answered[0] > 2 * MIB)
                async with connected(node, "127.0.0.3") as other:
                    before = answered[0]
                    for _ in range(5):
                        await other.send_all(api_versions())
                        await read_frame(other)
                    assert answered[0] - before < 10 * 300 * 400_000 / 4
                nursery.cancel_scope.cancel()


async def test_an_observer_gets_a_mebibyte_at_a_time_or_one_batch(tmp_path: Path) -> None:
    """Answers of 8 MiB, read by two connections, made each commit wait for several of them."""

    async def records(stream: trio.SocketStream, offset: int) -> bytes:
        await stream.send_all(fetch(node, offset))
        _, answer = decode_response(ApiKey.FETCH, 18, await read_frame(stream))
        assert isinstance(answer, FetchResponse)
        return bytes(answer.responses[0].partitions[0].records or b"")

    with trio.fail_after(60):
        async with quorum(configs(tmp_path, free_ports(1))) as [node], connected(node) as stream:
            await leader_of([node])
            first = await node.append([bytes(200_000)])
            for _ in range(20):
                await node.append([bytes(200_000)])
            large = await node.append([bytes(3 * MIB)])
            some = await records(stream, first)
            assert 5 * 200_000 < len(some) <= MIB
            assert len(list(scan(some))) == 5, "whole batches"
            assert len(await records(stream, large)) > 3 * MIB, "else the observer could never go on"
