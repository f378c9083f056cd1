"""Creates the topics that clients ask for and that do not exist (Kafka: `DefaultAutoTopicCreationManager`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kraft.broker.metadata.forwarding import envelope_of
from kraft.broker.reply_keys import Creation, to_broker
from kraft.limits import TOPICS_IN_CREATION
from kraft.wire import Send, WireRequest
from metadata_log.serde import Message
from transport.protocol.apis import APIS, ApiKey
from transport.protocol.messages import CreateTopicsRequest
from transport.protocol.messages.create_topics import CreatableTopic

_VERSION: Final = APIS[ApiKey.CREATE_TOPICS].versions.highest


class AutoCreation:
    """The names of topics that a controller was asked to create, so that no name is asked for twice at a time."""

    def __init__(self, *, num_partitions: int, replication_factor: int, timeout_ms: int) -> None:
        self._num_partitions = num_partitions
        self._replication_factor = replication_factor
        self._timeout_ms = timeout_ms
        self._in_flight: set[str] = set()
        self._names: dict[int, tuple[str, ...]] = {}
        self._due: list[Send] = []
        self._last_number = 0

    @property
    def is_due(self) -> bool:
        """Whether `poll` has a request."""
        return bool(self._due)

    def create(self, names: Iterable[str], asked: WireRequest) -> None:
        """Ask for topics, as the principal of the client that names them."""
        room = TOPICS_IN_CREATION - len(self._in_flight)
        wanted = tuple(name for name in names if name not in self._in_flight)[: max(room, 0)]
        if not wanted:
            return
        self._in_flight.update(wanted)
        self._last_number += 1
        self._names[self._last_number] = wanted
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name, num_partitions=self._num_partitions, replication_factor=self._replication_factor
                )
                for name in wanted
            ],
            timeout_ms=self._timeout_ms,
        )
        envelope = envelope_of(ApiKey.CREATE_TOPICS, _VERSION, asked.client_id, request, asked.principal, asked.peer)
        self._due.append(Send(envelope, to_broker(Creation(self._last_number)), self._timeout_ms))

    def poll(self) -> Iterator[Send]:
        """The requests that are due."""
        due, self._due = self._due, []
        yield from due

    def on_reply(self, number: int, response: Message | None) -> None:
        """The controller has answered, or the request failed: the client's next request asks again where necessary."""
        self._in_flight.difference_update(self._names.pop(number))
