"""The session of a member of a share group with one leader: what travels with the next request, and what comes back
(Kafka: `ShareSessionHandler`, `ShareConsumeRequestManager`).

One request is on its way at a time, and all of them take one connection: with it the session ends, and the leader gives
what the member holds to others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final

from msgspec import Struct

from kraft.client.state.positions import ConsumedRecord
from kraft.client.state.reading import read_answer
from kraft.client.state.requests import Address
from kraft.client.state.share_acks import AckRange, Ledger, Sent
from metadata_log.serde import Message
from metadata_log.types import Uuid
from transport.protocol.messages import share_acknowledge, share_fetch
from transport.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from transport.protocol.messages.share_fetch import AcquiredRecords, ShareFetchRequest

MAX_WAIT_MS: Final = 500
"""How long a leader may wait for the next record (Kafka: `fetch.max.wait.ms`)."""
MAX_BYTES: Final = 8 << 20
"""The most bytes of one answer (Kafka: `fetch.max.bytes`, 50 MiB)."""
OPENING: Final = 0
"""The epoch of a request that opens a session."""
FINAL: Final = -1
"""The epoch of a request that closes a session."""
_LAST_EPOCH: Final = (1 << 31) - 1


class AcquireMode(IntEnum):
    """How many records a leader hands out at once (Kafka: `share.acquire.mode`, KIP-1206)."""

    BATCH_OPTIMIZED = 0
    """Whole record batches, so that there may be more records than `max_records`."""
    RECORD_LIMIT = 1
    """At most `max_records`."""


class Acquired:
    """The records of an answer for one partition that nobody has taken yet.

    Args:
        partition: The number of the partition.
        records: The records of whole batches, also those that the member did not acquire.
        ranges: What the member has acquired.
        until_ms: When the locks of these records are over.
    """

    def __init__(
        self, partition: int, records: Iterator[ConsumedRecord], ranges: Sequence[AcquiredRecords], until_ms: int
    ) -> None:
        self.partition = partition
        self.until_ms = until_ms
        self._records = records
        self._ranges = deque(sorted(ranges, key=lambda one: one.first_offset))
        self._position = 0
        """The first offset that is not accounted for."""

    def take(self, most: int, ledger: Ledger) -> list[ConsumedRecord]:
        """Take so many records, and tell the ledger of them and of the gaps before them."""
        taken: list[ConsumedRecord] = []
        while len(taken) < most and self._ranges:
            record = next(self._records, None)
            found = self._range_of(None if record is None else record.offset, ledger)
            if record is not None and found is not None:
                count = found.delivery_count
                ledger.hold(self.partition, record.offset, count)
                taken.append(_delivered(record, count))
        return taken

    def _range_of(self, offset: int | None, ledger: Ledger) -> AcquiredRecords | None:
        """The range of an offset. What lies between this record and the one before is a gap; so is all the rest
        without another record.
        """
        while self._ranges:
            one = self._ranges[0]
            first = max(self._position, one.first_offset)
            last = one.last_offset if offset is None else min(one.last_offset, offset - 1)
            if first <= last:
                ledger.add_gap(self.partition, first, last)
            if offset is not None and offset <= one.last_offset:
                if offset < one.first_offset:
                    return None
                self._position = offset + 1
                if offset == one.last_offset:
                    self._ranges.popleft()
                return one
            self._ranges.popleft()
        return None

    @property
    def is_empty(self) -> bool:
        """Whether everything is accounted for."""
        return not self._ranges


def _delivered(record: ConsumedRecord, count: int) -> ConsumedRecord:
    return ConsumedRecord(
        record.partition,
        record.offset,
        record.timestamp_ms,
        record.is_append_time,
        record.key,
        record.value,
        record.headers,
        record.leader_epoch,
        count,
    )


class Limits(Struct, frozen=True):
    """How much one fetch may bring."""

    max_records: int
    mode: AcquireMode


class Asked(Struct, frozen=True):
    """A request on its way, with what it takes to the leader."""

    token: int
    request: ShareFetchRequest | ShareAcknowledgeRequest
    sent: Sent
    partitions: frozenset[int]
    """The partitions of the session once the leader has taken the request."""


class ShareSession:
    """The session with the leader at one address."""

    def __init__(self, address: Address, group: str, member: str, limits: Limits) -> None:
        self.address = address
        self.ledger = Ledger()
        self.partitions: frozenset[int] = frozenset()
        """The partitions that the leader has in the session."""
        self.asked: Asked | None = None
        self.due_ms = 0
        """When the next request may be sent."""
        self.attempts = 0
        """How many requests have failed since the last answer."""
        self.since_ms: int | None = None
        """Since when there was no answer."""
        self.flush_ms = 0
        """When acknowledgements go alone, unless a fetch takes them along before."""
        self.is_closed = False
        self._epoch = OPENING
        self._group = group
        self._member = member
        self._limits = limits

    @property
    def is_open(self) -> bool:
        """Whether the leader has a session, as far as the member knows."""
        return self._epoch != OPENING

    @property
    def is_fetching(self) -> bool:
        """Whether a fetch is on its way."""
        return self.asked is not None and isinstance(self.asked.request, ShareFetchRequest)

    # Requests

    def fetch(self, token: int, topic_id: Uuid, wanted: frozenset[int], *, acquires: bool) -> Message:
        """The next fetch. The one that opens a session takes no acknowledgements along."""
        sent = self.ledger.take() if self.is_open else Sent({}, {})
        ranges = sent.ranges()
        named = sorted(wanted - self.partitions | ranges.keys())
        topics = [
            share_fetch.FetchPartition(
                number,
                [
                    share_fetch.AcknowledgementBatch(one.first, one.last, list(one.types))
                    for one in ranges.get(number, ())
                ],
            )
            for number in named
        ]
        # One that is named only for its acknowledgements is not to be in the session.
        gone = sorted((self.partitions | ranges.keys()) - wanted)
        most = self._limits.max_records if acquires else 0
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=self._member,
            share_session_epoch=self._epoch,
            max_wait_ms=MAX_WAIT_MS if acquires else 0,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            max_records=most,
            batch_size=most,
            share_acquire_mode=self._limits.mode,
            topics=[share_fetch.FetchTopic(topic_id, topics)] if topics else [],
            forgotten_topics_data=[share_fetch.ForgottenTopic(topic_id, gone)] if gone else [],
        )
        self.asked = Asked(token, request, sent, wanted)
        return request

    def acknowledge(self, token: int, topic_id: Uuid, *, is_final: bool) -> Message:
        """The acknowledgements alone; the final request gives everything else back."""
        sent = self.ledger.take()
        topics = [
            share_acknowledge.AcknowledgePartition(
                number, [share_acknowledge.AcknowledgementBatch(one.first, one.last, list(one.types)) for one in ranges]
            )
            for number, ranges in sent.ranges().items()
        ]
        request = ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._member,
            share_session_epoch=FINAL if is_final else self._epoch,
            is_renew_ack=sent.renews,
            topics=[share_acknowledge.AcknowledgeTopic(topic_id, topics)] if topics else [],
        )
        self.asked = Asked(token, request, sent, self.partitions)
        return request

    # Outcomes

    def on_taken(self, asked: Asked) -> None:
        """The leader has taken the request as the next one of the session."""
        if asked.request.share_session_epoch == FINAL:
            self.is_closed, self._epoch = True, OPENING
            return
        self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
        self.partitions = asked.partitions

    def on_served(self) -> None:
        """The leader has done everything that it was asked for."""
        self.attempts, self.due_ms, self.since_ms = 0, 0, None

    def reset(self) -> None:
        """Open another session with the next request. The locks of the former one go on."""
        self._epoch, self.partitions = OPENING, frozenset()


def acquired_of(data: share_fetch.PartitionData, until_ms: int, *, where: str) -> Acquired | None:
    """The acquired records of an answer; None if there are none. Raises `CorruptBatch`, or does as they are taken."""
    if not data.acquired_records:
        return None
    first = min(one.first_offset for one in data.acquired_records)
    read = read_answer(data.records or b"", data.partition_index, first, (), where=where)
    return Acquired(data.partition_index, read.records, data.acquired_records, until_ms)


__all__ = ["AckRange", "AcquireMode", "Acquired", "Asked", "Limits", "ShareSession", "acquired_of"]
