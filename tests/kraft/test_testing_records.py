"""`kraft.testing.Cluster` with brokers that hold records: producers, consumers, crashes, cuts, and the checks."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from kraft.client import ProducerSettings
from kraft.invariants.violation import InvariantViolated
from kraft.testing import Cluster
from planted_bugs import planted

REPLICATED = {"min.insync.replicas": "2"}


async def test_acknowledged_records_survive_crashes_of_every_kind(autojump_clock: MockClock) -> None:
    settings = {"log.flush.interval.messages": "1"}
    async with Cluster(controllers=1, brokers=3, seed=5, data=True, settings=settings) as cluster:
        await cluster.create_topic("orders", replication_factor=3, configs=REPLICATED)
        written = list[bytes]()
        for turn in range(3):
            written += [b"%d of turn %d" % (number, turn) for number in range(5)]
            delivered = await cluster.produce("orders", written[-5:])
            assert [one.offset for one in delivered] == list(range(5 * turn, 5 * turn + 5))
            victim = cluster.image.topics["orders"].partitions[0].leader
            match turn:
                case 0:
                    await cluster.brokers[victim].kill()
                case 1:
                    await cluster.brokers[victim].kill(loses_power=False)
                case _:
                    await cluster.brokers[victim].stop()
            cluster.check()
            await cluster.brokers[victim].restart()
            await cluster.wait_for_image(lambda image: len(image.topics["orders"].partitions[0].isr) == 3)
        assert [one.value for one in await cluster.consume("orders")] == written
        cluster.check()


async def test_a_client_of_its_own_can_be_cut_off(autojump_clock: MockClock) -> None:
    async with Cluster(controllers=1, brokers=1, seed=6, data=True) as cluster:
        await cluster.create_topic("orders")
        async with cluster.client("shop") as client, client.producer("orders", ProducerSettings(acks=1)) as producer:
            await (await producer.send(b"before")).wait()
            cluster.network.isolate("shop")
            late = await producer.send(b"after")
            assert [one.value for one in await cluster.consume("orders")] == [b"before"]
            cluster.network.heal("shop")
            assert (await late.wait()).offset == 1
        cluster.check()


async def produce_at_a_lonely_leader() -> None:
    async with Cluster(controllers=1, brokers=2, seed=7, data=True) as cluster:
        await cluster.create_topic("orders", replication_factor=2)
        cluster.network.partition({101}, {102})
        await cluster.produce("orders", [b"alone"])


async def test_a_leader_that_counts_itself_alone_is_found(autojump_clock: MockClock) -> None:
    with planted("watermark-of-the-leader-alone"), pytest.raises(InvariantViolated, match=r"ISR .* has never had it"):
        await produce_at_a_lonely_leader()


async def test_a_lost_acknowledged_record_is_found(autojump_clock: MockClock) -> None:
    async with Cluster(controllers=1, brokers=1, seed=8, data=True) as cluster:
        await cluster.create_topic("orders")
        await cluster.produce("orders", [b"first"])
        cluster._records.acknowledged("orders", 0, 1, b"second")
        with pytest.raises(InvariantViolated, match="at offset 1 of orders-0 is not committed there: nothing is"):
            cluster.check()
