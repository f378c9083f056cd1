"""The right to commit and fetch offsets of a streams group (Kafka: `StreamsGroup.validateOffsetCommit`)."""

from __future__ import annotations

from typing import Final

from kraft.access.errors import ApiError
from kraft.coordinators.groups.consumer.commits import CheckPartition, anything
from kraft.coordinators.groups.streams.group import StreamsGroup, source_topics
from metadata_log.types import Uuid
from transport.protocol.errors import Error

STREAMS_SINCE: Final = 9
"""The version of OffsetCommit since which members use it."""


def check_commit(
    group: StreamsGroup, member_id: str, instance_id: str | None, epoch: int, version: int, *, transactional: bool
) -> CheckPartition:
    """Whether a member may commit; returns what checks each partition.

    A member of an older epoch may commit for the tasks that it has had since then.

    Args:
        group: The group.
        member_id: The member; empty for none.
        instance_id: The static instance.
        epoch: The epoch; -1 for none.
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
    if not transactional and version < STREAMS_SINCE:
        raise ApiError(Error.UNSUPPORTED_VERSION)
    if epoch == member.epoch:
        return anything
    stale = ApiError(Error.ILLEGAL_GENERATION if transactional else Error.STALE_MEMBER_EPOCH)
    if epoch > member.epoch or group.topology is None:
        raise stale
    readers = {topic: one.subtopology_id for one in group.topology.subtopologies for topic in source_topics(one)}
    assigned, revoking = member.assigned.active, member.revoking.active

    def check(topic: str, topic_id: Uuid, partition: int) -> None:
        subtopology = readers.get(topic, "")
        since = assigned.get(subtopology, {}).get(partition)
        if since is None:
            since = revoking.get(subtopology, {}).get(partition)
        if since is None or epoch < since:
            raise stale

    return check


def check_fetch(group: StreamsGroup, member_id: str | None, epoch: int) -> None:
    """Refuse a member that fetches offsets with another epoch than its own; raises `ApiError`."""
    if member_id is None and epoch < 0:
        return
    member = group.members.get(member_id or "")
    if member is None:
        raise ApiError(Error.UNKNOWN_MEMBER_ID)
    if epoch != member.epoch:
        raise ApiError(Error.STALE_MEMBER_EPOCH)
