"""What a broker with data does for its clients and for other brokers: one table over the data requests and the others
(Kafka: `KafkaApis`, with the purgatories of `ReplicaManager`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraft.broker.agent import BrokerAgent
from kraft.broker.asked import Asked
from kraft.broker.metadata.asked import Answer, Close, NoAnswer, ToController
from kraft.broker.metadata.requests import MetadataRequests
from kraft.broker.request.outcomes import Answer as DataAnswer
from kraft.broker.request.outcomes import Close as DataClose
from kraft.broker.request.outcomes import Outcome
from kraft.broker.request.requests import DATA_APIS, DataRequests
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from transport.protocol.apis import ApiKey
from transport.protocol.messages.produce import ProduceRequest

_NO_ACKS: Final = 0
_IDS: Final = 1
"""The token of the request for a block of producer ids; every other token is above this."""
_WHY: Final = "a Produce without acknowledgement failed, or a request cannot be answered"


class BrokerServices:
    """The requests of clients and of other brokers to a broker with data.

    Args:
        agent: The broker; its replicas have data.
        metadata: The requests that the image answers, and those that are forwarded.
        data: The requests about records.
    """

    def __init__(self, agent: BrokerAgent, metadata: MetadataRequests, data: DataRequests) -> None:
        self.apis: tuple[ApiKey, ...] = tuple(sorted({*metadata.apis, *DATA_APIS}))
        self._agent = agent
        self._metadata = metadata
        self._data = data
        self._data_apis = frozenset(DATA_APIS)
        self._has_moved = False
        """Whether something has happened since the last `poll` that may end the wait of a request."""
        self._image: MetadataImage | None = None
        """The image of the last `poll`."""
        self._ended: list[Answer | Close] = []

    def on_request(self, asked: Asked, image: MetadataImage, now_ms: int) -> Answer | Close | NoAnswer | None:
        """Handle a request; None if `poll` returns the answer later."""
        if asked.api_key not in self._data_apis:
            return self._metadata.on_request(asked, image, now_ms)
        self._has_moved = True
        outcome = self._data.on_request(asked, image, now_ms)
        if outcome is not None:
            return _outcome(outcome)
        message = asked.message
        if isinstance(message, ProduceRequest) and message.acks == _NO_ACKS:
            return NoAnswer(asked.request_id)
        return None

    def on_gone(self, request_id: int) -> None:
        """The connection of a request is closed: a Produce or Fetch waits no longer."""
        self._data.forget(request_id)

    def on_moved(self) -> None:
        """Other brokers or the controller have answered: replicas may have moved."""
        self._has_moved = True

    def on_answer(self, token: int, response: Message | None, now_ms: int) -> None:
        """Take the answer to a `ToController`; None if the request failed."""
        if token == _IDS:
            self._ended += map(_outcome, self._data.on_ids(response, now_ms))
        else:
            self._metadata.on_answer(token - _IDS, response, now_ms)

    def deadline_ms(self) -> int:
        """When the next `poll` is due."""
        if self._has_moved or self._ended or self._image is not self._agent.image:
            return 0
        return min(self._metadata.deadline_ms(), self._data.deadline_ms())

    def poll(self, now_ms: int) -> Iterator[ToController | Answer | Close]:
        """The requests and answers that are due, after the agent has given the replicas their metadata."""
        self._has_moved = False
        self._image = self._agent.image
        ended, self._ended = self._ended, []
        yield from ended
        for outcome in self._data.poll(now_ms, self._image):
            self._has_moved = True
            yield _outcome(outcome)
        ids = self._data.ids_request_due(self._agent.lifecycle.epoch, now_ms)
        if ids is not None:
            yield ToController(_IDS, ids, self._metadata.settings.request_timeout_ms)
        for one in self._metadata.poll(now_ms):
            if isinstance(one, ToController):
                yield ToController(one.token + _IDS, one.request, one.timeout_ms)
            else:
                yield one


def _outcome(outcome: Outcome) -> Answer | Close:
    match outcome:
        case DataAnswer():
            return Answer(outcome.request_id, outcome.response)
        case DataClose():
            return Close(outcome.request_id, _WHY)
