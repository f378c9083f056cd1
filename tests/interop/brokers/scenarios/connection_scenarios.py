"""B38 and B39: clients as they are, requests in a row, bytes that are no requests, many connections, slow readers."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from support.interop.real_kafka import eventually
from support.scenarios.confluent_load import CODECS, ConfluentLoad
from support.scenarios.reassignment_scenarios import elect
from support.scenarios.scenario_client import FETCH, batch, in_background, values_in
from support.scenarios.scenario_cluster import SECONDS, Cluster
from support.scenarios.scenario_list import scenario
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.errors import Error
from transport.protocol.headers import decode_response
from transport.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    OpData,
)
from transport.protocol.messages.fetch import FetchResponse
from transport.protocol.messages.produce import ProduceResponse

MESSAGES = 50
PIPELINED = 20
CONNECTIONS: Final = 10_000
OWN_FILES: Final = 2000
"""What a process needs beside the connections: files, other connections, and what a broker keeps free for files."""
CONNECTION_BYTES: Final = 24 << 10
"""The memory of one idle connection, at most: its objects and buffers in Python, or those of a JVM."""
SLOW_READERS: Final = 60
SLOW_ROUNDS: Final = 50
FILLED: Final = 24 << 20
"""Bytes of the log that each slow reader asks for."""
SLOW_BYTES: Final = 320 << 20
"""A broker of ours counts at most 64 MiB of unread answers, and gives a later answer a part of what is left of them. An
answer in progress is copied up to three times; the rest is room for the allocator. All answers have 1.4 GiB."""
SOON_SECONDS: Final = 10
RATE: Final = 20_000
"""Bytes a second."""


@scenario("B38")
def clients_in_python_and_c_produce_and_consume(cluster: Cluster) -> None:
    topic = cluster.create("b38")
    for codec in CODECS:
        with ConfluentLoad(cluster, topic, codec=codec, per_second=500, size=200) as load:
            load.wait_for_more(MESSAGES)
        assert load.failures == {}
    servers = cluster.bootstrap.split(",")
    before = cluster.watermark(cluster.leader(topic), topic)
    with closing(KafkaProducer(bootstrap_servers=servers, acks="all", compression_type="gzip", linger_ms=5)) as python:
        sent = [python.send(topic.name, value=b"%d" % number, partition=0) for number in range(MESSAGES)]
        assert [one.get(SECONDS).offset for one in sent] == list(range(before, before + MESSAGES))
    with closing(KafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False)) as consumer:
        partition = TopicPartition(topic.name, 0)
        consumer.assign([partition])
        consumer.seek(partition, before)
        found: list[bytes | None] = []

        def enough() -> bool:
            for records in consumer.poll(timeout_ms=200).values():
                found.extend(one.value for one in records)
            return len(found) >= MESSAGES

        eventually(enough, "all records are read", SECONDS)
        assert found == [b"%d" % number for number in range(MESSAGES)]
    cluster.wait_for_equal_logs(topic)


@scenario("B39")
def answers_come_in_the_order_of_their_requests(cluster: Cluster) -> None:
    topic = cluster.create("b39")
    leader = cluster.leader(topic)
    with cluster.connected(leader) as connection:
        for number in range(PIPELINED):
            connection.send(cluster.produce_request(topic, batch(b"%d" % number)), 13)
            connection.send(cluster.fetch_request(topic, number, wait_ms=1000), FETCH)
        for number in range(PIPELINED):
            frame = connection.frame()
            assert frame is not None
            header, produced = decode_response(0, 13, frame, apis=ALL_APIS)
            assert isinstance(produced, ProduceResponse)
            assert header.correlation_id == 2 * number + 1
            assert produced.responses[0].partition_responses[0].base_offset == number
            frame = connection.frame()
            assert frame is not None
            header, fetched = decode_response(1, FETCH, frame, apis=ALL_APIS)
            assert isinstance(fetched, FetchResponse)
            assert header.correlation_id == 2 * number + 2
            assert values_in(fetched.responses[0].partitions[0].records) == [(number, b"%d" % number)]


@scenario("B39")
def bytes_that_are_no_request_end_their_connection_only(cluster: Cluster) -> None:
    topic = cluster.create("b39-garbage")
    leader = cluster.leader(topic)
    cluster.append(leader, topic, batch(b"0"))
    garbage = {
        "a negative length": (-5).to_bytes(4, "big", signed=True),
        "a length above the limit": (1 << 30).to_bytes(4, "big"),
        "an unknown API": (12).to_bytes(4, "big") + bytes([0x7F, 0x7F]) + bytes(10),
        "a body that ends early": (10).to_bytes(4, "big") + bytes([0, 0, 0, 9, 0, 0, 0, 1, 0xFF, 0xFF]),
    }
    with cluster.connected(leader) as other:
        for what, sent in garbage.items():
            with cluster.connected(leader) as connection:
                connection.socket.sendall(sent)
                assert connection.frame() is None, what
        with cluster.connected(leader) as slow:
            # Half a request holds up nothing but its own connection.
            slow.socket.sendall((1000).to_bytes(4, "big") + bytes(10))
            answer = other.ask(cluster.fetch_request(topic, 0), FETCH, FetchResponse)
            assert values_in(answer.responses[0].partitions[0].records) == [(0, b"0")]


def rss(cluster: Cluster, broker: int) -> int:
    """The resident memory of a broker, in bytes."""
    status = Path(f"/proc/{cluster.processes[broker].popen.pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) << 10


@contextmanager
def descriptors(wanted: int) -> Iterator[int]:
    """Let this process have so many open files, as far as the machine allows; gives the number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
    try:
        yield allowed
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@scenario("B39", by_default=False)
def ten_thousand_connections_hold_up_no_client(cluster: Cluster) -> None:
    """A broker raises its limit of descriptors as far as it may; this process does so for its own ends."""
    topic = cluster.create("b39-many")
    leader = cluster.leader(topic)
    with descriptors(CONNECTIONS + OWN_FILES) as allowed, ExitStack() as idle:
        wanted = min(CONNECTIONS, allowed - OWN_FILES)
        cluster.stop(leader)
        cluster.start(leader)
        cluster.wait_for_isr(topic, *topic.replicas)
        elect(cluster, topic)
        cluster.wait_for_leader(topic, leader)
        before = rss(cluster, leader)
        many = [idle.enter_context(cluster.connected(leader, source=f"127.0.1.{at % 100 + 1}")) for at in range(wanted)]
        # Each hundredth has an answer, and all are still open.
        for at in range(0, wanted, 100):
            answer = many[at].ask(cluster.fetch_request(topic, 0), FETCH, FetchResponse)
            assert answer.responses[0].partitions[0].error_code == Error.NONE
        grown = rss(cluster, leader) - before
        print(f"{wanted} connections; {grown >> 20} MiB more memory, {grown // wanted} bytes for each")
        started = time.monotonic()
        assert cluster.send(lambda: leader, topic, batch(b"0")) == 0
        assert cluster.values(leader, topic) == [b"0"]
        assert time.monotonic() - started < SOON_SECONDS
        with ConfluentLoad(cluster, topic, per_second=200) as load:
            load.wait_for_more(100)
        assert load.failures == {}
        assert grown < wanted * CONNECTION_BYTES
        for one in many[:: max(1, wanted // 50)]:
            answer = one.ask(cluster.fetch_request(topic, 0), FETCH, FetchResponse)
            assert answer.responses[0].partitions[0].error_code == Error.NONE
    assert cluster.processes[leader].popen.poll() is None
    cluster.wait_for_equal_logs(topic)


@scenario("B39", by_default=False)
def slow_readers_take_bounded_memory_and_hold_up_no_client(cluster: Cluster) -> None:
    """Readers ask for many megabytes and read nothing; their answers wait in the sockets, and in bounded memory."""
    topic = cluster.create("b39-slow")
    leader = cluster.leader(topic)
    value = bytes(range(256)) * 3500
    for number in range(FILLED >> 20):
        cluster.append(leader, topic, batch(b"%d" % number + value))
    assert len(cluster.fetch(leader, topic, 0, partition_bytes=FILLED).records or b"") > FILLED // 2
    before = rss(cluster, leader)
    highest = before
    with ExitStack() as slow:
        for at in range(SLOW_READERS):
            reader = slow.enter_context(cluster.connected(leader, source=f"127.0.2.{at + 1}"))
            for _ in range(3):
                reader.send(cluster.fetch_request(topic, 0, partition_bytes=FILLED), FETCH)
        for number in range(SLOW_ROUNDS):
            started = time.monotonic()
            offset = cluster.append(leader, topic, batch(b"%d" % number))
            assert [one for _, one in values_in(cluster.fetch(leader, topic, offset).records)] == [b"%d" % number]
            assert time.monotonic() - started < SOON_SECONDS
            highest = max(highest, rss(cluster, leader))
    print(f"{SLOW_READERS} readers of {FILLED >> 20} MiB each; at most {(highest - before) >> 20} MiB more memory")
    assert highest - before < SLOW_BYTES
    assert cluster.processes[leader].popen.poll() is None
    cluster.wait_for_isr(topic, *topic.replicas)


@scenario("B39")
def a_client_above_its_quota_is_throttled_and_no_other(cluster: Cluster) -> None:
    topic = cluster.create("b39-quota")
    leader = cluster.leader(topic)
    client = f"{topic.name}-greedy"
    entry = AlterClientQuotasRequestEntryData(
        entity=[AlterClientQuotasRequestEntityData("client-id", client)],
        ops=[OpData("producer_byte_rate", RATE), OpData("consumer_byte_rate", RATE)],
    )
    [answer] = cluster.ask(leader, AlterClientQuotasRequest(entries=[entry]), 1, AlterClientQuotasResponse).entries
    assert answer.error_code == Error.NONE
    data = batch(b"v" * (RATE * 4))
    with cluster.connected(leader, client_id=client) as greedy, cluster.connected(leader) as other:

        def is_throttled() -> bool:
            return greedy.ask(cluster.produce_request(topic, data), 13, ProduceResponse).throttle_time_ms > 0

        # The metadata with the quota may not be at the broker yet. A throttled answer leaves at once.
        eventually(is_throttled, "the client is throttled", SECONDS)
        throttled = greedy.ask(cluster.produce_request(topic, data), 13, ProduceResponse)
        assert throttled.throttle_time_ms >= 1000
        sent = time.monotonic()
        with in_background(
            lambda: greedy.ask(cluster.fetch_request(topic, 0, partition_bytes=1), FETCH, FetchResponse)
        ) as waiting:
            # Meanwhile the broker reads nothing from the client, and serves the other one.
            free = other.ask(cluster.produce_request(topic, data), 13, ProduceResponse)
            assert free.throttle_time_ms == 0
            assert free.responses[0].partition_responses[0].error_code == Error.NONE
            fetched = waiting.result()
        assert (time.monotonic() - sent) * 1000 >= throttled.throttle_time_ms * 0.9
        assert fetched.error_code == Error.NONE
    cluster.wait_for_equal_logs(topic)
