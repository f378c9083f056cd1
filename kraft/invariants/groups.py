"""The invariants of groups and of their committed offsets, whatever happens to their coordinators (Kafka: the promises
of the classic protocol, of KIP-848, and of OffsetCommit).

The caller shows what is committed in `__consumer_offsets`, in the order of the log, and what members were told. The
ledger shares no code with the coordinators: it reads the records by their schemas alone. Each commit carries a mark of
its own as its metadata, made by `mark`, so that the ledger knows who has committed what.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct as Layout
from typing import Final

from msgspec import Struct

from kraft.invariants.cluster_model import PartitionKey
from kraft.invariants.stored_batches import StoredBatch, is_commit
from kraft.invariants.violation import InvariantViolated
from metadata_log.records.batch import scan
from metadata_log.records.consumer_offsets import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from metadata_log.records.coordinator import CONSUMER_OFFSETS, decode_pair
from metadata_log.records.record import records
from metadata_log.serde import Message
from metadata_log.types import Uuid

_INT16: Final = Layout(">h")
_INT32: Final = Layout(">i")
AWAY: Final = -2
"""The epoch of a static member that has left for a while, and keeps its partitions."""
Place = tuple[str, str, int]
"""The group, the topic and the partition of an offset."""
Owned = tuple[Uuid, int]
"""A topic and a partition."""


def mark(member_id: str, epoch: int, number: int) -> str:
    """The metadata of a member's commit, in a generation or a member epoch."""
    return f"{member_id}@{epoch}#{number}"


def committer(text: str) -> tuple[str, int] | None:
    """The member of a mark, with its generation; None for the mark of a transaction."""
    name, _, rest = text.rpartition("@")
    return (name, int(rest.partition("#")[0])) if name else None


def encoded_assignment(places: Mapping[str, Iterable[int]]) -> bytes:
    """An assignment as consumers write it (`ConsumerProtocolAssignment`, version 0)."""
    data = _INT16.pack(0) + _INT32.pack(len(places))
    for topic, numbers in places.items():
        listed = list(numbers)
        data += _INT16.pack(len(topic)) + topic.encode() + _INT32.pack(len(listed))
        data += b"".join(_INT32.pack(one) for one in listed)
    return data + _INT32.pack(-1)


def decoded_assignment(data: bytes) -> list[tuple[str, int]]:
    """The partitions of an assignment by consumers; empty for no bytes."""
    assigned = list[tuple[str, int]]()
    if not data:
        return assigned
    (count,), at = _INT32.unpack_from(data, 2), 6
    for _ in range(count):
        (size,) = _INT16.unpack_from(data, at)
        topic = data[at + 2 : at + 2 + size].decode()
        (numbers,) = _INT32.unpack_from(data, at + 2 + size)
        at += 6 + size
        assigned += [(topic, _INT32.unpack_from(data, at + 4 * one)[0]) for one in range(numbers)]
        at += 4 * numbers
    return assigned


class Committed(Struct, frozen=True):
    """A committed offset: its mark, and the place in the order of all effects on offsets."""

    offset: int
    mark: str
    order: int
    written: int
    """The place of its record in that order; in a transaction the effect comes later."""


class Shared(Struct, frozen=True):
    """A group as of its last record: the partitions that each member has, also those that it has still to give up."""

    word: str
    """The word of its protocol for its number: `generation` or `epoch`."""
    number: int
    owned: dict[str, tuple[int, ...]]
    """The partitions by member; all groups of a run have partitions of one topic."""


class _Classic(Struct):
    """A classic group as of its last record. A static member is the same one under each of its ids."""

    generation: int
    owners: dict[tuple[str, int], str]
    names: dict[str, str]
    """The members by id: a static one is named by its instance."""


class _Former(Struct):
    """A group with members that has ended: it is to go on under the other protocol, in the same batch."""

    epoch: int
    members: dict[str, str]
    """Their names by id."""


def _sorted_numbers(owned: Mapping[str, Iterable[int]]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(sorted(owned[name])) for name in sorted(owned)}


class GroupLedger:
    """The groups in the log, and the answers that members got. Every method raises `InvariantViolated`."""

    def __init__(self) -> None:
        self._lives: dict[str, int] = {}
        """How often each group was forgotten: generations begin anew then."""
        self._owners: dict[tuple[str, int, int, Owned], str] = {}
        """The member that was told to own a partition, by group, life and generation or member epoch."""
        self._classic: dict[str, _Classic] = {}
        self._epochs: dict[str, int] = {}
        self._members: dict[str, dict[str, tuple[int, frozenset[Owned]]]] = {}
        """The epoch and the partitions of each member of a consumer group, also those that it has still to give up."""
        self._told: dict[tuple[str, str], tuple[int, frozenset[Owned]]] = {}
        """The partitions that each member was told last, by group and name, with the generation or member epoch."""
        self._left: dict[str, list[str]] = {}
        """The ids of the members that a batch has removed from each consumer group."""
        self._former: dict[str, _Former] = {}
        """The groups that a batch has ended."""
        self._kept: dict[str, dict[str, frozenset[Owned]]] = {}
        """The partitions that the members of groups own, by id, that a batch has made consumer groups."""
        self.migrations = 0
        """How often a group with members has changed its protocol."""
        self._order = 0
        self._offsets: dict[Place, Committed] = {}
        self._marks: dict[tuple[Place, str], Committed] = {}
        self._pending: dict[tuple[PartitionKey, int], list[tuple[Place, int, str, int]]] = {}
        """The offsets of open transactions by partition and producer, with the order of their records."""
        self._ended: set[tuple[Place, str]] = set()
        """The offsets of transactions that are over, however they have ended."""
        self._acknowledged: dict[Place, int] = {}
        self.may_forget = False
        """Whether offsets that no member wants may be forgotten: somebody deletes them, or they are old."""
        self._forgotten: dict[Place, int] = {}
        """When the offset of a partition was forgotten, in the order of the records."""
        self._wishes: dict[str, dict[str, tuple[frozenset[str], str]]] = {}
        """The topics and the regular expression of each member of a consumer group."""
        self._resolved: dict[str, dict[str, frozenset[str]]] = {}
        """The topics of each regular expression of a group."""
        self.forgotten = 0
        """How many offsets were forgotten."""
        self.assignments = 0
        self.commits = 0
        """How many commits were acknowledged."""
        self.fetches = 0

    # Members are told

    def told(self, group: str, epoch: int, member_id: str, owned: Iterable[Owned]) -> None:
        """A member was told to own partitions in a generation, or at a member epoch. A static member is named by its
        instance.
        """
        self.assignments += 1
        owned = frozenset(owned)
        self._told[group, member_id] = epoch, owned
        for one in owned:
            key = group, self._lives.get(group, 0), epoch, one
            known = self._owners.setdefault(key, member_id)
            if known != member_id:
                raise InvariantViolated(
                    f"partition {one[1]} of {one[0]} has two owners in epoch {epoch} of group {group}: {member_id} was"
                    f" told to own it, and {known} before"
                )

    def epoch_of(self, group: str, member_id: str) -> int:
        """The committed generation or member epoch of a member; 0 for none."""
        classic = self._classic.get(group)
        if classic is not None:
            return classic.generation if member_id in classic.names else 0
        epoch, _ = self._members.get(group, {}).get(member_id, (0, frozenset()))
        return epoch

    def shared(self) -> dict[str, Shared]:
        """The committed state of each group that has members."""
        found = dict[str, Shared]()
        for group, classic in self._classic.items():
            if classic.names:
                owned: dict[str, list[int]] = {name: [] for name in classic.names.values()}
                for (_, number), name in classic.owners.items():
                    owned.setdefault(name, []).append(number)
                found[group] = Shared("generation", classic.generation, _sorted_numbers(owned))
        for group, members in self._members.items():
            if members:
                parts = {name: [number for _, number in places] for name, (_, places) in members.items()}
                found[group] = Shared("epoch", self._epochs.get(group, 0), _sorted_numbers(parts))
        return found

    def accepted(self, group: str, member_id: str, generation: int, present: int) -> None:
        """A classic member was told that it belongs to a generation; `present` is what it was in when it asked."""
        if generation < present:
            raise InvariantViolated(
                f"member {member_id} of group {group} is told that it belongs to generation {generation}, and was in"
                f" {present} before it asked"
            )

    def acknowledged(self, place: Place, its_mark: str) -> None:
        """A member was told that its offset is committed."""
        noted = self._marks.get((place, its_mark))
        if noted is None:
            raise InvariantViolated(
                f"the commit {its_mark} for {place[1]}-{place[2]} of group {place[0]} is acknowledged, and no record of"
                f" it is committed"
            )
        self.commits += 1
        self._acknowledged[place] = max(noted.order, self._acknowledged.get(place, 0))

    def pended(self, key: PartitionKey, producer_id: int, place: Place, its_mark: str) -> None:
        """A producer was told that its offset is part of its transaction."""
        pending = self._pending.get((key, producer_id), ())
        # The answer may come after the marker, also after one that has aborted it.
        if (place, its_mark) not in self._ended and not any((one[0], one[2]) == (place, its_mark) for one in pending):
            raise InvariantViolated(
                f"the offset {its_mark} of a transaction for {place[1]}-{place[2]} of group {place[0]} is acknowledged,"
                f" and no record of it is committed"
            )

    def floor(self) -> dict[Place, int]:
        """The least offsets that a fetch of offsets from now on may return."""
        known = dict(self._acknowledged)
        return known | {one: max(known.get(one, 0), order) for one, order in self._forgotten.items()}

    def fetched(self, place: Place, offset: int, its_mark: str, floor: int) -> None:
        """A member was told the committed offset of a partition; -1 for none."""
        self.fetches += 1
        name = f"{place[1]}-{place[2]} of group {place[0]}"
        if offset < 0:
            if floor > self._forgotten.get(place, 0):
                raise InvariantViolated(f"there is no committed offset for {name}, though one was acknowledged")
            return
        noted = self._marks.get((place, its_mark))
        if noted is None or noted.offset != offset:
            raise InvariantViolated(f"the fetched offset {offset} for {name} is not committed: {its_mark}")
        if noted.order < floor:
            raise InvariantViolated(
                f"the fetched offset {offset} for {name} is older than one that was acknowledged before: {its_mark}"
            )

    def offset_of(self, place: Place) -> int:
        """The committed offset; -1 for none."""
        offset = self._offsets.get(place)
        return -1 if offset is None else offset.offset

    # The log

    def committed(self, key: PartitionKey, batch: StoredBatch) -> None:
        """A batch of `__consumer_offsets` is committed: each partition in the order of its log."""
        if batch.is_control:
            ended = self._pending.pop((key, batch.producer_id), [])
            self._ended.update((place, its_mark) for place, _, its_mark, _ in ended)
            for place, offset, its_mark, order in ended if is_commit(batch) else ():
                known = self._offsets.get(place)
                if known is None or known.written < order:
                    self._order += 1
                    self._effect(place, Committed(offset, its_mark, self._order, order))
            return
        changed = set[str]()
        for raw in scan(batch.content, verify=False):
            for record in records(raw):
                pair = decode_pair(CONSUMER_OFFSETS, record.key or b"", record.value)
                if pair is not None:
                    self._replay(key, batch, pair.key, pair.value, changed)
        for group in changed:
            self._check_members(group)
        for group, former in self._former.items():
            raise InvariantViolated(
                f"group {group} is forgotten, and has the members {', '.join(sorted(former.members))}"
            )
        self._left, self._kept = {}, {}

    def _replay(
        self, key: PartitionKey, batch: StoredBatch, name: Message, value: Message | None, changed: set[str]
    ) -> None:
        match name, value:
            case OffsetCommitKey(group=group, topic=topic, partition=number), OffsetCommitValue():
                self._order += 1
                place = group, topic, number
                if batch.is_transactional:
                    pending = self._pending.setdefault((key, batch.producer_id), [])
                    pending.append((place, value.offset, value.metadata, self._order))
                else:
                    self._checkcommitter(place, value.metadata)
                    self._effect(place, Committed(value.offset, value.metadata, self._order, self._order))
            case OffsetCommitKey(group=group, topic=topic, partition=number), None:
                self._forget((group, topic, number))
            case ConsumerGroupMemberMetadataKey(group_id=group, member_id=member_id), None:
                self._wishes.get(group, {}).pop(member_id, None)
            case (
                ConsumerGroupMemberMetadataKey(group_id=group, member_id=member_id),
                ConsumerGroupMemberMetadataValue(subscribed_topic_names=names, subscribed_topic_regex=regex),
            ):
                self._wishes.setdefault(group, {})[member_id] = frozenset(names), regex or ""
            case ConsumerGroupRegularExpressionKey(group_id=group, regular_expression=regex), None:
                self._resolved.get(group, {}).pop(regex, None)
            case (
                ConsumerGroupRegularExpressionKey(group_id=group, regular_expression=regex),
                ConsumerGroupRegularExpressionValue(topics=names),
            ):
                self._resolved.setdefault(group, {})[regex] = frozenset(names)
            case GroupMetadataKey(group=group), GroupMetadataValue():
                self._check_generation(group, value)
            case GroupMetadataKey(group=group), None:
                known = self._classic.pop(group, None)
                self._ends(group, 0 if known is None else known.generation, {} if known is None else known.names)
            case ConsumerGroupMetadataKey(group_id=group), ConsumerGroupMetadataValue(
                epoch=epoch, metadata_hash=topics
            ):
                former = self._former.pop(group, None)
                if former is not None:
                    self._migrated(group, former, epoch)
                    # A coordinator that does not know the topics yet takes them for deleted ones, as in Kafka.
                    self._kept[group] = self._owned_in(group, former) if topics else {}
                if epoch < self._epochs.get(group, 0):
                    raise InvariantViolated(f"the epoch of group {group} falls from {self._epochs[group]} to {epoch}")
                self._epochs[group] = epoch
            case ConsumerGroupMetadataKey(group_id=group), None:
                member_ids = (*self._left.pop(group, ()), *self._members.pop(group, ()))
                self._ends(group, self._epochs.pop(group, 0), {one: one for one in member_ids})
            case (
                ConsumerGroupCurrentMemberAssignmentKey(group_id=group, member_id=member_id),
                ConsumerGroupCurrentMemberAssignmentValue(),
            ):
                self._replay_member(group, member_id, value)
                changed.add(group)
            case ConsumerGroupCurrentMemberAssignmentKey(group_id=group, member_id=member_id), None:
                if self._members.get(group, {}).pop(member_id, None) is not None:
                    self._left.setdefault(group, []).append(member_id)

    def _forget(self, place: Place) -> None:
        """An offset is gone: no member may want it."""
        group, topic, number = place
        classic, resolved = self._classic.get(group), self._resolved.get(group, {})
        wanted = [
            one
            for one, (names, regex) in self._wishes.get(group, {}).items()
            if topic in names or topic in resolved.get(regex, ())
        ]
        if not self.may_forget or wanted or (classic is not None and classic.names):
            who = "nobody asked" if not self.may_forget else "a member wants it"
            raise InvariantViolated(f"the offset of {topic}-{number} in group {group} is forgotten: {who}")
        self._order += 1
        self.forgotten += 1
        self._forgotten[place] = self._order
        self._offsets.pop(place, None)

    def _ends(self, group: str, epoch: int, members: dict[str, str]) -> None:
        """The records of a group are gone. With members it may only have changed its protocol."""
        if members:
            self._former[group] = _Former(epoch, members)
        else:
            self._lives[group] = self._lives.get(group, 0) + 1

    def _migrated(self, group: str, former: _Former, epoch: int) -> None:
        self.migrations += 1
        if epoch < former.epoch:
            raise InvariantViolated(
                f"the epoch of group {group} falls from {former.epoch} to {epoch} as it changes its protocol"
            )

    def _owned_in(self, group: str, former: _Former) -> dict[str, frozenset[Owned]]:
        """The partitions that each member of a group was told to own in its last generation. A record alone tells
        nobody anything.
        """
        told = {one: self._told.get((group, name), (0, frozenset())) for one, name in former.members.items()}
        return {one: owned for one, (epoch, owned) in told.items() if epoch == former.epoch}

    def _effect(self, place: Place, committed: Committed) -> None:
        before = self._offsets.get(place)
        if before is not None and committed.offset < before.offset:
            raise InvariantViolated(
                f"the committed offset of {place[1]}-{place[2]} in group {place[0]} goes back from {before.offset}"
                f" ({before.mark}) to {committed.offset} ({committed.mark})"
            )
        self._offsets[place] = self._marks[place, committed.mark] = committed

    def _checkcommitter(self, place: Place, its_mark: str) -> None:
        """The member that commits belongs to the group, in its present generation."""
        group, who = place[0], committer(its_mark)
        if who is None:
            return
        member_id, epoch = who
        classic = self._classic.get(group)
        if classic is not None and classic.generation != epoch:
            raise InvariantViolated(
                f"member {member_id} of group {group} commits an offset in generation {epoch}, and the group is in"
                f" generation {classic.generation}"
            )
        if classic is not None and member_id not in classic.names:
            raise InvariantViolated(
                f"{member_id} commits an offset of group {group} in generation {epoch}, which has no such member"
            )
        members = self._members.get(group)
        if members is not None and (member_id not in members or members[member_id][0] < epoch):
            raise InvariantViolated(
                f"member {member_id} commits an offset of group {group} at epoch {epoch}, and the group has it"
                f" {'not' if member_id not in members else f'at epoch {members[member_id][0]}'}"
            )

    def _check_generation(self, group: str, value: GroupMetadataValue) -> None:
        before, former = self._classic.get(group), self._former.pop(group, None)
        if former is not None and value.members:
            self._migrated(group, former, value.generation)
            strange = [one.member_id for one in value.members if one.member_id not in former.members]
            if strange:
                raise InvariantViolated(f"group {group} becomes a classic one with other members: {', '.join(strange)}")
        elif former is not None:
            self._ends(group, 0, {})
        owners: dict[tuple[str, int], str] = {}
        for member in value.members:
            name = member.group_instance_id or member.member_id
            for one in decoded_assignment(member.assignment):
                if owners.setdefault(one, name) != name:
                    raise InvariantViolated(
                        f"{one[0]}-{one[1]} has two owners in generation {value.generation} of group {group}:"
                        f" {owners[one]} and {name}"
                    )
        if before is not None and value.generation < before.generation:
            raise InvariantViolated(
                f"the generation of group {group} falls from {before.generation} to {value.generation}"
            )
        if before is not None and value.generation == before.generation:
            for one, owner in owners.items():
                if before.owners.get(one, owner) != owner:
                    raise InvariantViolated(
                        f"{one[0]}-{one[1]} has another owner in the same generation {value.generation} of group"
                        f" {group}: {owner}, after {before.owners[one]}"
                    )
        names = {one.member_id: one.group_instance_id or one.member_id for one in value.members}
        self._classic[group] = _Classic(value.generation, owners, names)

    def _replay_member(self, group: str, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue) -> None:
        members = self._members.setdefault(group, {})
        before, _ = members.get(member_id, (0, frozenset()))
        if value.member_epoch < before and value.member_epoch != AWAY:
            raise InvariantViolated(
                f"the epoch of member {member_id} of group {group} falls from {before} to {value.member_epoch}"
            )
        owned = frozenset[Owned](
            (one.topic_id, number)
            for listed in (value.assigned_partitions, value.partitions_pending_revocation)
            for one in listed
            for number in one.partitions
        )
        kept = self._kept.get(group, {}).pop(member_id, frozenset())
        if not kept <= owned:
            raise InvariantViolated(
                f"member {member_id} owns {_numbers(owned)} once group {group} is a consumer group, and was told to own"
                f" {_numbers(kept)} before"
            )
        members[member_id] = value.member_epoch, owned

    def _check_members(self, group: str) -> None:
        owners: dict[Owned, str] = {}
        for member_id, (_, owned) in self._members.get(group, {}).items():
            for one in owned:
                other = owners.setdefault(one, member_id)
                if other != member_id:
                    raise InvariantViolated(
                        f"partition {one[1]} of {one[0]} has two owners in the log of group {group}: {other} and"
                        f" {member_id}"
                    )


def _numbers(owned: Iterable[Owned]) -> list[int]:
    """The numbers of partitions, for a reader."""
    return sorted(number for _, number in owned)
