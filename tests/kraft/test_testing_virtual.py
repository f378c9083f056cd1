"""Clients of Trio on brokers in virtual time."""

from __future__ import annotations

import time

import pytest
import trio

from kraft.client import Client, ClientError, GroupConsumer, GroupProtocol, GroupSettings, TransactionSettings
from kraft.testing import Cluster, in_virtual_time

SESSION_SECONDS = 45
REAL_SECONDS = 5
"""More than enough: on a quiet machine it is a tenth of that."""


async def reading(member: GroupConsumer) -> None:
    async for _ in member:
        pass


async def until_it_has(member: GroupConsumer, count: int) -> None:
    while len(member.assigned or ()) != count:  # noqa: ASYNC110 - a member tells of no assignment
        await trio.sleep(0.05)


@pytest.mark.parametrize("protocol", GroupProtocol)
def test_a_member_that_hangs_loses_its_partitions_after_its_session(protocol: GroupProtocol) -> None:
    began = time.monotonic()
    waited = a_member_hangs(protocol)
    assert SESSION_SECONDS - 5 <= waited <= SESSION_SECONDS + 10
    assert time.monotonic() - began < REAL_SECONDS


@in_virtual_time
async def a_member_hangs(protocol: GroupProtocol) -> float:
    """How long the other member waits for all partitions."""
    settings = GroupSettings(protocol=protocol, session_timeout_ms=SESSION_SECONDS * 1000, timeout_ms=300_000)
    async with Cluster(controllers=1, brokers=1, data=True) as cluster:
        await cluster.create_topic("orders", partitions=2)
        async with trio.open_nursery() as nursery:

            async def second(task_status: trio.TaskStatus[GroupConsumer]) -> None:
                async with cluster.client("second") as client, client.group("orders", "g", settings) as member:
                    task_status.started(member)
                    await reading(member)

            async with cluster.client("first") as client, client.group("orders", "g", settings) as hanging:
                nursery.start_soon(reading, hanging)
                await until_it_has(hanging, 2)
                other: GroupConsumer = await nursery.start(second)
                await until_it_has(other, 1)
                cluster.network.isolate("first")
                began = trio.current_time()
                await until_it_has(other, 2)
                waited = trio.current_time() - began
                cluster.network.heal()
                nursery.cancel_scope.cancel()
    return waited


async def writing_slowly(client: Client, settings: TransactionSettings) -> None:
    async with client.transactional("t", settings) as producer, producer.transaction() as transaction:
        await (await transaction.send("orders", b"one")).wait()
        await trio.sleep(120)


@in_virtual_time
async def test_a_transaction_that_nobody_ends_is_aborted_after_its_time_out() -> None:
    async with Cluster(controllers=1, brokers=1, data=True) as cluster:
        await cluster.create_topic("orders")
        settings = TransactionSettings(transaction_timeout_ms=60_000)
        async with cluster.client("writer") as client:
            with pytest.raises(ClientError, match="INVALID_TXN_STATE"):
                await writing_slowly(client, settings)
        await cluster.produce("orders", [b"two"])
        assert [one.value for one in await cluster.consume("orders")] == [b"one", b"two"]
        cluster.check()


@in_virtual_time
async def test_a_commit_that_is_cancelled_goes_on() -> None:
    async with Cluster(controllers=1, brokers=1, data=True) as cluster:
        await cluster.create_topic("orders")
        async with cluster.client("writer") as client, client.transactional("t") as producer:
            with trio.move_on_after(5) as patience:
                async with producer.transaction() as transaction:
                    await (await transaction.send("orders", b"one")).wait()
                    cluster.network.isolate("writer")
            assert patience.cancelled_caught
            cluster.network.heal()
            async with producer.transaction() as transaction:
                await transaction.send("orders", b"two")
        assert [one.value for one in await cluster.consume("orders")] == [b"one", b"two"]


@pytest.mark.kafka(brokers=3, controllers=1, seed=3)
@in_virtual_time
async def test_the_fixture_has_what_the_marker_says(kafka_virtual: Cluster) -> None:
    async with kafka_virtual as cluster:
        assert (len(cluster.ids), len(cluster.brokers)) == (1, 3)
        await cluster.create_topic("orders", replication_factor=3)
        await cluster.produce("orders", [b"one"])
        await cluster.kill(101)
        await cluster.wait_for_image(lambda image: 101 not in image.topics["orders"].partitions[0].isr)
        await cluster.produce("orders", [b"two"])
        assert [one.value for one in await cluster.consume("orders")] == [b"one", b"two"]
