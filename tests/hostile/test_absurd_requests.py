"""Requests that the declarations allow and no client sends, for every API at its lowest and its highest version.

They reach a controller and a broker with data, with every right and with none. Each costs what its bytes allow, no turn
is long, memory is bounded, and afterwards an honest client is served as before.
"""

from __future__ import annotations

import os
import resource
from collections import Counter
from functools import partial
from random import Random, SystemRandom
from typing import Final

import pytest
import trio

from absurd_requests import Absurd
from kraft.admin import open_admin
from kraft.admin.topics import create_topic
from metadata_log.records.batch_builder import build_batch
from metadata_log.types import Uuid
from support.hostile.broker_attacks import request
from support.hostile.counted_nodes import CASES, DEARER, TURN, apis_of, both, exchange
from support.hostile.instructions import InstructionClock, Work
from transport.interface import Endpoint
from transport.protocol.apis import Api, ApiKey
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.errors import Error
from transport.protocol.frames import FrameReader
from transport.protocol.headers import decode_response
from transport.protocol.messages import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from transport.protocol.messages.fetch import FetchPartition, FetchTopic
from transport.protocol.messages.produce import PartitionProduceData, TopicProduceData

SLICE: Final = 2
SOAK: Final = 60
"""The requests of each API and version."""
WAIT_SECONDS: Final = 0.1
"""Many of these requests wait, or get no answer at all."""
MOST_SHOWN: Final = 400
MEMORY_MIB: Final = 150
PER_REQUEST: Final = 200_000
"""Instructions of a request that changes something, as one that deletes a topic with its files."""
PER_BYTE: Final = 250
"""Unknown tags have three bytes, elements of an array two, and a broker that forwards them writes them again."""
PER_ANSWER_BYTE: Final = 10


async def send(port: int, frame: bytes) -> tuple[str, int]:
    """Send a frame on a connection of its own; how it ended, and the length of the answer."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        reader = FrameReader()
        with trio.move_on_after(WAIT_SECONDS):
            try:
                await stream.send_all(frame)
                while data := await stream.receive_some(1 << 16):
                    for answer in reader.feed(data):
                        return "answer", len(answer)
            except (trio.BrokenResourceError, OSError):
                pass
            return "closed", 0
    return "no answer", 0


async def serve(port: int, topic_id: Uuid) -> int:
    """Write a record and read it back, as an honest client does; its offset."""
    part = PartitionProduceData(index=0, records=build_batch(0, -1, 1, [b"honest"]))
    produce = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(topic_id=topic_id, partition_data=[part])]
    )
    answer = await exchange(port, request(produce, 13))
    assert isinstance(answer, bytes), answer
    _, written = decode_response(ApiKey.PRODUCE, 13, answer, apis=ALL_APIS)
    assert isinstance(written, ProduceResponse)
    [done] = written.responses[0].partition_responses
    assert done.error_code == Error.NONE
    wanted = FetchPartition(partition=0, fetch_offset=done.base_offset, partition_max_bytes=1 << 20)
    fetch = FetchRequest(max_wait_ms=1000, topics=[FetchTopic(topic_id=topic_id, partitions=[wanted])])
    answer = await exchange(port, request(fetch, 17))
    assert isinstance(answer, bytes), answer
    _, read = decode_response(ApiKey.FETCH, 17, answer, apis=ALL_APIS)
    assert isinstance(read, FetchResponse)
    found = read.responses[0].partitions[0].records
    assert found is not None
    assert b"honest" in bytes(found)
    return done.base_offset


def versions_of(api: Api) -> list[int]:
    """The lowest and the highest version."""
    return sorted({api.versions.lowest, api.versions.highest})


def resident_mib() -> int:
    """The most MiB that this process has had resident."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def offences(api: Api, frame: bytes, answer_bytes: int, shown: str, work: Work) -> list[str]:
    """The figures of a request that are beyond its budget."""
    found, size = [], len(frame)
    per_byte = max(PER_BYTE, DEARER.get(api.key, 0))
    if work.instructions > PER_REQUEST + per_byte * size + PER_ANSWER_BYTE * answer_bytes:
        found.append(f"{shown}: {work.instructions:,} instructions for {size} bytes")
    if work.longest_turn > TURN:
        found.append(f"{shown}: a turn of {work.longest_turn:,} instructions in {work.of_task}, allowed {TURN:,}")
    return found


async def attack(clock: InstructionClock, role: str, rights: str, count: int, seed: int) -> list[str]:
    """Ask everything of one listener; what was beyond its budget."""
    found: list[str] = []
    outcomes: Counter[str] = Counter()
    async with both(clock, rights) as (ports, _):
        async with open_admin([Endpoint("127.0.0.1", ports["controller"])]) as admin:
            victim = (await create_topic(admin, "victim", partitions=1, replication_factor=1)).id
            honest = (await create_topic(admin, "honest", partitions=1, replication_factor=1)).id
        drawn = Absurd(Random(seed), ("victim", "orders", "group", "attacker"), (victim,))
        before = resident_mib()
        for api in apis_of(role):
            for version in versions_of(api):
                for _ in range(count):
                    frame = drawn.frame(api, version)
                    clock.count()
                    outcome, answer_bytes = await send(ports[role], frame)
                    work = clock.stop()
                    outcomes[outcome] += 1
                    shown = f"{api.name} v{version}, {outcome} of {answer_bytes} bytes, {frame[:MOST_SHOWN].hex()}"
                    found += offences(api, frame, answer_bytes, shown, work)
        if rights == "open":
            await serve(ports["broker"], honest)
        assert resident_mib() - before < MEMORY_MIB
    print(outcomes)
    assert outcomes["answer"] > len(apis_of(role)), outcomes
    return found


def check(role: str, rights: str, count: int, seed: int) -> None:
    seed = int(os.environ.get("ATTACK_SEED", seed))
    print(f"ATTACK_SEED={seed}")
    clock = InstructionClock()
    found = trio.run(partial(attack, clock, role, rights, count, seed), clock=clock, instruments=[clock])
    assert found == [], "\n".join(found)


@pytest.mark.parametrize(("role", "rights"), CASES)
def test_no_absurd_request_costs_more_than_its_bytes_allow(role: str, rights: str) -> None:
    check(role, rights, SLICE, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize(("role", "rights"), CASES)
def test_no_absurd_request_of_very_many_costs_more_than_its_bytes_allow(role: str, rights: str) -> None:
    check(role, rights, SOAK, SystemRandom().getrandbits(32))
