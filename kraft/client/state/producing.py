"""The state of a producer for one topic: batches, their order, the partition of a key, and their repetition (Kafka:
`Sender`, `RecordAccumulator`, `BuiltInPartitioner`, KIP-98, KIP-480).

Each partition has one batch on its way at a time, so that no repetition changes the order of records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import count
from random import Random
from typing import Final

from msgspec import Struct

from kraft.client.state.batches import BATCH_BYTES, Batch, NewRecord, Numbered, size_of
from kraft.client.state.errors import ClientError, cannot_connect, refused
from kraft.client.state.identity import Identity
from kraft.client.state.requests import CONCURRENT_MS, FIRST_PAUSE_MS, REQUEST_TIMEOUT_MS, Address, Ask, pause_ms
from kraft.client.state.topic_view import TopicView
from metadata_log.compression import Compression
from metadata_log.serde import Message
from metadata_log.serde.fields import OPEN_END
from metadata_log.types import NO_OFFSET
from transport.protocol.errors import Error
from transport.protocol.inbound import Failed
from transport.protocol.messages.init_producer_id import InitProducerIdResponse
from transport.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

_SEED: Final = 0x9747B28C
_MIX: Final = 0x5BD1E995
_MASK: Final = 0xFFFF_FFFF
_POSITIVE: Final = 0x7FFF_FFFF


def murmur2(data: bytes) -> int:
    """The hash of Kafka's clients, as an unsigned number of 32 bits."""
    size = len(data)
    hashed = _SEED ^ size
    whole = size & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MIX & _MASK
        word = (word ^ word >> 24) * _MIX & _MASK
        hashed = hashed * _MIX & _MASK ^ word
    if size > whole:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _MIX & _MASK
    hashed = (hashed ^ hashed >> 13) * _MIX & _MASK
    return hashed ^ hashed >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition of a key in a topic with so many partitions, as each client of Kafka chooses it."""
    return (murmur2(key) & _POSITIVE) % partitions


ALL: Final = -1
"""The value of `acks` that waits for every replica in sync."""
_ANSWER_MS: Final = 1_000
"""How much longer than the broker's own limit the answer to a Produce may take, in milliseconds."""
_LOST_IDENTITY: Final = (
    Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Error.UNKNOWN_PRODUCER_ID,
    Error.INVALID_PRODUCER_EPOCH,
)
"""The errors after which the producer needs a new id."""


class Delivered(Struct, frozen=True):
    """An acknowledged record. Without acknowledgement (acks=0) the offset is -1."""

    number: int
    partition: int
    offset: int
    timestamp_ms: int


class Undelivered(Struct, frozen=True):
    """A record that was refused, or not acknowledged in time."""

    number: int
    error: ClientError


class ProducerSettings(Struct, frozen=True, kw_only=True):
    """How a producer writes. `timeout_ms` bounds a record with all its repetitions (Kafka: `delivery.timeout.ms`)."""

    acks: int = ALL
    compression: Compression = Compression.NONE
    is_idempotent: bool = True
    timeout_ms: int = 30_000


class ProducerState:
    """The engine of a producer; see `Engine`."""

    def __init__(
        self,
        topic: str,
        bootstrap: Sequence[Address],
        settings: ProducerSettings = ProducerSettings(),
        *,
        rng: Random,
        identity: Identity | None = None,
    ) -> None:
        """`identity` is that of a transactional producer, which gives it the producer id."""
        self._tokens = count(1)
        self.view = TopicView(topic, bootstrap, self._tokens, may_create=True)
        self.waiting_bytes = 0
        """The size of all records without an outcome, in bytes."""
        self.brokers: dict[Address, None] = {}
        """The brokers that got records, in order of their first."""
        self._settings = settings
        self._rng = rng
        self._numbers = count()
        self._identity = identity or (Identity() if settings.is_idempotent else None)
        self._unplaced: deque[Numbered] = deque()
        self._queues: dict[int, deque[Batch]] = {}
        self._sticky = 0
        self._asked_identity = 0
        self._sent: dict[int, tuple[Address, list[Batch]]] = {}
        self._results: list[Delivered | Undelivered] = []
        self._abandoned: ClientError | None = None
        """Why no batch is sent any more, until each has its outcome."""

    # What the user does

    def add(self, record: NewRecord, now_ms: int) -> int:
        """Take a record; returns its number, which the result names."""
        number = next(self._numbers)
        timestamp_ms = now_ms if record.timestamp_ms is None else record.timestamp_ms
        self.waiting_bytes += size_of(record)
        self._unplaced.append(Numbered(number, record, timestamp_ms, now_ms))
        return number

    def take_results(self) -> list[Delivered | Undelivered]:
        """Take the outcomes of records."""
        taken, self._results = self._results, []
        return taken

    @property
    def is_idle(self) -> bool:
        """Whether each record has its outcome."""
        return not self._unplaced and not any(self._queues.values())

    @property
    def waiting_partitions(self) -> set[int]:
        """The partitions whose next batch waits until they are part of the transaction."""
        assert self._identity is not None
        return {number for number, queue in self._queues.items() if queue and not self._identity.may_write(number)}

    def abandon(self, why: ClientError, now_ms: int) -> None:
        """Give up what is not on its way, and what comes back without an acknowledgement, as its transaction ends."""
        self._abandoned = why
        self._fail(list(self._unplaced), why)
        self._unplaced.clear()
        for queue in self._queues.values():
            while queue and not queue[-1].is_sent:
                self._give_up(queue, queue[-1], now_ms)

    def resume(self) -> None:
        """Send again: the transaction has ended."""
        self._abandoned = None

    def _give_up(self, queue: deque[Batch], batch: Batch, now_ms: int) -> None:
        assert self._abandoned is not None
        queue.remove(batch)
        if self._identity is not None and batch.attempts:
            self._identity.forget(now_ms)  # the leader may have written it
        self._fail(batch.entries, self._abandoned)

    # The engine

    def deadline_ms(self) -> int:
        """The time of the next request, repetition or time-out, in ms."""
        moments = [self.view.deadline_ms()]
        timeout_ms = self._settings.timeout_ms
        if self._unplaced:
            moments.append(self._unplaced[0].added_ms + timeout_ms)
        identity = self._identity
        waiting = [queue[0] for queue in self._queues.values() if queue and not queue[0].is_sent]
        if waiting and identity is not None and not identity.is_known:
            if not self._asked_identity:
                moments.append(identity.due_ms)
        else:
            moments += [batch.due_ms for batch in waiting if self._may_send(batch)]
        moments += [batch.added_ms + timeout_ms for batch in waiting]
        return min(moments)

    def poll(self, now_ms: int) -> list[Ask]:
        """The requests that are due."""
        asks = self.view.poll(now_ms)
        self._expire(now_ms)
        if self.view.is_known:
            self._place()
        if not any(self._queues.values()):
            return asks
        identity = self._identity
        if identity is not None and not identity.is_known:
            if not self._asked_identity and now_ms >= identity.due_ms:
                self._asked_identity = next(self._tokens)
                asks.append(Ask(self._asked_identity, self.view.any_broker(), identity.request()))
            return asks
        asks += self._produce(now_ms)
        return asks

    def on_outcome(self, token: int, outcome: Message | Failed, now_ms: int) -> None:
        """Take the outcome of a request."""
        if self.view.awaits(token):
            self.view.on_outcome(outcome, now_ms)
        elif token == self._asked_identity:
            self._asked_identity = 0
            assert self._identity is not None
            assert isinstance(outcome, InitProducerIdResponse | Failed), outcome
            self._identity.on_outcome(outcome, now_ms)
            if not self._identity.is_known:
                self.view.refresh(self._identity.last_failure, now_ms)
        else:
            address, batches = self._sent.pop(token)
            if isinstance(outcome, Failed):
                if self.view.lasts(outcome, address, now_ms):
                    raise cannot_connect(outcome)
                for batch in batches:
                    self._retry(batch, outcome.detail, now_ms)
            else:
                assert isinstance(outcome, ProduceResponse), outcome
                self._on_answer(batches, outcome, now_ms)

    # Batches

    def _place(self) -> None:
        """Give each record its partition and its batch."""
        while self._unplaced:
            entry = self._unplaced.popleft()
            partition = self._partition_of(entry.record)
            if partition not in self.view.leaders:
                last = len(self.view.leaders) - 1
                error = ClientError(f"{self.view.topic} has no partition {partition}", hint=f"The last one is {last}.")
                self._fail([entry], error)
                continue
            queue = self._queues.setdefault(partition, deque())
            if not queue or not queue[-1].has_room_for(entry):
                queue.append(Batch(partition, self._settings.compression))
            queue[-1].add(entry)

    def _partition_of(self, record: NewRecord) -> int:
        """The partition by its number or by the key; else one partition for as long as a batch is open (KIP-480)."""
        if record.partition is not None:
            return record.partition
        if record.key is not None:
            return partition_of_key(record.key, len(self.view.leaders))
        queue = self._queues.get(self._sticky)
        if not queue or queue[-1].is_frozen or queue[-1].size >= BATCH_BYTES:
            led = [number for number, leader in self.view.leaders.items() if leader is not None]
            self._sticky = self._rng.choice(led or list(self.view.leaders))
        return self._sticky

    def _produce(self, now_ms: int) -> list[Ask]:
        """One request for each leader that has no batch of a partition on its way."""
        by_leader: dict[Address, list[Batch]] = {}
        for partition, queue in self._queues.items():
            if not queue or queue[0].is_sent or now_ms < queue[0].due_ms or not self._may_send(queue[0]):
                continue
            leader = self.view.leader_of(partition)
            if leader is None:
                queue[0].due_ms = now_ms + FIRST_PAUSE_MS
                self.view.refresh(f"partition {self.view.topic}-{partition} has no leader", now_ms)
                continue
            by_leader.setdefault(leader.address, []).append(queue[0])
        asks = []
        for address, batches in by_leader.items():
            data = [PartitionProduceData(index=one.partition, records=self._send(one)) for one in batches]
            topic = TopicProduceData(name=self.view.topic, topic_id=self.view.topic_id, partition_data=data)
            timeout_ms = min(self._settings.timeout_ms, REQUEST_TIMEOUT_MS)
            identity = self._identity
            request = ProduceRequest(
                transactional_id=None if identity is None else identity.transactional_id,
                acks=self._settings.acks,
                timeout_ms=timeout_ms,
                topic_data=[topic],
            )
            highest = OPEN_END if identity is None else identity.highest_produce
            token = next(self._tokens)
            self._sent[token] = address, batches
            self.brokers[address] = None
            asks.append(Ask(token, address, request, timeout_ms + _ANSWER_MS, highest))
        return asks

    def _may_send(self, batch: Batch) -> bool:
        """Not before the answer that names the present leaders, for a repetition; nor outside of a transaction."""
        if batch.attempts > 0 and self.view.is_stale:
            return False
        return self._identity is None or self._identity.may_write(batch.partition)

    def _send(self, batch: Batch) -> bytes:
        identity = self._identity
        if not batch.is_frozen:
            is_transactional = identity is not None and identity.transactional_id is not None
            sequence = None if identity is None else identity.next_sequence(batch)
            batch.freeze(sequence, is_transactional=is_transactional)
        return batch.send()

    # Outcomes

    def _on_answer(self, batches: list[Batch], answer: ProduceResponse, now_ms: int) -> None:
        results = {one.index: one for topic in answer.responses for one in topic.partition_responses}
        for batch in batches:
            result = results.get(batch.partition)
            if self._settings.acks == 0:
                self._acknowledge(batch, NO_OFFSET, NO_OFFSET)
            elif result is None:
                self._retry(batch, f"the answer lacks partition {self.view.topic}-{batch.partition}", now_ms)
            else:
                self._on_result(batch, result, now_ms)

    def _on_result(self, batch: Batch, result: PartitionProduceResponse, now_ms: int) -> None:
        error = Error.of(result.error_code)
        what = f"partition {self.view.topic}-{batch.partition}"
        if error in (Error.NONE, Error.DUPLICATE_SEQUENCE_NUMBER):
            self._acknowledge(batch, result.base_offset, result.log_append_time_ms)
        elif error is Error.CONCURRENT_TRANSACTIONS:
            self._again(batch, CONCURRENT_MS, now_ms)  # the former transaction of this producer is still ending
        elif error.retriable:
            self._retry(batch, f"{what}: {error.name}", now_ms)
        elif error is Error.MESSAGE_TOO_LARGE and len(batch.entries) > 1 and self._abandoned is None:
            queue = self._take_back(batch)
            queue.extendleft(reversed(batch.halves()))
        else:
            text = result.error_message
            if result.record_errors:
                text = result.record_errors[0].batch_index_error_message or text
            self._take_back(batch)
            # An earlier attempt may have been written: a batch with the same numbers would count as a copy of that.
            if self._identity is not None and (batch.attempts or error in _LOST_IDENTITY):
                self._identity.forget(now_ms)
            self._fail(batch.entries, refused(what, error, text))

    def _take_back(self, batch: Batch) -> deque[Batch]:
        """Remove a batch that the leader did not append: the next batch has its sequence numbers."""
        queue = self._queues[batch.partition]
        assert queue[0] is batch, batch.partition
        queue.popleft()
        if self._identity is not None:
            self._identity.take_back(batch)
        return queue

    def _retry(self, batch: Batch, why: str, now_ms: int) -> None:
        self._again(batch, pause_ms(batch.attempts), now_ms)
        self.view.refresh(why, now_ms)

    def _again(self, batch: Batch, pause: int, now_ms: int) -> None:
        batch.is_sent = False
        batch.attempts += 1
        batch.due_ms = now_ms + pause
        if self._abandoned is not None:
            self._give_up(self._queues[batch.partition], batch, now_ms)

    def _acknowledge(self, batch: Batch, base_offset: int, append_time_ms: int) -> None:
        self._queues[batch.partition].popleft()
        self.view.on_progress()
        for index, entry in enumerate(batch.entries):
            self.waiting_bytes -= size_of(entry.record)
            offset = base_offset + index if base_offset >= 0 else NO_OFFSET
            timestamp_ms = append_time_ms if append_time_ms >= 0 else entry.timestamp_ms
            self._results.append(Delivered(entry.number, batch.partition, offset, timestamp_ms))

    def _fail(self, entries: Sequence[Numbered], error: ClientError) -> None:
        for entry in entries:
            self.waiting_bytes -= size_of(entry.record)
            self._results.append(Undelivered(entry.number, error))

    def _expire(self, now_ms: int) -> None:
        """Give up records that wait longer than the time-out. A batch on its way waits for its outcome."""
        limit_ms = now_ms - self._settings.timeout_ms
        within = f"within {self._settings.timeout_ms / 1000:g} s: {self.view.last_failure or 'no broker answered'}"
        while self._unplaced and self._unplaced[0].added_ms <= limit_ms:
            self._fail([self._unplaced.popleft()], ClientError(f"a record was not sent {within}"))
        for queue in self._queues.values():
            while queue and not queue[0].is_sent and queue[0].added_ms <= limit_ms:
                batch = queue.popleft()
                if not batch.attempts:
                    self._fail(batch.entries, ClientError(f"a record was not sent {within}"))
                    continue
                hint = "The leader may have written the record all the same."
                self._fail(batch.entries, ClientError(f"a record was not acknowledged {within}", hint=hint))
                if self._identity is not None:
                    self._identity.forget(now_ms)  # whether its sequence numbers are used is unknown
