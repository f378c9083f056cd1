"""Creates the topics that clients ask for and that do not exist (Kafka: `DefaultAutoTopicCreationManager`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from kraft.agenda import Agenda, Slot
from kraft.broker.metadata.forwarding import envelope_of
from kraft.config.data_settings import REPLICATION_FACTORS
from kraft.config.group_settings import GroupConfig
from kraft.config.share_coordinator_settings import ShareCoordinatorConfig
from kraft.config.transaction_settings import TransactionConfig
from kraft.handling.coordinators import GROUP, SHARE, TOPICS, TRANSACTION
from kraft.handling.reply_keys import Creation, to_broker
from kraft.handling.settings import RequestSettings
from kraft.limits import TOPICS_IN_CREATION
from kraft.wire import Send, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.serde import Message, schema_of
from transport.protocol.errors import Error
from transport.protocol.messages import CreateTopicsRequest, CreateTopicsResponse
from transport.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig

_AS_THE_CONTROLLER: Final = -1
_OF_QUEUES: Final = {"errors.deadletterqueue.group.enable": "true", "message.timestamp.type": "CreateTime"}
"""The configuration of a dead-letter queue."""
_CREATION: Final = schema_of(CreateTopicsRequest)
_KINDS: Final = {topic: kind for kind, topic in TOPICS.items()}
"""The kinds of coordinators, by the topics that keep their state."""


def internal_topic(settings: RequestSettings, kind: int) -> CreatableTopic | None:
    """The topic of the coordinators of a kind, as this broker is set; None if this software has no such coordinators.

    The count of partitions never changes afterwards: it decides which partition a name belongs to.
    """
    of: GroupConfig | TransactionConfig | ShareCoordinatorConfig
    # In the order in which Java's Properties hand them out, which is that of a real log's records.
    match kind:
        case _ if kind == GROUP:
            of = settings.groups
            configs = {
                "compression.type": "producer",
                "cleanup.policy": "compact",
                "segment.bytes": str(of.topic_segment_bytes),
            }
        case _ if kind == TRANSACTION:
            of = settings.transactions
            configs = {
                "compression.type": "uncompressed",
                "cleanup.policy": "compact",
                "min.insync.replicas": str(of.topic_min_isr),
                "segment.bytes": str(of.topic_segment_bytes),
                "unclean.leader.election.enable": "false",
            }
        case _ if kind == SHARE:
            of = settings.share_states
            configs = {
                "compression.type": "producer",
                "cleanup.policy": "delete",  # Its coordinator deletes the begin itself.
                "min.insync.replicas": str(of.topic_min_isr),
                "segment.bytes": str(of.topic_segment_bytes),
                "retention.ms": "-1",
            }
        case _:
            return None
    return CreatableTopic(
        name=TOPICS[kind],
        num_partitions=of.topic_partitions,
        replication_factor=of.topic_replication_factor,
        configs=[CreatableTopicConfig(name, value) for name, value in configs.items()],
    )


def plain_topic(settings: RequestSettings, name: str) -> CreatableTopic:
    """A topic of clients. What the file of this broker leaves out is for the controller to choose."""
    in_file = {one.name for one in settings.own_settings if one.is_set}
    topics = settings.topics
    return CreatableTopic(
        name=name,
        num_partitions=topics.num_partitions if "num.partitions" in in_file else _AS_THE_CONTROLLER,
        replication_factor=(
            topics.replication_factor if "default.replication.factor" in in_file else _AS_THE_CONTROLLER
        ),
    )


def _text(topic: str, error: Error, text: str | None) -> str:
    """The controller's text, and for an internal topic what to change."""
    if error is not Error.INVALID_REPLICATION_FACTOR or topic not in REPLICATION_FACTORS:
        return str(text)
    return f"{text}; set {REPLICATION_FACTORS[topic]} of each broker to the number of brokers or less"


class AutoCreation:
    """The names of topics that a controller was asked to create, so that no name is asked for twice at a time.

    Args:
        agenda: What is due at the broker.
        settings: The settings.
        report: Takes a text for the log of the broker.
    """

    def __init__(self, agenda: Agenda, settings: RequestSettings, report: Callable[[str], None]) -> None:
        self._agenda = agenda
        self._settings = settings
        self._report = report
        self._told: set[tuple[str, int]] = set()
        """The topics and errors that were reported."""
        self._in_flight: set[str] = set()
        self._names: dict[Creation, tuple[str, ...]] = {}
        self._kept_ms: dict[Creation, int] = {}
        """How long the errors of a request are kept."""
        self._errors: dict[str, tuple[str, int]] = {}
        """Why topics could not be created, and until when that is told."""
        self._due: list[Send] = []
        self._last_number = 0

    def create(self, names: Iterable[str], request: WireRequest) -> None:
        """Ask for topics, as the principal of the client that names them.

        A client may be the first one to name a topic of coordinators, too: it gets their settings.
        """
        self._ask(filter(None, map(self._topic, self._not_asked(names))), request)

    def create_internal_of_streams(
        self, topics: Sequence[CreatableTopic], request: WireRequest, now_ms: int, kept_ms: int
    ) -> dict[str, str]:
        """Ask for internal topics of a program of Kafka Streams, as the principal of its member.

        Args:
            topics: The topics.
            request: The heartbeat of the member.
            now_ms: The time in ms.
            kept_ms: How long an error counts: the topic is not asked for again in this time.

        Returns:
            Why some of them could not be created in this time, by name.
        """
        for name in [name for name, (_, until_ms) in self._errors.items() if until_ms <= now_ms]:
            del self._errors[name]
        errors = {one.name: self._errors[one.name][0] for one in topics if one.name in self._errors}
        names = set(self._not_asked(one.name for one in topics if one.name not in errors))
        self._ask([one for one in topics if one.name in names], request, kept_ms)
        return errors

    def _not_asked(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those that nobody has asked for, as far as there is room."""
        room = TOPICS_IN_CREATION - len(self._in_flight)
        return tuple(name for name in names if name not in self._in_flight)[: max(room, 0)]

    def _ask(self, wanted_topics: Iterable[CreatableTopic], request: WireRequest, kept_ms: int = 0) -> None:
        topics = list(wanted_topics)
        if not topics:
            return
        wanted = tuple(topic.name for topic in topics)
        self._in_flight.update(wanted)
        self._last_number += 1
        key, settings = Creation(self._last_number), self._settings
        self._names[key] = wanted
        if kept_ms:
            self._kept_ms[key] = kept_ms
        body = CreateTopicsRequest(topics=topics, timeout_ms=settings.request_timeout_ms)
        assert _CREATION.api_key is not None, _CREATION
        version = _CREATION.versions.highest
        envelope = envelope_of(_CREATION.api_key, version, request.client_id, body, request.principal, request.peer)
        self._due.append(Send(envelope, to_broker(key), settings.request_timeout_ms))
        self._agenda.now(Slot.CREATIONS)

    def _topic(self, name: str) -> CreatableTopic | None:
        """The topic to ask for; None for one of coordinators that this software does not have."""
        kind = _KINDS.get(name)
        return plain_topic(self._settings, name) if kind is None else internal_topic(self._settings, kind)

    def create_internal(self, kind: int) -> None:
        """Ask for the topic of the coordinators of a kind, as this broker and with its own settings."""
        topic = internal_topic(self._settings, kind)
        if topic is not None:
            self._create_own(topic)

    def create_queue(self, name: str) -> None:
        """Ask for a dead-letter queue of share groups, as this broker."""
        configs = [CreatableTopicConfig(key, value) for key, value in _OF_QUEUES.items()]
        self._create_own(replace(plain_topic(self._settings, name), configs=configs))

    def _create_own(self, topic: CreatableTopic) -> None:
        if topic.name in self._in_flight:
            return
        self._in_flight.add(topic.name)
        self._last_number += 1
        key, timeout_ms = Creation(self._last_number), self._settings.request_timeout_ms
        self._names[key] = (topic.name,)
        self._due.append(Send(CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms), to_broker(key), timeout_ms))
        self._agenda.now(Slot.CREATIONS)

    def due(self, image: MetadataImage, broker_epoch: int, now_ms: int) -> Iterator[Send]:
        """The requests that are due."""
        due, self._due = self._due, []
        yield from due

    def on_reply(self, key: Creation, message: Message | None, now_ms: int) -> None:
        """Take the controller's answer; None if the request failed. The client's next request asks again if need be."""
        self._in_flight.difference_update(self._names.pop(key))
        kept_ms = self._kept_ms.pop(key, 0)
        if isinstance(message, CreateTopicsResponse):
            for one in message.topics:
                error = Error(one.error_code)
                is_refused = error not in (Error.NONE, Error.TOPIC_ALREADY_EXISTS)
                if kept_ms and is_refused and len(self._errors) < TOPICS_IN_CREATION:
                    self._errors[one.name] = one.error_message or error.message, now_ms + kept_ms
                if is_refused and (one.name, error) not in self._told:
                    self._told.add((one.name, error))
                    text = _text(one.name, error, one.error_message)
                    self._report(f"{one.name} cannot be created: {error.name}: {text}")
