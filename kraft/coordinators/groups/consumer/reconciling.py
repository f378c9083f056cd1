"""How a member comes from what it has to its target (Kafka: `CurrentAssignmentBuilder`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from kraft.access.errors import ApiError
from kraft.coordinators.groups.assignors import PartitionsByTopic
from kraft.coordinators.groups.consumer.group import ConsumerGroup
from kraft.coordinators.groups.consumer.member import NOTHING, Assigned, Member, MemberState, owns_any
from metadata_log.types import Uuid
from transport.protocol.errors import Error


class MemberTarget(Struct, frozen=True):
    """The partitions that a member should have, as of an epoch."""

    epoch: int
    partitions: PartitionsByTopic


def reconciled(
    group: ConsumerGroup,
    member: Member,
    target: MemberTarget,
    topics: frozenset[Uuid],
    owned: PartitionsByTopic | None,
    *,
    wish_changed: bool,
) -> Member:
    """The member after its next step to its target; the same object if there is none.

    Args:
        group: The group, for who holds which partition.
        member: The member, with what it wants now.
        target: Its target.
        topics: The existing topics that it wants.
        owned: What it says that it owns; None if it does not say so.
        wish_changed: Whether it wants other topics than before.
    """
    match member.state:
        case MemberState.UNKNOWN:
            if owned is None or owned:
                raise ApiError(Error.FENCED_MEMBER_EPOCH, "The state of the member is unknown. It must rejoin.")
            return _next(group, member, target, topics, owned, target.epoch)
        case MemberState.STABLE if member.epoch == target.epoch:
            return _trimmed(member, topics, owned) if wish_changed else member
        case MemberState.UNREVOKED_PARTITIONS if owns_any(owned, member.revoking):
            return _trimmed(member, topics, owned) if wish_changed else member
        case _:
            return _next(group, member, target, topics, owned, member.epoch)


def _trimmed(member: Member, topics: frozenset[Uuid], owned: PartitionsByTopic | None) -> Member:
    """The member must give up the topics that it does not want any more, before anything else changes."""
    unwanted = {topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id not in topics}
    if not unwanted:
        return member
    assigned = {topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id in topics}
    revoking = dict(member.revoking)
    for topic_id, epochs in unwanted.items():
        revoking[topic_id] = {**revoking.get(topic_id, {}), **epochs}
    if revoking and owns_any(owned, revoking):
        return _updated(member, MemberState.UNREVOKED_PARTITIONS, member.epoch, assigned, revoking)
    return _updated(member, member.state, member.epoch, assigned, member.revoking)


def _next(
    group: ConsumerGroup,
    member: Member,
    target: MemberTarget,
    topics: frozenset[Uuid],
    owned: PartitionsByTopic | None,
    epoch: int,
) -> Member:
    kept: dict[Uuid, Mapping[int, int]] = {}
    lost: dict[Uuid, Mapping[int, int]] = {}
    gained: dict[Uuid, dict[int, int]] = {}
    waits = False
    # A member may have tens of thousands of topics or partitions.
    for topic_id in dict.fromkeys((*target.partitions, *member.assigned)):
        wanted: Sequence[int] = target.partitions.get(topic_id, ()) if topic_id in topics else ()
        if has := member.assigned.get(topic_id):
            if stays := {number: has[number] for number in wanted if number in has}:
                kept[topic_id] = stays
            if goes := {number: at for number, at in has.items() if number not in stays}:
                lost[topic_id] = goes
            wanted = [number for number in wanted if number not in stays]
        if held := group.held_near(topic_id, wanted) if wanted else None:
            mine = member.revoking.get(topic_id, ())
            free = [number for number in wanted if number not in held or number in mine]
            waits = waits or len(free) < len(wanted)
            wanted = free
        if wanted:
            gained[topic_id] = dict.fromkeys(wanted, target.epoch)
    if lost and owns_any(owned, lost):
        return _updated(member, MemberState.UNREVOKED_PARTITIONS, epoch, kept, lost)
    for topic_id, numbers in gained.items():
        kept[topic_id] = {**kept.get(topic_id, {}), **numbers}
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return _updated(member, state, target.epoch, kept, NOTHING)


def _updated(member: Member, state: MemberState, epoch: int, assigned: Assigned, revoking: Assigned) -> Member:
    return replace(member, state=state, epoch=epoch, previous_epoch=member.epoch, assigned=assigned, revoking=revoking)
