"""Python clients of three makes behind one interface: produce values idempotently, and read a partition."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from contextlib import closing
from typing import Any, Final, Protocol, Self

import confluent_kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition as AioPartition
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from real_kafka import eventually

SECONDS: Final = 90


class Client(Protocol):
    """A producer for partition 0 of one topic, and a consumer that assigns that partition."""

    def send(self, values: Sequence[bytes]) -> None:
        """Hand over values, without waiting for their acknowledgements."""

    def offsets(self) -> list[int]:
        """Wait for the acknowledgements of all values so far; returns their offsets, in the order of the values."""

    def read(self, count: int) -> list[bytes]:
        """The first values of the partition, at least so many."""

    def close(self) -> None:
        """End the producer."""


class KafkaPython:
    """kafka-python."""

    def __init__(self, bootstrap: str, topic: str, codec: str | None) -> None:
        self._servers, self._topic = bootstrap.split(","), topic
        self._producer = KafkaProducer(
            bootstrap_servers=self._servers,
            acks="all",
            compression_type=codec,
            enable_idempotence=True,
            linger_ms=2,
            request_timeout_ms=5000,
        )
        self._sent: list[Any] = []

    def send(self, values: Sequence[bytes]) -> None:
        """Hand over values."""
        self._sent += [self._producer.send(self._topic, value, partition=0) for value in values]

    def offsets(self) -> list[int]:
        """The offsets of all values."""
        return [each.get(SECONDS).offset for each in self._sent]

    def read(self, count: int) -> list[bytes]:
        """The values from the start."""
        found: list[bytes] = []
        with closing(KafkaConsumer(bootstrap_servers=self._servers)) as consumer:
            consumer.assign([TopicPartition(self._topic, 0)])
            consumer.seek_to_beginning()

            def enough() -> bool:
                for records in consumer.poll(timeout_ms=500).values():
                    found.extend(one.value for one in records)
                return len(found) >= count

            eventually(enough, f"{count} records of {self._topic}", SECONDS)
        return found

    def close(self) -> None:
        """End the producer."""
        self._producer.close(timeout=SECONDS)


class Confluent:
    """confluent-kafka, on librdkafka."""

    def __init__(self, bootstrap: str, topic: str, codec: str | None) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "compression.type": codec or "none",
                "linger.ms": 2,
                "log_level": 0,
            }
        )
        self._offsets: list[int] = []
        self._failures: list[object] = []

    def _delivered(self, bad: object, message: confluent_kafka.Message) -> None:
        if bad is not None:
            self._failures.append(bad)
        offset = message.offset()
        self._offsets.append(-1 if offset is None else offset)

    def send(self, values: Sequence[bytes]) -> None:
        """Hand over values."""
        for value in values:
            self._producer.produce(self._topic, value, partition=0, on_delivery=self._delivered)

    def offsets(self) -> list[int]:
        """The offsets of all values."""
        assert self._producer.flush(SECONDS) == 0
        assert self._failures == []
        return self._offsets

    def read(self, count: int) -> list[bytes]:
        """The values from the start."""
        # Without a coordinator a commit at the end would wait for the session timeout.
        settings = {"bootstrap.servers": self._bootstrap, "group.id": "none", "enable.auto.commit": False}
        found: list[bytes] = []
        with closing(confluent_kafka.Consumer(settings)) as consumer:
            consumer.assign([confluent_kafka.TopicPartition(self._topic, 0, 0)])

            def enough() -> bool:
                for one in consumer.consume(count, timeout=0.5):
                    value = one.value()
                    if one.error() is None and value is not None:
                        found.append(value)
                return len(found) >= count

            eventually(enough, f"{count} records of {self._topic}", SECONDS)
        return found

    def close(self) -> None:
        """Nothing is left to do: the producer ends with the object."""


class Loop:
    """An event loop in a thread: aiokafka works in the background, as the other clients do."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run to the end."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)

    def close(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()


class Aio:
    """aiokafka."""

    def __init__(self, bootstrap: str, topic: str, codec: str | None) -> None:
        self._bootstrap, self._topic, self._loop = bootstrap, topic, Loop()
        self._sent: list[Any] = []
        self._producer = self._loop.run(self._made(codec))

    async def _made(self, codec: str | None) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            compression_type=codec,
            enable_idempotence=True,
            linger_ms=2,
            request_timeout_ms=5000,
        )
        await producer.start()
        return producer

    def send(self, values: Sequence[bytes]) -> None:
        """Hand over values."""
        self._loop.run(self._send(values))

    async def _send(self, values: Sequence[bytes]) -> None:
        self._sent += [await self._producer.send(self._topic, value, partition=0) for value in values]

    def offsets(self) -> list[int]:
        """The offsets of all values."""
        return [one.offset for one in self._loop.run(_gathered(self._sent))]

    def read(self, count: int) -> list[bytes]:
        """The values from the start."""
        found: list[bytes] = self._loop.run(self._read(count))
        return found

    async def _read(self, count: int) -> list[bytes]:
        consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        try:
            partition = AioPartition(self._topic, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            return [(await consumer.getone()).value or b"" for _ in range(count)]
        finally:
            await consumer.stop()

    def close(self) -> None:
        """End the producer and its loop."""
        self._loop.run(self._producer.stop())
        self._loop.close()


async def _gathered(futures: Sequence[Any]) -> list[Any]:
    return list(await asyncio.gather(*futures))


class Makes(Protocol):
    """How a client is made: bootstrap servers, topic, codec."""

    def __call__(self, bootstrap: str, topic: str, codec: str | None) -> Client: ...


MAKES: Final[dict[str, Makes]] = {"aiokafka": Aio, "confluent": Confluent, "python": KafkaPython}


class Pair:
    """A client with one codec, and its topic."""

    def __init__(self, make: str, codec: str | None) -> None:
        self.make, self.codec = make, codec
        self.topic = f"{make}-{codec or 'none'}"

    def open(self, bootstrap: str) -> Client:
        """Begin to produce."""
        return MAKES[self.make](bootstrap, self.topic, self.codec)

    @classmethod
    def of(cls, *named: tuple[str, str | None]) -> list[Self]:
        """Pairs of makes and codecs."""
        return [cls(make, codec) for make, codec in named]
