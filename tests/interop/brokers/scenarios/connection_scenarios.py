"""B38 and B39: clients as they are, requests in a row, and bytes that are no requests."""

from __future__ import annotations

from contextlib import ExitStack, closing

from confluent_load import CODECS, ConfluentLoad
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from real_kafka import eventually
from scenario_client import FETCH, batch, values_in
from scenario_cluster import SECONDS, Cluster
from scenario_list import scenario

from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.headers import decode_response
from transport.protocol.messages.fetch import FetchResponse
from transport.protocol.messages.produce import ProduceResponse

MESSAGES = 50
PIPELINED = 20
IDLE = 300


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


@scenario("B39", by_default=False)
def idle_connections_hold_up_no_client(cluster: Cluster) -> None:
    topic = cluster.create("b39-idle")
    leader = cluster.leader(topic)
    with ExitStack() as idle:
        for _ in range(IDLE):
            idle.enter_context(cluster.connected(leader))
        assert cluster.append(leader, topic, batch(b"0")) == 0
        assert cluster.values(leader, topic) == [b"0"]
    assert cluster.append(leader, topic, batch(b"1")) == 1
