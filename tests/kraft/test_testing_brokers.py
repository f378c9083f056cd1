"""`kraft.testing.Cluster` with brokers: they register, lead, hand over and come back, in virtual time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from trio.testing import MockClock

from kraft.broker import LifecycleState, RegistrationFailed
from kraft.process.hosting import host_raw_log
from kraft.testing import Cluster
from metadata_log.image import MetadataImage

ALL = (101, 102, 103)


def isrs(topic: str, broker_id: int, *, inside: bool) -> Callable[[MetadataImage], bool]:
    """Whether a broker is in every ISR of a topic, or in none."""
    return lambda image: all((broker_id in one.isr) is inside for one in image.topics[topic].partitions)


async def test_a_topic_survives_the_loss_of_brokers_and_controllers(autojump_clock: MockClock) -> None:
    """One that is silent is fenced and replaced; one that returns is let in again, under a new epoch if it had died."""
    async with Cluster(controllers=3, brokers=3, seed=7) as cluster:
        await cluster.create_topic("orders", partitions=6, replication_factor=3)
        partitions = cluster.image.topics["orders"].partitions
        assert {one.leader for one in partitions} == set(ALL)
        assert all(one.isr == one.replicas for one in partitions)

        cluster.brokers[101].pause()
        image = await cluster.wait_for_image(isrs("orders", 101, inside=False))
        assert image.brokers.by_id[101].fenced
        assert all(one.leader in (102, 103) for one in image.topics["orders"].partitions)
        cluster.brokers[101].resume()
        await cluster.wait_for_image(isrs("orders", 101, inside=True))

        epoch = cluster.image.brokers.by_id[102].epoch
        await cluster.brokers[102].kill()
        await cluster.wait_for_image(isrs("orders", 102, inside=False))
        await cluster.brokers[102].restart()
        image = await cluster.wait_for_image(isrs("orders", 102, inside=True))
        assert image.brokers.by_id[102].epoch > epoch

        old = await cluster.leader()
        before = cluster.image.topics["orders"].partitions
        await cluster.kill(old)
        await cluster.leader()
        await cluster.restart(old)
        await cluster.wait_for_offset(cluster.node(await cluster.leader()).status().log_end_offset)
        assert cluster.image.topics["orders"].partitions == before, "brokers have not noticed"
        cluster.check()


async def test_a_graceful_shutdown_moves_the_leaders_first_and_loses_no_eligibility(autojump_clock: MockClock) -> None:
    async with Cluster(controllers=1, brokers=2, seed=3, settings={"broker.session.timeout.ms": "3000"}) as cluster:
        await cluster.create_topic("t", partitions=2, replication_factor=2, configs={"min.insync.replicas": "2"})
        await cluster.brokers[101].stop()
        image = cluster.image
        assert [one.leader for one in image.topics["t"].partitions] == [102, 102]
        assert [one.elr for one in image.topics["t"].partitions] == [(101,), (101,)]
        await cluster.brokers[101].restart()
        image = await cluster.wait_for_image(isrs("t", 101, inside=True))
        assert [one.elr for one in image.topics["t"].partitions] == [(), ()]
        assert cluster.brokers[101].agent.lifecycle.state is LifecycleState.RUNNING
        cluster.check()


async def test_a_broker_that_finds_no_quorum_gives_up(autojump_clock: MockClock) -> None:
    async def run() -> None:
        async with Cluster(controllers=3, brokers=1, seed=1) as cluster:
            cluster.brokers[101].pause()
            await cluster.wait_for_brokers()

    with pytest.raises(RegistrationFailed, match="could not register in 60000 ms"):
        await run()


async def test_changes_reports_every_change_of_the_metadata(autojump_clock: MockClock) -> None:
    async with Cluster(controllers=3, brokers=1, seed=12) as cluster:
        await cluster.wait_for_brokers()
        watches = [cluster.node(node_id).watch(types=("TopicRecord",)) for node_id in (*cluster.ids, *cluster.brokers)]
        await cluster.create_topic("orders")
        await cluster.create_topic("bills")
        for watch in watches:
            changes = [await anext(watch), await anext(watch)]
            assert [(change.type, change.record.name) for change in changes] == [
                ("TopicRecord", "orders"),
                ("TopicRecord", "bills"),
            ]
        everything = cluster.node(1).watch()
        await cluster.create_topic("more")
        offsets = [(await anext(everything)).offset for _ in range(3)]
        assert offsets == sorted(offsets)


async def test_watching_types_of_a_raw_log_is_a_type_error(autojump_clock: MockClock) -> None:
    async with Cluster(controllers=1, seed=13, application=host_raw_log) as cluster:
        with pytest.raises(TypeError, match="iterate over `committed`"):
            cluster.node(1).watch()
