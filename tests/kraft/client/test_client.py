"""Our client writes to brokers of ours and reads, over TCP; records survive the death of their leader."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
import trio

from kraft.client import (
    AtOffset,
    AtTime,
    Beginning,
    ClientError,
    Compression,
    ConsumedRecord,
    ConsumerSettings,
    Delivered,
    End,
    Header,
    ProducerSettings,
    open_client,
)
from kraft.client.questions import Questions
from support.kraft.data_cluster import DataCluster, data_cluster
from support.loopback import free_ports
from transport.interface import Endpoint
from transport.protocol.errors import Error

FEW = 30


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataCluster]:
    with data_cluster(tmp_path_factory.mktemp("brokers")) as cluster:
        yield cluster


async def make_topic(cluster: DataCluster, name: str, partitions: int = 1, replicas: int = 1, **configs: str) -> None:
    await trio.to_thread.run_sync(partial(cluster.create_topic, name, partitions, replicas, **configs))


async def read(
    cluster: DataCluster, topic: str, settings: ConsumerSettings = ConsumerSettings()
) -> list[ConsumedRecord]:
    """Every record up to the present end."""
    async with open_client(cluster.endpoints) as client, client.consumer(topic, settings) as consumer:
        return [record async for record in consumer]


async def write(
    cluster: DataCluster, topic: str, values: list[bytes], settings: ProducerSettings = ProducerSettings()
) -> list[Delivered]:
    """Write to partition 0, and wait for each acknowledgement."""
    async with open_client(cluster.endpoints) as client, client.producer(topic, settings) as producer:
        sent = [await producer.send(value, partition=0) for value in values]
        return [await one.wait() for one in sent]


@pytest.mark.parametrize("codec", list(Compression))
async def test_records_of_each_codec_come_back_with_all_of_their_fields(cluster: DataCluster, codec: Compression):
    topic = f"codec-{codec.name}"
    headers = (Header("h", b"1"), Header("h", None), Header("\N{GREEK SMALL LETTER ALPHA}", b"\xff"))
    async with open_client(cluster.endpoints) as client:
        async with client.producer(topic, ProducerSettings(compression=codec)) as producer:
            first = await producer.send(b"v", key=b"k", headers=headers, timestamp_ms=1_700_000_000_000)
            second = await producer.send(None, key=b"", timestamp_ms=1_700_000_000_001)
            done = [await first.wait(), await second.wait()]
        async with client.consumer(topic) as consumer:
            found = [record async for record in consumer]
    assert [(one.partition, one.offset) for one in done] == [(0, 0), (0, 1)]
    assert [(one.offset, one.key, one.value, one.headers, one.timestamp_ms) for one in found] == [
        (0, b"k", b"v", headers, 1_700_000_000_000),
        (1, b"", None, (), 1_700_000_000_001),
    ]
    assert {one.is_append_time for one in found} == {False}


@pytest.mark.parametrize("acks", [-1, 1, 0])
async def test_with_each_acks_all_records_arrive_in_order(cluster: DataCluster, acks: int):
    values = [b"%d" % number for number in range(FEW)]
    settings = ProducerSettings(acks=acks, is_idempotent=acks == -1)
    done = await write(cluster, f"acks{acks}", values, settings)
    assert [one.offset for one in done] == ([-1] * FEW if acks == 0 else list(range(FEW)))
    assert [one.value for one in await read(cluster, f"acks{acks}")] == values


async def test_keys_go_where_kafkas_clients_put_them_and_records_without_key_anywhere(cluster: DataCluster):
    await make_topic(cluster, "keys", partitions=6)
    async with open_client(cluster.endpoints) as client, client.producer("keys") as producer:
        by_key = {key: (await (await producer.send(b"", key=key)).wait()).partition for key in (b"a", b"b", b"foobar")}
        free = [await producer.send(b"free") for _ in range(FEW)]
        assert {(await one.wait()).partition for one in free} <= set(range(6))
    # murmur2 of the key without its sign bit, modulo 6: as kafka-python computes it, too
    assert by_key == {b"a": 4, b"b": 2, b"foobar": 0}
    assert len(await read(cluster, "keys")) == FEW + 3


async def test_a_start_is_the_beginning_the_end_an_offset_or_a_time(cluster: DataCluster):
    async with open_client(cluster.endpoints) as client, client.producer("starts") as producer:
        for number in range(5):
            await (await producer.send(b"%d" % number, timestamp_ms=1_700_000_000_000 + number)).wait()
    offsets = {
        start: [one.offset for one in await read(cluster, "starts", ConsumerSettings(start=start))]
        for start in (
            Beginning(),
            End(),
            AtOffset(3),
            AtOffset(5),
            AtTime(1_700_000_000_002),
            AtTime(1_800_000_000_000),
        )
    }
    assert list(offsets.values()) == [[0, 1, 2, 3, 4], [], [3, 4], [], [2, 3, 4], []]
    with pytest.raises(ClientError, match="offset 6 is beyond the end of starts-0, which is 5"):
        await read(cluster, "starts", ConsumerSettings(start=AtOffset(6)))


async def test_a_consumer_that_follows_gets_records_as_they_are_written(cluster: DataCluster):
    await make_topic(cluster, "followed")
    async with open_client(cluster.endpoints) as client:
        settings = ConsumerSettings(start=End(), follows=True)
        async with client.producer("followed") as producer, client.consumer("followed", settings) as consumer:
            await (await producer.send(b"before")).wait()
            found: list[bytes | None] = []

            async def follow() -> None:
                async for record in consumer:
                    found.append(record.value)
                    if record.value == b"last":
                        return

            async with trio.open_nursery() as nursery:
                nursery.start_soon(follow)
                await consumer.wait_until_placed()
                for value in (b"first", b"last"):
                    await producer.send(value)
    assert found[-2:] == [b"first", b"last"]


async def test_a_topic_that_does_not_exist_is_an_error_with_a_hint(cluster: DataCluster):
    with pytest.raises(ClientError, match="topic absent: UNKNOWN_TOPIC_OR_PARTITION") as failed:
        await read(cluster, "absent")
    assert failed.value.error is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert failed.value.hint is not None
    assert "kraft topics" in failed.value.hint


async def test_a_partition_that_does_not_exist_is_an_error_for_its_record_alone(cluster: DataCluster):
    await make_topic(cluster, "two", partitions=2)
    async with open_client(cluster.endpoints) as client, client.producer("two") as producer:
        bad, good = await producer.send(b"", partition=2), await producer.send(b"", partition=1)
        with pytest.raises(ClientError, match="two has no partition 2"):
            await bad.wait()
        assert (await good.wait()).partition == 1
    with pytest.raises(ClientError, match="two has no partition 2"):
        await read(cluster, "two", ConsumerSettings(partitions=(2,)))


async def test_a_batch_that_is_too_large_for_the_topic_is_split(cluster: DataCluster):
    await make_topic(cluster, "small", max_message_bytes="1000")
    values = [b"x" * 100 + b"%d" % number for number in range(FEW)]
    assert [one.offset for one in await write(cluster, "small", values)] == list(range(FEW))
    assert [one.value for one in await read(cluster, "small")] == values
    with pytest.raises(ClientError, match="MESSAGE_TOO_LARGE"):
        await write(cluster, "small", [b"x" * 2000])


async def test_a_broker_that_no_process_serves_is_an_error_after_the_time_out():
    gone = Endpoint("127.0.0.1", free_ports(1)[0])
    async with open_client([gone]) as client:
        with pytest.raises(ClientError, match=r"topic t: no answer within 0\.3 s: .*refused"):
            async with client.consumer("t", ConsumerSettings(timeout_ms=300)) as consumer:
                await consumer.batch()
        async with client.producer("t", ProducerSettings(timeout_ms=300)) as producer:
            delivery = await producer.send(b"")
            with pytest.raises(ClientError, match=r"a record was not sent within 0\.3 s: .*refused"):
                await delivery.wait()
        with pytest.raises(ClientError, match=r"no broker answered within 0\.3 s: .*refused") as told:
            await Questions(client, 300).cluster()
    assert told.value.hint == f"Asked: {gone}. Do these brokers run?"
