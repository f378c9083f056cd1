"""The client of brokers: runs producers and consumers over one transport (Kafka: `KafkaProducer`, `KafkaConsumer`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from random import Random, SystemRandom
from typing import Final

import trio

from kraft.client.state.batches import NewRecord
from kraft.client.state.consuming import ConsumerSettings, ConsumerState
from kraft.client.state.errors import ClientError
from kraft.client.state.grouping import GroupSettings, GroupState
from kraft.client.state.positions import ConsumedRecord
from kraft.client.state.producing import Delivered, ProducerSettings, ProducerState, Undelivered
from kraft.client.state.requests import REQUEST_TIMEOUT_MS, Address, Engine
from metadata_log.records.record import Header
from metadata_log.serde import Message
from transport.causes import one_cause
from transport.interface import Endpoint, Failed, Inbound, Reply, Transport
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.broker_listener import broker_answer_limit
from transport.protocol.messages.metadata import MetadataRequest
from transport.sasl import wall_clock_ms
from transport.tcp import TcpTransport

MAX_WAITING_BYTES: Final = 8 << 20
"""With so many bytes of records without an outcome, `send` waits (Kafka: `buffer.memory`, 32 MiB)."""


LEAVE_SECONDS: Final = 3
"""How long the end of a block waits for the last commit and for the coordinator of the group."""


class Driver:
    """Runs one engine: sends its requests, and tells it their outcomes."""

    def __init__(self, client: Client, engine: Engine) -> None:
        self._client = client
        self._engine = engine
        self._wake = trio.Event()
        self._changed = trio.Event()
        self._failure: ClientError | None = None

    async def run(self) -> None:
        """Run until cancelled, or until the engine cannot go on: then `check` raises the error."""
        client, engine = self._client, self._engine
        try:
            while True:
                now_ms = client.now_ms()
                for ask in engine.poll(now_ms):
                    client.ask(self, ask.token, Endpoint(*ask.to), ask.message, ask.timeout_ms)
                self._tell()
                with trio.move_on_after(max(0.0, (engine.deadline_ms() - client.now_ms()) / 1000)):
                    await self._wake.wait()
                self._wake = trio.Event()
        except ClientError as failure:
            self.fail(failure)

    async def run_in(self, scope: trio.CancelScope) -> None:
        """Run until this scope is cancelled."""
        with scope:
            await self.run()

    def on_outcome(self, token: int, outcome: Reply | Failed) -> None:
        """Pass the outcome of a request on; called by the transport."""
        if self._failure is not None:
            return
        try:
            self._engine.on_outcome(
                token, outcome.message if isinstance(outcome, Reply) else outcome, self._client.now_ms()
            )
        except ClientError as failure:
            self.fail(failure)
        self.wake()

    def wake(self) -> None:
        """Let the engine look at what the user has done."""
        self._wake.set()

    def fail(self, failure: ClientError) -> None:
        """End the work with this error."""
        self._failure = self._failure or failure
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def check(self) -> None:
        """Raise the error that has ended the work, if there is one."""
        if self._failure is not None:
            raise self._failure.copy()

    async def wait_for_change(self) -> None:
        """Wait until the engine was polled again."""
        self.check()
        await self._changed.wait()


class Delivery:
    """A record on its way (Kafka: the `Future` of `Producer.send`)."""

    def __init__(self) -> None:
        self.outcome: Delivered | Undelivered | None = None
        """None while the record is on its way."""
        self._done: trio.Event | None = None

    def finish(self, outcome: Delivered | Undelivered) -> None:
        """Note the outcome."""
        self.outcome = outcome
        if self._done is not None:
            self._done.set()

    async def wait(self) -> Delivered:
        """Wait for the acknowledgement.

        Returns:
            The partition and the offset of the record.

        Raises:
            ClientError: The record was refused, or not acknowledged in time.
        """
        if self.outcome is None:
            self._done = self._done or trio.Event()
            await self._done.wait()
        if isinstance(self.outcome, Undelivered):
            failed = self.outcome.error
            raise failed.copy()
        assert self.outcome is not None
        return self.outcome


class Producer:
    """Writes records to one topic, made by `Client.producer` (Kafka: `KafkaProducer`).

    Records of one partition keep their order, also through repetitions.
    """

    def __init__(self, client: Client, state: ProducerState, driver: Driver) -> None:
        self._client = client
        self._state = state
        self._driver = driver
        self._deliveries: dict[int, Delivery] = {}

    async def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Iterable[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Send a record. The call waits only while too many bytes are on their way.

        Args:
            value: The value; None deletes the key of a compacted topic.
            key: The key, which selects the partition as in Kafka's clients.
            headers: The headers, in order.
            partition: The number of the partition; None to let the key or the producer select it.
            timestamp_ms: The time in ms since 1970; None for now.

        Returns:
            The delivery; `Delivery.wait` waits for the acknowledgement.

        Raises:
            ClientError: The producer cannot go on, for example as the topic does not exist.
        """
        record = NewRecord(value=value, key=key, headers=tuple(headers), partition=partition, timestamp_ms=timestamp_ms)
        while self._state.waiting_bytes >= MAX_WAITING_BYTES:
            await self._driver.wait_for_change()
            self.collect()
        self._driver.check()
        delivery = Delivery()
        self._deliveries[self._state.add(record, self._client.now_ms())] = delivery
        self._driver.wake()
        return delivery

    def collect(self) -> None:
        """Pass the outcomes on to the deliveries."""
        for result in self._state.take_results():
            self._deliveries.pop(result.number).finish(result)

    async def flush(self) -> None:
        """Wait until each record has its outcome.

        With acks=0 this waits until the brokers have taken the records from their connections.

        Raises:
            ClientError: The producer cannot go on.
        """
        while not self._state.is_idle:
            await self._driver.wait_for_change()
            self.collect()
        self.collect()
        self._driver.check()

    async def keep_collecting(self) -> None:
        """Pass outcomes on until cancelled; after the error that ends the work, each delivery has that error."""
        try:
            while True:
                await self._driver.wait_for_change()
                self.collect()
        except ClientError as failure:
            self.collect()
            for number in list(self._deliveries):
                self._deliveries.pop(number).finish(Undelivered(number, failure))

    async def wait_for_failure(self) -> None:
        """Wait for the error that ends the work, without a record that needs it.

        Raises:
            ClientError: The producer cannot go on, for example as no broker accepts the login.
        """
        while True:
            await self._driver.wait_for_change()

    async def confirm_reading(self) -> None:
        """Wait until each broker that got records has answered a later request: for acks=0, which has no answers."""
        for host, port in self._state.brokers:
            await self._client.ping(Endpoint(host, port))


class Consumer:
    """Reads records of one topic, made by `Client.consumer`: an asynchronous iterator (Kafka: `KafkaConsumer`)."""

    def __init__(self, state: ConsumerState, driver: Driver) -> None:
        self._state = state
        self._driver = driver

    @property
    def offsets(self) -> dict[int, int]:
        """By partition the offset of the next record that the broker is asked for."""
        return {number: one.offset for number, one in self._state.positions.items() if one.offset is not None}

    def take_notices(self) -> list[str]:
        """Take what the user should know, such as records that were deleted before they were read."""
        found = list(self._state.notices)
        self._state.notices.clear()
        return found

    async def wait_until_placed(self) -> None:
        """Wait until the brokers have named the offset at which each partition begins.

        Raises:
            ClientError: The consumer cannot go on.
        """
        while len(self.offsets) < max(1, len(self._state.positions)):
            await self._driver.wait_for_change()

    async def batch(self) -> Sequence[ConsumedRecord]:
        """Wait for the next records.

        Returns:
            At least one record; none at the end, if the consumer does not follow.

        Raises:
            ClientError: The consumer cannot go on, for example as no broker answers.
        """
        while not (found := self._state.take_records()):
            if self._state.is_done:
                self._driver.check()
                return ()
            await self._driver.wait_for_change()
        self._driver.wake()
        return found

    async def __aiter__(self) -> AsyncIterator[ConsumedRecord]:
        """Each record, in the order of its partition."""
        while found := await self.batch():
            for record in found:
                yield record


class GroupConsumer:
    """Reads a topic together with the other members of a group, made by `Client.group` (Kafka: `KafkaConsumer`)."""

    def __init__(self, state: GroupState, driver: Driver) -> None:
        self._state = state
        self._driver = driver
        self._last: Sequence[ConsumedRecord] = ()

    @property
    def assigned(self) -> tuple[int, ...] | None:
        """The partitions of this member; None while the group divides them."""
        return self._state.assigned

    def take_notices(self) -> list[str]:
        """Take what the user should know, such as records that were deleted before they were read."""
        return self._state.take_notices()

    def finish(self, records: Iterable[ConsumedRecord]) -> None:
        """Say that these records need not come again: their offsets are committed with the next commit."""
        for one in records:
            self._state.done(one.partition, one.offset + 1)

    async def batch(self) -> Sequence[ConsumedRecord]:
        """Wait for the next records; those of the last batch are finished then.

        Returns:
            At least one record; none at the end, if the member does not follow.

        Raises:
            ClientError: The member cannot go on, for example as another one has its instance.
        """
        self.finish(self._last)
        self._last = ()
        while not (found := self._state.take_records()):
            if self._state.is_done:
                self._driver.check()
                return ()
            await self._driver.wait_for_change()
        self._last = found
        self._driver.wake()
        return found

    async def __aiter__(self) -> AsyncIterator[ConsumedRecord]:
        """Each record, in the order of its partition; it is finished when the next one is asked for."""
        while found := await self.batch():
            self._last = ()
            for record in found:
                yield record
                self.finish((record,))

    async def commit(self) -> None:
        """Commit the offsets of everything finished, and wait for the acknowledgement.

        Raises:
            ClientError: The member cannot go on.
        """
        self._state.commit()
        self._driver.wake()
        while not self._state.is_committed:
            await self._driver.wait_for_change()
        self._driver.check()

    async def close(self) -> None:
        """Commit what is finished, if the settings say so, and leave the group."""
        self._state.close()
        self._driver.wake()
        with suppress(ClientError):  # the member has told it before
            while not self._state.is_closed:
                await self._driver.wait_for_change()


class _Question:
    """A single request on its way."""

    def __init__(self) -> None:
        self.answered = trio.Event()
        self.outcome: Message | Failed | None = None


class Client:
    """A client of a cluster's brokers, made by `open_client`."""

    def __init__(
        self, transport: Transport, bootstrap: Sequence[Endpoint], *, client_id: str, rng: Random, start_ms: int
    ) -> None:
        self._transport = transport
        self._bootstrap: tuple[Address, ...] = tuple((one.host, one.port) for one in bootstrap)
        self._client_id = client_id
        self._rng = rng
        self._tokens = count(1)
        self._routes: dict[int, tuple[Driver, int]] = {}
        self._questions: dict[int, _Question] = {}
        self._started_ms = start_ms
        self._started_s = trio.current_time()
        self.requests_sent = 0
        """The requests so far, with their repetitions."""

    def now_ms(self) -> int:
        """Milliseconds since 1970: the time at the start, advanced by Trio's clock."""
        return self._started_ms + int((trio.current_time() - self._started_s) * 1000)

    def deliver(self, thing: Inbound) -> None:
        """The transport's callback."""
        if not isinstance(thing, Reply | Failed):
            return
        if (question := self._questions.pop(thing.token, None)) is not None:
            question.outcome = thing.message if isinstance(thing, Reply) else thing
            question.answered.set()
        elif (route := self._routes.pop(thing.token, None)) is not None:
            driver, token = route
            driver.on_outcome(token, thing)

    def ask(self, driver: Driver, token: int, endpoint: Endpoint, message: Message, timeout_ms: int) -> None:
        """Send a request of an engine."""
        number = next(self._tokens)
        self._routes[number] = driver, token
        self.requests_sent += 1
        self._transport.request(endpoint, number, message, timeout_ms=timeout_ms, client_id=self._client_id)

    async def ping(self, endpoint: Endpoint, timeout_ms: int = 5_000) -> None:
        """Wait until a broker has answered a request, or the connection has failed."""
        await self.question(endpoint, MetadataRequest(topics=[], allow_auto_topic_creation=False), timeout_ms)

    async def question(
        self, endpoint: Endpoint, message: Message, timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> Message | Failed:
        """Send one request to one broker, once.

        Args:
            endpoint: The address of the broker.
            message: The request.
            timeout_ms: Milliseconds until the request fails.

        Returns:
            The response, or the cause of the failure.
        """
        number = next(self._tokens)
        question = self._questions[number] = _Question()
        self.requests_sent += 1
        self._transport.request(endpoint, number, message, timeout_ms=timeout_ms, client_id=self._client_id)
        try:
            await question.answered.wait()
        finally:
            self._questions.pop(number, None)
        assert question.outcome is not None
        return question.outcome

    @property
    def bootstrap(self) -> tuple[Endpoint, ...]:
        """The addresses that the user gave."""
        return tuple(Endpoint(*one) for one in self._bootstrap)

    @asynccontextmanager
    async def producer(self, topic: str, settings: ProducerSettings = ProducerSettings()) -> AsyncIterator[Producer]:
        """A producer for one topic, for the duration of the block; the end of the block waits for all records.

        Args:
            topic: The name of the topic. Brokers with `auto.create.topics.enable` create it.
            settings: Acknowledgements, compression, idempotence, time-out.

        Raises:
            ClientError: At the end of the block: the producer cannot go on.
        """
        state = ProducerState(topic, self._bootstrap, settings, rng=self._rng)
        driver = Driver(self, state)
        producer = Producer(self, state, driver)
        with one_cause():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(driver.run)
                nursery.start_soon(producer.keep_collecting)
                yield producer
                await producer.flush()
                if settings.acks == 0:
                    await producer.confirm_reading()
                nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def consumer(self, topic: str, settings: ConsumerSettings = ConsumerSettings()) -> AsyncIterator[Consumer]:
        """A consumer of one topic, for the duration of the block. It joins no group and commits no offsets.

        Args:
            topic: The name of the topic.
            settings: Partitions, where to begin, whether to follow, isolation, time-out.
        """
        state = ConsumerState(topic, self._bootstrap, settings)
        driver = Driver(self, state)
        with one_cause():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(driver.run)
                yield Consumer(state, driver)
                nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def group(
        self, topic: str, group: str, settings: GroupSettings = GroupSettings()
    ) -> AsyncIterator[GroupConsumer]:
        """A member of a group that reads a topic, for the duration of the block; the end of the block leaves the group.

        Args:
            topic: The name of the topic.
            group: The name of the group.
            settings: The protocol, the assignor, where to begin, when to commit, whether to follow.
        """
        state = GroupState(topic, group, self._bootstrap, settings, rng=self._rng)
        driver = Driver(self, state)
        consumer = GroupConsumer(state, driver)
        with one_cause():
            async with trio.open_nursery() as nursery:
                # Not the cancellation of the block ends the requests, but the end of the goodbye.
                scope = trio.CancelScope(shield=True)
                nursery.start_soon(driver.run_in, scope)
                try:
                    yield consumer
                finally:
                    with trio.move_on_after(LEAVE_SECONDS, shield=True):
                        await consumer.close()
                    scope.cancel()


@asynccontextmanager
async def open_client(
    bootstrap: Iterable[Endpoint],
    *,
    transport: Transport | None = None,
    client_id: str = "kraft-client",
    rng: Random | None = None,
    start_ms: int | None = None,
) -> AsyncIterator[Client]:
    """A client for the brokers of a cluster, for the duration of the block (Kafka: `bootstrap.servers`).

    Args:
        bootstrap: The addresses of some brokers. The client finds the other brokers itself.
        transport: The transport that the client runs; None for TCP. It needs `requested=ALL_APIS` and
            `answer_limits=broker_answer_limit`.
        client_id: The client id of all requests.
        rng: The source for the choice of partitions; by default seeded by the operating system.
        start_ms: The time now, in ms since 1970, from which Trio's clock goes on; None for that of the machine.
    """
    carrier = TcpTransport(requested=ALL_APIS, answer_limits=broker_answer_limit) if transport is None else transport
    random = Random(SystemRandom().getrandbits(64)) if rng is None else rng
    begin_ms = wall_clock_ms() if start_ms is None else start_ms
    with one_cause():
        async with trio.open_nursery() as nursery:
            client = Client(carrier, tuple(bootstrap), client_id=client_id, rng=random, start_ms=begin_ms)
            await nursery.start(carrier.run, client.deliver)
            yield client
            nursery.cancel_scope.cancel()
