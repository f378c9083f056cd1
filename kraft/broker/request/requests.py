"""The data requests of a broker: which API is answered where, what waits, and what ends a wait (Kafka: `KafkaApis`,
the purgatories of `ReplicaManager`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from random import Random
from typing import Final

from msgspec.structs import replace

from kraft.access.failures import RequestFailures
from kraft.broker.partitions.key import PartitionKey
from kraft.broker.partitions.manager import ReplicaManager
from kraft.broker.reply_keys import Verification
from kraft.broker.request import refusals
from kraft.broker.request.alter_dirs import AlterDirsHandler
from kraft.broker.request.delete_records import DeleteRecordsHandler, WaitingDelete
from kraft.broker.request.describe import DescribeHandler
from kraft.broker.request.epoch_ends import EpochEndHandler
from kraft.broker.request.fetch import FetchHandler, WaitingFetch, is_of_follower
from kraft.broker.request.list_offsets import ListOffsetsHandler
from kraft.broker.request.markers import MarkersHandler, WaitingMarkers
from kraft.broker.request.outcomes import Handling
from kraft.broker.request.produce import ProduceHandler, UnverifiedProduce, WaitingProduce
from kraft.broker.request.producer_ids import InitProducerIdHandler, ProducerIds, refused
from kraft.broker.request.purgatory import Purgatory
from kraft.broker.request.quotas import PRODUCED, ClientQuotas
from kraft.broker.request.settings import RequestSettings
from kraft.broker.request.sizes import request_size
from kraft.broker.request.transaction_guards import TransactionGuards
from kraft.broker.request.verification import Errors, Verifier
from kraft.broker.rights import Rights
from kraft.limits import ORPHANED_PRODUCES, REQUEST_STEPS_PER_TURN, UNPACKED_AT_ONCE, WAITING_PER_TURN
from kraft.wire import Answer, Drop, LeaveUnanswered, Outcome, Send, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS, Uuid
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from transport.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from transport.protocol.messages.delete_records import DeleteRecordsRequest
from transport.protocol.messages.fetch import FetchRequest
from transport.protocol.messages.produce import ProduceRequest, ProduceResponse
from transport.protocol.messages.write_txn_markers import WriteTxnMarkersRequest

DATA_APIS: Final = (
    *(ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.DELETE_RECORDS),
    *(ApiKey.INIT_PRODUCER_ID, ApiKey.WRITE_TXN_MARKERS, ApiKey.DESCRIBE_PRODUCERS, ApiKey.DESCRIBE_LOG_DIRS),
    ApiKey.ALTER_REPLICA_LOG_DIRS,
)
"""The APIs that `DataRequests` answers."""


_UNPACKING: Final = frozenset((ApiKey.PRODUCE, ApiKey.LIST_OFFSETS))

Waiting = WaitingProduce | WaitingFetch | WaitingDelete | WaitingMarkers
Result = Outcome | Waiting | UnverifiedProduce


class DataRequests:
    """Answers the data requests of clients and of other brokers.

    The owner passes each request to `on_request`, calls `poll` after every turn in which a request, an answer or new
    metadata came in, and again at `deadline_ms`. Nothing here waits, reads a clock or draws numbers of its own.

    Args:
        manager: The replicas of this broker.
        settings: The settings.
        rng: The randomness for the ids of fetch sessions.
        rights: What clients may do; None to allow everything.
        failures: Where unexpected exceptions in requests go that change nothing; None to raise them.
    """

    def __init__(
        self,
        manager: ReplicaManager,
        settings: RequestSettings,
        rng: Random,
        rights: Rights | None = None,
        failures: RequestFailures | None = None,
    ) -> None:
        rights = Rights() if rights is None else rights
        self._failures = RequestFailures() if failures is None else failures
        self._manager = manager
        self._settings = settings
        self._rights = rights
        self._image = MetadataImage()
        guards = TransactionGuards()
        self._produce = ProduceHandler(manager, rights, guards, verifies=settings.verifies_transactions)
        self._markers = MarkersHandler(manager, rights, guards)
        self._verifier = Verifier(settings.broker_id, settings.inter_broker_listener, settings.request_timeout_ms)
        self._unverified: dict[int, UnverifiedProduce] = {}
        """The Produce requests that wait for the coordinators of their transactions, by request id."""
        self._quotas = ClientQuotas(settings.quota_samples, settings.quota_window_ms)
        self._fetch = FetchHandler(manager, settings, rights, rng.randrange, self._quotas)
        self._delete = DeleteRecordsHandler(manager, rights)
        self._alter_dirs = AlterDirsHandler(manager, rights)
        self._waiting = Purgatory[Waiting]()
        self._woken: dict[int, None] = {}
        """The waiting requests with a change that `poll` has not looked at yet."""
        self._ids = ProducerIds(settings.broker_id)
        self._init = InitProducerIdHandler(self._ids, rights)
        self._unnumbered = Purgatory[WireRequest]()
        """The InitProducerId requests that wait for a block of ids."""
        offsets, epochs, describe = (
            ListOffsetsHandler(manager, rights),
            EpochEndHandler(manager, rights),
            DescribeHandler(manager, rights),
        )
        self._at_once: dict[int, Callable[[WireRequest, MetadataImage], Handling[Outcome]]] = {
            ApiKey.LIST_OFFSETS: offsets.answer,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: epochs.answer,
            ApiKey.DESCRIBE_PRODUCERS: describe.producers,
            ApiKey.DESCRIBE_LOG_DIRS: describe.log_dirs,
        }
        self._long: dict[int, tuple[WireRequest, Handling[Result]]] = {}
        """The requests with so many partitions or records that their handling takes further turns, by request id."""
        self._long_ms = NEVER_MS
        """When they go on: other requests have their turns before."""
        self._turns = 0

    def on_request(self, request: WireRequest, image: MetadataImage, now_ms: int) -> Outcome | None:
        """Handle a request of one of `DATA_APIS`.

        Args:
            request: The request.
            image: The metadata by which the broker acts.
            now_ms: The time in ms since 1970.

        Returns:
            The answer, that there is none, or that the connection is to be closed. None if the request waits, and
            `poll` returns its outcome later.
        """
        self._use(image)
        match request.message:
            case ProduceRequest():
                return self._advance(request, self._produce.begin(request, now_ms), now_ms)
            case WriteTxnMarkersRequest():
                return self._advance(request, self._markers.begin(request, image, now_ms), now_ms)
            case FetchRequest():
                return self._advance(request, self._fetch.begin(request, image, now_ms), now_ms)
            case AlterReplicaLogDirsRequest():
                return self._advance(request, self._alter_dirs.answer(request, image, now_ms), now_ms)
            case DeleteRecordsRequest():
                return self._advance(request, self._delete.begin(request, image), now_ms)
        if request.api_key == ApiKey.INIT_PRODUCER_ID:
            found = self._init.begin(request)
            if found is None:
                if self._is_full:
                    return refused(request, Error.COORDINATOR_LOAD_IN_PROGRESS)
                deadline_ms = now_ms + self._settings.request_timeout_ms
                self._unnumbered.park(request.request_id, request, (), deadline_ms)
            return found
        return self._advance(request, self._at_once[request.api_key](request, image), now_ms)

    def _advance(self, request: WireRequest, work: Handling[Result], now_ms: int) -> Outcome | None:
        """Make the next steps of a request; `poll` makes those that remain then."""
        try:
            for _ in range(REQUEST_STEPS_PER_TURN):
                next(work)
        except StopIteration as done:
            self._long.pop(request.request_id, None)
            result: Result = done.value
        except Exception as failure:
            self._long.pop(request.request_id, None)
            return self._failed(request, failure)
        else:
            self._long[request.request_id] = request, work
            self._long_ms = now_ms + 1
            return None
        if isinstance(result, UnverifiedProduce):
            return self._verified_later(result, now_ms)
        return self._parked(request, result, self._patience_ms(request.message), now_ms)

    def _go_on(self, now_ms: int) -> list[Outcome | None]:
        """Make the next steps of two long requests: one of the oldest that look into batches, and one of the others."""
        if now_ms < self._long_ms:
            return []
        unpacking = (key for key, (one, _) in self._long.items() if one.api_key in _UNPACKING)
        oldest = list(islice(unpacking, UNPACKED_AT_ONCE))
        self._turns += 1
        chosen = oldest[self._turns % len(oldest) :][:1] if oldest else []
        other = next((key for key, (one, _) in self._long.items() if one.api_key not in _UNPACKING), None)
        if other is not None:
            chosen.append(other)
            self._long[other] = self._long.pop(other)
        self._long_ms = NEVER_MS if len(chosen) == len(self._long) else now_ms + 1
        return [self._advance(*self._long[key], now_ms) for key in chosen]

    def _failed(self, request: WireRequest, failure: Exception) -> Outcome:
        """Answer a request that has failed and changed nothing; for any other the exception is raised again."""
        message = request.message
        is_read = isinstance(message, FetchRequest) and not is_of_follower(message, request.version)
        if not (is_read or request.api_key in self._at_once):
            raise failure
        return refusals.refused(request, self._failures.note(message, failure).error)

    def _patience_ms(self, message: Message) -> int:
        """For how long a request may wait."""
        match message:
            case (
                FetchRequest(max_wait_ms=wait_ms)
                | DeleteRecordsRequest(timeout_ms=wait_ms)
                | ProduceRequest(timeout_ms=wait_ms)
            ):
                return wait_ms
            case _:
                return self._settings.request_timeout_ms

    def _use(self, image: MetadataImage) -> None:
        self._image = image
        self._rights.use(image)
        self._quotas.use(image)
        self._produce.use(image)

    @property
    def _is_full(self) -> bool:
        return self.waiting >= self._settings.most_waiting

    def _verified_later(self, begun: UnverifiedProduce, now_ms: int) -> Outcome | None:
        """Ask the coordinator of a transaction; `poll` appends after the answer."""
        if self._is_full:
            return self._appended(begun, {}, now_ms)
        assert begun.transaction is not None, begun
        self._unverified[begun.request.request_id] = begun
        self._verifier.ask(begun.request.request_id, begun.transaction, self._image, now_ms)
        return None

    def _appended(self, begun: UnverifiedProduce, errors: Errors, now_ms: int) -> Outcome | None:
        return self._advance(begun.request, self._produce.verified(begun, errors, now_ms), now_ms)

    def _charged(self, request: WireRequest, outcome: Outcome, now_ms: int) -> Outcome:
        """Count the bytes of a Produce at its end, as Kafka does; a client above its quota is to wait."""
        if request.api_key != ApiKey.PRODUCE or self._quotas.bound(PRODUCED, request) is None:
            return outcome
        wait_ms = self._quotas.charge(PRODUCED, request, request_size(request), now_ms)
        match outcome:
            case Answer(message=ProduceResponse() as response) if wait_ms:
                return replace(outcome, message=replace(response, throttle_time_ms=wait_ms))
            case LeaveUnanswered() if wait_ms:
                return replace(outcome, mute_ms=wait_ms)
            case _:
                return outcome

    def _parked(self, request: WireRequest, result: Outcome | Waiting, timeout_ms: int, now_ms: int) -> Outcome | None:
        if not isinstance(result, WaitingProduce | WaitingFetch | WaitingDelete | WaitingMarkers):
            return self._charged(request, result, now_ms)
        if self._is_full:
            return self._end(result, now_ms)
        self._waiting.park(request.request_id, result, result.keys, now_ms + max(0, timeout_ms))
        return None

    def poll(self, now_ms: int, image: MetadataImage | None = None) -> list[Outcome]:
        """The outcomes of waiting requests: those that a change of a partition has completed, and those out of time.

        One call looks at a part of them if there are very many, and `deadline_ms` is then in the past. It goes on a
        little with long requests.

        Args:
            now_ms: The time in ms since 1970.
            image: The metadata by which the broker acts; None for that of the last request.
        """
        if image is not None:
            self._use(image)
        outcomes = self._go_on(now_ms)
        for request_id, errors in self._verifier.take_done():
            begun = self._unverified.pop(request_id, None)
            if begun is not None:
                outcomes.append(self._appended(begun, errors, now_ms))
        self._woken.update(dict.fromkeys(self._waiting.watching(self._manager.hosting.take_changes())))
        for request_id in list(islice(self._woken, WAITING_PER_TURN)):
            del self._woken[request_id]
            waiting = self._waiting.get(request_id)
            if waiting is not None and self._is_complete(waiting):
                self._waiting.forget(request_id)
                outcomes.append(self._end(waiting, now_ms))
        outcomes += [self._end(waiting, now_ms) for waiting in self._waiting.due(now_ms, WAITING_PER_TURN)]
        outcomes += [refused(each, Error.COORDINATOR_LOAD_IN_PROGRESS) for each in self._unnumbered.due(now_ms)]
        return [each for each in outcomes if each is not None]

    def _is_complete(self, waiting: Waiting) -> bool:
        match waiting:
            case WaitingProduce():
                return self._produce.is_complete(waiting, self._image)
            case WaitingFetch():
                return self._fetch.is_complete(waiting, self._image)
            case WaitingDelete():
                return self._delete.is_complete(waiting, self._image)
            case WaitingMarkers():
                return self._markers.is_complete(waiting, self._image)

    def _end(self, waiting: Waiting, now_ms: int) -> Outcome | None:
        match waiting:
            case WaitingProduce(request=request):
                return self._advance(request, self._produce.end(waiting), now_ms)
            case WaitingFetch(request=request):
                return self._advance(request, self._fetch.end(waiting, self._image, now_ms), now_ms)
            case WaitingDelete():
                return self._delete.end(waiting)
            case WaitingMarkers():
                return self._markers.end(waiting)

    def forget(self, request_id: int) -> None:
        """The connection of a request is gone: the request waits no longer. Unknown ids are allowed."""
        self._waiting.forget(request_id)
        found = self._long.get(request_id)
        if found is not None:
            request, work = found
            if request.api_key == ApiKey.PRODUCE and len(self._long) <= ORPHANED_PRODUCES:
                self._long[request_id] = request, _without_wait(request, work)
            else:
                del self._long[request_id]
        self._unverified.pop(request_id, None)
        self._unnumbered.forget(request_id)

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting) + len(self._unnumbered) + len(self._unverified) + len(self._long)

    # Transactions

    def verifications_due(self, now_ms: int) -> list[Send]:
        """The requests to transaction coordinators that are due; exactly one `on_verified` for each follows."""
        return self._verifier.due(self._image, now_ms)

    def on_verified(self, key: Verification, response: Message | None, now_ms: int) -> None:
        """The answer of a transaction coordinator, or None if the request failed; `poll` has the outcomes."""
        self._verifier.on_reply(key.number, response, now_ms)

    def take_assignments(self) -> dict[PartitionKey, Uuid]:
        """The replicas that are about to move to a log directory of which the controller has to learn."""
        return self._manager.moves.take_wanted()

    # Producer ids

    def ids_request_due(self, broker_epoch: int, now_ms: int) -> AllocateProducerIdsRequest | None:
        """The request to the active controller for a block of producer ids, if one is due.

        Exactly one `on_ids` with the answer follows.

        Args:
            broker_epoch: The epoch of this broker's registration.
            now_ms: The time in ms since 1970.
        """
        return self._ids.request_due(broker_epoch, now_ms)

    def on_ids(self, response: Message | None, now_ms: int) -> list[Outcome]:
        """The controller's answer, or None if the request failed; returns the outcomes of producers that waited."""
        self._ids.on_answer(response, now_ms)
        outcomes: list[Outcome] = []
        for request_id, request in self._unnumbered.all():
            found = self._init.begin(request)
            if found is None:
                break
            self._unnumbered.forget(request_id)
            outcomes.append(found)
        return outcomes

    def deadline_ms(self) -> int:
        """When the next `poll` or `ids_request_due` is due, in ms; `NEVER_MS` if nothing is."""
        if self._woken:
            return 0
        asking = self._long_ms, self._ids.deadline_ms(), self._verifier.deadline_ms()
        return min(self._waiting.deadline_ms(), self._unnumbered.deadline_ms(), *asking)


def _without_wait(request: WireRequest, work: Handling[Result]) -> Handling[Result]:
    """The handling of a request that nobody waits for: what it appends counts, and its answer does not."""
    result = yield from work
    return result if isinstance(result, Answer | Drop | LeaveUnanswered) else LeaveUnanswered(request.request_id)
