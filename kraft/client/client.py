"""The client of brokers: runs producers and consumers over one transport (Kafka: `KafkaProducer`, `KafkaConsumer`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from heapq import heappop, heappush
from itertools import count
from random import Random, SystemRandom
from typing import Final

import trio

from kraft.client.driver import Driver
from kraft.client.share_consumer import ShareConsumer
from kraft.client.state.batches import NewRecord
from kraft.client.state.consuming import ConsumerSettings, ConsumerState
from kraft.client.state.errors import ClientError
from kraft.client.state.grouping import GroupSettings, GroupState, MemberOffsets
from kraft.client.state.positions import ConsumedRecord
from kraft.client.state.producing import Delivered, ProducerSettings, ProducerState, Undelivered
from kraft.client.state.requests import REQUEST_TIMEOUT_MS, Address, Ask, Engine
from kraft.client.state.share_acks import Acknowledged
from kraft.client.state.sharing import ShareSettings, ShareState
from kraft.client.state.transacting import Phase, TransactionSettings, TransactionState
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
LANES_OF_A_DRIVER: Final = 2
"""Each has connections for records, and others for coordinators: an answer of either kind may be long in coming."""
LEAVE_SECONDS: Final = 3
"""How long the end of a block waits for the last commit and for the coordinator of the group."""


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


class _Deliveries:
    """The records on their way, by their topics and their numbers there."""

    def __init__(
        self, driver: Driver, take_results: Callable[[], Iterable[tuple[str, Delivered | Undelivered]]]
    ) -> None:
        self._driver = driver
        self._take_results = take_results
        self._waiting: dict[tuple[str, int], Delivery] = {}

    def add(self, topic: str, number: int) -> Delivery:
        """The delivery of a record that the engine has taken."""
        delivery = self._waiting[topic, number] = Delivery()
        self._driver.wake()
        return delivery

    def collect(self) -> None:
        """Pass the outcomes on to the deliveries."""
        for topic, result in self._take_results():
            self._waiting.pop((topic, result.number)).finish(result)

    async def keep_collecting(self) -> None:
        """Pass outcomes on until cancelled; after the error that ends the work, each delivery has that error."""
        try:
            while True:
                await self._driver.wait_for_change()
                self.collect()
        except ClientError as failure:
            self.collect()
            for topic, number in list(self._waiting):
                self._waiting.pop((topic, number)).finish(Undelivered(number, failure))


class Producer:
    """Writes records to one topic, made by `Client.producer` (Kafka: `KafkaProducer`).

    Records of one partition keep their order, also through repetitions.
    """

    def __init__(self, client: Client, state: ProducerState, driver: Driver) -> None:
        self._client = client
        self._state = state
        self._driver = driver
        self._deliveries = _Deliveries(driver, lambda: ((state.view.topic, one) for one in state.take_results()))

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
            self._deliveries.collect()
        self._driver.check()
        return self._deliveries.add(self._state.view.topic, self._state.add(record, self._client.now_ms()))

    async def flush(self) -> None:
        """Wait until each record has its outcome.

        With acks=0 this waits until the brokers have taken the records from their connections.

        Raises:
            ClientError: The producer cannot go on.
        """
        while not self._state.is_idle:
            await self._driver.wait_for_change()
            self._deliveries.collect()
        self._deliveries.collect()
        self._driver.check()

    async def keep_collecting(self) -> None:
        """Pass outcomes on until cancelled."""
        await self._deliveries.keep_collecting()

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
            await self._client.ping(Endpoint(host, port), lane=self._driver.lane)


class Transaction:
    """An open transaction, made by `TransactionalProducer.transaction`."""

    def __init__(self, producer: TransactionalProducer) -> None:
        self._producer = producer
        self.is_over = False
        """Whether `abort` has ended the transaction."""

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Iterable[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Send a record, as `Producer.send` does, to any topic.

        Returns:
            The delivery. Nobody has to wait for it; the commit waits for all records.

        Raises:
            ClientError: The transaction can only be aborted, or the producer cannot go on.
        """
        record = NewRecord(value=value, key=key, headers=tuple(headers), partition=partition, timestamp_ms=timestamp_ms)
        return await self._producer.add(self, topic, record)

    async def send_offsets(self, member: GroupConsumer, records: Iterable[ConsumedRecord]) -> None:
        """Commit the offsets after these records for the group of a member, together with the transaction.

        Args:
            member: The member, with `auto_commit=False` in its settings.
            records: Records that the member has read.

        Raises:
            ClientError: The member has lost its partitions, or the transaction can only be aborted for another
                reason, or the producer cannot go on.
        """
        await self._producer.add_offsets(self, member, records)

    async def abort(self) -> None:
        """Abort before the end of the block: no reader of committed records sees any record of this transaction.

        Raises:
            ClientError: The producer cannot go on.
        """
        await self._producer.end(self, commits=False)


class TransactionalProducer:
    """Writes records to topics in transactions, made by `Client.transactional` (Kafka: `KafkaProducer`)."""

    def __init__(self, client: Client, state: TransactionState, driver: Driver) -> None:
        self._client = client
        self._state = state
        self._driver = driver
        self._deliveries = _Deliveries(driver, state.take_results)
        self._members: list[tuple[GroupConsumer, MemberOffsets]] = []

    async def wait_until_ready(self) -> None:
        """Wait until a transaction can begin."""
        while self._state.phase is not Phase.READY:
            await self._driver.wait_for_change()
        self._driver.check()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """A transaction for the duration of the block: the end of the block commits, an exception aborts.

        After an abort, `GroupConsumer.rewind` lets a member read its records again.

        Raises:
            ClientError: At the end of the block: the transaction was aborted, as a record or the offsets of a group
                were refused; `error` says why. Or the producer cannot go on: with PRODUCER_FENCED another one has its
                id.
        """
        await self.wait_until_ready()
        self._state.begin()
        self._members.clear()
        transaction = Transaction(self)
        try:
            yield transaction
            if not transaction.is_over:
                await self.end(transaction, commits=True)
        except BaseException as failed:
            # A commit that is under way cannot become an abort, whether it was cancelled or the producer was fenced.
            if not transaction.is_over and self._state.can_end:
                # The cause of the abort says more than an error of the abort: the coordinator aborts in time anyway.
                with trio.move_on_after(LEAVE_SECONDS, shield=True), suppress(ClientError):
                    await self.end(transaction, commits=False)
            if isinstance(failed, ClientError):
                self._driver.check()  # that the producer was fenced says more than that a record was refused
            raise

    async def add(self, transaction: Transaction, topic: str, record: NewRecord) -> Delivery:
        """Take a record of an open transaction."""
        self._check(transaction)
        while self._state.waiting_bytes >= MAX_WAITING_BYTES:
            await self._driver.wait_for_change()
            self._check(transaction)
        return self._deliveries.add(topic, self._state.add(topic, record, self._client.now_ms()))

    async def add_offsets(
        self, transaction: Transaction, member: GroupConsumer, records: Iterable[ConsumedRecord]
    ) -> None:
        """Take offsets of a member into an open transaction."""
        self._check(transaction)
        offsets = member.offsets_behind(records)
        self._state.add_offsets(offsets)
        self._driver.wake()
        while not self._state.are_offsets_added:
            await self._driver.wait_for_change()
            self._check(transaction)
        self._check(transaction)
        self._members.append((member, offsets))

    async def end(self, transaction: Transaction, *, commits: bool) -> None:
        """End an open transaction, and wait for the coordinator."""
        assert not transaction.is_over, self._state.transactional_id
        if commits and self._state.failure is not None:
            raise self._state.failure.copy()
        self._state.end(self._client.now_ms(), commits=commits)
        self._driver.wake()
        while self._state.phase in {Phase.COMMITTING, Phase.ABORTING}:
            if commits and self._state.failure is not None:
                raise self._state.failure.copy()
            await self._driver.wait_for_change()
        transaction.is_over = True
        self._deliveries.collect()
        if commits:
            for member, offsets in self._members:
                member.on_committed(offsets)

    def _check(self, transaction: Transaction) -> None:
        """Raise if the transaction cannot go on."""
        self._driver.check()
        if transaction.is_over:
            raise ClientError(f"transactional id {self._state.transactional_id}: the transaction is over")
        if self._state.failure is not None:
            raise self._state.failure.copy()

    async def keep_collecting(self) -> None:
        """Pass outcomes on until cancelled."""
        await self._deliveries.keep_collecting()


class Consumer:
    """Reads records of one topic, made by `Client.consumer`: an asynchronous iterator (Kafka: `KafkaConsumer`)."""

    def __init__(self, state: ConsumerState, driver: Driver) -> None:
        self._state = state
        self._driver = driver

    @property
    def offsets(self) -> dict[int, int]:
        """The offset of the next record that the broker is asked for, by partition."""
        return {number: one.offset for number, one in self._state.positions.items() if one.offset is not None}

    def take_notices(self) -> list[str]:
        """Take what the user should know, such as records that were deleted before they were read."""
        notices = list(self._state.notices)
        self._state.notices.clear()
        return notices

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
        while not (records := self._state.take_records()):
            if self._state.is_done:
                self._driver.check()
                return ()
            await self._driver.wait_for_change()
        self._driver.wake()
        return records

    async def __aiter__(self) -> AsyncIterator[ConsumedRecord]:
        """Each record, in the order of its partition."""
        while records := await self.batch():
            for record in records:
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

    @property
    def coordinator(self) -> Endpoint | None:
        """The broker that coordinates the group; None while the member looks for it."""
        return None if self._state.coordinator is None else Endpoint(*self._state.coordinator)

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
        while not (records := self._state.take_records()):
            if self._state.is_done:
                self._driver.check()
                return ()
            await self._driver.wait_for_change()
        self._last = records
        self._driver.wake()
        return records

    async def __aiter__(self) -> AsyncIterator[ConsumedRecord]:
        """Each record, in the order of its partition; it is finished when the next one is asked for."""
        while records := await self.batch():
            self._last = ()
            for record in records:
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

    def seek(self, partition: int, offset: int) -> None:
        """Go on at this offset of a partition (Kafka: `KafkaConsumer.seek`).

        Args:
            partition: A partition of this member.
            offset: The offset of the next record to read.

        Raises:
            ClientError: The partition is not this member's.
        """
        self._last = ()
        self._state.seek(partition, offset)
        self._driver.wake()

    def rewind(self) -> None:
        """Go back to the committed offsets, as after a transaction that was aborted."""
        self._last = ()
        self._state.rewind()
        self._driver.wake()

    def pause(self, partitions: Iterable[int]) -> None:
        """Read no further records of these partitions, until `resume` (Kafka: `KafkaConsumer.pause`).

        The member keeps them, and its membership, as long as the partitions are not given to another member.
        """
        self._state.pause(partitions)

    def resume(self, partitions: Iterable[int]) -> None:
        """Go on with these partitions."""
        self._state.resume(partitions)
        self._driver.wake()

    @property
    def paused(self) -> frozenset[int]:
        """The partitions that are not read for now."""
        return self._state.paused

    def offsets_behind(self, records: Iterable[ConsumedRecord]) -> MemberOffsets:
        """The offsets that a transaction commits when these records are done. Raises `ClientError` without one."""
        self._last = ()
        return self._state.offsets_behind(records)

    def on_committed(self, offsets: MemberOffsets) -> None:
        """Note the offsets that a transaction has committed."""
        self._state.on_committed(offsets)

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
        self._lanes = count(LANES_OF_A_DRIVER, LANES_OF_A_DRIVER)
        self._free_lanes: list[int] = []
        self._started_ms = start_ms
        self._started_s = trio.current_time()
        self.requests_sent = 0
        """The requests so far, with their repetitions."""

    def now_ms(self) -> int:
        """Milliseconds since 1970: the time at the start, advanced by Trio's clock."""
        return self._started_ms + int((trio.current_time() - self._started_s) * 1000)

    def deliver(self, thing: Inbound) -> None:
        """Hand a reply or a failure of the transport to the question or the driver that waits for it."""
        if not isinstance(thing, Reply | Failed):
            return
        if (question := self._questions.pop(thing.token, None)) is not None:
            question.outcome = thing.message if isinstance(thing, Reply) else thing
            question.answered.set()
        elif (route := self._routes.pop(thing.token, None)) is not None:
            driver, token = route
            driver.on_outcome(token, thing)

    def ask(self, driver: Driver, ask: Ask) -> None:
        """Send a request of an engine."""
        number = next(self._tokens)
        self._routes[number] = driver, ask.token
        self.requests_sent += 1
        self._transport.request(
            Endpoint(*ask.to),
            number,
            ask.message,
            timeout_ms=ask.timeout_ms,
            client_id=self._client_id,
            lane=driver.lane + ask.is_to_coordinator,
            highest=ask.highest,
        )

    @contextmanager
    def _driver(self, engine: Engine) -> Iterator[Driver]:
        """A driver with lanes that no other one has."""
        lane = heappop(self._free_lanes) if self._free_lanes else next(self._lanes)
        try:
            yield Driver(self, engine, lane)
        finally:
            heappush(self._free_lanes, lane)

    async def ping(self, endpoint: Endpoint, timeout_ms: int = 5_000, *, lane: int = 0) -> None:
        """Wait until a broker has answered a request, or the connection has failed."""
        message = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        await self.question(endpoint, message, timeout_ms, lane=lane)

    async def question(
        self, endpoint: Endpoint, message: Message, timeout_ms: int = REQUEST_TIMEOUT_MS, *, lane: int = 0
    ) -> Message | Failed:
        """Send one request to one broker, once.

        Args:
            endpoint: The address of the broker.
            message: The request.
            timeout_ms: Milliseconds until the request fails.
            lane: The connection: that of an engine, or the one for questions.

        Returns:
            The response, or the cause of the failure.
        """
        number = next(self._tokens)
        question = self._questions[number] = _Question()
        self.requests_sent += 1
        self._transport.request(endpoint, number, message, timeout_ms=timeout_ms, client_id=self._client_id, lane=lane)
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
        with one_cause(), self._driver(state) as driver:
            producer = Producer(self, state, driver)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(driver.run)
                nursery.start_soon(producer.keep_collecting)
                yield producer
                await producer.flush()
                if settings.acks == 0:
                    await producer.confirm_reading()
                nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def transactional(
        self, transactional_id: str, settings: TransactionSettings = TransactionSettings()
    ) -> AsyncIterator[TransactionalProducer]:
        """A producer whose records become visible together, for the duration of the block (Kafka: `transactional.id`).

        The block begins when the coordinator has ended what an earlier producer of this id left open. Any earlier
        producer can write nothing from then on. The client uses version 2 of transactions where the cluster has it
        (feature `transaction.version`), and version 1 otherwise.

        Args:
            transactional_id: The name of the producer, which stays the same when the program starts again.
            settings: The time-outs, the compression.

        Raises:
            ClientError: No coordinator answered in time, or it refused.
        """
        state = TransactionState(transactional_id, self._bootstrap, settings, rng=self._rng)
        with one_cause(), self._driver(state) as driver:
            producer = TransactionalProducer(self, state, driver)
            async with trio.open_nursery() as nursery:
                # The end of a cancelled transaction needs requests, too.
                scope = trio.CancelScope(shield=True)
                nursery.start_soon(driver.run_in, scope)
                nursery.start_soon(producer.keep_collecting)
                try:
                    await producer.wait_until_ready()
                    yield producer
                finally:
                    scope.cancel()
                    nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def consumer(self, topic: str, settings: ConsumerSettings = ConsumerSettings()) -> AsyncIterator[Consumer]:
        """A consumer of one topic, for the duration of the block. It joins no group and commits no offsets.

        Args:
            topic: The name of the topic.
            settings: Partitions, where to begin, whether to follow, isolation, time-out.
        """
        state = ConsumerState(topic, self._bootstrap, settings)
        with one_cause(), self._driver(state) as driver:
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
        with one_cause(), self._driver(state) as driver:
            consumer = GroupConsumer(state, driver)
            async with _until_goodbye(driver, consumer):
                yield consumer

    @asynccontextmanager
    async def share(
        self,
        topic: str,
        group: str,
        settings: ShareSettings = ShareSettings(),
        *,
        on_acknowledged: Callable[[Acknowledged], None] | None = None,
    ) -> AsyncIterator[ShareConsumer]:
        """A member of a share group, which has the records of a topic one by one as a queue (Kafka:
        `KafkaShareConsumer`, KIP-932).

        The members need not share the partitions: each record is locked for the member that has got it, and comes
        again, to any member, if it is released or its lock ends. A new group begins at the end of the topic, unless
        `share.auto.offset.reset` of the group says otherwise.

        The end of the block sends what was acknowledged, gives all other records back and leaves the group.

        Args:
            topic: The name of the topic.
            group: The name of the share group.
            settings: Whether records are accepted without a word, how many come at once, the time-out.
            on_acknowledged: Called with each outcome of acknowledgements, in `ShareConsumer.batch`, `commit` and at the
                end of the block.

        Raises:
            ClientError: At the end of the block: the member cannot go on, as the cluster has no share groups, the group
                is one of another type, or no broker answers.
        """
        state = ShareState(topic, group, self._bootstrap, settings, rng=self._rng)
        with one_cause(), self._driver(state) as driver:
            consumer = ShareConsumer(state, driver, self.now_ms, on_acknowledged)
            async with _until_goodbye(driver, consumer):
                yield consumer


@asynccontextmanager
async def _until_goodbye(driver: Driver, member: GroupConsumer | ShareConsumer) -> AsyncIterator[None]:
    """Make the requests of a member for the duration of the block, and let it leave its group at the end."""
    async with trio.open_nursery() as nursery:
        # Not the cancellation of the block ends the requests, but the end of the goodbye.
        scope = trio.CancelScope(shield=True)
        nursery.start_soon(driver.run_in, scope)
        try:
            yield
        finally:
            with trio.move_on_after(LEAVE_SECONDS, shield=True):
                await member.close()
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


@asynccontextmanager
async def open_share_consumer(
    bootstrap: Iterable[Endpoint],
    topic: str,
    group: str,
    settings: ShareSettings = ShareSettings(),
    *,
    on_acknowledged: Callable[[Acknowledged], None] | None = None,
) -> AsyncIterator[ShareConsumer]:
    """A member of a share group with a client of its own, for the duration of the block; see `Client.share`.

    Args:
        bootstrap: The addresses of some brokers.
        topic: The name of the topic.
        group: The name of the share group.
        settings: As for `Client.share`.
        on_acknowledged: As for `Client.share`.
    """
    async with (
        open_client(bootstrap) as client,
        client.share(topic, group, settings, on_acknowledged=on_acknowledged) as consumer,
    ):
        yield consumer
