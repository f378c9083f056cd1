"""Python clients of three makes behind one interface: produce values idempotently, and read a partition."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, Final, Protocol, Self

import confluent_kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition as AioPartition
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from support.interop.real_kafka import eventually

SECONDS: Final = 90


class Reader(Protocol):
    """A consumer that has assigned partition 0 of one topic, at its start."""

    def read(self, count: int) -> list[bytes]:
        """Go on until so many values were read since the start; returns all of them."""

    def close(self) -> None:
        """End the consumer."""


class Client(Protocol):
    """A producer for partition 0 of one topic, and consumers of that partition."""

    def send(self, values: Sequence[bytes]) -> None:
        """Hand over values, without waiting for their acknowledgements."""

    def offsets(self) -> list[int]:
        """Wait for the acknowledgements of all values so far; returns their offsets, in the order of the values."""

    def reader(self) -> Reader:
        """A consumer at the start of the partition."""

    def close(self) -> None:
        """End the producer."""


class KafkaPythonReader:
    """A consumer of kafka-python."""

    def __init__(self, servers: list[str], topic: str) -> None:
        self._topic = topic
        self._consumer = KafkaConsumer(bootstrap_servers=servers)
        self._consumer.assign([TopicPartition(topic, 0)])
        self._consumer.seek_to_beginning()
        self._found: list[bytes] = []

    def read(self, count: int) -> list[bytes]:
        """The values from the start."""

        def enough() -> bool:
            for records in self._consumer.poll(timeout_ms=500).values():
                self._found.extend(one.value for one in records)
            return len(self._found) >= count

        eventually(enough, f"{count} records of {self._topic}", SECONDS)
        return self._found

    def close(self) -> None:
        """End the consumer."""
        self._consumer.close()


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

    def reader(self) -> KafkaPythonReader:
        """A consumer at the start."""
        return KafkaPythonReader(self._servers, self._topic)

    def close(self) -> None:
        """End the producer."""
        self._producer.close(timeout=SECONDS)


class ConfluentReader:
    """A consumer of confluent-kafka."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        # Without a coordinator a commit at the end would wait for the session timeout.
        settings = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "log_level": 0}
        self._topic = topic
        self._consumer = confluent_kafka.Consumer(settings)
        self._consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        self._found: list[bytes] = []

    def read(self, count: int) -> list[bytes]:
        """The values from the start."""

        def enough() -> bool:
            for one in self._consumer.consume(count, timeout=0.5):
                value = one.value()
                if one.error() is None and value is not None:
                    self._found.append(value)
            return len(self._found) >= count

        eventually(enough, f"{count} records of {self._topic}", SECONDS)
        return self._found

    def close(self) -> None:
        """End the consumer."""
        self._consumer.close()


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

    def reader(self) -> ConfluentReader:
        """A consumer at the start."""
        return ConfluentReader(self._bootstrap, self._topic)

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


class AioReader:
    """A consumer of aiokafka."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._loop = Loop()
        self._consumer = self._loop.run(self._made(bootstrap, topic))
        self._found: list[bytes] = []

    async def _made(self, bootstrap: str, topic: str) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        partition = AioPartition(topic, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        return consumer

    def read(self, count: int) -> list[bytes]:
        """The values from the start."""
        self._loop.run(self._read(count))
        return self._found

    async def _read(self, count: int) -> None:
        while len(self._found) < count:
            self._found.append((await self._consumer.getone()).value or b"")

    def close(self) -> None:
        """End the consumer and its loop."""
        self._loop.run(self._consumer.stop())
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

    def reader(self) -> AioReader:
        """A consumer at the start."""
        return AioReader(self._bootstrap, self._topic)

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
