"""Tells the leaders of partitions how transactions have ended, until every one of them knows it (Kafka:
`TransactionMarkerChannelManager`, `TransactionMarkerRequestCompletionHandler`).

A broker has at most one request of this kind under way to another one, or to itself. Markers that are due meanwhile
share the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final

from msgspec import Struct

from kraft.agenda import Agenda, Slot
from kraft.coordinators.transactions.transaction import Status, TopicPartition, Transaction
from kraft.handling.coordinators import place_of
from kraft.handling.reply_keys import MarkersSent, to_broker
from kraft.limits import MARKERS_PER_REQUEST, MARKERS_PLACED_PER_TURN
from kraft.wire import Send, Target
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS
from transport.protocol.errors import Error
from transport.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

MARKERS_RETRY_MS: Final = 50
"""How long a partition is left alone that could not take its marker: its leader may be changing."""
SURPRISED_MS: Final = 5000
"""How long, after an error that no leader should answer. Kafka's broker stops then."""
_WRITTEN: Final = frozenset((Error.NONE, Error.UNSUPPORTED_VERSION, Error.UNSUPPORTED_FOR_MESSAGE_FORMAT))
_AGAIN: Final = frozenset(
    (
        *(Error.UNKNOWN_TOPIC_OR_PARTITION, Error.NOT_LEADER_OR_FOLLOWER, Error.NOT_ENOUGH_REPLICAS),
        *(Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Error.REQUEST_TIMED_OUT, Error.KAFKA_STORAGE_ERROR),
    )
)
_OUTDATED: Final = frozenset((Error.INVALID_PRODUCER_EPOCH, Error.TRANSACTION_COORDINATOR_FENCED))
"""Another coordinator has gone on with the transactional id."""


class Ending(Struct, eq=False):
    """A transaction with a decided outcome, and the partitions that may not know it.

    `partition` is that of the coordinator, and `coordinator_epoch` the epoch of its leadership.
    """

    partition: int
    name: str
    coordinator_epoch: int
    transaction: Transaction
    left: set[TopicPartition]
    is_given_up: bool = False


class MarkerSender:
    """The markers of one broker's coordinators that are not written yet.

    Args:
        agenda: What is due at the broker.
        listener: The listener at which brokers reach each other.
        timeout_ms: How long one request may take, in ms.
    """

    def __init__(self, agenda: Agenda, listener: str, timeout_ms: int) -> None:
        self._agenda = agenda
        self._listener = listener
        self._timeout_ms = timeout_ms
        self._last_number = 0
        self.answered = 0
        """The requests that were answered since the start."""
        self._endings: dict[tuple[int, str], Ending] = {}
        self._unplaced: deque[tuple[Ending, TopicPartition]] = deque()
        """The markers of which the leader is still to be looked up."""
        self._placed: dict[int, deque[tuple[Ending, TopicPartition]]] = {}
        """The markers for each broker."""
        self._homeless: list[tuple[Ending, TopicPartition]] = []
        """The markers for partitions without a live leader, until the metadata changes."""
        self._later: list[tuple[int, int, Ending, TopicPartition]] = []
        """A heap of markers that are tried again, by time in ms and order."""
        self._order = 0
        self._sent: dict[MarkersSent, tuple[int, list[tuple[Ending, TopicPartition]]]] = {}
        self._ended: list[Ending] = []
        self._image: MetadataImage | None = None

    def __len__(self) -> int:
        """The transactions that are being ended."""
        return len(self._endings)

    @property
    def asked(self) -> int:
        """The requests that were sent since the start."""
        return self._last_number

    @property
    def homeless(self) -> int:
        """The markers for partitions without a live leader."""
        return len(self._homeless)

    def begin(self, partition: int, name: str, coordinator_epoch: int, transaction: Transaction) -> None:
        """A transaction has its outcome in the log: tell its partitions, unless that is under way."""
        known = self._endings.get((partition, name))
        if known is not None:
            if known.transaction is transaction and known.coordinator_epoch == coordinator_epoch:
                return
            known.is_given_up = True
        ending = Ending(partition, name, coordinator_epoch, transaction, set(transaction.partitions))
        self._endings[partition, name] = ending
        self._unplaced.extend((ending, one) for one in sorted(ending.left))
        if not ending.left:
            self._ended.append(ending)
        self._agenda.now(Slot.MARKERS)

    def forget(self, partition: int) -> None:
        """This broker does not coordinate a partition any more."""
        for key in [key for key in self._endings if key[0] == partition]:
            self._endings.pop(key).is_given_up = True

    def finish(self, ending: Ending) -> None:
        """Forget a transaction whose end is in the log, or is not this broker's any more."""
        if self._endings.get((ending.partition, ending.name)) is ending:
            del self._endings[ending.partition, ending.name]

    def take_ended(self) -> list[Ending]:
        """The transactions of which every partition has its marker, since the last call."""
        ended, self._ended = self._ended, []
        return [each for each in ended if not each.is_given_up]

    def due(self, image: MetadataImage, now_ms: int) -> Iterator[Send]:
        """The requests to send."""
        known = self._image
        self._image = image
        if known is None or image.topics is not known.topics or image.brokers is not known.brokers:
            self._place_again()
        while self._later and self._later[0][0] <= now_ms:
            _, _, ending, one = heappop(self._later)
            self._unplaced.append((ending, one))
        for _ in range(min(len(self._unplaced), MARKERS_PLACED_PER_TURN)):
            self._place(*self._unplaced.popleft(), image)
        for broker_id in self._free() if self._placed else ():
            yield from self._send(broker_id, image)
        self._agenda.at(Slot.MARKERS, self._next_ms())

    def _free(self) -> list[int]:
        """The brokers with markers that wait for no other request."""
        busy = {broker for broker, _ in self._sent.values()}
        return [one for one in self._placed if one not in busy]

    def _place_again(self) -> None:
        """Leaders may have changed: look for those of all markers that are not under way."""
        self._unplaced.extend(self._homeless)
        self._homeless = []
        for placed in self._placed.values():
            self._unplaced.extend(placed)
        self._placed = {}

    def _place(self, ending: Ending, one: TopicPartition, image: MetadataImage) -> None:
        if ending.is_given_up:
            return
        topic_id = image.topics.by_name.get(one[0])
        partitions = () if topic_id is None else image.topics.by_id[topic_id].partitions
        if one[1] >= len(partitions):
            # The topic is deleted, and the records of the transaction with it.
            self._note(ending, one)
            return
        leader = partitions[one[1]].leader
        if place_of(image, leader, self._listener) is None:
            self._homeless.append((ending, one))
        else:
            self._placed.setdefault(leader, deque()).append((ending, one))

    def _note(self, ending: Ending, one: TopicPartition) -> None:
        """Note that a partition has its marker. After the last one the transaction can be completed."""
        ending.left.discard(one)
        if not ending.left and not ending.is_given_up:
            self._ended.append(ending)

    def _send(self, broker_id: int, image: MetadataImage) -> Iterator[Send]:
        placed = self._placed[broker_id]
        taken = [placed.popleft() for _ in range(min(len(placed), MARKERS_PER_REQUEST))]
        if not placed:
            del self._placed[broker_id]
        taken = [each for each in taken if not each[0].is_given_up]
        place = place_of(image, broker_id, self._listener)
        if not taken or place is None:
            self._homeless.extend(taken)
            return
        self._last_number += 1
        key = MarkersSent(self._last_number)
        self._sent[key] = broker_id, taken
        yield Send(_request(taken), to_broker(key), self._timeout_ms, Target(broker_id, place[1].host, place[1].port))

    def on_reply(self, key: MarkersSent, message: Message | None, now_ms: int) -> None:
        """Take the answer of a leader; None if the request has failed."""
        _, taken = self._sent.pop(key)
        self.answered += message is not None
        errors: dict[tuple[int, str, int], Error] = {}
        if isinstance(message, WriteTxnMarkersResponse):
            errors = {
                (marker.producer_id, topic.name, part.partition_index): Error.of(part.error_code)
                for marker in message.markers
                for topic in marker.topics
                for part in topic.partitions
            }
        for ending, one in taken:
            if ending.is_given_up:
                continue
            error = errors.get((ending.transaction.producer_id, *one), Error.REQUEST_TIMED_OUT)
            if error in _WRITTEN:
                self._note(ending, one)
            elif error in _OUTDATED:
                ending.is_given_up = True
            else:
                self._order += 1
                at_ms = now_ms + (MARKERS_RETRY_MS if error in _AGAIN else SURPRISED_MS)
                heappush(self._later, (at_ms, self._order, ending, one))
        self._agenda.by(Slot.MARKERS, self._next_ms())

    def _next_ms(self) -> int:
        """When there is something to send or to complete, in ms."""
        if self._unplaced or self._ended:
            return 0
        if self._placed and self._free():
            return 0
        return self._later[0][0] if self._later else NEVER_MS


def _request(taken: list[tuple[Ending, TopicPartition]]) -> WriteTxnMarkersRequest:
    gathered: dict[Ending, dict[str, list[int]]] = {}
    for ending, (topic, number) in taken:
        gathered.setdefault(ending, {}).setdefault(topic, []).append(number)
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=ending.transaction.producer_id,
                producer_epoch=ending.transaction.epoch,
                transaction_result=ending.transaction.status is Status.PREPARE_COMMIT,
                topics=[WritableTxnMarkerTopic(name, numbers) for name, numbers in topics.items()],
                coordinator_epoch=ending.coordinator_epoch,
                transaction_version=ending.transaction.client_version,
            )
            for ending, topics in gathered.items()
        ]
    )
