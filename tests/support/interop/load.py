"""Clients at work while something happens to the cluster: what was acknowledged to them, and what errors they saw."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from types import TracebackType
from typing import Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from kafka import TopicPartition as PartitionName
from kafka.admin import ConfigResource, KafkaAdminClient
from kafka.errors import KafkaError as ApiError

from metadata_log import replay
from metadata_log.image import MetadataImage, Partition, ResourceType
from support.interop.broker_cluster import BrokerCluster
from support.interop.real_kafka import eventually

PARTITIONS = 3
READ_SECONDS = 300
"""No client gives up earlier, however slow the machine is."""
PAUSE_SECONDS = 0.005
"""Between two messages: some hundred a second are enough to have some under way at any moment."""

ANSWER_LOST = {
    ("create", "TopicAlreadyExistsError"),
    ("grow", "InvalidPartitionsError"),
    ("delete", "UnknownTopicOrPartitionError"),
}
"""A broker repeats its request at the next leader if the last one ended without an answer, perhaps after the change."""


class Seen:
    """The errors that clients saw, as (what was tried, what Kafka calls the error)."""

    def __init__(self) -> None:
        self._errors: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def error(self, attempt: str, name: str) -> None:
        """One more."""
        with self._lock:
            self._errors[attempt, name] += 1

    @property
    def count(self) -> int:
        """How many."""
        return sum(self.errors.values())

    @property
    def errors(self) -> dict[tuple[str, str], int]:
        """How often each was seen."""
        with self._lock:
            return dict(self._errors)


class Worker:
    """A thread that does one thing again and again until the block ends; what it raises, the block raises."""

    def __init__(self, again: Callable[[], None]) -> None:
        self._again = again
        self._stopped = threading.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._again()
        except BaseException as failure:
            self.failure = failure

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopped.set()
        self._thread.join(READ_SECONDS)
        assert not self._thread.is_alive(), "a client did not come back"
        if self.failure is not None:
            raise self.failure


class Writing:
    """Numbered messages, idempotent and with acks=all; which of them were acknowledged."""

    def __init__(self, cluster: BrokerCluster, seen: Seen, topic: str) -> None:
        self._seen = seen
        self._topic = topic
        self._next = 0
        self.acknowledged: list[int] = []
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "error_cb": lambda error: seen.error("producer", error.name()),
                "log_level": 0,
            }
        )
        self._pause = threading.Event()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.append(int(message.value() or b""))
        else:
            self._seen.error("produce", error.name())

    def one(self) -> None:
        """Send the next number."""
        self._producer.produce(self._topic, str(self._next).encode(), on_delivery=self._delivered)
        self._next += 1
        self._producer.poll(0)
        self._pause.wait(PAUSE_SECONDS)

    def finish(self) -> None:
        """Wait for the answers to all that was sent."""
        assert self._producer.flush(READ_SECONDS) == 0, "messages were neither acknowledged nor refused"


class Reading:
    """A member of a consumer group, which commits what it has read."""

    def __init__(self, cluster: BrokerCluster, seen: Seen, topic: str, group: str) -> None:
        self._seen = seen
        self.numbers: Counter[int] = Counter()
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "error_cb": lambda error: seen.error("consumer", error.name()),
                "log_level": 0,
            }
        )
        self._consumer.subscribe([topic])

    def some(self) -> None:
        """Read what is there now, and commit it."""
        messages = self._consumer.consume(500, timeout=0.2)
        for message in messages:
            error = message.error()
            if error is None:
                self.numbers[int(message.value() or b"")] += 1
            else:
                self._seen.error("consume", error.name())
        if messages:
            try:
                self._consumer.commit(asynchronous=False)
            except KafkaException as refused:
                self._seen.error("commit", refused.args[0].name())

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


class Administering:
    """Topics made, grown, configured, moved, elected and deleted in turn; what was acknowledged of it."""

    def __init__(self, cluster: BrokerCluster, seen: Seen, topic: str, prefix: str) -> None:
        self._seen = seen
        self._brokers = tuple(cluster.ports)
        self._topic = topic
        self._prefix = prefix
        self._round = 0
        self.acknowledged = 0
        self.topics: dict[str, tuple[int, str | None]] = {}
        """Partitions of each topic that stays, and its retention if that was acknowledged."""
        self.deleted: set[str] = set()
        self.moved: dict[int, tuple[int, ...]] = {}
        """Where the replicas of each moved partition are, or will be, if that was acknowledged."""
        self._client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","), request_timeout_ms=60_000)

    def _acknowledged(self, attempt: str, action: Callable[[], object]) -> bool:
        try:
            action()
        except ApiError as error:
            self._seen.error(attempt, type(error).__name__)
            return False
        self.acknowledged += 1
        return True

    def _reassign(self, moved: dict[PartitionName, list[int]]) -> None:
        for error in self._client.alter_partition_reassignments(moved).values():
            if error is not None:
                raise error

    def _is_moving(self, partition: int) -> bool:
        """Whether the last reassignment goes on, or may. One that overrides it can stay open for ever with Kafka's
        controllers (docs/differences.md).
        """
        try:
            return bool(self._client.list_partition_reassignments({self._topic: [partition]}))
        except ApiError as error:
            self._seen.error("list reassignments", type(error).__name__)
            return True

    def one(self) -> None:
        """The next round of everything."""
        number, self._round = self._round, self._round + 1
        name = f"{self._prefix}{number}"
        client = self._client
        made = {name: {"num_partitions": 2, "replication_factor": 3, "configs": {"min.insync.replicas": "2"}}}
        if not self._acknowledged("create", lambda: client.create_topics(made)):
            return
        partitions, retention = 2, None
        wanted = ConfigResource("TOPIC", name, {"retention.ms": str(100_000 + number)})
        if self._acknowledged("configs", lambda: client.alter_configs([wanted], raise_on_unknown=False)):
            retention = str(100_000 + number)
        if self._acknowledged("grow", lambda: client.create_partitions({name: 4})):
            partitions = 4
        self.topics[name] = (partitions, retention)
        shift = number % len(self._brokers)
        order = [*self._brokers[shift:], *self._brokers[:shift]]
        partition, replicas = number % PARTITIONS, order[: 2 + number % 2]
        if not self._is_moving(partition):
            self.moved.pop(partition, None)
            moves = {PartitionName(self._topic, partition): replicas}
            if self._acknowledged("reassign", lambda: self._reassign(moves)):
                self.moved[partition] = tuple(replicas)
        self._acknowledged("elect", lambda: client.elect_leaders(0, {name: [0, 1]}))
        if number % 3 == 2:
            del self.topics[name]
            if self._acknowledged("delete", lambda: client.delete_topics([name])):
                self.deleted.add(name)

    def close(self) -> None:
        """End the client."""
        self._client.close()


class Transacting:
    """Transactions of three numbers, one in each partition, of which every third is given up."""

    def __init__(self, cluster: BrokerCluster, seen: Seen, topic: str) -> None:
        self._seen = seen
        self._topic = topic
        self._next = 0
        self.committed: list[int] = []
        self._pause = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "transactional.id": topic,
                "transaction.timeout.ms": READ_SECONDS * 1000,
                "error_cb": lambda error: seen.error("transactional producer", error.name()),
                "log_level": 0,
            }
        )
        self._producer.init_transactions(READ_SECONDS)

    def one(self) -> None:
        """The next transaction."""
        numbers = range(self._next, self._next + PARTITIONS)
        self._next += PARTITIONS
        self._producer.begin_transaction()
        for partition, number in enumerate(numbers):
            self._producer.produce(self._topic, str(number).encode(), partition=partition)
        try:
            # Without the flush, an abort forgets what was not sent, and the coordinator may not know of a transaction.
            assert self._producer.flush(READ_SECONDS) == 0
            if numbers.start // PARTITIONS % 3 == 2:
                self._producer.abort_transaction(READ_SECONDS)
            else:
                self._producer.commit_transaction(READ_SECONDS)
                self.committed.extend(numbers)
        except KafkaException as refused:
            self._seen.error("transaction", refused.args[0].name())
            self._producer.abort_transaction(READ_SECONDS)
        self._pause.wait(PAUSE_SECONDS)


def read_committed(cluster: BrokerCluster, topic: str) -> Counter[int]:
    """How often each number is in a topic, without aborted transactions; reads the topic from beginning to end."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "reads", "isolation.level": "read_committed"}
    )
    try:
        partitions = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
        ends = {one.partition: consumer.get_watermark_offsets(one, READ_SECONDS)[1] for one in partitions}
        consumer.assign(partitions)
        found: Counter[int] = Counter()

        def to_the_end() -> bool:
            found.update(int(message.value() or b"") for message in consumer.consume(1000, timeout=0.2))
            return all(one.offset >= ends[one.partition] for one in consumer.position(partitions))

        eventually(to_the_end, f"{topic} is read to its end", READ_SECONDS)
        return found
    finally:
        consumer.close()


class Load:
    """A producer, transactions, two members of a consumer group and an administrator, at work while the block lasts."""

    def __init__(self, cluster: BrokerCluster, name: str) -> None:
        self.cluster = cluster
        self.seen = Seen()
        self.numbers, self.transactions = f"{name}-numbers", f"{name}-transactions"
        made = {"num_partitions": PARTITIONS, "replication_factor": 3, "configs": {"min.insync.replicas": "2"}}
        with closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))) as admin:
            admin.create_topics({self.numbers: made, self.transactions: made}, wait_for_metadata=True)
        self._workers: list[Worker] = []
        self.readings = [Reading(cluster, self.seen, self.numbers, f"{name}-group") for _ in range(2)]
        self.writing = Writing(cluster, self.seen, self.numbers)
        self.transacting = Transacting(cluster, self.seen, self.transactions)
        self.administering = Administering(cluster, self.seen, self.numbers, f"{name}-made-")

    @contextmanager
    def running(self) -> Iterator[Load]:
        """All clients work until the block ends; then the group reads to the end, all leave, and nothing is lost."""
        with ExitStack() as stack:
            for reading in self.readings:
                stack.callback(reading.close)
                stack.enter_context(Worker(reading.some))
            with ExitStack() as workers:
                for work in (self.administering.one, self.writing.one, self.transacting.one):
                    self._workers.append(workers.enter_context(Worker(work)))
                self.wait_for_progress()
                yield self
                self.wait_for_progress()
            self.writing.finish()
            self.administering.close()
            eventually(self._all_is_read, "the group reads everything that was acknowledged", READ_SECONDS)
        self._check_messages()
        self._check_changes()

    def wait_for_progress(self) -> None:
        """Wait until each client has done more of its work."""
        targets = tuple(done + more for done, more in zip(self._done(), (20, 2 * PARTITIONS, 10), strict=True))
        eventually(
            lambda: self._failed() or all(done >= target for done, target in zip(self._done(), targets, strict=True)),
            "messages, transactions and changes are acknowledged",
            READ_SECONDS,
        )

    def _done(self) -> tuple[int, int, int]:
        return len(self.writing.acknowledged), len(self.transacting.committed), self.administering.acknowledged

    def _failed(self) -> bool:
        return any(one.failure for one in self._workers)

    def _all_is_read(self) -> bool:
        # The readers go on meanwhile: only a set of a whole counter is made in one step.
        return set(self.writing.acknowledged) <= set().union(*(set(one.numbers) for one in self.readings))

    def _check_messages(self) -> None:
        """Check that every acknowledged message is there exactly once."""
        there = read_committed(self.cluster, self.numbers)
        assert {number: there[number] for number in self.writing.acknowledged if there[number] != 1} == {}
        assert read_committed(self.cluster, self.transactions) == Counter(self.transacting.committed)

    def _check_changes(self) -> None:
        """Check that every acknowledged change is in the log of every node, and that all logs are equal."""
        for node in self.cluster.partitions():
            eventually(lambda node=node: self._has_changes(self.cluster.image(node)), f"node {node} has all changes")
        end = min(self.cluster.image(node).end.offset for node in self.cluster.partitions())
        first, *others = (replay(str(path), at=end - 1) for path in self.cluster.partitions().values())
        assert all(other == first for other in others), f"the nodes differ below offset {end}"

    def _has_changes(self, image: MetadataImage) -> bool:
        made, deleted, moved = self.administering.topics, self.administering.deleted, self.administering.moved
        moves = image.topics[self.numbers].partitions
        if any(_target(moves[number]) != replicas for number, replicas in moved.items()):
            return False
        return deleted.isdisjoint(image.topics) and all(
            name in image.topics
            and len(image.topics[name].partitions) >= partitions
            and retention in (None, image.configs.of((ResourceType.TOPIC, name)).get("retention.ms"))
            for name, (partitions, retention) in made.items()
        )


def _target(partition: Partition) -> tuple[int, ...]:
    """The replicas of a partition after its reassignment has ended."""
    return tuple(one for one in partition.replicas if one not in partition.removing_replicas)
