"""Members of share groups: our client on brokers of ours, in virtual time."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from kraft.admin import ResourceType
from kraft.admin.client import ConfigChange
from kraft.client import (
    Acknowledged,
    AcquireMode,
    Client,
    ClientError,
    ConsumedRecord,
    ShareSettings,
)
from kraft.client.questions import Questions
from kraft.client.share_groups import start_offsets
from kraft.testing import Cluster
from support.kraft.share_words import say_each_word
from transport.protocol.errors import Error

EXPLICIT = ShareSettings(explicit=True)


SETTINGS = {"group.share.assignment.interval.ms": "0", "group.share.min.record.lock.duration.ms": "1000"}


def cluster_of(brokers: int = 1) -> Cluster:
    return Cluster(controllers=1, brokers=brokers, seed=3, data=True, settings=SETTINGS)


async def fill(cluster: Cluster, topic: str, count: int, partitions: int = 1, replicas: int = 1, **more: str) -> None:
    """A topic with so many records, and a group of the same name that begins at its start."""
    await cluster.create_topic(topic, partitions=partitions, replication_factor=replicas)
    values = {"share.auto.offset.reset": "earliest"} | {key.replace("_", "."): one for key, one in more.items()}
    async with cluster.admin() as admin:
        await admin.alter_configs(
            [
                ConfigChange(resource_type=ResourceType.GROUP, resource_name=topic, key=key, value=value)
                for key, value in values.items()
            ]
        )
    for number in range(partitions):
        await cluster.produce(topic, [b"%d" % one for one in range(number, count, partitions)], partition=number)


async def lags(client: Client, group: str) -> list[int | None]:
    found = await start_offsets(Questions(client, 30_000), group)
    return [one.lag for one in found.values()]


async def test_each_record_comes_once_and_is_accepted_with_the_next(autojump_clock: MockClock) -> None:
    found: list[ConsumedRecord] = []
    outcomes: list[Acknowledged] = []
    async with cluster_of(brokers=2) as cluster, cluster.client() as client:
        await fill(cluster, "once", 30, partitions=2)
        async with client.share("once", "once", on_acknowledged=outcomes.append) as consumer:
            async for record in consumer:
                found.append(record)
                if len(found) == 30:
                    break
            assert consumer.assigned == (0, 1)
            assert consumer.lock_ms == 30_000
            assert await consumer.commit() == ()
        # The last one was not asked for a next one: it came back with the end of the block.
        async with client.share("once", "once") as consumer:
            [last] = await consumer.batch()
            assert await consumer.commit() == ()
            assert await lags(client, "once") == [0, 0]
    assert sorted(int(one.value or b"") for one in found) == list(range(30))
    assert {one.delivery_count for one in found} == {1}
    assert (last.value, last.delivery_count) == (found[-1].value, 2)
    accepted = [(one.partition, offset) for one in outcomes for offset in one.offsets if one.failure is None]
    assert sorted(accepted) == sorted((one.partition, one.offset) for one in found[:-1])


async def test_a_record_is_accepted_released_or_rejected(autojump_clock: MockClock) -> None:
    async with cluster_of() as cluster, cluster.client() as client:
        await fill(cluster, "said", 12)
        async with client.share("said", "said", EXPLICIT) as consumer:
            seen = await say_each_word(consumer, 16)
            assert await lags(client, "said") == [0]
    assert seen == {number: 2 if number % 3 == 1 else 1 for number in range(12)}


async def test_a_word_within_the_loop_counts_more_than_the_acceptance(autojump_clock: MockClock) -> None:
    seen: list[tuple[bytes | None, int | None]] = []
    async with cluster_of() as cluster, cluster.client() as client:
        await fill(cluster, "loop", 2)
        async with client.share("loop", "loop") as consumer:
            async for record in consumer:
                seen.append((record.value, record.delivery_count))
                if record.value == b"0" and record.delivery_count == 1:
                    consumer.release(record)
                if len(seen) == 3:
                    break
    assert seen == [(b"0", 1), (b"1", 1), (b"0", 2)]


async def test_a_loop_that_was_left_goes_on_with_the_same_records(autojump_clock: MockClock) -> None:
    async with cluster_of() as cluster, cluster.client() as client:
        await fill(cluster, "left", 4)
        async with client.share("left", "left") as consumer:
            async for record in consumer:
                assert record.value == b"0"
                break
            assert [one.value for one in await consumer.batch()] == [b"1", b"2", b"3"]


async def test_a_renewed_lock_goes_on_and_another_one_ends(autojump_clock: MockClock) -> None:
    async with cluster_of() as cluster, cluster.client() as client, cluster.client("other") as neighbour:
        await fill(cluster, "locks", 2, share_record_lock_duration_ms="1000")
        async with (
            client.share("locks", "locks", EXPLICIT) as one,
            neighbour.share("locks", "locks", EXPLICIT) as other,
            trio.open_nursery() as nursery,
        ):
            kept, lost = await one.batch()

            async def keep() -> None:
                while True:
                    one.renew(kept)
                    assert await one.commit() == ()
                    await trio.sleep(0.3)

            nursery.start_soon(keep)
            began_s = trio.current_time()
            [again] = await other.batch()
            assert 0.9 <= trio.current_time() - began_s < 1.6
            assert (again.offset, again.delivery_count) == (lost.offset, 2)
            nursery.cancel_scope.cancel()
            await other.commit()
        async with client.share("locks", "locks", EXPLICIT) as one:
            held = await one.batch()
            assert [each.delivery_count for each in held] == [2, 3]


async def test_a_lock_that_ended_refuses_what_is_said_of_its_partition(autojump_clock: MockClock) -> None:
    async with cluster_of() as cluster, cluster.client() as client:
        await fill(cluster, "late", 1, share_record_lock_duration_ms="1000")
        async with client.share("late", "late", EXPLICIT) as one, client.share("late", "late", EXPLICIT) as other:
            [record] = await one.batch()
            assert [each.delivery_count for each in await other.batch()] == [2]
            one.accept(record)
            [refused] = await one.commit()
            assert (refused.partition, refused.offsets, refused.error) == (0, (0,), Error.INVALID_RECORD_STATE)
            one.accept(record)
            [refused] = await one.commit()
            assert refused.failure is not None
            assert refused.failure.startswith("the member does not hold this record")
            assert await one.commit() == ()


async def test_a_member_gets_at_most_as_many_records_as_it_wants(autojump_clock: MockClock) -> None:
    settings = ShareSettings(mode=AcquireMode.RECORD_LIMIT, max_records=3)
    sizes: list[int] = []
    async with cluster_of(brokers=2) as cluster, cluster.client() as client:
        await fill(cluster, "limit", 10, partitions=2)
        async with client.share("limit", "limit", settings) as consumer:
            while sum(sizes) < 10:
                sizes.append(len(await consumer.batch()))
            await consumer.commit()
            assert await lags(client, "limit") == [0, 0]
    assert max(sizes) <= 3


async def test_a_cancelled_member_gives_its_records_back(autojump_clock: MockClock) -> None:
    async with cluster_of() as cluster, cluster.client() as client:
        await fill(cluster, "back", 6)
        with trio.CancelScope() as scope:
            async with client.share("back", "back") as consumer:
                first = list(await consumer.batch())
                scope.cancel()
                await trio.lowlevel.checkpoint()
        async with client.share("back", "back") as consumer:
            again = await consumer.batch()
    assert [one.delivery_count for one in first] == [1] * 6
    assert [one.delivery_count for one in again] == [2] * 6


async def test_records_go_on_when_their_leader_is_killed(autojump_clock: MockClock) -> None:
    taken: list[tuple[int, int]] = []
    lost: set[tuple[int, int]] = set()

    def note(outcome: Acknowledged) -> None:
        places = [(outcome.partition, offset) for offset in outcome.offsets]
        if outcome.failure is None:
            taken.extend(places)
        else:
            lost.update(places)

    async with cluster_of(brokers=3) as cluster, cluster.client() as client:
        await fill(cluster, "killed", 20, partitions=2, replicas=3)
        async with client.share("killed", "killed", EXPLICIT, on_acknowledged=note) as consumer:
            held: list[ConsumedRecord] = []
            while len(held) < 20:
                held += await consumer.batch()
            victim = cluster.image.topics["killed"].partitions[0].leader
            assert cluster.image.topics["killed"].partitions[1].leader != victim
            await cluster.brokers[victim].kill(loses_power=False)
            for record in held:
                consumer.accept(record)
            assert [one.partition for one in await consumer.commit()] == [0]
            assert lost == {(0, number) for number in range(10)}
            seen: set[int] = set()
            while len(seen) < 10:
                for record in await consumer.batch():
                    assert record.partition == 0
                    seen.add(record.offset)
                    consumer.accept(record)
            assert await consumer.commit() == ()
    assert sorted(set(taken)) == [(number % 2, number // 2) for number in sorted(range(20), key=lambda n: (n % 2, n))]


async def test_a_group_of_another_type_is_an_error(autojump_clock: MockClock) -> None:
    async with cluster_of() as cluster, cluster.client() as client:
        await fill(cluster, "other", 2)
        async with client.group("other", "classic") as member:
            await member.batch()
            with pytest.raises(ClientError, match="share group classic: GROUP_ID_NOT_FOUND"):
                async with client.share("other", "classic") as consumer:
                    await consumer.batch()
