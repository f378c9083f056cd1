"""The ends of logs that other brokers lead, for the lag of share groups (Kafka: `NetworkPartitionMetadataClient`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec import Struct

from kraft.agenda import Agenda, Slot
from kraft.handling.coordinators import place_of
from kraft.handling.reply_keys import LogEndsAsked, to_broker
from kraft.limits import LOG_ENDS_PER_REQUEST
from kraft.partitions.lookup import hosted
from kraft.partitions.replicas.manager import ReplicaManager
from kraft.wire import Send, Target
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from metadata_log.types import Uuid
from transport.protocol.errors import Error
from transport.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

Place = tuple[Uuid, int]
"""A topic and a partition."""
Ends = dict[Place, int | Error]
LATEST: Final = -1
CONSUMER: Final = -1
_ANY_EPOCH: Final = -1


class _Asking(Struct, eq=False):
    """A question for the ends of some logs."""

    done: Callable[[Ends, int], None]
    left: int
    ends: Ends = {}


class _Sent(Struct):
    """A question for one broker."""

    asking: _Asking
    places: dict[tuple[str, int], Place]


class LogEnds:
    """Asks the leaders of partitions, and this broker's own replicas, for the high watermarks.

    Args:
        agenda: What is due at the broker.
        manager: The replicas of this broker.
        listener: The listener at which brokers reach each other.
        timeout_ms: How long one request may take, in ms.
    """

    def __init__(self, agenda: Agenda, manager: ReplicaManager, listener: str, timeout_ms: int) -> None:
        self._agenda = agenda
        self._manager = manager
        self._listener = listener
        self._timeout_ms = timeout_ms
        self._last_number = 0
        self._queued: list[tuple[Target, _Sent]] = []
        self._sent: dict[LogEndsAsked, _Sent] = {}

    def ask(
        self, places: Iterable[Place], done: Callable[[Ends, int], None], image: MetadataImage, now_ms: int
    ) -> None:
        """Find the ends of logs; `done` takes them, or an error for each that nobody has told."""
        asking = _Asking(done, 0)
        of_brokers: dict[int, dict[tuple[str, int], Place]] = {}
        for place in places:
            end = self._own(place, image)
            if end is not None:
                asking.ends[place] = end
                continue
            topic = image.topics.by_id[place[0]]
            of_brokers.setdefault(topic.partitions[place[1]].leader, {})[topic.name, place[1]] = place
        for broker_id, named in of_brokers.items():
            at = place_of(image, broker_id, self._listener)
            if at is None:
                asking.ends |= dict.fromkeys(named.values(), Error.LEADER_NOT_AVAILABLE)
                continue
            target = Target(broker_id, at[1].host, at[1].port)
            entries = list(named.items())
            for begin in range(0, len(entries), LOG_ENDS_PER_REQUEST):
                self._queued.append((target, _Sent(asking, dict(entries[begin : begin + LOG_ENDS_PER_REQUEST]))))
                asking.left += 1
        if asking.left:
            self._agenda.now(Slot.LOG_ENDS)
        else:
            done(asking.ends, now_ms)

    def _own(self, place: Place, image: MetadataImage) -> int | Error | None:
        """The end of a log that this broker leads; None if another one does."""
        topic = image.topics.by_id.get(place[0])
        if topic is None or place[1] >= len(topic.partitions):
            return Error.UNKNOWN_TOPIC_OR_PARTITION
        part = hosted(self._manager, image, place, _ANY_EPOCH, needs_leader=True)
        return None if isinstance(part, Error) else part.log.high_watermark

    def due(self, image: MetadataImage, broker_epoch: int, now_ms: int) -> Iterator[Send]:
        """The requests to send."""
        queued, self._queued = self._queued, []
        for target, sent in queued:
            self._last_number += 1
            key = LogEndsAsked(self._last_number)
            self._sent[key] = sent
            yield Send(_request(sent.places), to_broker(key), self._timeout_ms, target)

    def on_reply(self, key: LogEndsAsked, message: Message | None, now_ms: int) -> None:
        """Take the answer of a leader; None if the request failed."""
        sent = self._sent.pop(key)
        asking = sent.asking
        told: Ends = dict.fromkeys(sent.places.values(), Error.NETWORK_EXCEPTION)
        if isinstance(message, ListOffsetsResponse):
            for topic in message.topics:
                for part in topic.partitions:
                    place = sent.places.get((topic.name, part.partition_index))
                    if place is not None:
                        error = Error.of(part.error_code)
                        told[place] = part.offset if error is Error.NONE else error
        asking.ends |= told
        asking.left -= 1
        if not asking.left:
            asking.done(asking.ends, now_ms)


def _request(places: dict[tuple[str, int], Place]) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for name, number in places:
        topics.setdefault(name, []).append(ListOffsetsPartition(number, timestamp=LATEST))
    return ListOffsetsRequest(CONSUMER, 0, [ListOffsetsTopic(name, parts) for name, parts in topics.items()])
