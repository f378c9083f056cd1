"""The data requests of a broker: which API is answered where, what waits, and what ends a wait (Kafka: `KafkaApis`,
the purgatories of `ReplicaManager`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from random import Random
from typing import Final

from kraft.broker.asked import Asked
from kraft.broker.replica.manager import ReplicaManager
from kraft.broker.request.delete_records import DeleteRecordsHandler, WaitingDelete
from kraft.broker.request.describe import DescribeHandler
from kraft.broker.request.epoch_ends import EpochEndHandler
from kraft.broker.request.fetch import FetchHandler, WaitingFetch
from kraft.broker.request.list_offsets import ListOffsetsHandler
from kraft.broker.request.outcomes import Outcome, Rights, every_right
from kraft.broker.request.produce import ProduceHandler, WaitingProduce
from kraft.broker.request.producer_ids import InitProducerIdHandler, ProducerIds, refused
from kraft.broker.request.purgatory import Purgatory
from kraft.broker.request.settings import RequestSettings
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from transport.protocol.messages.delete_records import DeleteRecordsRequest
from transport.protocol.messages.fetch import FetchRequest
from transport.protocol.messages.produce import ProduceRequest

DATA_APIS: Final = (
    *(ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.DELETE_RECORDS),
    *(ApiKey.INIT_PRODUCER_ID, ApiKey.DESCRIBE_PRODUCERS, ApiKey.DESCRIBE_LOG_DIRS),
)
"""The APIs that `DataRequests` answers."""

MOST_PER_TURN: Final = 200
"""How many waiting requests one call of `poll` looks at: a change may wake thousands of consumers."""

Waiting = WaitingProduce | WaitingFetch | WaitingDelete


class DataRequests:
    """Answers the data requests of clients and of other brokers.

    The owner passes each request to `on_request`, calls `poll` after every turn in which a request, an answer or new
    metadata came in, and again at `deadline_ms`. Nothing here waits, reads a clock or draws numbers of its own.

    Args:
        manager: The replicas of this broker.
        settings: The settings.
        rng: The randomness for the ids of fetch sessions.
        rights: Whether a client may do something; by default everything is allowed.
    """

    def __init__(
        self, manager: ReplicaManager, settings: RequestSettings, rng: Random, rights: Rights = every_right
    ) -> None:
        self._manager = manager
        self._settings = settings
        self._image = MetadataImage()
        self._produce = ProduceHandler(manager, rights)
        self._fetch = FetchHandler(manager, settings, rights, rng.randrange)
        self._delete = DeleteRecordsHandler(manager, rights)
        self._waiting = Purgatory[Waiting]()
        self._woken: dict[int, None] = {}
        """The waiting requests with a change that `poll` has not looked at yet."""
        self._ids = ProducerIds(settings.broker_id)
        self._init = InitProducerIdHandler(self._ids, rights)
        self._unnumbered = Purgatory[Asked]()
        """The InitProducerId requests that wait for a block of ids."""
        offsets, epochs, describe = (
            ListOffsetsHandler(manager, rights),
            EpochEndHandler(manager, rights),
            DescribeHandler(manager, rights),
        )
        self._at_once: dict[int, Callable[[Asked, MetadataImage], Outcome]] = {
            ApiKey.LIST_OFFSETS: offsets.answer,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: epochs.answer,
            ApiKey.DESCRIBE_PRODUCERS: describe.producers,
            ApiKey.DESCRIBE_LOG_DIRS: lambda request, _: describe.log_dirs(request),
        }

    def on_request(self, request: Asked, image: MetadataImage, now_ms: int) -> Outcome | None:
        """Handle a request of one of `DATA_APIS`.

        Args:
            request: The request.
            image: The metadata by which the broker acts.
            now_ms: The time in ms since 1970.

        Returns:
            The answer, or that the connection is to be closed. None if the request waits, and `poll` returns its
            outcome later; and for a Produce with acks=0 that is done, which has no answer.
        """
        self._image = image
        match request.message:
            case ProduceRequest(timeout_ms=timeout_ms):
                return self._parked(request, self._produce.begin(request, image, now_ms), timeout_ms, now_ms)
            case FetchRequest(max_wait_ms=max_wait_ms):
                return self._parked(request, self._fetch.begin(request, image, now_ms), max_wait_ms, now_ms)
            case DeleteRecordsRequest(timeout_ms=timeout_ms):
                return self._parked(request, self._delete.begin(request, image), timeout_ms, now_ms)
        if request.api_key == ApiKey.INIT_PRODUCER_ID:
            found = self._init.begin(request, image)
            if found is None:
                if self._is_full:
                    return refused(request, Error.COORDINATOR_LOAD_IN_PROGRESS)
                deadline_ms = now_ms + self._settings.request_timeout_ms
                self._unnumbered.park(request.request_id, request, (), deadline_ms)
            return found
        return self._at_once[request.api_key](request, image)

    @property
    def _is_full(self) -> bool:
        return self.waiting >= self._settings.most_waiting

    def _parked(self, request: Asked, result: Outcome | Waiting | None, timeout_ms: int, now_ms: int) -> Outcome | None:
        if not isinstance(result, WaitingProduce | WaitingFetch | WaitingDelete):
            return result
        if self._is_full:
            return self._end(result, now_ms)
        self._waiting.park(request.request_id, result, result.keys, now_ms + max(0, timeout_ms))
        return None

    def poll(self, now_ms: int, image: MetadataImage | None = None) -> list[Outcome]:
        """The outcomes of waiting requests: those that a change of a partition has completed, and those out of time.

        One call looks at a part of them if there are very many; `deadline_ms` is then in the past.

        Args:
            now_ms: The time in ms since 1970.
            image: The metadata by which the broker acts; None for that of the last request.
        """
        if image is not None:
            self._image = image
        self._woken.update(dict.fromkeys(self._waiting.watching(self._manager.take_changes())))
        outcomes: list[Outcome | None] = []
        for request_id in list(islice(self._woken, MOST_PER_TURN)):
            del self._woken[request_id]
            waiting = self._waiting.get(request_id)
            if waiting is not None and self._is_complete(waiting):
                self._waiting.forget(request_id)
                outcomes.append(self._end(waiting, now_ms))
        outcomes += [self._end(waiting, now_ms) for waiting in self._waiting.due(now_ms, MOST_PER_TURN)]
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

    def _end(self, waiting: Waiting, now_ms: int) -> Outcome | None:
        match waiting:
            case WaitingProduce():
                return self._produce.end(waiting, self._image)
            case WaitingFetch():
                return self._fetch.end(waiting, self._image, now_ms)
            case WaitingDelete():
                return self._delete.end(waiting)

    def forget(self, request_id: int) -> None:
        """The connection of a request is gone: the request waits no longer. Unknown ids are allowed."""
        self._waiting.forget(request_id)
        self._unnumbered.forget(request_id)

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting) + len(self._unnumbered)

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
            found = self._init.begin(request, self._image)
            if found is None:
                break
            self._unnumbered.forget(request_id)
            outcomes.append(found)
        return outcomes

    def deadline_ms(self) -> int:
        """When the next `poll` or `ids_request_due` is due, in ms; `NEVER_MS` if nothing is."""
        if self._woken:
            return 0
        return min(self._waiting.deadline_ms(), self._unnumbered.deadline_ms(), self._ids.deadline_ms())
