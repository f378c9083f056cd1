"""The steps of the tour with records: a producer with acks=all and a consumer work while nodes are killed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import trio

from kraft.admin import AdminClient
from kraft.admin.topics import create_topic
from kraft.cli.run.broker_tour import MAX_REPLICAS, Seen, StepFailed
from kraft.client import Beginning, Client, ClientError, ConsumerSettings, Delivery, ProducerSettings

PARTITIONS: Final = 3
FIRST_RECORDS: Final = 100
RECORDS_PER_SECOND: Final = 200
PATIENCE_MS: Final = 120_000
"""The time-out of the client, longer than that of any tour: the deadline of a step ends it."""


class RecordTour:
    """A stream of numbered records through one topic, from the step `write` to the step `read`."""

    def __init__(self, admin: AdminClient, client: Client, topic: str, *, brokers: int) -> None:
        self._admin = admin
        self._client = client
        self._topic = topic
        self._replicas = min(MAX_REPLICAS, brokers)
        self._has_begun = trio.Event()
        self._is_wanted = True
        self._sent: list[Delivery] = []
        self._is_flushed = trio.Event()
        self._read: dict[int, list[int]] = {}
        self._changed = trio.Event()
        self._failure: ClientError | None = None
        self._longest_s = 0.0
        self._last_read = time.monotonic()

    async def run(self) -> None:
        """Produce and consume from the step `write` on, until cancelled."""
        await self._has_begun.wait()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._produce)
                nursery.start_soon(self._consume)
        except* ClientError as failed:
            cause: BaseException = failed
            while isinstance(cause, BaseExceptionGroup):
                cause = cause.exceptions[0]
            assert isinstance(cause, ClientError), cause
            self._failure = cause
            self._note()

    async def write(self) -> Seen:
        """The first records are acknowledged by all replicas in sync, and come out of the topic."""
        least = max(1, self._replicas - 1)
        await create_topic(
            self._admin,
            self._topic,
            partitions=PARTITIONS,
            replication_factor=self._replicas,
            configs={"min.insync.replicas": str(least)},
        )
        began = time.monotonic()
        self._has_begun.set()
        while self._count() < FIRST_RECORDS:
            await self._wait()
        took_ms = round((time.monotonic() - began) * 1000)
        return (
            f"{self._count():,} records with acks=all, {self._replicas} replicas, at least {least} in sync: written and"
            f" read after {took_ms:,} ms; {RECORDS_PER_SECOND} a second from now on",
            {"topic": self._topic, "records": self._count(), "minInSync": least, "ms": took_ms},
        )

    async def read(self) -> Seen:
        """Each acknowledged record comes out of the topic, once and in the order of its partition."""
        self._is_wanted = False
        while not self._is_flushed.is_set() or self._count() < len(self._sent):
            await self._wait()
        expected = _by_partition(self._sent)
        for partition, numbers in sorted(expected.items()):
            if self._read.get(partition) != numbers:
                lost = set(numbers) - set(self._read.get(partition, ()))
                raise StepFailed(
                    f"partition {partition} of {self._topic} lacks {len(lost):,} acknowledged records"
                    if lost
                    else f"partition {partition} of {self._topic} has records twice or in another order"
                )
        longest_ms = round(self._longest_s * 1000)
        return (
            f"all {len(self._sent):,} acknowledged records were read, each once and in order; the longest silence was"
            f" {longest_ms:,} ms",
            {"acknowledged": len(self._sent), "read": self._count(), "longestMs": longest_ms},
        )

    async def _produce(self) -> None:
        settings = ProducerSettings(timeout_ms=PATIENCE_MS)
        async with self._client.producer(self._topic, settings) as producer:
            while self._is_wanted:
                number = len(self._sent)
                self._sent.append(await producer.send(b"%d" % number, partition=number % PARTITIONS))
                await trio.sleep(0 if number < FIRST_RECORDS else 1 / RECORDS_PER_SECOND)
            await producer.flush()
            for delivery in self._sent:
                await delivery.wait()
        self._is_flushed.set()
        self._note()

    async def _consume(self) -> None:
        settings = ConsumerSettings(start=Beginning(), follows=True, timeout_ms=PATIENCE_MS)
        async with self._client.consumer(self._topic, settings) as consumer:
            self._last_read = time.monotonic()
            while found := await consumer.batch():
                now = time.monotonic()
                self._longest_s, self._last_read = max(self._longest_s, now - self._last_read), now
                for record in found:
                    self._read.setdefault(record.partition, []).append(int(record.value or b""))
                self._note()

    def _count(self) -> int:
        return sum(map(len, self._read.values()))

    def _note(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def _wait(self) -> None:
        if self._failure is not None:
            raise StepFailed(str(self._failure))
        await self._changed.wait()
        if self._failure is not None:
            raise StepFailed(str(self._failure))


def _by_partition(sent: Sequence[Delivery]) -> dict[int, list[int]]:
    """The numbers of the acknowledged records of each partition, in order."""
    return {partition: list(range(partition, len(sent), PARTITIONS)) for partition in range(PARTITIONS)}
