"""Creates the topics that clients ask for and that do not exist (Kafka: `DefaultAutoTopicCreationManager`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kraft.broker.handling.reply_keys import Creation, to_broker
from kraft.broker.handling.settings import RequestSettings
from kraft.broker.metadata.forwarding import envelope_of
from kraft.limits import TOPICS_IN_CREATION
from kraft.wire import Send, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS
from transport.protocol.apis import APIS, ApiKey
from transport.protocol.messages import CreateTopicsRequest
from transport.protocol.messages.create_topics import CreatableTopic

_VERSION: Final = APIS[ApiKey.CREATE_TOPICS].versions.highest


class AutoCreation:
    """The names of topics that a controller was asked to create, so that no name is asked for twice at a time."""

    def __init__(self, settings: RequestSettings) -> None:
        self._settings = settings
        self._in_flight: set[str] = set()
        self._names: dict[Creation, tuple[str, ...]] = {}
        self._due: list[Send] = []
        self._last_number = 0

    def create(self, names: Iterable[str], request: WireRequest) -> None:
        """Ask for topics, as the principal of the client that names them."""
        room = TOPICS_IN_CREATION - len(self._in_flight)
        wanted = tuple(name for name in names if name not in self._in_flight)[: max(room, 0)]
        if not wanted:
            return
        self._in_flight.update(wanted)
        self._last_number += 1
        key, settings = Creation(self._last_number), self._settings
        self._names[key] = wanted
        body = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=settings.num_partitions,
                    replication_factor=settings.default_replication_factor,
                )
                for name in wanted
            ],
            timeout_ms=settings.controller_timeout_ms,
        )
        envelope = envelope_of(ApiKey.CREATE_TOPICS, _VERSION, request.client_id, body, request.principal, request.peer)
        self._due.append(Send(envelope, to_broker(key), settings.controller_timeout_ms))

    def due(self, image: MetadataImage, broker_epoch: int, now_ms: int) -> Iterator[Send]:
        """The requests that are due."""
        due, self._due = self._due, []
        yield from due

    def on_reply(self, key: Creation, message: Message | None, now_ms: int) -> None:
        """The controller has answered, or the request failed: the client's next request asks again where necessary."""
        self._in_flight.difference_update(self._names.pop(key))

    def take_changes(self) -> tuple[()]:
        """None: a client asks again."""
        return ()

    def deadline_ms(self) -> int:
        """When `due` has something."""
        return 0 if self._due else NEVER_MS
