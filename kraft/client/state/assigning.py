"""How the leader of a classic group divides partitions (Kafka: `RangeAssignor`, `RoundRobinAssignor`,
`CooperativeStickyAssignor`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    ConsumerProtocolSubscriptionTopicPartition,
)
from transport.protocol.messages.join_group import JoinGroupResponseMember

PROTOCOL_TYPE: Final = "consumer"
_VERSION_BYTES: Final = 2
_VERSION: Final = 0
"""The version of what we write: it names topics and partitions, and every client reads it."""
_WITH_OWNED: Final = 2
"""The version with the partitions that a member has, and the generation in which it got them."""
COOPERATIVE: Final = "cooperative-sticky"
NO_GENERATION: Final = -1
Place = tuple[str, int]
"""A topic and a partition."""


class Subscriber(Struct, frozen=True):
    """A member with the topics that it wants, and what it has from a generation before."""

    id: str
    instance: str | None
    topics: tuple[str, ...]
    owned: tuple[Place, ...] = ()
    generation: int = NO_GENERATION

    @property
    def order(self) -> tuple[bool, str]:
        """The key by which members are ordered: static members first, by instance, then the others, by id."""
        return self.instance is None, self.id if self.instance is None else self.instance


Assignment = dict[str, dict[str, list[int]]]
"""The partitions of each topic, by member."""
Assignor = Callable[[Sequence[Subscriber], Mapping[str, int]], Assignment]


def range_assignment(members: Sequence[Subscriber], counts: Mapping[str, int]) -> Assignment:
    """Consecutive partitions of each topic; the first members get one more where the number is not even."""
    assignment: Assignment = {one.id: {} for one in members}
    for topic, count in sorted(counts.items()):
        wanting = sorted((one for one in members if topic in one.topics), key=lambda one: one.order)
        first = 0
        for at, one in enumerate(wanting):
            size = count // len(wanting) + (at < count % len(wanting))
            if size:
                assignment[one.id][topic] = list(range(first, first + size))
            first += size
    return assignment


def round_robin_assignment(members: Sequence[Subscriber], counts: Mapping[str, int]) -> Assignment:
    """The partitions of all topics in turn; a member is passed over for a topic that it does not want."""
    assignment: Assignment = {one.id: {} for one in members}
    turns = cycle(sorted(members, key=lambda one: one.order))
    for topic, count in sorted(counts.items()):
        if not any(topic in one.topics for one in members):
            continue
        for number in range(count):
            one = next(each for each in turns if topic in each.topics)
            assignment[one.id].setdefault(topic, []).append(number)
    return assignment


def cooperative_assignment(members: Sequence[Subscriber], counts: Mapping[str, int]) -> Assignment:
    """Even shares, of what each member has as much as possible. A partition that another member has still to give up is
    nobody's in this generation (KIP-429).

    Where all members want the same topics, the shares are those of Kafka's assignor, up to its order of members.
    """
    ordered = sorted(members, key=lambda one: one.id)
    wanted = {one.id: frozenset(one.topics) for one in ordered}
    everything = frozenset[str]().union(*wanted.values())
    topics = [(topic, count) for topic, count in sorted(counts.items()) if topic in everything]
    places = [(topic, number) for topic, count in topics for number in range(count)]
    owned, disputed = _owned(ordered, set(places))
    if all(some == everything for some in wanted.values()):
        shares = _even_shares(owned, places)
    else:
        shares, disputed = _balanced_shares(owned, places, wanted), set()
    given_up = {place for one in ordered for place in set(one.owned).difference(shares[one.id])}
    assignment: Assignment = {}
    for one in ordered:
        kept = set(one.owned)
        assignment[one.id] = {}
        for place in sorted(shares[one.id]):
            if place not in disputed and (place in kept or place not in given_up):
                assignment[one.id].setdefault(place[0], []).append(place[1])
    return assignment


def _owned(members: Sequence[Subscriber], places: set[Place]) -> tuple[dict[str, list[Place]], set[Place]]:
    """The partitions that each member has of those that it may have, and what two members have got in the same
    generation: both have to give that up. Otherwise the newer generation counts.
    """
    owned: dict[str, list[Place]] = {one.id: [] for one in members}
    owners: dict[Place, Subscriber] = {}
    disputed = set[Place]()
    for one in members:
        for place in one.owned:
            if place not in places or place[0] not in one.topics:
                continue
            other = owners.get(place)
            if other is not None and other.generation > one.generation:
                continue
            if other is not None and place in owned[other.id]:
                owned[other.id].remove(place)
            owners[place] = one
            if other is not None and other.generation == one.generation:
                disputed.add(place)
            else:
                owned[one.id].append(place)
    return owned, disputed


def _even_shares(owned: Mapping[str, Sequence[Place]], places: Sequence[Place]) -> dict[str, list[Place]]:
    """The shares of members that all want the same (`ConstrainedAssignmentBuilder`)."""
    least, larger = divmod(len(places), len(owned))
    most = least + (larger > 0)
    shares: dict[str, list[Place]] = {}
    below, exact = list[str](), deque[str]()
    for one, has in owned.items():
        if len(has) < least:
            shares[one] = list(has)
            below.append(one)
        elif len(has) >= most and larger:
            shares[one] = list(has[:most])
            larger -= 1
        else:
            shares[one] = list(has[:least])
            exact.append(one)
    taken = {place for share in shares.values() for place in share}
    at = 0
    for place in places:
        if place in taken:
            continue
        if below:
            at %= len(below)
            one = below[at]
            at += 1
            if len(shares[one]) + 1 == least:
                at -= 1
                exact.append(below.pop(at))
        else:
            one = exact.popleft()
        shares[one].append(place)
    return shares


def _balanced_shares(
    owned: Mapping[str, Sequence[Place]], places: Sequence[Place], wanted: Mapping[str, frozenset[str]]
) -> dict[str, list[Place]]:
    """The shares of members that want different topics: as even as their wishes allow, with few moves."""
    shares = {one: list(has) for one, has in owned.items()}
    taken = {place for share in shares.values() for place in share}
    for place in places:
        takers = [one for one, topics in wanted.items() if place[0] in topics]
        if place not in taken and takers:
            shares[min(takers, key=lambda one: len(shares[one]))].append(place)
    moves = True
    while moves:
        moves = False
        for rich in sorted(shares, key=lambda one: -len(shares[one])):
            for place in shares[rich][::-1]:
                poor = min((one for one in shares if place[0] in wanted[one]), key=lambda one: len(shares[one]))
                if len(shares[poor]) + 1 < len(shares[rich]):
                    shares[rich].remove(place)
                    shares[poor].append(place)
                    moves = True
    return shares


ASSIGNORS: Final[Mapping[str, Assignor]] = {
    "range": range_assignment,
    "roundrobin": round_robin_assignment,
    COOPERATIVE: cooperative_assignment,
}


def subscription_bytes(topic: str) -> bytes:
    """Encode a member's subscription to a topic, as JoinGroup carries it."""
    return _head(_VERSION) + encode(ConsumerProtocolSubscription(topics=[topic]), _VERSION)


def cooperative_subscription_bytes(topic: str, owned: Iterable[int], generation: int) -> bytes:
    """The same with the partitions that the member has since a generation, and keeps while it joins."""
    places = [ConsumerProtocolSubscriptionTopicPartition(topic, list(owned))]
    subscription = ConsumerProtocolSubscription(topics=[topic], owned_partitions=places, generation_id=generation)
    return _head(_WITH_OWNED) + encode(subscription, _WITH_OWNED)


def assignment_bytes(partitions: Mapping[str, Sequence[int]]) -> bytes:
    """Encode the partitions that the leader assigns to a member, as SyncGroup carries them."""
    topics = [ConsumerProtocolAssignmentTopicPartition(topic, list(some)) for topic, some in partitions.items()]
    return _head(_VERSION) + encode(ConsumerProtocolAssignment(assigned_partitions=topics), _VERSION)


def _head(version: int) -> bytes:
    return version.to_bytes(_VERSION_BYTES, "big")


def assignment_of(data: bytes) -> dict[str, tuple[int, ...]]:
    """The partitions by topic in the bytes of an assignment; none for damaged bytes."""
    assignment = _decoded(ConsumerProtocolAssignment, data)
    return {} if assignment is None else {one.topic: tuple(one.partitions) for one in assignment.assigned_partitions}


def subscriber_of(member: JoinGroupResponseMember) -> Subscriber:
    """A member as the leader hears of it; one whose bytes are damaged wants nothing."""
    subscription = _decoded(ConsumerProtocolSubscription, member.metadata)
    if subscription is None:
        return Subscriber(member.member_id, member.group_instance_id, ())
    owned = tuple((one.topic, number) for one in subscription.owned_partitions for number in one.partitions)
    return Subscriber(
        member.member_id, member.group_instance_id, tuple(subscription.topics), owned, subscription.generation_id
    )


def _decoded(cls: type[MessageType], data: bytes) -> MessageType | None:
    """Decode the bytes of a member by the version that they begin with; None if they are damaged.

    A newer version is read as the newest known one.
    """
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if len(data) < _VERSION_BYTES or version < 0:
        return None
    try:
        message, _ = decode_from(cls, min(version, schema_of(cls).versions.highest), data, _VERSION_BYTES)
    except DecodeError:
        return None
    return message
