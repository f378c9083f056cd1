"""What a broker with data does for its clients and for other brokers: one table over the data requests and the others
(Kafka: `KafkaApis`, with the purgatories of `ReplicaManager`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from kraft.access.authorizer import AclOperation, Denial
from kraft.access.caller import Caller
from kraft.broker.agent import BrokerAgent
from kraft.broker.metadata.requests import MetadataRequests
from kraft.broker.reply_keys import Channel, Verification, to_broker
from kraft.broker.request.requests import DATA_APIS, DataRequests
from kraft.broker.rights import Rights
from kraft.wire import Outcome, Send, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from transport.protocol.apis import ApiKey


class BrokerServices:
    """The requests of clients and of other brokers to a broker with data.

    Args:
        agent: The broker; its replicas have data.
        metadata: The requests that the image answers, and those that are forwarded.
        data: The requests about records.
        rights: What clients may do, as `metadata` and `data` have it; None if everything is allowed.
    """

    def __init__(
        self, agent: BrokerAgent, metadata: MetadataRequests, data: DataRequests, rights: Rights | None = None
    ) -> None:
        self.apis: tuple[ApiKey, ...] = tuple(sorted({*metadata.apis, *DATA_APIS}))
        self._agent = agent
        self._metadata = metadata
        self._data = data
        self._rights = Rights() if rights is None else rights
        self._data_apis = frozenset(DATA_APIS)
        self._has_moved = False
        """Whether something has happened since the last `poll` that may end the wait of a request."""
        self._image: MetadataImage | None = None
        """The image of the last `poll`."""
        self._ended: list[Outcome] = []

    def on_request(self, asked: WireRequest, image: MetadataImage, now_ms: int) -> Outcome | None:
        """Handle a request; None if `poll` returns the answer later."""
        if asked.api_key not in self._data_apis:
            return self._metadata.on_request(asked, image, now_ms)
        self._has_moved = True
        return self._data.on_request(asked, image, now_ms)

    def may(self, operation: AclOperation, caller: Caller) -> bool:
        """Whether a caller may perform an operation on the cluster."""
        return self._rights.may(operation, caller)

    def take_denials(self) -> list[Denial]:
        """The requests that were denied since the last call."""
        return self._rights.take_denials()

    def on_gone(self, request_id: int) -> None:
        """The connection of a request is closed: a Produce or Fetch waits no longer."""
        self._data.forget(request_id)

    def on_moved(self) -> None:
        """Other brokers or the controller have answered: replicas may have moved."""
        self._has_moved = True

    def on_reply(self, key: Hashable, response: Message | None, now_ms: int) -> None:
        """Take the reply to a `Send`; None if the request failed."""
        match key:
            case Channel.PRODUCER_IDS:
                self._ended += self._data.on_ids(response, now_ms)
            case Verification():
                self._data.on_verified(key, response, now_ms)
                self._has_moved = True
            case _:
                self._metadata.on_reply(key, response, now_ms)

    def deadline_ms(self) -> int:
        """When the next `poll` is due."""
        if self._has_moved or self._ended or self._image is not self._agent.image:
            return 0
        return min(self._metadata.deadline_ms(), self._data.deadline_ms())

    def poll(self, now_ms: int) -> Iterator[Send | Outcome]:
        """The requests and answers that are due, after the agent has given the replicas their metadata."""
        self._has_moved = False
        self._image = self._agent.image
        ended, self._ended = self._ended, []
        yield from ended
        for key, directory in self._data.take_assignments().items():
            self._agent.directories.move(key, directory)
        for outcome in self._data.poll(now_ms, self._image):
            self._has_moved = True
            yield outcome
        yield from self._data.verifications_due(now_ms)
        ids = self._data.ids_request_due(self._agent.lifecycle.epoch, now_ms)
        if ids is not None:
            yield Send(ids, to_broker(Channel.PRODUCER_IDS), self._metadata.settings.request_timeout_ms)
        yield from self._metadata.poll(now_ms)
