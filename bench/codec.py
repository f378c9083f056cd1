"""The cost of decoding and encoding, by message and record type, beside kio in the same run.

Figures are processor time, the least of many short rounds that alternate with kio's, with realistic values; kio decodes
in native code. "decode" and "encode" are the public functions. "bare" are the functions that those look up, the
equivalent of kio's `entity_reader` and `entity_writer`. "general" is a Fetch, or a response to one, unlike the former
ones. "shape seen last" differs from the former ones only in its offset, or in its high watermark and records.
"template" writes such a Fetch from a `Template`. `python bench/codec.py [NAME…]` selects names.
"""

from __future__ import annotations

import io
import math
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

from kio.serial import entity_reader, entity_writer
from msgspec import Struct

from metadata_log.records import decode_record, encode_record
from metadata_log.records.metadata import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from metadata_log.serde import Message, compiler, decode, encode, schema_of
from metadata_log.serde.compiler import ReadFunction, WriteFunction
from metadata_log.serde.declare_tables import snake_case
from metadata_log.serde.shape import ShapeReader, ShapeWriter, Template
from metadata_log.types import Uuid
from transport.protocol.messages import FetchRequest, FetchResponse, VoteRequest, VoteResponse
from transport.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from transport.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from transport.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from transport.protocol.messages.vote import VoteRequestPartitionData, VoteRequestTopicData

ROUNDS = 150
ROUND_SECONDS = 0.001

CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"
SOME_ID = Uuid(bytes(range(16)))


def fetch(offset: int) -> FetchRequest:
    """The usual Fetch of a follower."""
    partition = FetchPartition(
        current_leader_epoch=3,
        fetch_offset=offset,
        last_fetched_epoch=3,
        log_start_offset=0,
        replica_directory_id=SOME_ID,
    )
    return FetchRequest(
        cluster_id=CLUSTER,
        replica_state=ReplicaState(replica_id=2),
        max_wait_ms=500,
        max_bytes=8 << 20,
        topics=[FetchTopic(topic_id=Uuid.METADATA_TOPIC, partitions=[partition])],
    )


def fetched(size: int, high_watermark: int = 1233) -> FetchResponse:
    """The response to that Fetch."""
    answer = PartitionData(high_watermark=high_watermark, log_start_offset=0, records=bytes(size))
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=Uuid.METADATA_TOPIC, partitions=[answer])])


MESSAGES: list[tuple[str, Message, int]] = [
    (
        "VoteRequest",
        VoteRequest(
            cluster_id=CLUSTER,
            voter_id=2,
            topics=[
                VoteRequestTopicData(
                    topic_name="__cluster_metadata",
                    partitions=[VoteRequestPartitionData(replica_epoch=4, replica_id=1, replica_directory_id=SOME_ID)],
                )
            ],
        ),
        2,
    ),
    ("VoteResponse", VoteResponse(), 2),
    ("BrokerHeartbeatRequest", BrokerHeartbeatRequest(broker_id=7, broker_epoch=99, current_metadata_offset=1234), 1),
    (
        "ApiVersionsResponse",
        ApiVersionsResponse(api_keys=[ApiVersion(api_key=key, max_version=9) for key in range(60)]),
        4,
    ),
]

RECORDS: list[tuple[Message, int]] = [
    (TopicRecord(name="orders", topic_id=SOME_ID), 0),
    (
        PartitionRecord(
            partition_id=1,
            topic_id=SOME_ID,
            replicas=(1, 2, 3),
            isr=(1, 2, 3),
            leader=1,
            directories=(SOME_ID, SOME_ID, SOME_ID),
        ),
        1,
    ),
    (PartitionChangeRecord(partition_id=1, topic_id=SOME_ID, isr=(1, 2), leader=2), 0),
    (ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="86400000"), 0),
    (BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=77, fenced=-1), 1),
    (NoOpRecord(), 0),
]


def best(*actions: Callable[[], object]) -> list[float]:
    """Seconds for one call of each: the least of many alternating rounds, so that other load affects all alike."""
    everything = (_nothing, *actions)
    calls = [_calls_in_a_round(action) for action in everything]
    least = [math.inf] * len(everything)
    for _ in range(ROUNDS):
        for at, action in enumerate(everything):
            least[at] = min(least[at], _round(action, calls[at]) / calls[at])
    return [one - least[0] for one in least[1:]]


def _nothing() -> None:
    """An empty action, to subtract the cost of the call itself."""


def _calls_in_a_round(action: Callable[[], object]) -> int:
    calls, spent = 1, 0.0
    while spent < ROUND_SECONDS / 4:
        calls *= 4
        spent = _round(action, calls)
    return max(1, round(calls * ROUND_SECONDS / spent))


def _round(action: Callable[[], object], calls: int) -> float:
    began = time.process_time()
    for _ in range(calls):
        action()
    return time.process_time() - began


def kio_pair(message: Message, version: int, raw: bytes) -> tuple[Callable[[], object], Callable[[], object]]:
    """kio's decoding and encoding of the same bytes."""
    schema = schema_of(type(message))
    name = schema.name.removesuffix("Request").removesuffix("Response")
    module = import_module(f"kio.schema.{snake_case(name)}.v{version}.{schema.role.value}")
    read, write = entity_reader(getattr(module, schema.name)), entity_writer(getattr(module, schema.name))
    entity: Any = read(raw, 0)[0]

    def written() -> bytes:
        buffer = io.BytesIO()
        write(buffer, entity)
        return buffer.getvalue()

    assert written() == raw, schema.name
    return lambda: read(raw, 0), written


class Row(Struct, frozen=True):
    """Seconds for one message: the public functions, the bare ones, and kio's."""

    title: str
    size: int
    read: float
    bare_read: float
    write: float
    bare_write: float
    kio_read: float
    kio_write: float


Ways = tuple[Callable[[], object], Callable[[], object], Callable[[], object], Callable[[], object]]
"""The public and the bare decoder, and the public and the bare encoder."""


def fetch_rows() -> Iterator[Row]:
    """The three ways to encode a Fetch; kio has one."""
    general, by_shape = both_ways(fetch)
    patch = Template(fetch(1234), 17, ("topics[0].partitions[0].fetchOffset",)).encode
    assert patch(1234) == encode(fetch(1234), 17)
    template = (*by_shape[:2], lambda: patch(1234), lambda: patch(1234))
    ways = {"general": general, "shape seen last": by_shape, "template": template}
    yield from rows("Fetch", fetch(1234), ways)


def answer_rows() -> Iterator[Row]:
    """The two ways to encode a Fetch response, without records and with many."""
    for name, size in (("FetchResponse, empty", 0), ("FetchResponse, 10 kB", 10_000)):
        if wanted(name):
            general, by_shape = both_ways(partial(fetched, size))
            yield from rows(name, fetched(size, 1234), {"general": general, "shape seen last": by_shape})


def both_ways(made: Callable[[int], FetchRequest | FetchResponse]) -> tuple[Ways, Ways]:
    """A message like the former ones, by the general functions and by its shape."""
    message, raw, cls = made(1234), encode(made(1234), 17), type(made(1234))
    general, writer = compiler.reader(cls, 17, True), compiler.writer(cls, 17, True)
    readers, writers = [general], [writer]
    learner = ShapeReader(cls, 17, general, readers.append)
    learning_writer = ShapeWriter(cls, 17, writer, writers.append)
    for number in range(100):
        learner.read(encode(made(number), 17), 0)
        learning_writer.write(made(number), b"")
        decode(cls, 17, encode(made(number), 17))
    read_shape, write_shape = readers[-1], writers[-1]
    assert len(readers) > 1
    assert len(writers) > 1
    assert read_shape(raw, 0) == general(raw, 0)
    assert write_shape(message, b"") == raw
    reading, writing = lambda: general(raw, 0), lambda: writer(message, b"")
    return (reading, reading, writing, writing), our_ways(message, 17, read_shape, write_shape)


def rows(name: str, message: Message, ways: dict[str, Ways]) -> Iterator[Row]:
    """A message in each of these ways."""
    raw = encode(message, 17)
    kios = kio_pair(message, 17, raw)
    for way, ours in ways.items():
        yield Row(f"{name} v17, {way}", len(raw), *best(*ours, *kios))


def our_ways(message: Message, version: int, read: ReadFunction[Any], write: WriteFunction[Any]) -> Ways:
    """The public functions, and these bare ones."""
    cls, raw = type(message), encode(message, version)
    return (
        lambda: decode(cls, version, raw),
        lambda: read(raw, 0),
        lambda: encode(message, version),
        lambda: write(message, b""),
    )


def message_rows() -> Iterator[Row]:
    for name, message, version in MESSAGES:
        if wanted(name):
            raw, cls = encode(message, version), type(message)
            read, write = compiler.reader(cls, version, True), compiler.writer(cls, version, True)
            ours = our_ways(message, version, read, write)
            yield Row(f"{name} v{version}", len(raw), *best(*ours, *kio_pair(message, version, raw)))


def wanted(name: str) -> bool:
    return len(sys.argv) == 1 or name in sys.argv[1:]


def beside_kio(size: int, door: float, bare: float, kio: float) -> str:
    """The columns of one direction."""
    return f"{door * 1e6:9.2f} {kio / door:5.1f}x {bare * 1e6:8.2f} {kio / bare:5.1f}x {size / door / 1e6:6.0f}"


def main() -> None:
    columns = f"{'kio':>6} {'bare µs':>8} {'kio':>6} {'MB/s':>6}"
    print(f"{'message':42} {'bytes':>6} | {'decode µs':>9} {columns} | {'encode µs':>9} {columns}")
    for row in [*fetch_rows(), *answer_rows(), *message_rows()]:
        decoded = beside_kio(row.size, row.read, row.bare_read, row.kio_read)
        encoded = beside_kio(row.size, row.write, row.bare_write, row.kio_write)
        print(f"{row.title:42} {row.size:6} | {decoded} | {encoded}")
    print(f"\n{'record, with its frame':34} {'bytes':>6} | {'decode/s':>10} {'MB/s':>6} | {'encode/s':>10} {'MB/s':>6}")
    for record, version in RECORDS:
        name = type(record).__name__
        if wanted(name):
            raw = encode_record(record, version)
            read, write = best(partial(decode_record, raw), partial(encode_record, record, version))
            print(
                f"{f'{name} v{version}':34} {len(raw):6} | {1 / read:10,.0f} {len(raw) / read / 1e6:6.1f}"
                f" | {1 / write:10,.0f} {len(raw) / write / 1e6:6.1f}"
            )


if __name__ == "__main__":
    main()
