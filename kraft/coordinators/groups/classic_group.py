"""A classic group while this broker coordinates it (Kafka: `ClassicGroup`, `ClassicGroupMember`).

The log has a group as of the last assignment; everything in between (who has joined, who waits) is here only.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import Enum
from typing import Final

from msgspec import Struct

from kraft.coordinators.runtime.weights import text_bytes
from kraft.limits import SUBSCRIBED_TOPICS
from kraft.wire import WireRequest
from metadata_log.records.consumer_offsets import GroupMetadataValue, MemberMetadata
from transport.protocol.errors import Error

CONSUMER: Final = "consumer"
"""The protocol type of consumers."""
_VERSION_BYTES: Final = 2
_COUNT: Final = struct.Struct(">i")
_SIZE: Final = struct.Struct(">h")
_MEMBER_BYTES: Final = 2000
_PENDING_BYTES: Final = 800
_PROTOCOL_BYTES: Final = 250
_LIVE_BYTES: Final = 1500
"""How much memory a member, an id that was given out, a protocol of a member and a group take besides what the client
has sent.
"""
Protocols = tuple[tuple[str, bytes], ...]
"""The names and the metadata of what a member can do, best first."""


class GroupState(Enum):
    """The states of a classic group, by Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Member(Struct, gc=False):
    """A member. Times are ms."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join: WireRequest | None = None
    """The JoinGroup that waits for the others."""
    sync: WireRequest | None = None
    """The SyncGroup that waits for the leader's."""
    is_new: bool = False
    """Whether the member has not taken part in a generation yet."""

    def metadata(self, protocol: str | None) -> bytes:
        """The metadata that the member sent for a protocol; empty if it did not name the protocol."""
        return next((data for name, data in self.protocols if name == protocol), b"")


class ClassicGroup(Struct, eq=False, gc=False):
    """One group.

    There may be a hundred thousand, and the collector need not look at them: what a group has never refers to it.
    """

    group_id: str
    state_ms: int
    """Since when the group is in its state."""
    state: GroupState = GroupState.EMPTY
    previous: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = {}
    static: dict[str, str] = {}
    """The member id of each instance."""
    pending: dict[str, None] = {}
    """The member ids that were given out, of which nobody has joined yet."""
    unsynced: dict[str, None] = {}
    """The members of which this generation has not seen a SyncGroup."""
    waiting: int = 0
    """How many members wait for the others."""
    weight: int = 0
    """How much memory the members take: clients decide how long everything is."""
    listed: int = 0
    """How many protocols the members name in all."""
    is_extended: bool = False
    """Whether another member has joined since the first rebalance began to wait (`newMemberAdded`)."""
    delay_ms: int = 0
    """How long the first rebalance waits now; 0 for any other rebalance."""
    remaining_ms: int = 0
    """How long it may wait on."""
    _supported: dict[str, int] = {}
    """How many members have each protocol."""
    _subscribed: frozenset[str] | None = None
    _has_looked: bool = False
    """Whether `_subscribed` is that of this generation."""

    @classmethod
    def of(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        """The group as the log has it."""
        group = cls(group_id, value.current_state_timestamp)
        group.state = GroupState.STABLE if value.members else GroupState.EMPTY
        group.previous = group.state
        group.generation = value.generation
        group.protocol_type, group.protocol = value.protocol_type, value.protocol
        for one in value.members:
            rebalance_ms = one.session_timeout if one.rebalance_timeout == -1 else one.rebalance_timeout
            protocols = ((value.protocol or "", one.subscription),)
            member = Member(
                one.member_id,
                one.group_instance_id,
                one.client_id,
                one.client_host,
                rebalance_ms,
                one.session_timeout,
                protocols,
                one.assignment,
            )
            group.add(member, value.protocol_type)
        group.leader = value.leader
        return group

    def recorded(self, assignments: Mapping[str, bytes] | None = None) -> GroupMetadataValue:
        """The value for the log, with other assignments than the present ones if they are given."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=self.state_ms,
            members=tuple(
                MemberMetadata(
                    member_id=one.member_id,
                    group_instance_id=one.instance_id,
                    client_id=one.client_id,
                    client_host=one.client_host,
                    rebalance_timeout=one.rebalance_timeout_ms,
                    session_timeout=one.session_timeout_ms,
                    subscription=one.metadata(self.protocol),
                    assignment=one.assignment if assignments is None else assignments.get(one.member_id, b""),
                )
                for one in self.members.values()
            ),
        )

    def enter(self, state: GroupState, now_ms: int) -> None:
        """Change the state."""
        self.previous, self.state, self.state_ms = self.state, state, now_ms

    @property
    def bytes(self) -> int:
        """How much memory the group takes."""
        return _LIVE_BYTES + text_bytes(self.group_id) + text_bytes(self.protocol_type) + self.weight

    # ---------------------------------------------------------------------------------------------------------- members

    def expect(self, member_id: str) -> None:
        """Note a member id that was given out."""
        self.pending[member_id] = None
        self.weight += _PENDING_BYTES + text_bytes(member_id)

    def forget(self, member_id: str) -> None:
        """A member id that was given out, which may be unknown, is used or not wanted any more."""
        if member_id in self.pending:
            del self.pending[member_id]
            self.weight -= _PENDING_BYTES + text_bytes(member_id)

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member. The first one decides the type of the group, and leads it."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        self._count(member.protocols, 1)
        self.waiting += member.join is not None
        self.weight += _weight(member)
        self.forget(member.member_id)

    def remove(self, member_id: str) -> Member | None:
        """Remove a member, or a member id that was given out. The caller answers the member's waiting requests."""
        self.forget(member_id)
        self.unsynced.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        if member.instance_id is not None:
            self.static.pop(member.instance_id, None)
        self._count(member.protocols, -1)
        self.weight -= _weight(member)
        self.waiting -= member.join is not None
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def replace(self, instance_id: str, member_id: str) -> Member:
        """Let the member of an instance go on under another id (`replaceStaticMember`)."""
        old_id = self.static[instance_id]
        member = self.members[old_id]
        self.weight += text_bytes(member_id) - text_bytes(old_id)
        member.member_id = member_id
        self.members = {one.member_id: one for one in self.members.values()}
        self.static[instance_id] = member_id
        if self.leader == old_id:
            self.leader = member_id
        if self.unsynced.pop(old_id, "") is None:
            self.unsynced[member_id] = None
        return member

    def update(self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        """Take the protocols and time-outs of a member that has joined again."""
        self._count(member.protocols, -1)
        self._count(protocols, 1)
        self.weight += protocol_bytes(protocols) - protocol_bytes(member.protocols)
        member.protocols = protocols
        member.rebalance_timeout_ms, member.session_timeout_ms = rebalance_timeout_ms, session_timeout_ms

    def hold_join(self, member: Member, request: WireRequest | None) -> WireRequest | None:
        """Let a JoinGroup wait, or none; returns the one that waited before."""
        before, member.join = member.join, request
        self.waiting += (request is not None) - (before is not None)
        return before

    def refusal(self, member_id: str, instance_id: str | None) -> Error:
        """Why a member is not the one that it says; NONE if it is (`validateMember`)."""
        if instance_id is not None:
            known = self.static.get(instance_id)
            if known is None:
                return Error.UNKNOWN_MEMBER_ID
            if known != member_id:
                return Error.FENCED_INSTANCE_ID
        return Error.NONE if member_id in self.members else Error.UNKNOWN_MEMBER_ID

    @property
    def have_all_joined(self) -> bool:
        """Whether nobody is waited for."""
        return not self.pending and self.waiting >= len(self.members)

    def rebalance_timeout_ms(self) -> int:
        """How long the slowest member needs."""
        return max((one.rebalance_timeout_ms for one in self.members.values()), default=0)

    def elect_joined(self) -> bool:
        """Let a member lead that has joined; returns whether there is one (`maybeElectNewJoinedLeader`)."""
        leader = self.members.get(self.leader or "")
        if leader is None:
            return False
        if leader.join is None:
            joined = next((one.member_id for one in self.members.values() if one.join is not None), None)
            if joined is None:
                return False
            self.leader = joined
        return True

    def begin_generation(self, now_ms: int) -> None:
        """Begin the next generation, as everybody who is waited for has joined (`initNextGeneration`)."""
        self.generation += 1
        self.unsynced.clear()
        self._has_looked = False
        if self.members:
            self.protocol = self.selected_protocol()
            self.enter(GroupState.COMPLETING, now_ms)
        else:
            self.protocol = None
            self.enter(GroupState.EMPTY, now_ms)

    # -------------------------------------------------------------------------------------------------------- protocols

    def _count(self, protocols: Protocols, by: int) -> None:
        self.listed += by * len(protocols)
        for name in dict.fromkeys(name for name, _ in protocols):
            self._supported[name] = self._supported.get(name, 0) + by
            if not self._supported[name]:
                del self._supported[name]

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols may join."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        count = len(self.members)
        return protocol_type == self.protocol_type and any(self._supported.get(name) == count for name, _ in protocols)

    def selected_protocol(self) -> str:
        """The protocol with the most votes: each member has one for the first of its protocols that all have.

        If several have the same number of votes, Kafka leaves open which it is; here the leader's list decides.
        """
        count = len(self.members)
        leader = self.members.get(self.leader or "") or next(iter(self.members.values()))
        votes = {name: 0 for name, _ in leader.protocols if self._supported[name] == count}
        for one in self.members.values():
            votes[next(name for name, _ in one.protocols if name in votes)] += 1
        return max(votes, key=lambda name: votes[name])

    # ----------------------------------------------------------------------------------------------------- subscription

    def is_subscribed(self, topic: str) -> bool:
        """Whether consumers in the group may read a topic; all of them, if one cannot be understood."""
        if not self._has_looked:
            self._subscribed, self._has_looked = self._subscribed_topics(), True
        return self._subscribed is None or topic in self._subscribed

    def _subscribed_topics(self) -> frozenset[str] | None:
        """The topics of the members (`computeSubscribedTopics`); None if they are not known."""
        subscribed: set[str] = set()
        for one in self.members.values():
            topics = topics_of(one.metadata(self.protocol))
            if topics is None:
                return None
            subscribed.update(topics)
        return frozenset(subscribed)


def _weight(member: Member) -> int:
    """The memory that a member takes, in bytes."""
    texts = text_bytes(member.member_id) + text_bytes(member.instance_id) + text_bytes(member.client_id)
    return _MEMBER_BYTES + texts + protocol_bytes(member.protocols)


def protocol_bytes(protocols: Protocols) -> int:
    """The memory that the protocols of a member take, in bytes."""
    return sum([_PROTOCOL_BYTES + text_bytes(name) + len(data) for name, data in protocols])


def topics_of(subscription: bytes) -> list[str] | None:
    """The topics that the metadata of a consumer names, as every version has them; None if they cannot be read."""
    try:
        (count,) = _COUNT.unpack_from(subscription, _VERSION_BYTES)
        position = _VERSION_BYTES + _COUNT.size
        if not 0 <= count <= SUBSCRIBED_TOPICS:
            return None
        topics: list[str] = []
        for _ in range(count):
            (size,) = _SIZE.unpack_from(subscription, position)
            position += _SIZE.size
            name = subscription[position : position + size]
            if size < 0 or len(name) < size:
                return None
            topics.append(name.decode())
            position += size
    except (struct.error, UnicodeDecodeError):
        return None
    return topics
