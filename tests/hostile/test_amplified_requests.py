"""Small on the wire, large inside: what a request costs its node, in instructions, by the byte and by the turn.

Every API of both listeners is asked by the shapes of `amplified`, at a controller and at a broker with data, without an
authorizer and with one that gives the client no right. A request may cost `PER_BYTE` instructions for each of its bytes
and `PER_REQUEST` besides, and no turn of a node may be longer than `TURN`. Instructions are counted and not timed: a
slow host and a busy one count the same. What a function in C does inside one instruction is not counted here;
`test_amplified_coordinators.py` measures that of coordinators.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from random import Random, SystemRandom
from typing import Any, Final

import pytest
import trio

from kraft.admin import open_admin
from kraft.admin.topics import create_topic
from kraft.handling.coordinators import GROUP, TRANSACTION
from metadata_log.memory_disk import MemoryFile
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record
from metadata_log.serde import Message
from metadata_log.types import Uuid
from support.eventually import pause
from support.hostile.amplified import Amplified, Known, amplified
from support.hostile.broker_attacks import request
from support.hostile.coordinated import APIS as COORDINATOR_APIS
from support.hostile.coordinated import SITUATIONS, fitting
from support.hostile.counted_nodes import (
    CASES,
    DEARER,
    TURN,
    apis_of,
    both,
    exchange,
)
from support.hostile.frames import request_frame
from support.hostile.instructions import InstructionClock, Work
from transport.interface import Endpoint
from transport.protocol.apis import ApiKey
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.broker_listener import AT_BROKERS
from transport.protocol.errors import Error
from transport.protocol.headers import decode_response
from transport.protocol.messages import (
    ApiVersionsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    ListGroupsRequest,
    MetadataRequest,
    ProduceRequest,
    ProduceResponse,
)
from transport.protocol.messages.fetch import FetchPartition, FetchTopic
from transport.protocol.messages.metadata import MetadataRequestTopic
from transport.protocol.messages.produce import PartitionProduceData, TopicProduceData

PER_REQUEST: Final = 60_000
"""With the fetches, heartbeats and ticks that fall into the time of a request."""
PER_BYTE: Final = 60
"""Some 0.6 microseconds: a megabyte, in small turns, costs less than a second."""
SLICE_BYTES: Final = 2_500
SOAK_BYTES: Final = 60_000
LONG_ANSWER_BYTES: Final = 200_000
ANSWERED: Final = {"acks": 1}
"""So that nobody waits for the answer to a Produce that has none."""
WAITING: Final = 40
"""The fetches that wait."""
PER_WOKEN: Final = 600
"""What an append costs for each of them."""
MANY: Final = (1 << 31) - 1


async def ask(port: int, frame: bytes) -> str:
    """Send a frame on a connection of its own; how it ended."""
    outcome = await exchange(port, frame)
    return outcome if isinstance(outcome, str) else f"answer of {len(outcome)} bytes"


async def measure(clock: InstructionClock, port: int, request: Amplified) -> tuple[str, Work]:
    """Measure the work of the nodes for one request."""
    clock.count()
    outcome = await ask(port, request.frame)
    for _ in range(5):
        await trio.lowlevel.checkpoint()
    return outcome, clock.stop()


def offences(request: Amplified, outcome: str, work: Work) -> list[str]:
    """The figures of a request that are beyond its budget."""
    size, found = len(request.frame), []
    allowed = request.allowed(PER_REQUEST, DEARER.get(request.key, PER_BYTE))
    where = f"{request.shape}, {size} bytes, {outcome}"
    if work.instructions > allowed:
        found.append(f"{where}: {work.instructions:,} instructions, allowed {allowed:,}")
    if work.longest_turn > TURN:
        found.append(f"{where}: a turn of {work.longest_turn:,} instructions in {work.of_task}, allowed {TURN:,}")
    return found


async def asked_well(port: int, message: Message) -> Any:
    """The answer to a request that is meant well."""
    (key,) = (key for key, api in ALL_APIS.items() if api.request is type(message))
    version = AT_BROKERS[key].versions.highest
    answer = await exchange(port, request(message, version))
    assert isinstance(answer, bytes), answer
    return decode_response(key, version, answer, apis=ALL_APIS)[1]


async def find_coordinators(port: int) -> Uuid:
    """Let the broker coordinate all groups and transactional ids; the id of the topic `orders`."""
    for kind in (GROUP, TRANSACTION):
        wanted = FindCoordinatorRequest(key_type=kind, coordinator_keys=["there"])
        while (await asked_well(port, wanted)).coordinators[0].error_code != Error.NONE:
            await pause()
    while (await asked_well(port, ListGroupsRequest())).error_code != Error.NONE:
        await pause()
    metadata = await asked_well(port, MetadataRequest(topics=[MetadataRequestTopic(name="orders")]))
    topic: Uuid = metadata.topics[0].topic_id
    return topic


async def situate(port: int, situation: str, name: str, topic: Uuid) -> Known:
    """Make a situation of coordinators; the values of fields that name it."""
    asking = SITUATIONS[situation](name, topic)
    answer = None
    try:
        while True:
            answer = await asked_well(port, asking.send(answer))
    except StopIteration as done:
        known: Known = done.value
        return known


async def drawn(port: int, rights: str, role: str, size: int, rng: Random) -> AsyncIterator[Amplified]:
    """All requests to a listener. A coordinator refuses what names nothing that is there before any work: its APIs are
    also asked for what is, before others delete the topic. `test_amplified_coordinators.py` has every situation.
    """
    apis = apis_of(role)
    if (role, rights) == ("broker", "open"):
        topic = await find_coordinators(port)
        for api in COORDINATOR_APIS:
            known = await situate(port, rng.choice(sorted(SITUATIONS)), f"for {api.name}", topic)
            for one in amplified(api, api.versions.highest, size, rng, fitting(api, known)):
                yield one
    for api in apis:
        for one in amplified(api, api.versions.highest, size, rng, ANSWERED):
            yield one


async def attack(clock: InstructionClock, role: str, rights: str, size: int, seed: int) -> list[str]:
    """Ask everything of one listener; what was beyond its budget."""
    found: list[str] = []
    asked = 0
    async with both(clock, rights) as (ports, _):
        async for request in drawn(ports[role], rights, role, size, Random(seed)):
            outcome, work = await measure(clock, ports[role], request)
            assert work.instructions > 0, f"{request.shape}: nothing was counted"
            found += offences(request, outcome, work)
            asked += 1
    assert asked > 2 * len(apis_of(role)), "most APIs have an array or a string"
    return found


def check(role: str, rights: str, size: int, seed: int) -> None:
    seed = int(os.environ.get("ATTACK_SEED", seed))
    print(f"ATTACK_SEED={seed}")
    clock = InstructionClock()
    found = trio.run(partial(attack, clock, role, rights, size, seed), clock=clock, instruments=[clock])
    assert found == [], "\n".join(found)


@pytest.mark.parametrize(("role", "rights"), CASES)
def test_no_request_costs_more_than_its_bytes_allow(role: str, rights: str) -> None:
    check(role, rights, SLICE_BYTES, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize(("role", "rights"), CASES)
def test_no_large_request_costs_more_than_its_bytes_allow(role: str, rights: str) -> None:
    check(role, rights, SOAK_BYTES, SystemRandom().getrandbits(32))


def test_fetches_that_wait_read_nothing_and_cost_an_append_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetches from the beginning of a log that want more than the log has: a megabyte each, if they were read."""
    read = Counter[str]()
    pread = MemoryFile.pread

    def counted(file: MemoryFile, size: int, position: int) -> bytes:
        found = pread(file, size, position)
        read["bytes"] += len(found)
        return found

    async def run() -> None:
        async with both(clock, "open") as (ports, _), AsyncExitStack() as held:
            async with open_admin([Endpoint("127.0.0.1", ports["controller"])]) as admin:
                topic = await create_topic(admin, "lines", partitions=1, replication_factor=1)
            port, record = ports["broker"], write_batch([Record(0, 0, 0, None, bytes(100_000))], epoch=-1)
            part = PartitionProduceData(index=0, records=record)
            produce = ProduceRequest(acks=1, topic_data=[TopicProduceData(topic_id=topic.id, partition_data=[part])])
            written = 0
            while written < 10:
                answer = await exchange(port, request(produce, 13))
                assert isinstance(answer, bytes), answer
                _, message = decode_response(ApiKey.PRODUCE, 13, answer, apis=ALL_APIS)
                assert isinstance(message, ProduceResponse)
                # The broker learns of the topic soon.
                written += message.responses[0].partition_responses[0].error_code == Error.NONE
            monkeypatch.setattr(MemoryFile, "pread", counted)
            wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MANY)
            fetch = FetchRequest(
                max_wait_ms=MANY,
                min_bytes=MANY,
                max_bytes=MANY,
                topics=[FetchTopic(topic_id=topic.id, partitions=[wanted])],
            )
            clock.count()
            for _ in range(WAITING):
                stream = await held.enter_async_context(await trio.open_tcp_stream("127.0.0.1", port))
                await stream.send_all(request(fetch, 17))
            # Whoever asks after them is answered after them.
            for _ in range(3):
                assert (await ask(port, request_frame(ApiVersionsRequest(), 0))).startswith("answer")
            assert clock.stop().instructions <= (WAITING + 3) * PER_REQUEST // 4
            assert read["bytes"] <= 1 << 16
            small = PartitionProduceData(index=0, records=write_batch([Record(0, 0, 0, None, b"")], epoch=-1))
            append = ProduceRequest(acks=1, topic_data=[TopicProduceData(topic_id=topic.id, partition_data=[small])])
            read.clear()
            clock.count()
            assert (await ask(port, request(append, 13))).startswith("answer")
            assert clock.stop().instructions <= PER_REQUEST + WAITING * PER_WOKEN
            assert read["bytes"] <= 1 << 16

    clock = InstructionClock()
    trio.run(run, clock=clock, instruments=[clock])


def test_others_are_answered_while_a_long_answer_is_made() -> None:
    """27,000 topics that do not exist, in one request: more portions than a turn may ever have."""

    async def run() -> None:
        async with both(clock, "open") as (ports, _):
            api = AT_BROKERS[ApiKey.DESCRIBE_TOPIC_PARTITIONS]
            long = next(
                one
                for one in amplified(api, 0, LONG_ANSWER_BYTES, Random(7))
                if one.shape.endswith("topics full, other names")
            )
            order: list[str] = []

            async def note(what: str, frame: bytes) -> None:
                assert (await ask(ports["broker"], frame)).startswith("answer"), what
                order.append(what)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(note, "long", long.frame)
                for _ in range(20):
                    await trio.lowlevel.checkpoint()
                nursery.start_soon(note, "short", request_frame(ApiVersionsRequest(), 0))
            assert order == ["short", "long"]

    clock = InstructionClock()
    trio.run(run, clock=clock, instruments=[clock])
