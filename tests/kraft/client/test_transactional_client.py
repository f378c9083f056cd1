"""A transactional producer on brokers of ours: all records of a transaction or none, offsets of a group with them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import trio

from kraft.admin import open_admin
from kraft.admin.features import UpgradeType, update_features
from kraft.client import (
    Client,
    ClientError,
    ConsumerSettings,
    GroupProtocol,
    GroupSettings,
    Isolation,
    TransactionalProducer,
    open_client,
)
from kraft.client.state.transacting import FEATURE
from support.kraft.data_cluster import DataCluster, data_cluster
from transport.protocol.errors import Error

COMMITTED = ConsumerSettings(isolation=Isolation.READ_COMMITTED)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataCluster]:
    settings: dict[str, Any] = {
        "offsets_topic_replication_factor": "1",
        "offsets_topic_num_partitions": "2",
        "transaction_state_log_replication_factor": "1",
        "transaction_state_log_min_isr": "1",
        "transaction_state_log_num_partitions": "2",
        "group_initial_rebalance_delay_ms": "0",
    }
    with data_cluster(tmp_path_factory.mktemp("brokers"), **settings) as cluster:
        yield cluster


@pytest.fixture(params=[0, 1, 2])
def version(request: pytest.FixtureRequest, cluster: DataCluster) -> int:
    """The cluster at each version of transactions."""
    level: int = request.param

    now = cluster.until(lambda image: True).features.level(FEATURE)

    async def set_level() -> None:
        direction = UpgradeType.UPGRADE if level > now else UpgradeType.SAFE_DOWNGRADE
        async with open_admin([cluster.controller]) as admin:
            await update_features(admin, {FEATURE: level}, direction)

    if now != level:
        cluster.do(set_level)
        cluster.until(lambda image: image.features.level(FEATURE) == level)
    return level


async def values(cluster: DataCluster, topic: str, settings: ConsumerSettings = COMMITTED) -> list[bytes | None]:
    async with open_client(cluster.endpoints) as client, client.consumer(topic, settings) as consumer:
        return [record.value async for record in consumer]


async def send(producer: TransactionalProducer, topic: str, *records: bytes) -> None:
    async with producer.transaction() as transaction:
        for one in records:
            await transaction.send(topic, one)


async def fail(producer: TransactionalProducer, topic: str) -> None:
    async with producer.transaction() as transaction:
        await transaction.send(topic, b"never")
        raise ZeroDivisionError


async def test_what_is_committed_becomes_visible_and_what_is_aborted_does_not(cluster: DataCluster, version: int):
    first, second = f"orders{version}", f"invoices{version}"
    with trio.fail_after(60):
        async with open_client(cluster.endpoints) as client, client.transactional(f"copier{version}") as producer:
            for number in range(4):
                async with producer.transaction() as transaction:
                    delivery = await transaction.send(first, b"a%d" % number)
                    await transaction.send(second, b"b%d" % number, key=b"k")
                    if number % 2:
                        await delivery.wait()
                        await transaction.abort()
            with pytest.raises(ZeroDivisionError):
                await fail(producer, first)
            async with producer.transaction():
                pass
            async with producer.transaction() as transaction:
                await transaction.send(first, b"last")
        assert await values(cluster, first) == [b"a0", b"a2", b"last"]
        assert await values(cluster, second) == [b"b0", b"b2"]
        everything = await values(cluster, first, ConsumerSettings())
        assert {b"a1", b"a3"} <= set(everything)


async def test_a_second_producer_of_an_id_ends_the_first_ones_transaction(cluster: DataCluster, version: int):
    topic, name = f"fenced{version}", f"one{version}"

    async def be_fenced(client: Client, former: TransactionalProducer) -> None:
        async with former.transaction() as transaction:
            await (await transaction.send(topic, b"lost")).wait()
            async with client.transactional(name) as later, later.transaction() as newer:
                await newer.send(topic, b"kept")
            await transaction.send(topic, b"too late")

    with trio.fail_after(60):
        async with open_client(cluster.endpoints) as client, client.transactional(name) as former:
            with pytest.raises(ClientError, match="PRODUCER_FENCED") as told:
                await be_fenced(client, former)
            assert told.value.error is Error.PRODUCER_FENCED
            with pytest.raises(ClientError, match="PRODUCER_FENCED"):
                async with former.transaction():
                    pass
        assert await values(cluster, topic) == [b"kept"]


@pytest.mark.parametrize("protocol", GroupProtocol)
async def test_offsets_of_a_group_go_with_the_transaction(cluster: DataCluster, version: int, protocol: GroupProtocol):
    source, target = f"in{version}{protocol.value}", f"out{version}{protocol.value}"
    await trio.to_thread.run_sync(partial(cluster.create_topic, source, 2, 1))
    settings = GroupSettings(
        protocol=protocol, session_timeout_ms=6000, heartbeat_interval_ms=300, follows=False, auto_commit=False
    )
    is_aborted = False
    with trio.fail_after(120):
        async with open_client(cluster.endpoints) as client:
            async with client.producer(source) as producer:
                for number in range(20):
                    await producer.send(b"%d" % number, partition=number % 2)
            async with client.transactional(target) as copier, client.group(source, target, settings) as member:
                while records := await member.batch():
                    async with copier.transaction() as transaction:
                        for record in records:
                            await transaction.send(target, record.value)
                        await transaction.send_offsets(member, records)
                        if not is_aborted:
                            is_aborted = True
                            await transaction.abort()
                            member.rewind()
            async with client.group(source, target, settings) as member:
                assert await member.batch() == ()
        found = await values(cluster, target)
        assert sorted(int(value or b"") for value in found) == list(range(20))


async def test_a_member_that_commits_by_itself_gives_no_offsets(cluster: DataCluster):
    await trio.to_thread.run_sync(partial(cluster.create_topic, "own", 1, 1))
    async with (
        open_client(cluster.endpoints) as client,
        client.transactional("own") as producer,
        client.group("own", "own") as member,
    ):
        with pytest.raises(ClientError, match="commits its offsets by itself"):
            async with producer.transaction() as transaction:
                await transaction.send_offsets(member, [])


async def test_a_record_that_is_refused_aborts_the_transaction(cluster: DataCluster, version: int):
    topic = f"small{version}"
    await trio.to_thread.run_sync(partial(cluster.create_topic, topic, 1, 1, max_message_bytes="1000"))
    with trio.fail_after(60):
        async with open_client(cluster.endpoints) as client, client.transactional(topic) as producer:
            with pytest.raises(ClientError, match="MESSAGE_TOO_LARGE"):
                await send(producer, topic, b"small", b"x" * 2000)
            await send(producer, topic, b"again")
        assert await values(cluster, topic) == [b"again"]


async def test_a_cancelled_transaction_is_aborted(cluster: DataCluster, version: int):
    topic = f"cancelled{version}"
    with trio.fail_after(60):
        async with open_client(cluster.endpoints) as client:
            with trio.CancelScope() as scope:
                async with client.transactional(topic) as producer, producer.transaction() as transaction:
                    await (await transaction.send(topic, b"lost")).wait()
                    scope.cancel()
                    await trio.sleep_forever()
            async with client.consumer(topic, COMMITTED) as consumer:
                assert await consumer.batch() == ()
        assert await values(cluster, topic, ConsumerSettings()) == [b"lost"]
