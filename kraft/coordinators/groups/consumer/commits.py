"""The right to commit and fetch offsets of a consumer group (Kafka: `ConsumerGroup.validateOffsetCommit`)."""

from __future__ import annotations

from collections.abc import Callable

from kraft.access.errors import ApiError
from kraft.coordinators.groups.consumer.group import ConsumerGroup
from kraft.coordinators.groups.consumer.member import Member
from metadata_log.types import Uuid
from transport.protocol.errors import Error

CONSUMER_SINCE = 9
"""The version of OffsetCommit since which members of the consumer protocol use it."""
CheckPartition = Callable[[str, Uuid, int], None]
"""Takes the name and the id of a topic, and a partition; raises `ApiError` for one of which the member may not commit,
which refuses the whole request.
"""


def check_commit(
    group: ConsumerGroup, member_id: str, instance_id: str | None, epoch: int, version: int, *, transactional: bool
) -> CheckPartition:
    """Whether a member may commit; returns what checks each partition.

    A member of an older epoch may commit for what it has had since then (KIP-1251).

    Args:
        group: The group.
        member_id: The member; empty for none.
        instance_id: The static instance.
        epoch: The epoch, or the generation of the classic protocol; -1 for none.
        version: The version of OffsetCommit.
        transactional: Whether the request is TxnOffsetCommit.

    Raises:
        ApiError: It may not.
    """
    if epoch < 0 and not group.members:
        return anything
    if transactional and epoch == -1 and not member_id and instance_id is None:
        return anything
    member = group.members.get(member_id)
    if member is None:
        raise ApiError(Error.UNKNOWN_MEMBER_ID)
    if not transactional and member.classic is None and version < CONSUMER_SINCE:
        raise ApiError(Error.UNSUPPORTED_VERSION)
    if epoch == member.epoch:
        return anything
    stale = Error.ILLEGAL_GENERATION if transactional else _stale(member)
    if epoch > member.epoch:
        raise ApiError(stale)
    known = member

    def check(topic: str, topic_id: Uuid, partition: int) -> None:
        since = known.assigned.get(topic_id, {}).get(partition)
        if since is None:
            since = known.revoking.get(topic_id, {}).get(partition)
        if since is None or epoch < since:
            raise ApiError(stale)

    return check


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Refuse a member that fetches offsets with another epoch than its own; raises `ApiError`."""
    if member_id is None and epoch < 0:
        return
    member = group.members.get(member_id or "")
    if member is None:
        raise ApiError(Error.UNKNOWN_MEMBER_ID)
    if epoch != member.epoch:
        raise ApiError(_stale(member))


def anything(topic: str, topic_id: Uuid, partition: int) -> None:
    """Allow every partition."""


def _stale(member: Member) -> Error:
    return Error.STALE_MEMBER_EPOCH if member.classic is None else Error.ILLEGAL_GENERATION
