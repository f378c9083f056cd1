"""The deliveries of share groups, as the brokers of a test have answered their members: each of them, and its end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import IntEnum
from typing import Final

from msgspec import Struct

from metadata_log.serde import Message
from metadata_log.types import Uuid
from transport.protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from transport.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse

KEPT: Final = 100_000
"""So many answers with deliveries, and with ends of deliveries, are kept; older ones are forgotten."""


class End(IntEnum):
    """How a member has ended a delivery (Kafka: `AcknowledgeType`)."""

    ACCEPTED = 1
    RELEASED = 2
    REJECTED = 3


class Delivery(Struct, frozen=True):
    """Neighbours that were handed to a member, for the time that `count` says."""

    group: str
    topic_id: Uuid
    partition: int
    first: int
    last: int
    count: int
    member: str


class Ended(Struct, frozen=True):
    """Neighbours whose delivery a member has ended; the leader took that."""

    group: str
    topic_id: Uuid
    partition: int
    first: int
    last: int
    types: tuple[int, ...]
    """One for all, or one for each."""


class Deliveries:
    """The deliveries of share groups, and the words about them, since the start of the cluster."""

    def __init__(self) -> None:
        self.given: deque[Delivery] = deque(maxlen=KEPT)
        self.ended: deque[Ended] = deque(maxlen=KEPT)

    def note(self, request: Message, answer: Message) -> None:
        """Note the answer of a broker to a member."""
        match request, answer:
            case ShareFetchRequest(), ShareFetchResponse(error_code=0):
                self._note_given(request, answer)
                codes = {
                    (topic.topic_id, one.partition_index): one.acknowledge_error_code
                    for topic in answer.responses
                    for one in topic.partitions
                }
                self._note_ended(request, codes)
            case ShareAcknowledgeRequest(), ShareAcknowledgeResponse(error_code=0):
                codes = {
                    (topic.topic_id, one.partition_index): one.error_code
                    for topic in answer.responses
                    for one in topic.partitions
                }
                self._note_ended(request, codes)
            case _:
                pass  # a refusal, of which nothing comes

    def _note_given(self, request: ShareFetchRequest, answer: ShareFetchResponse) -> None:
        group, member = request.group_id or "", request.member_id or ""
        for topic in answer.responses:
            for one in topic.partitions:
                for each in () if one.error_code else one.acquired_records:
                    place = topic.topic_id, one.partition_index, each.first_offset, each.last_offset
                    self.given.append(Delivery(group, *place, each.delivery_count, member))

    def _note_ended(
        self, request: ShareFetchRequest | ShareAcknowledgeRequest, codes: dict[tuple[Uuid, int], int]
    ) -> None:
        for topic in request.topics:
            for one in topic.partitions:
                if codes.get((topic.topic_id, one.partition_index)) == 0:
                    for each in one.acknowledgement_batches:
                        place = topic.topic_id, one.partition_index, each.first_offset, each.last_offset
                        self.ended.append(Ended(request.group_id or "", *place, tuple(each.acknowledge_types)))

    def counts(self, group: str, topic_id: Uuid, partition: int, offsets: Iterable[int]) -> dict[int, int]:
        """How often each of these records was delivered to a group."""
        found = dict.fromkeys(offsets, 0)
        for one in self.given:
            if (one.group, one.topic_id, one.partition) == (group, topic_id, partition):
                for offset in found:
                    if one.first <= offset <= one.last:
                        found[offset] += 1
        return found

    def ends(self, group: str, topic_id: Uuid, partition: int, offsets: Iterable[int]) -> dict[int, End | None]:
        """How the last delivery of each of these records has ended; None for one that nobody has ended."""
        found: dict[int, End | None] = dict.fromkeys(offsets)
        known = {int(one): one for one in End}
        for one in self.ended:
            if (one.group, one.topic_id, one.partition) == (group, topic_id, partition):
                for offset, before in found.items():
                    if one.first <= offset <= one.last:
                        said = one.types[0] if len(one.types) == 1 else one.types[offset - one.first]
                        found[offset] = known.get(said, before)
        return found
