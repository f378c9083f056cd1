"""The state of a transactional producer (Kafka: `TransactionManager`, KIP-98, KIP-360, KIP-447, KIP-890).

Each topic has a `ProducerState` of its own; all have the producer id and the epoch of the coordinator. One request to a
coordinator is on its way at a time. In version 2 of transactions the leaders add their partitions, and each end raises
the epoch. In version 1 the producer adds them, and asks for another epoch only after an abort that has lost batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from itertools import count
from random import Random
from typing import Final

from msgspec import Struct

from kraft.client.state.batches import NewRecord
from kraft.client.state.coordinators import KeyType, silence
from kraft.client.state.errors import ClientError, cannot_connect, refused
from kraft.client.state.grouping import MemberOffsets
from kraft.client.state.identity import Identity
from kraft.client.state.producing import Delivered, ProducerSettings, ProducerState, Undelivered
from kraft.client.state.requests import CONCURRENT_MS, ELSEWHERE, Address, Ask, pause_ms
from metadata_log.compression import Compression
from metadata_log.serde import Message
from metadata_log.serde.fields import OPEN_END
from metadata_log.types import NEVER_MS
from transport.protocol.errors import Error
from transport.protocol.inbound import LASTING_OF_A_NODE, Failed
from transport.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from transport.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from transport.protocol.messages.api_versions import ApiVersionsResponse
from transport.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from transport.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from transport.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from transport.protocol.messages.produce import ProduceRequest
from transport.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from transport.protocol.software import versions_request

FEATURE: Final = "transaction.version"
ADDS_ITSELF_SINCE: Final = 2
"""The level of the feature since which leaders add their partitions, and each end raises the epoch."""
HIGHEST_OF_V1: Final[Mapping[type[Message], int]] = {EndTxnRequest: 4, TxnOffsetCommitRequest: 4}
"""The last versions of requests that mean version 1 of transactions."""
HIGHEST_OF_CLIENTS: Final[Mapping[type[Message], int]] = {AddPartitionsToTxnRequest: 3}
"""The last versions of requests that clients send; later ones are for brokers."""
ABORTABLE: Final = frozenset(
    {
        Error.TRANSACTION_ABORTABLE,
        Error.TOPIC_AUTHORIZATION_FAILED,
        Error.GROUP_AUTHORIZATION_FAILED,
        Error.FENCED_INSTANCE_ID,
        Error.UNKNOWN_MEMBER_ID,
        Error.ILLEGAL_GENERATION,
        Error.STALE_MEMBER_EPOCH,
        Error.UNKNOWN_PRODUCER_ID,
    }
)
"""The errors of a coordinator that end the transaction. Other errors, unless they pass, end the producer."""
FATAL_OF_A_LEADER: Final = frozenset(
    {
        Error.CLUSTER_AUTHORIZATION_FAILED,
        Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        Error.PRODUCER_FENCED,
        Error.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""The errors of a leader that end the producer. Other errors end the transaction."""
_NONE: Final = -1


class TransactionSettings(Struct, frozen=True, kw_only=True):
    """How a transactional producer writes.

    The coordinator aborts a transaction that takes longer than `transaction_timeout_ms` (Kafka:
    `transaction.timeout.ms`). `timeout_ms` bounds a record, and a request to a coordinator, with all repetitions.
    """

    transaction_timeout_ms: int = 60_000
    compression: Compression = Compression.NONE
    timeout_ms: int = 30_000


class Phase(Enum):
    """Where the producer stands."""

    BEGINNING = "the producer has no id, or needs another epoch"
    READY = "no transaction is open"
    OPEN = "a transaction is open"
    COMMITTING = "the transaction is being committed"
    ABORTING = "the transaction is being aborted"


class _Asked(Struct, frozen=True):
    """A request to a coordinator on its way."""

    token: int
    message: Message
    to: Address


class _Offsets:
    """Offsets of a group on their way into the transaction."""

    def __init__(self, offsets: MemberOffsets) -> None:
        self.offsets = offsets
        self.is_added = False
        """Whether the coordinator of transactions knows the group."""


class TransactionState:
    """The engine of a transactional producer; see `Engine`."""

    def __init__(
        self, transactional_id: str, bootstrap: Sequence[Address], settings: TransactionSettings, *, rng: Random
    ) -> None:
        self.transactional_id = transactional_id
        self.phase = Phase.BEGINNING
        self.failure: ClientError | None = None
        """Why the transaction can only be aborted."""
        self._settings = settings
        self._bootstrap = tuple(bootstrap)
        self._rng = rng
        self._tokens = count(1)
        self._topics: dict[str, tuple[ProducerState, Identity]] = {}
        self._refused: set[str] = set()
        """The topics that a broker has refused."""
        self._routes: dict[int, tuple[str, ProducerState, int]] = {}
        self._results: list[tuple[str, Delivered | Undelivered]] = []
        self._asked: _Asked | None = None
        self._coordinator: Address | None = None
        self._group_coordinators: dict[str, Address] = {}
        self._level: int | None = None
        """The level of the feature; None until the coordinator has told it."""
        self._adds_itself = False
        """Whether the present transaction is of version 2."""
        self._producer = _NONE, _NONE
        """The id and the epoch."""
        self._offsets: list[_Offsets] = []
        self._is_started = False
        """Whether the coordinator may know of the transaction."""
        self._turn = 0
        self._due_ms = 0
        self._failures = 0
        self._since_ms: int | None = None
        self._last_failure = "no broker answered"

    # What the user does

    @property
    def waiting_bytes(self) -> int:
        """The size of all records without an outcome, in bytes."""
        return sum(state.waiting_bytes for state, _ in self._topics.values())

    @property
    def are_offsets_added(self) -> bool:
        """Whether all offsets of groups are part of the transaction."""
        return not self._offsets

    def begin(self) -> None:
        """Open a transaction; the producer is ready."""
        assert self.phase is Phase.READY, self.phase
        self.phase, self.failure, self._is_started = Phase.OPEN, None, False
        self._adds_itself = (self._level or 0) >= ADDS_ITSELF_SINCE
        for state, identity in self._topics.values():
            self._enter(state, identity)

    def add(self, topic: str, record: NewRecord, now_ms: int) -> int:
        """Take a record; returns its number in its topic, which the result names."""
        if topic not in self._topics:
            identity = Identity(self.transactional_id)
            settings = ProducerSettings(compression=self._settings.compression, timeout_ms=self._settings.timeout_ms)
            state = ProducerState(topic, self._bootstrap, settings, rng=self._rng, identity=identity)
            self._topics[topic] = state, identity
            identity.begin(*self._producer)
            self._enter(state, identity)
        return self._topics[topic][0].add(record, now_ms)

    def _enter(self, state: ProducerState, identity: Identity) -> None:
        identity.adds_itself = self._adds_itself
        identity.added.clear()
        state.resume()

    def add_offsets(self, offsets: MemberOffsets) -> None:
        """Let these offsets be committed with the transaction."""
        self._offsets.append(_Offsets(offsets))

    @property
    def can_end(self) -> bool:
        """Whether the transaction can be ended: it is open, or its commit has failed."""
        return self.phase is Phase.OPEN or (self.phase is Phase.COMMITTING and self.failure is not None)

    def end(self, now_ms: int, *, commits: bool) -> None:
        """Commit or abort the transaction, as soon as each record has its outcome."""
        assert self.can_end, self.phase
        self.phase = Phase.COMMITTING if commits else Phase.ABORTING
        if not commits:
            why = self.failure or ClientError("the transaction was aborted")
            self._offsets.clear()
            for state, _ in self._topics.values():
                state.abandon(why, now_ms)
            self._collect()

    def take_results(self) -> list[tuple[str, Delivered | Undelivered]]:
        """Take the outcomes of records, with their topics."""
        taken, self._results = self._results, []
        return taken

    # The engine

    def deadline_ms(self) -> int:
        """The time of the next request, or of the end of a wait, in ms."""
        moments = [state.deadline_ms() for state, _ in self._topics.values()]
        if self._asked is None and self._due_ms < NEVER_MS and self._has_work:
            moments.append(self._due_ms)
        return min(moments, default=NEVER_MS)

    def poll(self, now_ms: int) -> list[Ask]:
        """The requests that are due."""
        asks: list[Ask] = []
        for topic, (state, _) in list(self._topics.items()):
            for ask in self._guarded(topic, state, partial(state.poll, now_ms), now_ms) or ():
                token = next(self._tokens)
                self._routes[token] = topic, state, ask.token
                self._is_started |= self._adds_itself and isinstance(ask.message, ProduceRequest)
                asks.append(Ask(token, ask.to, ask.message, ask.timeout_ms, ask.highest))
        self._collect()
        if self._asked is None and now_ms >= self._due_ms:
            asks += self._ask_coordinator(now_ms)
        return asks

    def on_outcome(self, token: int, outcome: Message | Failed, now_ms: int) -> None:
        """Take the outcome of a request."""
        if (route := self._routes.pop(token, None)) is not None:
            topic, state, inner = route
            self._guarded(topic, state, partial(state.on_outcome, inner, outcome, now_ms), now_ms)
            self._collect()
            return
        assert self._asked is not None, token
        asked, self._asked = self._asked, None
        if isinstance(outcome, Failed):
            if outcome.cause in LASTING_OF_A_NODE:
                raise cannot_connect(outcome)
            self._again(asked.message, outcome.detail, now_ms, is_elsewhere=True)
            return
        self._on_answer(asked.message, outcome, now_ms)

    def _guarded(
        self, topic: str, state: ProducerState, call: Callable[[], Sequence[Ask] | None], now_ms: int
    ) -> Sequence[Ask] | None:
        """Call a producer of a topic; a topic that brokers refuse ends the transaction, not this producer."""
        try:
            return call()
        except ClientError as failed:
            if failed.error is None:
                raise
            state.abandon(failed, now_ms)
            self._refused.add(topic)
            self._note(failed)
            return None

    def _collect(self) -> None:
        """Take the outcomes of records; one without an acknowledgement ends the transaction."""
        for topic, (state, _) in self._topics.items():
            for result in state.take_results():
                self._results.append((topic, result))
                if isinstance(result, Undelivered) and self.phase is not Phase.ABORTING:
                    if result.error.error in FATAL_OF_A_LEADER:
                        raise result.error.copy()
                    self._note(result.error)

    def _note(self, failed: ClientError) -> None:
        self.failure = self.failure or failed

    # Requests

    @property
    def _are_records_done(self) -> bool:
        return all(state.is_idle for state, _ in self._topics.values())

    @property
    def _to_add(self) -> dict[str, list[int]]:
        """The partitions that wait until this producer has added them."""
        if self._adds_itself or self.failure is not None or self.phase not in {Phase.OPEN, Phase.COMMITTING}:
            return {}
        partitions = {topic: sorted(state.waiting_partitions) for topic, (state, _) in self._topics.items()}
        return {topic: numbers for topic, numbers in partitions.items() if numbers}

    @property
    def _is_ending(self) -> bool:
        """Whether the end may be told: of a commit, nothing has failed."""
        ends = self.phase is Phase.ABORTING or (self.phase is Phase.COMMITTING and self.failure is None)
        return ends and self._are_records_done and not self._offsets

    @property
    def _has_work(self) -> bool:
        """Whether a coordinator has to be asked, or the transaction is over."""
        wants_offsets = bool(self._offsets) and self.failure is None
        return self.phase is Phase.BEGINNING or bool(self._to_add) or wants_offsets or self._is_ending

    def _ask_coordinator(self, now_ms: int) -> list[Ask]:
        if self._is_ending and not self._is_started:
            self._finish()
        if not self._has_work:
            self._since_ms = None
            return []
        self._since_ms = now_ms if self._since_ms is None else self._since_ms
        if self._failures and now_ms - self._since_ms >= self._settings.timeout_ms:
            raise self._silence()
        message, to = self._next_request()
        highest = HIGHEST_OF_CLIENTS.get(type(message), OPEN_END)
        if not self._adds_itself:
            highest = HIGHEST_OF_V1.get(type(message), highest)
        else:
            self._is_started |= isinstance(message, TxnOffsetCommitRequest)
        self._asked = _Asked(next(self._tokens), message, to)
        return [Ask(self._asked.token, to, message, highest=highest, is_to_coordinator=True)]

    def _next_request(self) -> tuple[Message, Address]:
        """The next request, and the broker that gets it."""
        producer_id, epoch = self._producer
        name, to = self.transactional_id, self._coordinator
        if to is None:
            return FindCoordinatorRequest(key_type=KeyType.TRANSACTION, coordinator_keys=[name]), self._any_broker()
        if self._level is None:
            return versions_request(), to
        if self.phase is Phase.BEGINNING:
            return InitProducerIdRequest(name, self._settings.transaction_timeout_ms, producer_id, epoch), to
        if added := self._to_add:
            topics = [AddPartitionsToTxnTopic(topic, numbers) for topic, numbers in added.items()]
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            )
            return request, to
        if self._offsets and self.failure is None:
            one = self._offsets[0]
            group = one.offsets.group
            if not self._adds_itself and not one.is_added:
                return AddOffsetsToTxnRequest(name, producer_id, epoch, group), to
            where = self._group_coordinators.get(group)
            if where is None:
                return FindCoordinatorRequest(key_type=KeyType.GROUP, coordinator_keys=[group]), self._any_broker()
            return self._commit_request(one.offsets), where
        return EndTxnRequest(name, producer_id, epoch, self.phase is Phase.COMMITTING), to

    def _any_broker(self) -> Address:
        known = [address for state, _ in self._topics.values() for address in state.view.addresses]
        addresses = list(dict.fromkeys((*known, *self._bootstrap)))
        return addresses[self._turn % len(addresses)]

    def _commit_request(self, offsets: MemberOffsets) -> TxnOffsetCommitRequest:
        producer_id, epoch = self._producer
        partitions = [TxnOffsetCommitRequestPartition(number, at) for number, at in sorted(offsets.offsets.items())]
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=offsets.group,
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id_or_member_epoch=offsets.generation,
            member_id=offsets.member,
            group_instance_id=offsets.instance,
            topics=[TxnOffsetCommitRequestTopic(offsets.topic, offsets.topic_id, partitions)],
        )

    def _silence(self) -> ClientError:
        failed = silence(KeyType.TRANSACTION, self.transactional_id, self._settings.timeout_ms, self._last_failure)
        if self.phase is Phase.COMMITTING and self._is_ending:
            failed.hint = "The transaction may be committed all the same: `kraft transactions describe`."
        return failed

    # Answers

    def _on_answer(self, request: Message, answer: Message, now_ms: int) -> None:
        self._take_added(answer)
        error, text = _error_of(answer)
        if error is Error.INVALID_PRODUCER_EPOCH:
            error = Error.PRODUCER_FENCED  # the former name of a coordinator for that
        what = f"{type(request).__name__}: {error.name}"
        if error is Error.NONE:
            self._due_ms = 0
            if not isinstance(answer, FindCoordinatorResponse | ApiVersionsResponse):
                self._failures, self._since_ms = 0, None
            self._on_success(request, answer)
        elif error is Error.CONCURRENT_TRANSACTIONS:
            self._again(request, what, now_ms, is_elsewhere=False)
            self._due_ms = now_ms + CONCURRENT_MS
        elif error.retriable:
            self._again(request, what, now_ms, is_elsewhere=error in ELSEWHERE)
        elif error in ABORTABLE and self.phase in {Phase.OPEN, Phase.COMMITTING}:
            self._note(refused(f"transactional id {self.transactional_id}", error, text))
            self._offsets.clear()
        else:
            raise refused(f"transactional id {self.transactional_id}", error, text)

    def _on_success(self, request: Message, answer: Message) -> None:
        match answer:
            case FindCoordinatorResponse():
                assert isinstance(request, FindCoordinatorRequest)
                [one] = answer.coordinators
                if request.key_type == KeyType.TRANSACTION:
                    self._coordinator = one.host, one.port
                    self._level = None
                else:
                    self._group_coordinators[request.coordinator_keys[0]] = one.host, one.port
            case ApiVersionsResponse():
                levels = {one.name: one.max_version_level for one in answer.finalized_features}
                self._level = levels.get(FEATURE, 0)
            case InitProducerIdResponse():
                self._go_on(answer.producer_id, answer.producer_epoch)
                self.phase = Phase.READY
            case AddPartitionsToTxnResponse():
                pass  # noted before
            case AddOffsetsToTxnResponse():
                self._is_started = True
                if self._offsets:
                    self._offsets[0].is_added = True
            case TxnOffsetCommitResponse():
                del self._offsets[:1]
            case EndTxnResponse():
                if self._adds_itself:
                    self._go_on(answer.producer_id, answer.producer_epoch)
                self._finish()
            case other:
                raise AssertionError(other)

    def _take_added(self, answer: Message) -> None:
        """The partitions that the coordinator has added: all of a request, or none."""
        if not isinstance(answer, AddPartitionsToTxnResponse):
            return
        for topic in answer.results_by_topic_v3_and_below:
            for one in topic.results_by_partition:
                if one.partition_error_code == Error.NONE:
                    self._topics[topic.name][1].added.add(one.partition_index)
                    self._is_started = True

    def _go_on(self, producer_id: int, epoch: int) -> None:
        self._producer = producer_id, epoch
        for _, identity in self._topics.values():
            identity.begin(producer_id, epoch)

    def _finish(self) -> None:
        """Be ready for the next transaction: this one has ended, at its coordinator too if that knew of it."""
        is_broken = any(identity.is_broken for _, identity in self._topics.values())
        for topic in self._refused:
            self._topics.pop(topic, None)
        self._refused.clear()
        self.phase = Phase.BEGINNING if is_broken else Phase.READY

    def _again(self, request: Message, why: str, now_ms: int, *, is_elsewhere: bool) -> None:
        self._last_failure = why
        self._due_ms = now_ms + pause_ms(self._failures)
        self._failures += 1
        if not is_elsewhere:
            return
        if isinstance(request, TxnOffsetCommitRequest):
            self._group_coordinators.pop(request.group_id, None)
        elif isinstance(request, FindCoordinatorRequest):
            self._turn += 1
        else:
            self._coordinator = None


def _error_of(answer: Message) -> tuple[Error, str | None]:
    """The error of an answer, and its text: of several errors the one that says most."""
    match answer:
        case FindCoordinatorResponse():
            return Error.of(answer.coordinators[0].error_code), answer.coordinators[0].error_message
        case InitProducerIdResponse() | EndTxnResponse() | AddOffsetsToTxnResponse() | ApiVersionsResponse():
            return Error.of(answer.error_code), None
        case AddPartitionsToTxnResponse():
            topics = answer.results_by_topic_v3_and_below
            codes = [one.partition_error_code for topic in topics for one in topic.results_by_partition]
            # Those are without fault: another partition of the request is refused.
            codes = [code for code in codes if code != Error.OPERATION_NOT_ATTEMPTED] or codes
        case TxnOffsetCommitResponse():
            codes = [one.error_code for topic in answer.topics for one in topic.partitions]
        case other:
            raise AssertionError(other)
    return Error.of(next((code for code in codes if code), 0)), None
