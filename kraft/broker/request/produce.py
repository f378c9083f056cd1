"""Produce: checks, append, and the wait of acks=all (Kafka: `KafkaApis.handleProduceRequest`,
`ReplicaManager.appendRecords`, `DelayedProduce`).

A request may have many partitions, and a partition many records in a few kilobytes. So what is done with a request is
a generator, of which each step takes less than a millisecond; other requests have their turns in between. Most requests
have one partition without a transaction, and fit a step: for these one call does the same without a generator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from msgspec import Struct

from kraft.access.authorizer import AclOperation, AclResource
from kraft.broker.request.acknowledged import Awaited, acknowledgement, awaited
from kraft.broker.request.batch_check import FirstBatch, first_batch, only_batch
from kraft.coordinators.transactions.transaction_guards import Guard, TransactionGuards
from kraft.coordinators.transactions.verification import (
    ADDS_SINCE,
    Asking,
    Transaction,
    Verified,
    Verifier,
    produce_error,
)
from kraft.handling.quotas import PRODUCED, ClientQuotas
from kraft.handling.rights import Rights
from kraft.handling.settings import RequestSettings
from kraft.handling.sizes import request_size
from kraft.handling.steps import Handling
from kraft.limits import PARTITIONS_PER_STEP
from kraft.partitions.log.outcomes import RefusedAppend
from kraft.partitions.log.validation import Checked, checking_all
from kraft.partitions.lookup import current_leader, hosted, is_known
from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.partitions.replicas.key import ANY_CHANGE, INTERNAL_TOPICS, NOT_THE_END, PartitionKey
from kraft.partitions.replicas.manager import ReplicaManager
from kraft.wire import Answer, Drop, LeaveUnanswered, Outcome, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.types import NEVER_MS, NO_OFFSET, Uuid
from transport.protocol.errors import Error
from transport.protocol.messages import produce as messages

ACKS_ALL: Final = -1
_ACKS: Final = (ACKS_ALL, 0, 1)
TOPIC_IDS_SINCE: Final = 13
LEADER_SINCE: Final = 10
ADMIN_CLIENT: Final = "__admin_client"
"""The client id that may write to internal topics, as in Kafka."""
_WITHOUT_LOG_START: Final = frozenset(
    (
        *(Error.UNKNOWN_TOPIC_OR_PARTITION, Error.NOT_LEADER_OR_FOLLOWER, Error.MESSAGE_TOO_LARGE),
        *(Error.RECORD_LIST_TOO_LARGE, Error.CORRUPT_MESSAGE, Error.KAFKA_STORAGE_ERROR),
    )
)
"""The errors of an append that are answered without the log start, as in Kafka."""


_NO_LEADER: Final = messages.LeaderIdAndEpoch()
_One = TypeVar("_One")


class Entry(Struct):
    """One partition of a request, and its answer so far."""

    topic: str
    topic_id: Uuid
    index: int
    records: bytes | None
    first: FirstBatch | RefusedAppend | None = None
    """The first batch of the records, or why they are refused; None until they are judged."""
    key: PartitionKey | None = None
    error: Error = Error.NONE
    text: str | None = None
    refused: tuple[messages.BatchIndexAndErrorMessage, ...] = ()
    base_offset: int = NO_OFFSET
    append_time_ms: int = -1
    log_start: int = NO_OFFSET
    awaited: Awaited | None = None
    """The thing that an answer with acks=all waits for; None if nothing is awaited."""

    def refuse(self, error: Error, text: str | None = None) -> None:
        """End the entry with an error."""
        self.error, self.text = error, text


class WaitingProduce(Struct):
    """A request with acks=all that waits for its followers."""

    request: WireRequest[messages.ProduceRequest]
    entries: list[Entry]
    left: list[Entry]
    """Those of the entries that wait."""
    concerns = NOT_THE_END
    """The changes of its partitions that may end the wait: more records do not."""

    @property
    def keys(self) -> list[PartitionKey]:
        """The partitions that the request waits for."""
        return [each.key for each in self.left if each.key is not None]

    @property
    def timeout_ms(self) -> int:
        """For how long the request waits at most."""
        return self.request.message.timeout_ms


class UnverifiedProduce(Struct):
    """A request with records of a transaction that its coordinator has not verified yet."""

    request: WireRequest[messages.ProduceRequest]
    entries: list[Entry]
    batches: list[tuple[Entry, FirstBatch]]
    """The batches that are appended, unless the coordinator objects."""
    guards: dict[tuple[str, int], Guard]
    """The topics and partitions that the coordinator is asked about."""
    transaction: Transaction | None
    """The question to the coordinator; None without guards."""
    asking: Asking | None = None
    """The question, once it is asked."""
    timeout_ms = NEVER_MS
    """The coordinator's answer ends the wait, or its time-out."""
    concerns = ANY_CHANGE

    @property
    def keys(self) -> tuple[Verified]:
        """The keys by which the request is woken."""
        return (Verified(self.request.request_id),)


class ProduceHandler:
    """Answers Produce requests.

    Args:
        manager: The replicas of this broker.
        settings: The settings.
        rights: Whether a client may do something.
        guards: The producers with a verification under way.
        verifier: What asks transaction coordinators.
        quotas: What clients may use.
    """

    def __init__(
        self,
        manager: ReplicaManager,
        settings: RequestSettings,
        rights: Rights,
        guards: TransactionGuards,
        verifier: Verifier,
        quotas: ClientQuotas,
    ) -> None:
        self._manager = manager
        self._rights = rights
        self._guards = guards
        self._verifier = verifier
        self._quotas = quotas
        self._verifies = settings.verifies_transactions
        self._image = MetadataImage()

    def use(self, image: MetadataImage) -> None:
        """New metadata, by which the next step acts."""
        self._image = image

    def begin(
        self, request: WireRequest[messages.ProduceRequest], image: MetadataImage, now_ms: int
    ) -> Outcome | WaitingProduce | Handling[Outcome | WaitingProduce | UnverifiedProduce]:
        """Append the batches of a request.

        Returns:
            The answer; or the request, if it waits for the coordinator of its transaction or for followers; or the
            steps to one of these.
        """
        message = request.message
        entry = _only_entry(message)
        if entry is None:
            return self._beginning(request, message, now_ms)
        entry.first = first = first_batch(entry.records or b"")
        if isinstance(first, FirstBatch) and first.is_transactional:
            return self._beginning(request, message, now_ms)
        batch = self._ready_batch(request, entry, self._image, {})
        if batch is not None:
            if message.acks not in _ACKS:
                entry.refuse(Error.INVALID_REQUIRED_ACKS)
            else:
                rest = self._append(request, entry, batch, message.acks, None, now_ms)
                if rest is not None:
                    return self._going_on(rest, request, entry, now_ms)
        return self._acknowledged_one(request, message, entry, now_ms)

    def _going_on(
        self, rest: Handling[None], request: WireRequest[messages.ProduceRequest], entry: Entry, now_ms: int
    ) -> Handling[Outcome | WaitingProduce]:
        """The further steps of a request with one long batch."""
        yield from rest
        message = request.message
        return self._acknowledged_one(request, message, entry, now_ms)

    def _acknowledged_one(
        self, request: WireRequest[messages.ProduceRequest], message: messages.ProduceRequest, entry: Entry, now_ms: int
    ) -> Outcome | WaitingProduce:
        """The answer to a request with one partition, or the request if it waits for followers."""
        if entry.awaited is not None:
            waiting = WaitingProduce(request, [entry], [entry])
            if not self.is_complete(waiting, self._image):
                return waiting
        return self._finish_one(request, message, entry, now_ms)

    def _beginning(
        self, request: WireRequest[messages.ProduceRequest], message: messages.ProduceRequest, now_ms: int
    ) -> Handling[Outcome | WaitingProduce | UnverifiedProduce]:
        entries = yield from _entries(message)
        if (yield from self._is_foreign_transaction(request, message, entries)):
            for entry in entries:
                entry.refuse(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return (yield from self._finishing(request, entries, now_ms))
        may_write: dict[str, bool] = {}
        ready: list[tuple[Entry, FirstBatch]] = []
        for part in _portions(entries):
            for entry in part:
                batch = self._ready_batch(request, entry, self._image, may_write)
                if batch is not None:
                    ready.append((entry, batch))
            if len(part) == PARTITIONS_PER_STEP:
                yield None
        if message.acks not in _ACKS:
            for entry, _ in ready:
                entry.refuse(Error.INVALID_REQUIRED_ACKS)
            ready = []
        unverified = self._unverified(request, message, entries, self._of_one_producer(ready))
        if unverified.transaction is None:
            return (yield from self._verified(unverified, {}, now_ms))
        unverified.asking = self._verifier.ask(request.request_id, unverified.transaction, self._image, now_ms)
        return unverified

    def _of_one_producer(self, ready: list[tuple[Entry, FirstBatch]]) -> list[tuple[Entry, FirstBatch]]:
        """The entries with their batches; none if transactions of several producers are among the batches."""
        if len({(one.producer_id, one.producer_epoch) for _, one in ready if one.is_transactional}) > 1:
            for entry, _ in ready:
                entry.refuse(Error.INVALID_PRODUCER_ID_MAPPING, "the batches have more than one transactional producer")
            return []
        return ready

    def _unverified(
        self,
        request: WireRequest[messages.ProduceRequest],
        message: messages.ProduceRequest,
        entries: list[Entry],
        batches: list[tuple[Entry, FirstBatch]],
    ) -> UnverifiedProduce:
        """The batches, with a guard for each that begins a transaction in its partition."""
        adds = request.version >= ADDS_SINCE
        guards: dict[tuple[str, int], Guard] = {}
        transaction: Transaction | None = None
        for entry, batch in batches:
            name = message.transactional_id
            if name is None or not self._begins_transaction(entry, batch):
                continue
            assert entry.key is not None
            guards[entry.topic, entry.index] = self._guards.begin(
                entry.key, batch.producer_id, batch.producer_epoch, batch.base_sequence, adds=adds
            )
            transaction = Transaction(name, batch.producer_id, batch.producer_epoch, adds, tuple(guards))
        return UnverifiedProduce(request, entries, batches, guards, transaction)

    def _begins_transaction(self, entry: Entry, batch: FirstBatch) -> bool:
        """Whether a batch is the first one of a transaction in a partition that this broker leads."""
        if not batch.is_transactional or not self._verifies:
            return False
        assert entry.key is not None
        partition = self._manager.partitions.get(entry.key)
        if partition is None or partition.is_offline or not partition.is_leader:
            return False
        producer = partition.log.producers.states.producers.get(batch.producer_id)
        return producer is None or producer.open_offset is None or producer.epoch != batch.producer_epoch

    def _verified(
        self, unverified: UnverifiedProduce, errors: Mapping[tuple[str, int], Error], now_ms: int
    ) -> Handling[Outcome | WaitingProduce]:
        """Append what the transaction coordinator has verified, and what needs no verification.

        Args:
            unverified: The request.
            errors: The answer of the coordinator for each topic and partition.
            now_ms: The time in ms since 1970.
        """
        request, entries = unverified.request, unverified.entries
        message = request.message
        for part in _portions(unverified.batches):
            for entry, batch in part:
                guard = unverified.guards.get((entry.topic, entry.index))
                if guard is not None:
                    verdict = errors.get((entry.topic, entry.index), Error.NETWORK_EXCEPTION)
                    if verdict is not Error.NONE:
                        error = produce_error(verdict, version=request.version, adds=guard.adds)
                        text = f"the transaction coordinator did not verify the transaction: {verdict.name}"
                        entry.refuse(error, text)
                        continue
                rest = self._append(request, entry, batch, message.acks, guard, now_ms)
                if rest is not None:
                    yield from rest
            if len(part) == PARTITIONS_PER_STEP:
                yield None
        if message.acks == ACKS_ALL:
            waiting = WaitingProduce(request, entries, [each for each in entries if each.awaited is not None])
            if waiting.left and not self.is_complete(waiting, self._image):
                return waiting
        return (yield from self._finishing(request, entries, now_ms))

    def _is_foreign_transaction(
        self, request: WireRequest[messages.ProduceRequest], message: messages.ProduceRequest, entries: list[Entry]
    ) -> Handling[bool]:
        """Whether the request has records of a transaction, and no transactional id that the client may use."""
        has_transaction = False
        for part in _portions(entries):
            for entry in part:
                entry.first = first = first_batch(entry.records or b"")
                if isinstance(first, FirstBatch) and first.is_transactional:
                    has_transaction = True
            if len(part) == PARTITIONS_PER_STEP:
                yield None
        if not has_transaction:
            return False
        name = message.transactional_id
        return name is None or not self._rights(request, AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, name)

    def _ready_batch(
        self,
        request: WireRequest[messages.ProduceRequest],
        entry: Entry,
        image: MetadataImage,
        may_write: dict[str, bool],
    ) -> FirstBatch | None:
        """The one batch of an entry that names a partition; None if the entry ends with its error.

        `may_write` holds the topics of the request that were judged before.
        """
        topic_id = entry.topic_id
        if request.version >= TOPIC_IDS_SINCE:
            if topic_id not in image.topics.by_id:
                entry.refuse(Error.UNKNOWN_TOPIC_ID)
                return None
            entry.topic = image.topics.by_id[topic_id].name
        else:
            topic_id = image.topics.by_name.get(entry.topic, Uuid.ZERO)
        entry.key = topic_id, entry.index
        if entry.topic not in may_write:
            may_write[entry.topic] = self._rights(request, AclOperation.WRITE, AclResource.TOPIC, entry.topic)
        if not may_write[entry.topic]:
            entry.refuse(Error.TOPIC_AUTHORIZATION_FAILED)
        elif not is_known(image, entry.key):
            entry.refuse(Error.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            checked = only_batch(entry.records, entry.first, request.version)
            if isinstance(checked, FirstBatch):
                return checked
            entry.refuse(checked.error, checked.text)
        return None

    def _append(
        self,
        request: WireRequest[messages.ProduceRequest],
        entry: Entry,
        batch: FirstBatch,
        acks: int,
        guard: Guard | None,
        now_ms: int,
    ) -> Handling[None] | None:
        """Append a batch; returns further steps if its records are not checked within one."""
        if entry.topic in INTERNAL_TOPICS and request.client_id != ADMIN_CLIENT:
            entry.refuse(Error.INVALID_TOPIC_EXCEPTION, f"{entry.topic} is an internal topic")
            return None
        key, records = entry.key, entry.records
        assert key is not None
        assert records is not None
        partition = hosted(self._manager, self._image, key, needs_leader=True)
        if isinstance(partition, Error):
            entry.refuse(partition)
            return None
        leaders = self._manager.leaders
        checked: Checked | RefusedAppend | None = leaders.too_few_in_sync(partition) if acks == ACKS_ALL else None
        if checked is None:
            work = checking_all(records, options=partition.log.options, now_ms=now_ms, is_client=True)
            try:
                next(work)
            except StopIteration as end:
                checked = end.value
            else:
                return self._append_later(work, entry, batch, acks, guard, now_ms)
        self._append_checked(partition, entry, batch, checked, acks, guard, now_ms)
        return None

    def _append_later(
        self,
        work: Handling[Checked | RefusedAppend],
        entry: Entry,
        batch: FirstBatch,
        acks: int,
        guard: Guard | None,
        now_ms: int,
    ) -> Handling[None]:
        """Append a batch with so many records that the rest of them is checked in further steps."""
        yield None
        checked = yield from work
        # Between two steps this broker may have lost the partition, and the producer its transaction.
        assert entry.key is not None
        partition = hosted(self._manager, self._image, entry.key, needs_leader=True)
        if isinstance(partition, Error):
            entry.refuse(partition)
            return
        if acks == ACKS_ALL and isinstance(checked, Checked):
            checked = self._manager.leaders.too_few_in_sync(partition) or checked
        self._append_checked(partition, entry, batch, checked, acks, guard, now_ms)

    def _append_checked(
        self,
        partition: HostedPartition,
        entry: Entry,
        batch: FirstBatch,
        checked: Checked | RefusedAppend | None,
        acks: int,
        guard: Guard | None,
        now_ms: int,
    ) -> None:
        assert checked is not None, "the check has an end"
        if guard is not None:
            overtaken = self._overtaken(partition, batch, guard)
            if overtaken is not None:
                entry.refuse(overtaken.error, overtaken.text)
                return
        done = (
            checked if isinstance(checked, RefusedAppend) else self._manager.leaders.append(partition, checked, now_ms)
        )
        if isinstance(done, RefusedAppend):
            entry.refuse(done.error, done.text)
            entry.refused = tuple(messages.BatchIndexAndErrorMessage(each.index, each.text) for each in done.records)
            if done.error not in _WITHOUT_LOG_START and not partition.is_offline:
                entry.log_start = partition.log.start_offset
            return
        if batch.is_transactional:
            self._guards.on_records(partition.key, batch.producer_id, batch.producer_epoch)
        entry.base_offset, entry.append_time_ms = done.first_offset, done.append_time_ms
        entry.log_start = partition.log.start_offset
        if acks == ACKS_ALL:
            entry.awaited = awaited(partition, done.last_offset)

    def _overtaken(self, partition: HostedPartition, batch: FirstBatch, guard: Guard) -> RefusedAppend | None:
        """Why a verified batch may not begin its transaction; None if it may, or if another batch has begun it."""
        name = f"producer {batch.producer_id}"
        known = partition.log.producers.states.producers.get(batch.producer_id)
        if not self._guards.holds(partition.key, batch.producer_id, guard):
            if known is not None and known.open_offset is not None and known.epoch == batch.producer_epoch:
                return None
            return RefusedAppend(Error.INVALID_TXN_STATE, f"the transaction of {name} has ended since its verification")
        if guard.adds and batch.base_sequence != 0 and known is None:
            text = f"{name} is new here; its first batch begins with sequence {batch.base_sequence}, not 0"
            return RefusedAppend(Error.OUT_OF_ORDER_SEQUENCE_NUMBER, text)
        if batch.base_sequence > guard.lowest_sequence:
            text = f"{name} has sent sequence {guard.lowest_sequence} before {batch.base_sequence}"
            return RefusedAppend(Error.OUT_OF_ORDER_SEQUENCE_NUMBER, text)
        return None

    def is_complete(self, waiting: WaitingProduce | UnverifiedProduce, image: MetadataImage) -> bool:
        """Whether the coordinator has answered, or no partition of a request is awaited any more
        (`Partition.checkEnoughReplicasReachOffset`).
        """
        if isinstance(waiting, UnverifiedProduce):
            return waiting.asking is not None and waiting.asking.errors is not None
        left: list[Entry] = []
        for entry in waiting.left:
            assert entry.key is not None
            assert entry.awaited is not None
            error = acknowledgement(self._manager, image, entry.key, entry.awaited)
            if error is None:
                left.append(entry)
            elif error is not Error.NONE:
                entry.refuse(error)
        waiting.left = left
        return not left

    def end(
        self, waiting: WaitingProduce | UnverifiedProduce, image: MetadataImage, now_ms: int
    ) -> Outcome | Handling[Outcome | WaitingProduce]:
        """Go on after the verification; or the answer, where a partition that is still awaited has timed out."""
        if isinstance(waiting, UnverifiedProduce):
            errors = None if waiting.asking is None else waiting.asking.errors
            return self._verified(waiting, errors or {}, now_ms)
        for entry in waiting.left:
            entry.refuse(Error.REQUEST_TIMED_OUT)
        request, entries = waiting.request, waiting.entries
        message = request.message
        if len(entries) == 1:
            return self._finish_one(request, message, entries[0], now_ms)
        return self._finishing(request, entries, now_ms)

    def _throttle_ms(self, request: WireRequest[messages.ProduceRequest], now_ms: int) -> int:
        """Count the bytes of a request, at its end as in Kafka. Returns how long a client above its quota waits."""
        if self._quotas.bound(PRODUCED, request) is None:
            return 0
        return self._quotas.charge(PRODUCED, request, request_size(request), now_ms)

    def _finish_one(
        self, request: WireRequest[messages.ProduceRequest], message: messages.ProduceRequest, entry: Entry, now_ms: int
    ) -> Outcome:
        """The outcome of a request with one partition."""
        throttle_ms = self._throttle_ms(request, now_ms)
        if message.acks == 0:
            return _without_answer(request, (entry,), throttle_ms)
        endpoints: dict[int, messages.NodeEndpoint] = {}
        part = self._answered(request, entry, endpoints)
        by_id = request.version >= TOPIC_IDS_SINCE
        topic = messages.TopicProduceResponse(
            name="" if by_id else entry.topic,
            topic_id=entry.topic_id if by_id else Uuid.ZERO,
            partition_responses=[part],
        )
        return Answer(
            request.request_id,
            messages.ProduceResponse(
                responses=[topic], throttle_time_ms=throttle_ms, node_endpoints=list(endpoints.values())
            ),
        )

    def _answered(
        self, request: WireRequest[messages.ProduceRequest], entry: Entry, endpoints: dict[int, messages.NodeEndpoint]
    ) -> messages.PartitionProduceResponse:
        """The answer for one partition; the address of another leader goes into `endpoints`."""
        leader = _NO_LEADER
        if entry.error is Error.NOT_LEADER_OR_FOLLOWER and request.version >= LEADER_SINCE and entry.key:
            known = current_leader(self._manager, self._image, entry.key, request.listener)
            leader = messages.LeaderIdAndEpoch(known.leader_id, known.leader_epoch)
            if known.endpoint is not None:
                at = known.endpoint
                endpoints[at.node_id] = messages.NodeEndpoint(at.node_id, at.host, at.port, at.rack)
        return messages.PartitionProduceResponse(
            index=entry.index,
            error_code=entry.error,
            base_offset=entry.base_offset,
            log_append_time_ms=entry.append_time_ms,
            log_start_offset=entry.log_start,
            record_errors=list(entry.refused),
            error_message=entry.text,
            current_leader=leader,
        )

    def _finishing(
        self, request: WireRequest[messages.ProduceRequest], entries: list[Entry], now_ms: int
    ) -> Handling[Outcome]:
        """The outcome of a request with any number of partitions."""
        throttle_ms = self._throttle_ms(request, now_ms)
        message = request.message
        if message.acks == 0:
            return _without_answer(request, entries, throttle_ms)
        endpoints: dict[int, messages.NodeEndpoint] = {}
        topics: dict[tuple[str, Uuid], list[messages.PartitionProduceResponse]] = {}
        for number, entry in enumerate(entries, 1):
            if number % PARTITIONS_PER_STEP == 0:
                yield None
            by_id = request.version >= TOPIC_IDS_SINCE
            topics.setdefault(("" if by_id else entry.topic, entry.topic_id if by_id else Uuid.ZERO), []).append(
                self._answered(request, entry, endpoints)
            )
        responses = [
            messages.TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=parts)
            for (name, topic_id), parts in topics.items()
        ]
        return Answer(
            request.request_id,
            messages.ProduceResponse(
                responses=responses, throttle_time_ms=throttle_ms, node_endpoints=list(endpoints.values())
            ),
        )


def _without_answer(
    request: WireRequest[messages.ProduceRequest], entries: Iterable[Entry], throttle_ms: int
) -> Outcome:
    """The outcome with acks=0. A closed connection is the only sign: the client looks for the leader again."""
    failures = sorted({each.error.name for each in entries if each.error is not Error.NONE})
    why = f"a Produce without acknowledgement failed: {', '.join(failures)}"
    return Drop(request.request_id, why) if failures else LeaveUnanswered(request.request_id, throttle_ms)


def _only_entry(message: messages.ProduceRequest) -> Entry | None:
    """The partition of a request that has one; None for any other number of them."""
    topics = message.topic_data
    if len(topics) != 1 or len(topics[0].partition_data) != 1:
        return None
    topic = topics[0]
    part = topic.partition_data[0]
    return Entry(topic.name, topic.topic_id, part.index, part.records)


def _portions(items: Sequence[_One]) -> Iterable[Sequence[_One]]:
    """The items of a list, so many as one step deals with. Most requests have no more than that."""
    if len(items) < PARTITIONS_PER_STEP:
        return (items,)
    return (items[begin : begin + PARTITIONS_PER_STEP] for begin in range(0, len(items), PARTITIONS_PER_STEP))


def _entries(message: messages.ProduceRequest) -> Handling[list[Entry]]:
    """The partitions of a request; of a partition that the request names twice, the later one counts, as in Kafka."""
    entries: dict[tuple[str, Uuid, int], Entry] = {}
    count = 0
    for topic in message.topic_data:
        for part in topic.partition_data:
            entries[topic.name, topic.topic_id, part.index] = Entry(
                topic.name, topic.topic_id, part.index, part.records
            )
            count += 1
            if count % PARTITIONS_PER_STEP == 0:
                yield None
    return list(entries.values())
