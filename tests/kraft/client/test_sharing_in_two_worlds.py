"""Members of share groups for programs on asyncio and on threads, at a broker of ours over TCP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import kraft.asyncio
import kraft.sync
from kraft.client import Acknowledged, ConsumedRecord, ShareSettings
from kraft.testing import Kafka
from transport import Endpoint

EXPLICIT = ShareSettings(explicit=True)
SECONDS = 60
REFUSED = "the member does not hold this record: it is acknowledged already, or lost with a session"


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with Kafka(settings={"group.share.assignment.interval.ms": "0"}) as kafka:
        yield kafka


def filled(kafka: Kafka, name: str) -> tuple[list[Endpoint], str, str]:
    """A topic with three records, and a group of the same name that begins at its start."""
    kafka.create_topic(name)
    kafka.share_group(name).configure({"share.auto.offset.reset": "earliest"})
    kafka.produce(name, ["one", "two", "three"])
    host, _, port = kafka.bootstrap_servers.rpartition(":")
    return [Endpoint(host, int(port))], name, name


def told(record: ConsumedRecord) -> tuple[bytes | None, int | None]:
    return record.value, record.delivery_count


def test_a_member_on_asyncio(kafka: Kafka) -> None:
    """The second record is released once, and the third one rejected; all others are accepted."""
    group = filled(kafka, "asyncio")
    seen: list[tuple[bytes | None, int | None]] = []
    outcomes: list[Acknowledged] = []

    async def main() -> None:
        async with (
            asyncio.timeout(SECONDS),
            kraft.asyncio.open_share_consumer(*group, on_acknowledged=outcomes.append) as consumer,
        ):
            async for record in consumer:
                seen.append(told(record))
                if told(record) == (b"two", 1):
                    consumer.release(record)
                elif record.value == b"three":
                    consumer.reject(record)
                elif told(record) == (b"two", 2):
                    consumer.accept(record)
                    break
            assert await consumer.commit() == ()
            assert consumer.member
            assert consumer.lock_ms == 30_000

    asyncio.run(main())
    assert seen == [(b"one", 1), (b"two", 1), (b"three", 1), (b"two", 2)]
    assert outcomes
    assert [one.failure for one in outcomes if one.failure is not None] == []


def test_a_member_in_a_thread(kafka: Kafka) -> None:
    """What is not acknowledged comes again, to another member, and what was accepted does not."""
    group = filled(kafka, "threads")
    with kraft.sync.open_share_consumer(*group, EXPLICIT) as consumer:
        one, two, three = consumer.batch()
        consumer.renew(two)
        consumer.accept(one)
        consumer.release(three)
        assert consumer.commit() == ()
        assert told(next(iter(consumer))) == (b"three", 2)
        consumer.accept(one)
        assert [outcome.failure for outcome in consumer.commit()] == [REFUSED]
        assert consumer.member
        assert consumer.lock_ms == 30_000
    with kraft.sync.open_share_consumer(*group) as other:
        records = iter(other)
        assert sorted(told(next(records)) for _ in range(2)) == [(b"three", 3), (b"two", 2)]


def test_a_member_gives_up_when_its_call_is_cancelled(kafka: Kafka) -> None:
    group = filled(kafka, "empty")

    async def main() -> None:
        async with kraft.asyncio.open_share_consumer(*group) as consumer:
            assert len(await consumer.batch()) == 3
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.batch(), 0.2)
            assert await consumer.commit() == ()

    asyncio.run(main())
