"""How the leader of a classic group divides partitions (Kafka: `RangeAssignor`, `RoundRobinAssignor`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Final

from msgspec import Struct

from metadata_log.errors import DecodeError
from metadata_log.serde import decode_from, encode, schema_of
from metadata_log.serde.fields import MessageType
from transport.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from transport.protocol.messages.join_group import JoinGroupResponseMember

PROTOCOL_TYPE: Final = "consumer"
_VERSION_BYTES: Final = 2
_VERSION: Final = 0
"""The version of what we write: it names topics and partitions, and every client reads it."""


class Subscriber(Struct, frozen=True):
    """A member with the topics that it wants."""

    id: str
    instance: str | None
    topics: tuple[str, ...]

    @property
    def order(self) -> tuple[bool, str]:
        """Static members come first, by their instance."""
        return self.instance is None, self.id if self.instance is None else self.instance


Assignment = dict[str, dict[str, list[int]]]
"""The partitions of each topic, by member."""
Assignor = Callable[[Sequence[Subscriber], Mapping[str, int]], Assignment]


def range_assignment(members: Sequence[Subscriber], counts: Mapping[str, int]) -> Assignment:
    """Consecutive partitions of each topic; the first members get one more where the number is not even."""
    found: Assignment = {one.id: {} for one in members}
    for topic, count in sorted(counts.items()):
        wanting = sorted((one for one in members if topic in one.topics), key=lambda one: one.order)
        first = 0
        for at, one in enumerate(wanting):
            size = count // len(wanting) + (at < count % len(wanting))
            if size:
                found[one.id][topic] = list(range(first, first + size))
            first += size
    return found


def round_robin_assignment(members: Sequence[Subscriber], counts: Mapping[str, int]) -> Assignment:
    """The partitions of all topics in turn; a member is passed over for a topic that it does not want."""
    found: Assignment = {one.id: {} for one in members}
    turns = cycle(sorted(members, key=lambda one: one.order))
    for topic, count in sorted(counts.items()):
        if not any(topic in one.topics for one in members):
            continue
        for number in range(count):
            one = next(each for each in turns if topic in each.topics)
            found[one.id].setdefault(topic, []).append(number)
    return found


ASSIGNORS: Final[Mapping[str, Assignor]] = {"range": range_assignment, "roundrobin": round_robin_assignment}


def subscription_bytes(topic: str) -> bytes:
    """What a member says that it wants."""
    return _head() + encode(ConsumerProtocolSubscription(topics=[topic]), _VERSION)


def assignment_bytes(partitions: Mapping[str, Sequence[int]]) -> bytes:
    """What a member is told by the leader."""
    topics = [ConsumerProtocolAssignmentTopicPartition(topic, list(some)) for topic, some in partitions.items()]
    return _head() + encode(ConsumerProtocolAssignment(assigned_partitions=topics), _VERSION)


def _head() -> bytes:
    return _VERSION.to_bytes(_VERSION_BYTES, "big")


def assignment_of(data: bytes) -> dict[str, tuple[int, ...]]:
    """The partitions by topic in the bytes of an assignment; none for damaged bytes."""
    found = _decoded(ConsumerProtocolAssignment, data)
    return {} if found is None else {one.topic: tuple(one.partitions) for one in found.assigned_partitions}


def subscriber_of(member: JoinGroupResponseMember) -> Subscriber:
    """A member as the leader hears of it; one whose bytes are damaged wants nothing."""
    found = _decoded(ConsumerProtocolSubscription, member.metadata)
    return Subscriber(member.member_id, member.group_instance_id, () if found is None else tuple(found.topics))


def _decoded(cls: type[MessageType], data: bytes) -> MessageType | None:
    """What is behind the version that a member wrote; a newer version is read as the newest known one."""
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if len(data) < _VERSION_BYTES or version < 0:
        return None
    try:
        found, _ = decode_from(cls, min(version, schema_of(cls).versions.highest), data, _VERSION_BYTES)
    except DecodeError:
        return None
    return found
