"""`kraft.testing.Cluster` with brokers, records and clients of Trio, in virtual time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from kraft.broker import LifecycleState, RegistrationFailed
from kraft.client import (
    Client,
    ClientError,
    GroupConsumer,
    GroupProtocol,
    GroupSettings,
    ProducerSettings,
    TransactionSettings,
)
from kraft.invariants.violation import InvariantViolated
from kraft.process.hosting import host_raw_log
from kraft.testing import Cluster, in_virtual_time
from metadata_log.image import MetadataImage
from planted_bugs import planted

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


# `kraft.testing.Cluster` with brokers that hold records: producers, consumers, crashes, cuts, and the checks.


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


# Clients of Trio on brokers in virtual time.


SESSION_SECONDS = 45


async def reading(member: GroupConsumer) -> None:
    async for _ in member:
        pass


async def until_it_has(member: GroupConsumer, count: int) -> None:
    while len(member.assigned or ()) != count:  # noqa: ASYNC110 - a member tells of no assignment
        await trio.sleep(0.05)


@pytest.mark.parametrize("protocol", GroupProtocol)
def test_a_member_that_hangs_loses_its_partitions_after_its_session(protocol: GroupProtocol) -> None:
    assert SESSION_SECONDS - 5 <= a_member_hangs(protocol) <= SESSION_SECONDS + 10


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
